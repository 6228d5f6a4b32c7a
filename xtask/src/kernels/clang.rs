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
const SUITE: &str = "trixie";
/// The packages to unpack: the compiler and its linker.
const PACKAGES: [&str; 2] = [PROGRAM, "lld-19"];
/// The newest version that every ROCm 6 runtime loads.
const CODE_OBJECT_VERSION: &str = "-mcode-object-version=5";

/// Held while unpacking, since two steps that need clang may run at the same time.
static UNPACKING: Mutex<()> = Mutex::new(());

/// How to call clang.
pub struct Clang {
    words: Vec<String>,
    /// How to call the linker, if clang cannot start it itself.
    linker: Option<Vec<String>>,
    version: String,
}

impl Clang {
    /// Finds clang, or downloads it.
    ///
    /// # Errors
    /// Why it is not available here.
    pub fn find(workspace: &Workspace) -> Result<Self, String> {
        let (words, linker) = if shell::succeeds(PROGRAM, &["--version"]) {
            (vec![PROGRAM.to_owned()], None)
        } else {
            let [clang, lld] = unpack(workspace).map_err(|error| format!("{PROGRAM} is not available: {error:#}"))?;
            (clang, Some([lld, ["-flavor", "gnu"].map(str::to_owned).to_vec()].concat()))
        };
        let text = shell::capture_stdout(started(&words).arg("--version"))
            .map_err(|error| format!("{PROGRAM} does not start: {error:#}"))?;
        // "Debian clang version 19.1.7 (3~deb12u1)": only the release number affects the code.
        let release = text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("19");
        Ok(Self { words, linker, version: format!("clang {release}") })
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

    /// Compiles a kernel source to a code object that drivers load. This needs a linker: an installed clang looks for
    /// `ld.lld`.
    ///
    /// # Errors
    /// The message of the compiler or the linker.
    pub fn code(&self, text: &Path, target: &str, to: &Path) -> Result<()> {
        let Some(linker) = &self.linker else {
            let mut compile = self.compile(text, target);
            return run_quietly(compile.args(["--no-gpu-bundle-output", CODE_OBJECT_VERSION, "-o"]).arg(to));
        };
        // clang cannot start subprocesses when the folder's loader started it, so compile, assemble and link
        // separately.
        let (assembly, object) = (to.with_extension("s"), to.with_extension("o"));
        run_quietly(self.compile(text, target).args([CODE_OBJECT_VERSION, "-S", "-o"]).arg(&assembly))?;
        let mut assemble = started(&self.words);
        assemble.args(["--target=amdgcn-amd-amdhsa", CODE_OBJECT_VERSION, "-c"]).arg(format!("-mcpu={target}"));
        run_quietly(assemble.arg(&assembly).arg("-o").arg(&object))?;
        run_quietly(started(linker).args(["-shared", "--no-undefined", "-o"]).arg(to).arg(&object))
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

fn run_quietly(command: &mut Command) -> Result<()> {
    shell::capture(command).map(drop)
}

/// The command lines of Debian's clang and lld, each started by the loader in the unpacked folder.
fn unpack(workspace: &Workspace) -> Result<[Vec<String>; 2]> {
    let _turn = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = workspace.target().join("rocm").join(PROGRAM);
    let (complete, named) = (folder.join("complete"), PACKAGES.join(" "));
    if fs::read_to_string(&complete).ok().as_ref() != Some(&named) {
        let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
        output::say(format_args!("unpacking {} into target/rocm/{PROGRAM}", PACKAGES.join(" and ")));
        Apt::new(&folder, &mirror, &[SUITE])?.unpack_with_dependencies(SUITE, &PACKAGES)?;
        fs::write(complete, named)?;
    }
    let folders = [folder.join("root/usr/lib/llvm-19/lib")];
    let loader = debian::Userland::of(&folder).loader(&folders)?;
    let program = |name: &str| -> Result<Vec<String>> {
        let binary = folder.join("root/usr/lib/llvm-19/bin").join(name);
        let binary = binary.to_str().context("the folder's name is not valid UTF-8")?.to_owned();
        Ok([&loader[..], &[binary]].concat())
    };
    Ok([program("clang")?, program("lld")?])
}
