//! Builds programs of the workspace that steps run: integration tests and examples.
//!
//! Cargo selects them by name in the whole workspace. With `--package`, dependencies would get only the features that
//! this package asks for, and would be built a second time beside those of the step `rust`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;
use crate::workspace::Workspace;

/// Builds `package`'s integration test `name` and returns its path.
///
/// # Errors
/// When the build fails, or there is no such test.
pub fn test(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["test", "--workspace", "--no-run", "--test", name], package, name)
}

/// Builds `package`'s example `name` and returns its path.
///
/// # Errors
/// When the build fails, or there is no such example.
pub fn example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["build", "--workspace", "--example", name], package, name)
}

/// Builds every example of `package`, including libraries, and returns their folder.
///
/// # Errors
/// When the build fails.
pub fn examples(workspace: &Workspace, package: &str) -> Result<PathBuf> {
    let metadata = shell::metadata(workspace.root())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.filter(|one| one["name"] == package).filter_map(|one| one["targets"].as_array()).flatten();
    let is_example = |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"example".into()));
    let names: Vec<&str> = targets.filter(is_example).filter_map(|target| target["name"].as_str()).collect();
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--workspace", "--quiet"]).args(names.iter().flat_map(|name| ["--example", name]));
    shell::run(&mut build)?;
    Ok(workspace.target().join("debug").join("examples"))
}

fn program(workspace: &Workspace, arguments: &[&str], package: &str, name: &str) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    let messages = shell::capture_stdout(build.args(arguments).args(["--message-format", "json-render-diagnostics"]))?;
    shell::executable(&messages, package, name)
        .with_context(|| format!("cargo did not build the program `{name}` of package {package}"))
}
