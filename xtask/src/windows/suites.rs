//! Rust tests under Wine.

use anyhow::{Result, bail};

use super::compiler::Compiler;
use super::wine::Wine;
use crate::workspace::Workspace;
use crate::{output, shell};

/// The packages whose tests run: C layouts, loading of libraries, caches, options, the driver layer.
const PACKAGES: [&str; 5] = ["ort-ep-sys", "amdgpu-ep-dylib", "disk-cache", "amdgpu-ep-options", "amdgpu-ep-hip"];

/// Their integration tests that need no library of ours.
const TESTS: [&str; 2] = ["folders", "layout"];

/// Runs the tests, and returns how many tests passed.
///
/// # Errors
/// When a test fails or does not compile.
pub fn run(workspace: &Workspace, compiler: &Compiler, wine: &Wine) -> Result<String> {
    let mut cargo = compiler.cargo(workspace.root(), "test")?;
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    cargo.args(TESTS.iter().flat_map(|test| ["--test", test]));
    cargo.args(["--lib", "--no-fail-fast"]).envs(wine.environment()).env_remove("DISPLAY");
    cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", wine.program());
    let (ran, said) = output::captured(|| shell::run(&mut cargo));
    output::say(said.trim_end());
    ran?;
    let (passed, ignored) = counts(&said);
    if passed == 0 {
        bail!("no test ran under Wine");
    }
    Ok(format!("{passed} passed, {ignored} ignored"))
}

/// The number of passed and of ignored tests in the output of test programs.
fn counts(said: &str) -> (usize, usize) {
    let results = said.lines().filter_map(|line| line.strip_prefix("test result: "));
    let number = |result: &str, word: &str| {
        let before = result.split(word).next().unwrap_or_default();
        before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    results.fold((0, 0), |(passed, ignored), result| {
        (passed + number(result, " passed"), ignored + number(result, " ignored"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_programs_are_counted() {
        let said = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(said), (15, 1));
    }
}
