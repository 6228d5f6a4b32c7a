//! `amdgpu-ep cache`: shows the caches on disk, or clears them.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use disk_cache::{CachedFile, Cleared, FileLeft, KINDS};
use indicatif::{HumanBytes, HumanDuration};
use serde::Serialize;

use crate::report;
use crate::table;
use crate::terminal::note;

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The user was asked, and declined; or not every file could be removed.
const NOT_REMOVED: u8 = 1;

/// The arguments of `cache`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Cache folder [default: AMDGPU_EP_CACHE_DIR, or amdgpu-ep in the user's cache folder]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Show the number and size of files in each cache (the default)
    Size,
    /// Show every file
    List,
    /// Remove all files; they are created again when needed
    Clear {
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// The complete report.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    schema: u32,
    /// The cache folder.
    path: String,
    /// The environment variable that named it.
    from: Option<&'static str>,
    caches: Vec<Cache>,
    files: usize,
    bytes: u64,
    /// Whether the files were removed.
    removed: bool,
    /// The files that could not be removed.
    left: Vec<Left>,
    /// Every file, if requested.
    entries: Option<Vec<Entry>>,
}

/// What to do about files that could not be removed.
const HELP: &str = if cfg!(windows) { "end the programs that use it" } else { "check the permissions of its folder" };

/// A file that could not be removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Left {
    file: String,
    reason: String,
}

/// The files of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Cache {
    cache: &'static str,
    folder: &'static str,
    files: usize,
    bytes: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Entry {
    cache: &'static str,
    file: String,
    bytes: u64,
    unused_seconds: u64,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When no folder is known, or it cannot be read or cleared.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    let (root, from) = match &arguments.dir {
        Some(folder) => (folder.clone(), None),
        None => {
            let (root, from) = disk_cache::root(|name| std::env::var_os(name))
                .context("the cache folder is unknown\n  help: name one with --dir, or set AMDGPU_EP_CACHE_DIR")?;
            (root, Some(from))
        }
    };
    let mut report = examine(&root, from, matches!(arguments.action, Some(Action::List)))?;
    if let Some(Action::Clear { yes }) = arguments.action {
        if report.files > 0 && !yes && !agreed(&report)? {
            return Ok((NOT_REMOVED, String::new()));
        }
        let Cleared { files, bytes, left } = disk_cache::clear(&root)?;
        (report.files, report.bytes, report.removed) = (files, bytes, true);
        report.left = left.into_iter().map(described).collect();
    }
    for Left { file, reason } in &report.left {
        note("warning", &format!("{file} could not be removed: {reason}\n  help: {HELP}"));
    }
    let code = if report.left.is_empty() { 0 } else { NOT_REMOVED };
    Ok((code, report::written(&report, arguments.json, text)?))
}

fn examine(root: &Path, from: Option<&'static str>, lists: bool) -> Result<Report> {
    let files = disk_cache::list(root)?;
    let caches = KINDS.iter().map(|kind| {
        let sizes = || files.iter().filter(|file| file.kind == *kind).map(|file| file.entry.bytes);
        Cache { cache: kind.what, folder: kind.folder, files: sizes().count(), bytes: sizes().sum() }
    });
    Ok(Report {
        schema: SCHEMA,
        path: root.display().to_string(),
        from,
        caches: caches.collect(),
        files: files.len(),
        bytes: files.iter().map(|file| file.entry.bytes).sum(),
        removed: false,
        left: Vec::new(),
        entries: lists.then(|| files.iter().map(entry).collect()),
    })
}

fn entry(file: &CachedFile) -> Entry {
    // A timestamp in the future counts as just now.
    let unused = SystemTime::now().duration_since(file.entry.used).unwrap_or_default();
    Entry {
        cache: file.kind.what,
        file: file.path.display().to_string(),
        bytes: file.entry.bytes,
        unused_seconds: unused.as_secs(),
    }
}

fn described(left: FileLeft) -> Left {
    Left { file: left.path.display().to_string(), reason: left.reason.to_string() }
}

/// Asks the user on a terminal.
fn agreed(report: &Report) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("cannot ask for confirmation to remove {}\n  help: add --yes", total(report));
    }
    let mut answer = String::new();
    write!(io::stderr(), "Remove {} below {}? [y/N] ", total(report), report.path)
        .and_then(|()| io::stderr().flush())
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .context("could not ask for confirmation")?;
    let agreed = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !agreed {
        // If stderr is closed, there is no one to tell.
        let _ = writeln!(io::stderr(), "note: nothing was removed");
    }
    Ok(agreed)
}

fn total(report: &Report) -> String {
    let plural = if report.files == 1 { "" } else { "s" };
    format!("{} file{plural}, {}", report.files, HumanBytes(report.bytes))
}

fn text(report: &Report) -> String {
    let mut out = match report.from {
        Some(variable) => format!("{} (from {variable})\n", report.path),
        None => format!("{}\n", report.path),
    };
    if report.removed {
        out += &format!("removed {}\n", total(report));
        return out;
    }
    match &report.entries {
        None => {
            let rows = report.caches.iter().map(|cache| {
                let (files, size) = (cache.files.to_string(), HumanBytes(cache.bytes).to_string());
                [cache.cache.to_owned(), cache.folder.to_owned(), files, size]
            });
            out += &format!("\n{}", table::text(["cache", "folder", "files", "size"], rows.collect()));
        }
        Some(entries) if entries.is_empty() => {}
        Some(entries) => {
            let rows = entries.iter().map(|entry| {
                let unused = HumanDuration(std::time::Duration::from_secs(entry.unused_seconds));
                let file = Path::new(&entry.file).strip_prefix(&report.path).unwrap_or(Path::new(&entry.file));
                let (file, size) = (file.display().to_string(), HumanBytes(entry.bytes).to_string());
                [file, entry.cache.to_owned(), size, format!("{unused} ago")]
            });
            out += &format!("\n{}", table::text(["file", "cache", "size", "last used"], rows.collect()));
        }
    }
    out + &format!("\n{}\n", total(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = include_str!("../../../docs/cli.md");
        let folder = tempfile::tempdir().unwrap();
        let mut report = examine(folder.path(), Some("HOME"), true).unwrap();
        let file = Entry { cache: "compiled kernels", file: "x.co".into(), bytes: 1, unused_seconds: 1 };
        report.entries = Some(vec![file]);
        report.left = vec![Left { file: "x.co".into(), reason: "it is locked".into() }];
        let document = serde_json::to_value(&report).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for key in
            [keys(&document), keys(&document["caches"][0]), keys(&document["entries"][0]), keys(&document["left"][0])]
                .concat()
        {
            assert!(manual.contains(&format!("`{key}`")), "{key}");
        }
    }
}
