//! Keeps paths of the build machine out of shipped files.
//!
//! Panic messages name source files. Those of dependencies are in cargo's home, which is often below a user's home
//! folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

/// Folders of this machine, and the names that replace them in binaries.
pub struct BuildPaths(Vec<(PathBuf, &'static str)>);

impl BuildPaths {
    /// The workspace, cargo's home and the toolchain.
    ///
    /// # Errors
    /// When rustc fails.
    pub fn find(workspace: &Workspace) -> Result<Self> {
        let sysroot = shell::capture(Command::new("rustc").args(["--print", "sysroot"]))?;
        let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home()?.join(".cargo")));
        let mut paths = vec![(workspace.root().to_owned(), "/amdgpu-ep"), (PathBuf::from(sysroot.trim()), "/rust")];
        paths.extend(cargo.map(|cargo| (cargo, "/cargo")));
        Ok(Self(paths))
    }

    /// The compiler flags that replace the paths, in the format of `CARGO_ENCODED_RUSTFLAGS`.
    ///
    /// # Errors
    /// When a path is not UTF-8.
    pub fn encoded_flags(&self) -> Result<String> {
        let flag = |(path, name): &(PathBuf, &str)| {
            let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            Ok(format!("--remap-path-prefix={path}={name}"))
        };
        Ok(self.0.iter().map(flag).collect::<Result<Vec<_>>>()?.join("\x1f"))
    }

    /// Checks that files contain none of these paths, nor the home folder.
    ///
    /// # Errors
    /// Lists the files that do, each with the text around the path.
    pub fn check(&self, files: &[PathBuf]) -> Result<()> {
        let folders: Vec<PathBuf> = self.0.iter().map(|(path, _)| path.clone()).chain(home()).collect();
        let mut faults = Vec::new();
        for file in files {
            let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            faults.extend(
                folders.iter().filter_map(|folder| Some(format!("{}: {}", file.display(), named(&bytes, folder)?))),
            );
        }
        if !faults.is_empty() {
            bail!("shippable files contain paths of this machine\n  {}", faults.join("\n  "));
        }
        Ok(())
    }
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some())
}

/// The first path below `folder` that occurs in `bytes`.
fn named(bytes: &[u8], folder: &Path) -> Option<String> {
    /// Enough of a path to find where it comes from.
    const SHOWN_BYTES: usize = 120;
    let wanted = format!("{}/", folder.display()).into_bytes();
    let at = bytes.windows(wanted.len()).position(|window| window == wanted)?;
    let text: Vec<u8> =
        bytes[at..].iter().copied().take(SHOWN_BYTES).take_while(|byte| byte.is_ascii_graphic()).collect();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_folder_is_found_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (bad, good) = (folder.path().join("bad"), folder.path().join("good"));
        fs::write(&bad, b"\0\x7fELF\0/home/me/work/src/lib.rs\0").unwrap();
        fs::write(&good, b"\0/amdgpu-ep/src/lib.rs\0/home/me/works/x\0").unwrap();
        let paths = BuildPaths(vec![("/home/me/work".into(), "/amdgpu-ep")]);
        paths.check(std::slice::from_ref(&good)).unwrap();
        let told = paths.check(&[good, bad]).unwrap_err().to_string();
        assert!(told.contains("bad: /home/me/work/src/lib.rs") && !told.contains("good: "), "{told}");
    }

    #[test]
    fn this_program_was_built_with_paths_and_flags_name_all_of_them() {
        let paths = BuildPaths::find(&Workspace::locate()).unwrap();
        assert!(paths.check(&[env::current_exe().unwrap()]).is_err(), "builds for development keep their paths");
        let flags = paths.encoded_flags().unwrap();
        assert_eq!(flags.split('\x1f').filter(|flag| flag.starts_with("--remap-path-prefix=/")).count(), 3, "{flags}");
    }
}
