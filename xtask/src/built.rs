//! Builds programs of the workspace that steps run: integration tests and examples.
//!
//! Cargo selects them by name among [`CRATES`]. With `--package`, dependencies would get only the features that this
//! package asks for, and would be built a second time beside those of the step `rust`.

use std::env::consts::DLL_EXTENSION;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{shell, stage};

/// Selects all packages but `xtask`, for tests, examples and what steps run. Together with `xtask`, which enables more
/// features of serde_json, most crates would be built a second time beside the staged ones.
pub const CRATES: [&str; 3] = ["--workspace", "--exclude", "xtask"];

/// Builds `package`'s integration test `name` and returns its path.
///
/// # Errors
/// When the build fails, or there is no such test.
pub fn test(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["test", "--no-run", "--test", name], package, name)
}

/// Builds `package`'s example `name` and returns its path.
///
/// # Errors
/// When the build fails, or there is no such example.
pub fn example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    program(workspace, &["build", "--example", name], package, name)
}

/// Builds `package`'s integration test `name`, and returns the path of the shared library that the package is. On its
/// own, the library would get other features, and be built a second time.
///
/// # Errors
/// When the build fails, or the package has no shared library.
pub fn library(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    build.arg("test").args(CRATES).args(["--no-run", "--test", name, "--message-format", "json-render-diagnostics"]);
    let messages = shell::capture_stdout(&mut build)?;
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_package = artifacts.filter(|message| stage::is_package(message, package));
    let mut files = of_package.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
    let suffix = format!(".{DLL_EXTENSION}");
    let library = files.find_map(|file| file.as_str().filter(|file| file.ends_with(&suffix)).map(PathBuf::from));
    library.with_context(|| format!("cargo did not build a shared library of package {package}"))
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
    build.args(["build", "--quiet"]).args(CRATES).args(names.iter().flat_map(|name| ["--example", name]));
    shell::run(&mut build)?;
    Ok(workspace.target().join("debug").join("examples"))
}

fn program(workspace: &Workspace, arguments: &[&str], package: &str, name: &str) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    let messages = shell::capture_stdout(
        build.args(arguments).args(CRATES).args(["--message-format", "json-render-diagnostics"]),
    )?;
    shell::executable(&messages, package, name)
        .with_context(|| format!("cargo did not build the program `{name}` of package {package}"))
}
