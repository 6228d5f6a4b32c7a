//! Checks the SDK crates with the oldest Rust that each of them promises to support.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use crate::sdk::{self, SdkCrate};
use crate::shard::Shard;
use crate::shell;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// The number of toolchains, one for each part of the check.
pub const PARTS: usize = 3;

/// Checks every crate of the part that is due, if its toolchain is installed; `install` installs the missing ones first.
///
/// # Errors
/// When a crate does not compile, or a toolchain cannot be installed.
pub fn run(workspace: &Workspace, shard: Shard, install: bool) -> Result<Outcome> {
    let crates = sdk::crates(workspace)?;
    let mut by_version: BTreeMap<Vec<u32>, Vec<SdkCrate>> = BTreeMap::new();
    for one in crates {
        by_version.entry(numbers(&one.rust_version)).or_default().push(one);
    }
    if !shell::succeeds("rustup", &["--version"]) {
        return Ok(Outcome::Skipped("rustup, which selects the toolchains, is not installed".into()));
    }
    let (mut checked, mut missing) = (Vec::new(), Vec::new());
    for crates in shard.of(by_version.into_values().collect()) {
        let version = crates[0].rust_version.as_str();
        if install {
            shell::run(Command::new("rustup").args(["toolchain", "install", version, "--profile", "minimal"]))?;
        }
        let installed = shell::capture(Command::new("rustup").args(["toolchain", "list"]))?;
        match toolchain(&installed, version) {
            Some(toolchain) => {
                check(workspace, toolchain, &crates)?;
                let names: Vec<&str> = crates.iter().map(|one| one.name.as_str()).collect();
                checked.push(format!("{version}: {}", names.join(", ")));
            }
            None => missing.push(version.to_owned()),
        }
    }
    let absent = format!("Rust {} not installed (cargo xtask msrv --install)", missing.join(" and "));
    let outcome = match (checked.is_empty(), missing.is_empty()) {
        (true, _) => Outcome::Skipped(absent),
        (false, true) => Outcome::Passed(checked.join("; ")),
        (false, false) => Outcome::Passed(format!("{}; {absent}", checked.join("; "))),
    };
    Ok(outcome.with(&shard.note()))
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// The installed toolchain of this version, such as `1.88-x86_64-unknown-linux-gnu` or `1.88.0-…` for 1.88.
fn toolchain<'a>(installed: &'a str, version: &str) -> Option<&'a str> {
    let names = installed.lines().filter_map(|line| line.split_whitespace().next());
    names.into_iter().find(|name| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['-', '.'])))
}

fn check(workspace: &Workspace, toolchain: &str, crates: &[SdkCrate]) -> Result<()> {
    // A folder of its own: another compiler's output would replace that of the tests.
    let folder = workspace.target().join("msrv");
    let mut cargo = Command::new("rustup");
    cargo.args(["run", toolchain, "cargo", "check", "--locked", "--lib", "--all-features"]);
    cargo.args(sdk::selected(crates)).arg("--target-dir").arg(folder).current_dir(workspace.root());
    // `cargo xtask` sets these for its own toolchain.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        cargo.env_remove(variable);
    }
    shell::run(cargo.env("CARGO_INCREMENTAL", "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_finds_its_toolchain_and_no_longer_number() {
        let installed = "stable-x86_64 (active, default)\n1.8-x86_64\n1.88.0-x86_64\n1.92-x86_64\n";
        assert_eq!(toolchain(installed, "1.88"), Some("1.88.0-x86_64"));
        assert_eq!(toolchain(installed, "1.92"), Some("1.92-x86_64"));
        assert_eq!(toolchain(installed, "1.9"), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(numbers("1.100") > numbers("1.88"));
    }
}
