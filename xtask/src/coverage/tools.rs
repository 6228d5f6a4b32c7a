//! The instrumented build: cargo-llvm-cov, the LLVM tools of the toolchain, and a separate target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{output, shell};

const TOOL: &str = "cargo-llvm-cov";
const TOOL_VERSION: &str = "0.9.1";

/// The environment variable that tells instrumented programs where to write their profiles.
const PROFILE: &str = "LLVM_PROFILE_FILE";

pub struct Instrumented<'a> {
    workspace: &'a Workspace,
    tool: PathBuf,
    environment: Vec<(String, String)>,
}

impl<'a> Instrumented<'a> {
    /// Installs missing tools.
    ///
    /// # Errors
    /// Why the tools are not available here.
    pub fn new(workspace: &'a Workspace) -> Result<Self> {
        llvm_tools()?;
        let mut build = Self { workspace, tool: tool(workspace)?, environment: settings(workspace) };
        let text = shell::capture(build.tool().arg("show-env"))?;
        build.environment.extend(assignments(&text).map(|(name, value)| (name, merged(value))));
        if !build.environment.iter().any(|(name, _)| name == PROFILE) {
            bail!("`{TOOL} show-env` does not name {PROFILE}");
        }
        Ok(build)
    }

    /// The build folder. It is separate so that the regular build stays valid.
    pub fn folder(&self) -> PathBuf {
        folder(self.workspace)
    }

    /// A cargo command that builds instrumented programs.
    pub fn cargo(&self) -> Command {
        let mut cargo = shell::cargo(self.workspace.root());
        cargo.envs(self.environment.iter().map(|(name, value)| (name, value)));
        cargo
    }

    /// The environment variables that programs of the build need at run time.
    pub fn at_run_time(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().filter(|(name, _)| name == PROFILE).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Removes the profiles of earlier runs.
    ///
    /// # Errors
    /// When they cannot be removed.
    pub fn forget_runs(&self) -> Result<()> {
        shell::run(self.tool().args(["clean", "--profraw-only"]))
    }

    /// The coverage of all runs in lcov format.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn report(&self) -> Result<String> {
        let file = self.folder().join("lcov.info");
        // A killed process may have left a truncated profile, so only fail if all profiles are bad.
        shell::run(self.tool().args(["report", "--failure-mode", "all", "--lcov", "--output-path"]).arg(&file))?;
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    fn tool(&self) -> Command {
        let mut tool = Command::new(&self.tool);
        tool.arg("llvm-cov").current_dir(self.workspace.root());
        tool.envs(self.environment.iter().map(|(name, value)| (name, value)));
        tool
    }
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("coverage")
}

fn settings(workspace: &Workspace) -> Vec<(String, String)> {
    let folder = folder(workspace).display().to_string();
    // Line counts need neither debug information nor incremental builds, which would be most of the folder's size.
    let settings =
        [("CARGO_TARGET_DIR", folder.as_str()), ("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_INCREMENTAL", "0")];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Makes the processes of a program share one profile, instead of thousands of processes writing one each.
fn merged(profile: String) -> String {
    profile.replace("%p-", "")
}

/// The `NAME=VALUE` lines of a text; values may be in single quotes.
fn assignments(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
        Some((name.to_owned(), value.to_owned()))
    })
}

fn tool(workspace: &Workspace) -> Result<PathBuf> {
    if shell::succeeds(TOOL, &["llvm-cov", "--version"]) {
        return Ok(TOOL.into());
    }
    let tools = workspace.target().join("tools");
    let tool = tools.join("bin").join(TOOL);
    if !shell::succeeds(&tool, &["llvm-cov", "--version"]) {
        output::say(format_args!("installing {TOOL} {TOOL_VERSION} in {}", workspace.relative(&tools)));
        let mut install = shell::cargo(workspace.root());
        install.args(["install", "--quiet", "--locked", TOOL, "--version", TOOL_VERSION, "--root"]).arg(&tools);
        install.arg("--target-dir").arg(tools.join("build"));
        shell::capture(&mut install).with_context(|| format!("{TOOL} cannot be installed (cargo install {TOOL})"))?;
        let _ = fs::remove_dir_all(tools.join("build"));
    }
    Ok(tool)
}

/// The tools must match the compiler's version: the profile format changes with LLVM.
fn llvm_tools() -> Result<()> {
    if ["LLVM_COV", "LLVM_PROFDATA"].iter().all(|name| std::env::var_os(name).is_some()) || are_beside_the_compiler()? {
        return Ok(());
    }
    output::say("adding llvm-tools to the toolchain");
    let added = shell::capture(Command::new("rustup").args(["component", "add", "llvm-tools"]));
    if added.is_err() || !are_beside_the_compiler()? {
        bail!(
            "llvm-cov and llvm-profdata of the compiler's LLVM are missing (rustup component add llvm-tools, or set LLVM_COV and \
             LLVM_PROFDATA)"
        );
    }
    Ok(())
}

fn are_beside_the_compiler() -> Result<bool> {
    let rustc = || Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let folder = shell::capture(rustc().args(["--print", "target-libdir"]))?;
    let folder = Path::new(folder.trim()).parent().map(|folder| folder.join("bin")).unwrap_or_default();
    let file = |name: &str| folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    Ok(["llvm-cov", "llvm-profdata"].iter().all(|name| file(name).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_read_with_and_without_quotes() {
        let text = "LLVM_PROFILE_FILE='/t/x-%p-%2m.profraw'\nRUSTC_WRAPPER=/bin/tool\nnothing\nA='b=c'\n";
        let read: Vec<_> = assignments(text).collect();
        let want = [("LLVM_PROFILE_FILE", "/t/x-%p-%2m.profraw"), ("RUSTC_WRAPPER", "/bin/tool"), ("A", "b=c")];
        assert_eq!(read, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(merged(read[0].1.clone()), "/t/x-%2m.profraw");
    }
}
