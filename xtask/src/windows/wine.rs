//! Wine from Debian's packages, with a Windows folder of its own under `target/windows`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::{self, Apt, Userland};
use crate::workspace::Workspace;
use crate::{output, shell};

/// The first suite whose Wine has all libraries that Rust programs import.
const SUITE: &str = "trixie";
const PACKAGES: [&str; 2] = ["wine64", debian::PATCHELF];

const ZLIB: &str = "zlib1.dll";

/// Runs programs for Windows.
pub struct Wine {
    root: PathBuf,
    program: PathBuf,
    prefix: PathBuf,
}

impl Wine {
    /// Wine, unpacked on first use.
    ///
    /// # Errors
    /// Why it is not available here, in one line.
    pub fn find(workspace: &Workspace) -> Result<Self, String> {
        let folder = workspace.target().join("windows");
        let unpacked = folder.join("wine");
        let root = unpacked.join("root");
        let wine = Self { program: root.join("usr/lib/wine/wine64"), root, prefix: folder.join("prefix") };
        let ready = unpack(&unpacked).and_then(|()| wine.start());
        ready.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
        Ok(wine)
    }

    /// The program that runs Windows programs.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The variables that it needs.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("WINEPREFIX", self.prefix.display().to_string()),
            ("WINELOADER", self.program.display().to_string()),
            ("WINEARCH", "win64".to_owned()),
            ("WINEDEBUG", "-all".to_owned()),
            // Wine would ask to download replacements for .NET and Internet Explorer.
            ("WINEDLLOVERRIDES", "mscoree,mshtml=;winemenubuilder.exe=d".to_owned()),
        ]
    }

    /// Creates the Windows folder on first use.
    fn start(&self) -> Result<()> {
        let complete = self.prefix.join("complete");
        if complete.exists() {
            return Ok(());
        }
        output::say(format_args!("creating a folder for Windows in target/windows/prefix"));
        let _ = fs::remove_dir_all(&self.prefix);
        let system = self.prefix.join("drive_c/windows/system32");
        fs::create_dir_all(&system)?;
        // Debian's Wine needs this library, which is not its own.
        fs::copy(self.root.join("usr/x86_64-w64-mingw32/lib").join(ZLIB), system.join(ZLIB))?;
        let mut first = Command::new(&self.program);
        first.args(["cmd", "/c", "exit"]).envs(self.environment()).env_remove("DISPLAY");
        shell::capture(&mut first).context("Wine could not create its Windows folder")?;
        fs::write(complete, "")?;
        Ok(())
    }
}

fn unpack(folder: &Path) -> Result<()> {
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(());
    }
    let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
    output::say(format_args!("unpacking Debian's Wine into target/windows/wine"));
    let apt = Apt::new(folder, &mirror, &[SUITE])?;
    apt.unpack_with_dependencies(SUITE, &PACKAGES)?;
    let (userland, usr) = (Userland::of(folder), folder.join("root/usr"));
    let programs = usr.join("lib/wine");
    for program in ["wine64", "wineserver64"] {
        userland.relocate(&programs.join(program))?;
    }
    // Debian starts the server with a script that knows only the installed path.
    fs::copy(programs.join("wineserver64"), programs.join("wineserver"))?;
    // The server looks for its tables one folder deeper.
    symlink(".", usr.join("share/wine/wine"))?;
    fs::write(complete, "")?;
    Ok(())
}
