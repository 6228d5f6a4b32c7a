//! clang 19 as a compiler for AMD GPUs: the machine's own, or Debian's, unpacked under `target/`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::debian::{self, Apt};
use crate::workspace::Workspace;
use crate::{output, shell};

const PROGRAM: &str = "clang-19";
const SUITE: &str = "trixie";

/// Held while it is unpacked: two steps that need it may run at the same time.
static UNPACKING: Mutex<()> = Mutex::new(());

/// How clang is called.
pub struct Clang {
    words: Vec<String>,
    version: String,
}

impl Clang {
    /// Finds clang, or fetches it.
    ///
    /// # Errors
    /// Why it cannot be had here.
    pub fn find(workspace: &Workspace) -> Result<Self, String> {
        let words = if shell::succeeds(PROGRAM, &["--version"]) {
            vec![PROGRAM.to_owned()]
        } else {
            unpack(workspace).map_err(|error| format!("{PROGRAM} cannot be had: {error:#}"))?
        };
        let mut ask = Command::new(&words[0]);
        ask.args(&words[1..]).arg("--version");
        let text = shell::capture_stdout(&mut ask).map_err(|error| format!("{PROGRAM} does not start: {error:#}"))?;
        // "Debian clang version 19.1.7 (3~deb12u1)": the release alone, which decides about the code.
        let release = text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("19");
        Ok(Self { words, version: format!("clang {release}") })
    }

    /// What it is called in tables.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The assembly of a kernel text.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn assembly(&self, text: &Path, target: &str) -> Result<String> {
        shell::capture(self.compile(text, target).args(["-S", "-o", "-"]))
    }

    /// Writes the code object of a kernel text, as drivers load it. It takes a linker, `ld.lld`, that clang finds.
    ///
    /// # Errors
    /// What the compiler or the linker says.
    pub fn code(&self, text: &Path, target: &str, to: &Path) -> Result<()> {
        let mut compile = self.compile(text, target);
        // Version 5 is the newest that every runtime of ROCm 6 loads.
        compile.args(["--no-gpu-bundle-output", "-mcode-object-version=5", "-o"]).arg(to);
        shell::capture(&mut compile).map(|_| ())
    }

    fn compile(&self, text: &Path, target: &str) -> Command {
        let mut compile = Command::new(&self.words[0]);
        compile
            .args(&self.words[1..])
            .args(["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-fdeclspec", "-std=c++17"])
            .arg(format!("--offload-arch={target}"))
            .arg(text);
        compile
    }
}

/// Debian's package in a folder, through its own loader. Only clang itself runs: assembly needs no linker.
fn unpack(workspace: &Workspace) -> Result<Vec<String>> {
    let _turn = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = workspace.target().join("rocm").join(PROGRAM);
    let complete = folder.join("complete");
    if !complete.exists() {
        let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
        output::say(format_args!("unpacking {PROGRAM} into target/rocm/{PROGRAM}"));
        Apt::new(&folder, &mirror, &[SUITE])?.unpack_with_dependencies(SUITE, &[PROGRAM])?;
        fs::write(complete, "")?;
    }
    let binary = folder.join("root/usr/lib/llvm-19/bin/clang");
    let folders = [folder.join("root/usr/lib/llvm-19/lib")];
    let mut words = debian::Userland::of(&folder).loader(&folders)?;
    words.push(binary.to_str().context("the folder's name is no text")?.to_owned());
    Ok(words)
}
