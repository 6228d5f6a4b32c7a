//! Rust tests under Wine.

use anyhow::{Result, bail};

use super::Files;
use super::compiler::Compiler;
use super::wine::Wine;
use crate::test::Context;
use crate::{output, shell};

/// The packages whose unit tests run.
const PACKAGES: [&str; 15] = [
    "amdgpu-ep-dylib",
    "amdgpu-ep-hip",
    "amdgpu-ep-options",
    "backend-hip",
    "backend-migraphx",
    "cli",
    "disk-cache",
    "exec",
    "graph",
    "hipdnn-cudnn",
    "hipdnn-host",
    "kernel-catalogue",
    "ort-ep-sys",
    "reports",
    "textgen",
];

/// Takes minutes under Wine: two threads hand over to each other thousands of times.
const TOO_SLOW: &str = "llm::chat::tests::a_cancel_request_never_outlives_its_answer";

/// Their integration tests that run too.
const TESTS: [&str; 2] = ["folders", "layout"];

/// Runs the tests, and returns how many tests passed.
///
/// # Errors
/// When a test fails or does not compile.
pub fn run(context: &Context<'_>, compiler: &Compiler, wine: &Wine, files: &Files) -> Result<String> {
    let mut cargo = compiler.cargo(context.workspace.root(), "test")?;
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    cargo.args(TESTS.iter().flat_map(|test| ["--test", test]));
    cargo.args(["--lib", "--bins", "--no-fail-fast"]).envs(wine.environment()).env_remove("DISPLAY");
    cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", wine.program());
    cargo.env("ORT_DYLIB_PATH", &files.runtime).env("AMDGPU_EP_TEST_STAGE", &files.stage.root);
    cargo.args(["--", "--skip", TOO_SLOW]);
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
