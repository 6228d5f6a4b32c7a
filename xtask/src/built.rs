//! Programs of the workspace that steps run: integration tests and examples.
//!
//! Cargo is told to choose them by name in the whole workspace. With `--package`, dependencies would have the features that
//! this package alone asks for, and be built a second time beside those of the step `rust`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::shell;
use crate::workspace::Workspace;

/// The program of `package`'s integration test `name`.
///
/// # Errors
/// When the build fails, or there is no such test.
pub fn test(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["test", "--workspace", "--no-run", "--test", name], package, name)
}

/// The program of `package`'s example `name`.
///
/// # Errors
/// When the build fails, or there is no such example.
pub fn example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["build", "--workspace", "--example", name], package, name)
}

/// The folder with every example of `package`, libraries too.
///
/// # Errors
/// When the build fails.
pub fn examples(workspace: &Workspace, package: &str) -> Result<PathBuf> {
    let sources = workspace.path("crates").join(package).join("examples");
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--workspace", "--quiet"]);
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))? {
        if let Some(name) = entry?.path().file_stem() {
            build.arg("--example").arg(name);
        }
    }
    shell::run(&mut build)?;
    Ok(workspace.target().join("debug").join("examples"))
}

fn program(workspace: &Workspace, arguments: &[&str], package: &str, name: &str) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    let messages = shell::capture_stdout(build.args(arguments).args(["--message-format", "json-render-diagnostics"]))?;
    shell::executable(&messages, package, name)
        .with_context(|| format!("cargo built no program `{name}` of package {package}"))
}
