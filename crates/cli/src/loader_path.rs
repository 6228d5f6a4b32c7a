//! Keeps the current folder out of the loader's search path.
//!
//! On Linux, the loader treats an empty entry of `LD_LIBRARY_PATH` as the current folder, and
//! `LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH` creates one if the variable was not set. The current folder may be a download
//! folder, so libraries in it must never be loaded. The loader reads the variable once, at process start, so the
//! command re-executes itself with a clean variable.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const VARIABLE: &str = "LD_LIBRARY_PATH";

/// Re-executes this command if the loader searches the current folder; otherwise returns.
///
/// # Errors
/// When the command cannot be re-executed.
pub fn leave_out_current_folder() -> Result<()> {
    let Some(Cleaned { kept, relative }) = std::env::var_os(VARIABLE).as_deref().and_then(clean) else {
        return Ok(());
    };
    let executable = std::env::current_exe().context("the path of this executable could not be found")?;
    // When started as `ld-linux-x86-64.so.2 --library-path ... amdgpu-ep`, the loader does not read the variable.
    if executable.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-")) {
        return Ok(());
    }
    for entry in relative {
        // If stderr is closed, there is no one to tell.
        let _ = writeln!(
            io::stderr(),
            "note: {VARIABLE} has the relative path {:?}, which is ignored\n  help: use an absolute path",
            Path::new(&entry).display()
        );
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new(executable);
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    match kept {
        Some(kept) => command.env(VARIABLE, kept),
        None => command.env_remove(VARIABLE),
    };
    // Returns only on failure.
    Err(command.exec()).context("this command could not be started again with a clean LD_LIBRARY_PATH")
}

/// A search path without entries that depend on the current folder.
#[derive(Debug, PartialEq, Eq)]
struct Cleaned {
    /// The remaining entries, if any.
    kept: Option<OsString>,
    /// The relative paths that were removed. Empty entries are rarely intended and are not reported.
    relative: Vec<OsString>,
}

/// `None` if no entry depends on the current folder.
fn clean(list: &OsStr) -> Option<Cleaned> {
    let entries = || list.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    // `$ORIGIN` and the like stand for absolute paths.
    let is_absolute = |entry: &&[u8]| entry.starts_with(b"/") || entry.starts_with(b"$");
    // The loader ignores an empty variable.
    if list.is_empty() || entries().all(|entry| is_absolute(&entry)) {
        return None;
    }
    let kept = entries().filter(is_absolute).collect::<Vec<_>>().join(&b':');
    let relative = entries().filter(|entry| !entry.is_empty() && !is_absolute(entry));
    Some(Cleaned {
        kept: (!kept.is_empty()).then(|| OsString::from_vec(kept)),
        relative: relative.map(|entry| OsStr::from_bytes(entry).to_owned()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_current_folder_are_removed() {
        let cleaned = |kept: &str, relative: &[&str]| {
            Some(Cleaned {
                kept: (!kept.is_empty()).then(|| kept.into()),
                relative: relative.iter().map(OsString::from).collect(),
            })
        };
        for (list, want) in [
            ("", None),
            ("/a", None),
            ("/a:/b;$ORIGIN/../lib", None),
            (":", cleaned("", &[])),
            ("/a:", cleaned("/a", &[])),
            (":/a::/b;", cleaned("/a:/b", &[])),
            ("/a:.:lib", cleaned("/a", &[".", "lib"])),
        ] {
            assert_eq!(clean(OsStr::new(list)), want, "{list:?}");
        }
    }

    #[test]
    fn a_cleaned_list_is_clean() {
        let cleaned = clean(OsStr::new("x:/a::/b;")).unwrap();
        assert_eq!(clean(&cleaned.kept.unwrap()), None);
    }
}
