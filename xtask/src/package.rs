//! Packages the SDK crates as for crates.io, builds the packages, and checks what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::sdk::{self, SdkCrate};
use crate::shell;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;

/// Files that every package must contain.
const NEEDED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"];
/// Everything else that a package may contain.
const FOLDERS: [&str; 2] = ["src/", "examples/"];
/// Files that cargo adds.
const ADDED: [&str; 3] = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];
/// Far above the largest package. crates.io accepts 10 MiB.
const MOST_BYTES: u64 = 512 << 10;

/// Built only if everything is requested: its dependencies take minutes.
const SLOW: &str = "textgen";

/// Writes the packages to target/packages, and builds them there.
///
/// # Errors
/// When cargo refuses a manifest, a package does not compile, has files that it should not have, or lacks some.
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let workspace = context.workspace;
    let crates = sdk::crates(workspace)?;
    forget_earlier(workspace, &crates)?;
    let (slow, fast): (Vec<SdkCrate>, Vec<SdkCrate>) = crates.iter().cloned().partition(|one| one.name == SLOW);
    package(workspace, &fast, true)?;
    // Again with the crates that it depends on, because crates.io has none of them.
    package(workspace, &[fast, slow].concat(), context.is_whole)?;
    let mut faults = Vec::new();
    let mut total = 0;
    for one in &crates {
        let mut list = shell::cargo(workspace.root());
        list.args(["package", "--list", "--allow-dirty", "--package", &one.name]);
        faults.extend(faults_of(&one.name, &shell::capture(&mut list)?));
        let bytes = size(workspace, one)?;
        if bytes > MOST_BYTES {
            faults.push(format!("{}: {} KiB, more than {} KiB", one.name, bytes >> 10, MOST_BYTES >> 10));
        }
        total += bytes;
    }
    if !faults.is_empty() {
        bail!("packages are wrong\n  {}\n  help: correct `include` in the crate's Cargo.toml", faults.join("\n  "));
    }
    let unbuilt = if context.is_whole { String::new() } else { format!("; {SLOW} was not built") };
    Ok(Outcome::Passed(format!("{} crates, {} KiB{unbuilt}", crates.len(), total >> 10)))
}

/// Removes what earlier runs unpacked and built of our packages. Their versions are the same, so cargo would use them
/// again instead of the new ones.
fn forget_earlier(workspace: &Workspace, crates: &[SdkCrate]) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).unwrap_or_default();
    // A folder is named after its registry's host, and registries of packages that were just made have none.
    remove(&home.join("registry/src"), |name| name.starts_with('-'))?;
    let is_ours = |name: &str| crates.iter().any(|one| name.starts_with(&format!("{}-", one.name)));
    remove(&folder(workspace).join("debug/.fingerprint"), is_ours)
}

/// Removes the folders in `parent` with such a name, if there are any.
fn remove(parent: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if is_wanted(&entry.file_name().to_string_lossy()) {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Where packages are written and built.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("packages")
}

fn package(workspace: &Workspace, crates: &[SdkCrate], builds: bool) -> Result<()> {
    let mut package = shell::cargo(workspace.root());
    package.args(["package", "--locked", "--allow-dirty", "--quiet"]).args(sdk::selected(crates));
    if !builds {
        package.arg("--no-verify");
    }
    shell::run(package.arg("--target-dir").arg(folder(workspace)))
}

/// What is wrong with the files of one package, given as one path per line.
fn faults_of(name: &str, list: &str) -> Vec<String> {
    let files: Vec<String> = list.lines().map(|file| file.replace('\\', "/")).collect();
    let missing = NEEDED.iter().filter(|needed| !files.iter().any(|file| file == *needed));
    let may_stay = |file: &String| {
        let file = file.as_str();
        NEEDED.contains(&file) || ADDED.contains(&file) || FOLDERS.iter().any(|folder| file.starts_with(folder))
    };
    let missing = missing.map(|needed| format!("{name}: {needed} is missing"));
    missing.chain(files.iter().filter(|file| !may_stay(file)).map(|file| format!("{name}: has {file}"))).collect()
}

fn size(workspace: &Workspace, one: &SdkCrate) -> Result<u64> {
    let folder = folder(workspace).join("package");
    let prefix = format!("{}-", one.name);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let version = file.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".crate"));
        if version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit())) {
            return Ok(entry.metadata()?.len());
        }
    }
    bail!("cargo wrote no package of {} to {}", one.name, folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_needs_its_readme_and_licences_and_has_no_tests() {
        let whole = "Cargo.lock\nCargo.toml\nCargo.toml.orig\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\nexamples/01.rs";
        assert_eq!(faults_of("hip", whole), Vec::<String>::new());
        assert_eq!(faults_of("hip", &whole.replace("LICENSE-MIT\n", "")), ["hip: LICENSE-MIT is missing"]);
        assert_eq!(faults_of("hip", &format!("{whole}\ntests/big.bin")), ["hip: has tests/big.bin"]);
    }
}
