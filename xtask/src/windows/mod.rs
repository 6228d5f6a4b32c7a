//! Builds the libraries, the command and the wheel for Windows, and tests them under Wine in Windows' ONNX Runtime.
//!
//! Neither the compiler nor Wine has to be installed: both come from Debian's packages, unpacked under
//! `target/windows`. Without them, the rest is skipped with a reason.

mod compiler;
mod suites;
mod wine;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::backends::Backends;
use crate::build_paths::BuildPaths;
use crate::platform::Platform;
use crate::stage::{self, Stage};
use crate::test::{Context, Outcome};
use crate::{pytest, setup, wheel};

use compiler::Compiler;
pub use compiler::TARGET;
use wine::Wine;

/// Libraries of Windows that ours may need. A library of MinGW would be missing on other machines.
const SYSTEM_LIBRARIES: [&str; 14] = [
    "advapi32.dll",
    "bcrypt.dll",
    "bcryptprimitives.dll",
    "crypt32.dll",
    "gdi32.dll",
    "kernel32.dll",
    "msvcrt.dll",
    "ntdll.dll",
    "ole32.dll",
    "secur32.dll",
    "shell32.dll",
    "user32.dll",
    "userenv.dll",
    "ws2_32.dll",
];

/// The start of the names of Windows' API sets.
const API_SETS: &str = "api-ms-win-";

/// What is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For tests: quickly, under `target/windows/stage`.
    Dev,
    /// For users: with optimisations, in `dist/windows`.
    Dist,
}

impl Build {
    pub fn from_dev_flag(dev: bool) -> Self {
        if dev { Self::Dev } else { Self::Dist }
    }
}

/// Builds everything, and runs the tests.
///
/// # Errors
/// When the build or a test fails. A missing compiler or Wine is a skip.
pub fn run(context: &Context<'_>, build: Build) -> Result<Outcome> {
    let workspace = context.workspace;
    let compiler = match Compiler::find(workspace) {
        Ok(compiler) => compiler,
        Err(reason) => return Ok(Outcome::Skipped(format!("no compiler for {TARGET}: {reason}"))),
    };
    let python = context.python()?;
    let stage = stage(context, &compiler, build)?;
    let wheel = wheel::pack(workspace, &python.interpreter, &stage, &stage.root.join("wheels"))?;
    let built = format!("built {}", workspace.relative(&wheel));
    let wine = match Wine::find(workspace) {
        Ok(wine) => wine,
        Err(reason) => return Ok(Outcome::Skipped(format!("{built}, but did not run it: no Wine: {reason}"))),
    };
    let runtime = setup::windows_runtime(workspace, python)?;
    let sessions = match sessions(context, &stage, &wine, &runtime, &wheel)? {
        Outcome::Passed(note) => note,
        skipped => return Ok(skipped),
    };
    let suites = suites::run(workspace, &compiler, &wine)?;
    Ok(Outcome::Passed(format!("{built}; in Windows' ONNX Runtime under Wine: {sessions}; tests in Rust: {suites}")))
}

/// Builds the products and checks what they import.
fn stage(context: &Context<'_>, compiler: &Compiler, build: Build) -> Result<Stage> {
    let workspace = context.workspace;
    let mut cargo = compiler.cargo(workspace.root(), "build")?;
    let root = match build {
        Build::Dev => workspace.target().join("windows/stage"),
        Build::Dist => {
            let paths = BuildPaths::find(workspace)?;
            cargo.args(["--profile", "dist"]).env("CARGO_ENCODED_RUSTFLAGS", paths.encoded_flags()?);
            // The standard library that we build has no bitcode to optimise across crates.
            cargo.env("CARGO_PROFILE_DIST_LTO", "off");
            workspace.path("dist/windows")
        }
    };
    let stage = stage::run_build(&mut cargo, &Backends::all_of(Platform::Windows), Platform::Windows, root)?;
    for file in stage.libraries().into_iter().chain([stage.command()]) {
        let foreign = foreign_imports(&compiler.headers(&file)?);
        if !foreign.is_empty() {
            bail!("{} needs {}, which Windows does not have", workspace.relative(&file), foreign.join(", "));
        }
    }
    Ok(stage)
}

/// The libraries in a file's headers, as MinGW's objdump prints them, that do not come with Windows.
fn foreign_imports(headers: &str) -> Vec<String> {
    let imported = headers.lines().filter_map(|line| line.trim().strip_prefix("DLL Name: "));
    let names = imported.map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !SYSTEM_LIBRARIES.contains(&name.as_str()) && !name.starts_with(API_SETS)).collect()
}

/// Runs models, conversations and the server with the staged files, with the program apart from the libraries.
fn sessions(context: &Context<'_>, stage: &Stage, wine: &Wine, runtime: &Path, wheel: &Path) -> Result<Outcome> {
    pytest::run(context.workspace, context.python()?, "windows", |pytest| {
        pytest.arg("tests/windows").envs(wine.environment()).env_remove("DISPLAY");
        pytest.env("AMDGPU_EP_WINE", wine.program()).env("AMDGPU_EP_WINDOWS_STAGE", &stage.root);
        pytest.env("AMDGPU_EP_WINDOWS_ORT", runtime).env("AMDGPU_EP_WHEEL", wheel);
    })
    .context("a test under Wine failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_windows_does_not_have_are_named() {
        let headers = "\tDLL Name: KERNEL32.dll\n\tvma: Hint\n\tDLL Name: libgcc_s_seh-1.dll\n\
                       \tDLL Name: api-ms-win-core-synch-l1-2-0.dll\n";
        assert_eq!(foreign_imports(headers), ["libgcc_s_seh-1.dll"]);
    }
}
