//! The public API of the SDK crates, as lists under docs/api: a change of the API shows up in review.
//!
//! Rustdoc's JSON format changes between releases of Rust. The lists are made with the version that `public-api` reads,
//! which is the workspace's `rust-version`; with any other version the step is skipped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::sdk::{self, SdkCrate};
use crate::shell;
use crate::test::Outcome;
use crate::workspace::{Workspace, folder_name};

/// The format of rustdoc's JSON that this version of `public-api` reads.
const FORMAT: u64 = 57;
const FOLDER: &str = "docs/api";

/// What to do with the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    Check,
    Write,
}

/// Lists the public items of every SDK crate, one per line with its signature.
///
/// # Errors
/// When a crate cannot be documented, or a list is out of date.
pub fn run(workspace: &Workspace, lists: Lists) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the lists are checked only on Linux".into()));
    }
    let crates = sdk::crates(workspace)?;
    let folder = document(workspace, &crates)?;
    let mut stale = Vec::new();
    for one in &crates {
        let json = folder.join(format!("{}.json", one.library));
        let text = fs::read_to_string(&json).with_context(|| format!("cannot read {}", json.display()))?;
        let format = format_of(&text)?;
        if format != FORMAT {
            return Ok(Outcome::Skipped(format!(
                "this rustdoc writes format {format}, but format {FORMAT} is expected"
            )));
        }
        let list = list(&json)?;
        let file = format!("{FOLDER}/{}.txt", folder_name(&one.folder));
        let written = fs::read_to_string(workspace.path(&file)).unwrap_or_default();
        if written == list {
            continue;
        }
        match lists {
            Lists::Check => stale.push(format!("{file}{}", difference(&written, &list))),
            Lists::Write => {
                fs::create_dir_all(workspace.path(FOLDER)).with_context(|| format!("cannot create {FOLDER}"))?;
                fs::write(workspace.path(&file), list).with_context(|| format!("cannot write {file}"))?;
                println!("wrote {file}");
            }
        }
    }
    if !stale.is_empty() {
        bail!(
            "the public API changed\n  {}\n  help: cargo xtask api --write, and review the difference",
            stale.join("\n  ")
        );
    }
    Ok(Outcome::Passed(format!("{} crates", crates.len())))
}

/// Runs rustdoc on the crates and returns the folder of its JSON files.
fn document(workspace: &Workspace, crates: &[SdkCrate]) -> Result<PathBuf> {
    // JSON is an unstable option of rustdoc. Setting RUSTC_BOOTSTRAP for the whole build would build every dependency
    // whose build script looks at it again, now and after the next plain build.
    let wrapper = workspace.target().join("api").join("rustdoc");
    fs::create_dir_all(workspace.target().join("api")).context("cannot create target/api")?;
    fs::write(&wrapper, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")
        .context("cannot write target/api/rustdoc")?;
    make_executable(&wrapper)?;
    let mut cargo = shell::cargo(workspace.root());
    cargo.args(["doc", "--no-deps", "--lib", "--all-features", "--quiet"]).args(sdk::selected(crates));
    cargo.arg("--target-dir").arg(workspace.target()).env("RUSTDOC", wrapper);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    shell::run(&mut cargo)?;
    Ok(workspace.target().join("doc"))
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).context("cannot make target/api/rustdoc executable")
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

fn format_of(json: &str) -> Result<u64> {
    let document: Value = serde_json::from_str(json).context("rustdoc did not write JSON")?;
    document["format_version"].as_u64().context("rustdoc's JSON names no format")
}

/// Without implementations that follow from others, and without the methods of derivable traits: the line of the
/// implementation is enough.
fn list(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .sorted(true)
        .build()
        .with_context(|| format!("cannot list the items of {}", json.display()))?;
    let lines = api.items().map(|item| item.to_string());
    Ok(lines.filter(|line| !is_derivable(line)).map(|line| line + "\n").collect())
}

fn is_derivable(line: &str) -> bool {
    const METHODS: [&str; 7] = [
        "::clone(&self) -> ",
        "::cmp(&self, ",
        "::default() -> ",
        "::eq(&self, ",
        "::fmt(&self, &mut core::fmt::Formatter",
        "::hash<",
        "::partial_cmp(&self, ",
    ];
    line.starts_with("impl core::marker::StructuralPartialEq for ")
        || line.starts_with("pub fn ") && METHODS.iter().any(|method| line.contains(method))
}

/// The first lines that were added or removed, for the message.
fn difference(written: &str, list: &str) -> String {
    const MOST: usize = 20;
    let (old, new): (Vec<&str>, Vec<&str>) = (written.lines().collect(), list.lines().collect());
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("\n    - {line}"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("\n    + {line}"));
    let changes: Vec<String> = removed.chain(added).collect();
    let more = changes.len().saturating_sub(MOST);
    let mut text: String = changes.into_iter().take(MOST).collect();
    if more > 0 {
        text += &format!("\n    and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_implementation_is_listed_and_its_derivable_methods_are_not() {
        assert!(is_derivable("pub fn hip::Device::clone(&self) -> hip::Device"));
        assert!(is_derivable("impl core::marker::StructuralPartialEq for hip::Device"));
        assert!(!is_derivable("impl core::clone::Clone for hip::Device"));
        assert!(!is_derivable("pub fn hip::Device::alloc(&self, usize) -> hip::DeviceBuffer"));
    }

    #[test]
    fn the_message_shows_added_and_removed_lines() {
        assert_eq!(
            difference("pub fn a()\npub fn b()\n", "pub fn a()\npub fn c()\n"),
            "\n    - pub fn b()\n    + pub fn c()"
        );
        let many: String = (0..30).map(|number| format!("pub fn f{number}()\n")).collect();
        assert!(difference("", &many).ends_with("\n    and 10 more"));
    }
}
