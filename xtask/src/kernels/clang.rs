//! clang 19 as a compiler for AMD GPUs: the installed one, or Debian's, unpacked under `target/`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::debian::{self, Apt};
use crate::workspace::Workspace;
use crate::{output, shell};

const PROGRAM: &str = "clang-19";
/// The compiler, and the linker that the tests of `gfx-emu` make code objects with.
const PACKAGES: [&str; 2] = [PROGRAM, "lld-19"];
const SUITE: &str = "trixie";

/// Held while unpacking, since two steps that need clang may run at the same time.
static UNPACKING: Mutex<()> = Mutex::new(());

/// How to call clang.
pub struct Clang {
    words: Vec<String>,
    version: String,
}

impl Clang {
    /// Finds clang, or downloads it.
    ///
    /// # Errors
    /// Why it is not available here.
    pub fn find(workspace: &Workspace) -> Result<Self, String> {
        let words = if shell::succeeds(PROGRAM, &["--version"]) {
            vec![PROGRAM.to_owned()]
        } else {
            unpack(workspace).map_err(|error| format!("{PROGRAM} is not available: {error:#}"))?
        };
        let text = shell::capture_stdout(started(&words).arg("--version"))
            .map_err(|error| format!("{PROGRAM} does not start: {error:#}"))?;
        // "Debian clang version 19.1.7 (3~deb12u1)": only the release number affects the code.
        let release = text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("19");
        Ok(Self { words, version: format!("clang {release}") })
    }

    /// The compiler's name in tables.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Compiles a kernel source to assembly.
    ///
    /// # Errors
    /// The compiler's message.
    pub fn assembly(&self, text: &Path, target: &str) -> Result<String> {
        shell::capture(self.compile(text, target).args(["-S", "-o", "-"]))
    }

    fn compile(&self, text: &Path, target: &str) -> Command {
        let mut compile = started(&self.words);
        compile
            .args(["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-fdeclspec", "-std=c++17"])
            .arg(format!("--offload-arch={target}"))
            .arg(text);
        compile
    }
}

fn started(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The command line of Debian's clang, started by the loader in the unpacked folder.
fn unpack(workspace: &Workspace) -> Result<Vec<String>> {
    let _turn = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = workspace.target().join("rocm").join(PROGRAM);
    let complete = folder.join("complete");
    let packages = PACKAGES.join(" ");
    if fs::read_to_string(&complete).ok().as_deref() != Some(&packages) {
        let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
        output::say(format_args!("unpacking {packages} into target/rocm/{PROGRAM}"));
        Apt::new(&folder, &mirror, &[SUITE])?.unpack_with_dependencies(SUITE, &PACKAGES)?;
        fs::write(complete, packages)?;
    }
    let loader = debian::Userland::of(&folder).loader(&[folder.join("root/usr/lib/llvm-19/lib")])?;
    let binary = folder.join("root/usr/lib/llvm-19/bin/clang");
    let binary = binary.to_str().context("the folder's name is not valid UTF-8")?.to_owned();
    Ok([&loader[..], &[binary]].concat())
}
