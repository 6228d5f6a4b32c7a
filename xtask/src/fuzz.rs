//! Runs every fuzz target in `fuzz/` for a short time, with libFuzzer and the compiler that builds everything else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::shard::Shard;
use crate::shell;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// The flags of `cargo fuzz --sanitizer none`: counters at every edge, and tracing of comparison operands.
const FLAGS: [&str; 8] = [
    "--cfg fuzzing",
    "-Cdebug-assertions",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// One target and its limits: about five seconds each.
struct Target {
    name: &'static str,
    runs: u32,
    /// The size of the largest input.
    max_bytes: u32,
}

const TARGETS: [Target; 10] = [
    Target { name: "chat_template", runs: 40_000, max_bytes: 2048 },
    Target { name: "contexts", runs: 40_000, max_bytes: 1024 },
    Target { name: "genai_config", runs: 40_000, max_bytes: 2048 },
    Target { name: "hipdnn_bytes", runs: 20_000, max_bytes: 1024 },
    Target { name: "hipdnn_calls", runs: 20_000, max_bytes: 1024 },
    Target { name: "migraphx_saved", runs: 100_000, max_bytes: 128 },
    Target { name: "options", runs: 40_000, max_bytes: 512 },
    Target { name: "prefixes", runs: 40_000, max_bytes: 512 },
    Target { name: "routing", runs: 40_000, max_bytes: 1024 },
    Target { name: "tokenizer", runs: 40_000, max_bytes: 2048 },
];

/// Groups of targets that use the same crates: `fuzz/Cargo.toml` has a feature for each. Building them takes longer than
/// running them, so a run takes one group or none.
const GROUPS: [(&str, &[&str]); 3] = [
    ("engine", &["contexts", "hipdnn_bytes", "hipdnn_calls"]),
    ("provider", &["migraphx_saved", "options", "prefixes", "routing"]),
    ("text", &["chat_template", "genai_config", "tokenizer"]),
];

/// The number of parts: every third commit runs a group.
pub const PARTS: usize = 9;

/// The time limit of a target in seconds, for busy machines.
const MAX_SECONDS: u32 = 15;

/// The number of output lines to repeat when a run fails.
const TAIL_LINES: usize = 25;

/// Builds the targets that are due and runs each one from its seeds. The inputs are the same in every run of one commit.
///
/// # Errors
/// When a target does not build or finds a crash; the message says how to reproduce it.
pub fn run(workspace: &Workspace, shard: Shard) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("libFuzzer is supported only on Linux".into()));
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if !shell::succeeds(&compiler, &["--version"]) {
        return Ok(Outcome::Skipped(format!("libFuzzer needs a C++ compiler, but {compiler} cannot be started")));
    }
    let folder = workspace.target().join("fuzz");
    let places = GROUPS.iter().flat_map(|&group| [Some(group), None, None]);
    let groups: Vec<_> = shard.of(places.collect()).into_iter().flatten().collect();
    if groups.is_empty() {
        return Ok(Outcome::Passed(format!("no target is due{}", shard.note())));
    }
    let features: Vec<&str> = groups.iter().map(|&(feature, _)| feature).collect();
    let programs = build(workspace, &folder, &features)?;
    let due = |target: &&Target| groups.iter().any(|(_, names)| names.contains(&target.name));
    let targets: Vec<&Target> = TARGETS.iter().filter(due).collect();
    let mut inputs = 0;
    for target in &targets {
        let program = programs
            .iter()
            .find(|program| program.file_name().is_some_and(|name| name == target.name))
            .with_context(|| format!("cargo did not build the fuzz target {}", target.name))?;
        let corpus = seed(workspace, &folder, target.name)?;
        inputs += fuzz(workspace, &folder, program, &corpus, target)?;
    }
    Ok(Outcome::Passed(format!("{}: {} targets, {inputs} inputs{}", features.join(", "), targets.len(), shard.note())))
}

fn build(workspace: &Workspace, folder: &Path, features: &[&str]) -> Result<Vec<PathBuf>> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let version = shell::capture(rustc.args(["--version", "--verbose"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc prints no host")?;
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--manifest-path", "fuzz/Cargo.toml", "--locked", "--bins", "--target-dir"]).arg(folder);
    build.args(["--no-default-features", "--features", &features.join(",")]);
    // With an explicit target, the flags do not apply to build scripts and macros, which have no libFuzzer to link.
    build.args(["--target", host, "--message-format", "json-render-diagnostics"]);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", FLAGS.join(" "));
    let messages = shell::capture_stdout(&mut build)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect())
}

/// Makes a fresh corpus folder for a target: its inputs from `fuzz/seeds`, and suitable files of the demo's model.
fn seed(workspace: &Workspace, folder: &Path, target: &str) -> Result<PathBuf> {
    let corpus = folder.join("corpus").join(target);
    if corpus.exists() {
        fs::remove_dir_all(&corpus).with_context(|| format!("cannot remove {}", corpus.display()))?;
    }
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    let seeds = workspace.path("fuzz/seeds").join(target);
    for seed in fs::read_dir(&seeds).into_iter().flatten() {
        let seed = seed?;
        fs::copy(seed.path(), corpus.join(seed.file_name())).with_context(|| format!("cannot copy {seed:?}"))?;
    }
    let model = workspace.path("demo/model");
    match target {
        "genai_config" => drop(fs::copy(model.join("genai_config.json"), corpus.join("demo.json"))?),
        "chat_template" => {
            let text = fs::read_to_string(model.join("tokenizer_config.json"))?;
            let config: Value = serde_json::from_str(&text).context("the demo's tokenizer_config.json")?;
            fs::write(corpus.join("demo.jinja"), config["chat_template"].as_str().unwrap_or_default())?;
        }
        _ => {}
    }
    Ok(corpus)
}

/// Runs one target and returns the number of inputs that it tried.
fn fuzz(workspace: &Workspace, folder: &Path, program: &Path, corpus: &Path, target: &Target) -> Result<u64> {
    let artifacts = folder.join("artifacts").join(target.name);
    fs::create_dir_all(&artifacts).with_context(|| format!("cannot create {}", artifacts.display()))?;
    let Target { name, runs, max_bytes } = target;
    let mut command = Command::new(program);
    command.current_dir(workspace.root()).arg(corpus).env("AMDGPU_EP_FUZZ_SEEDS", corpus);
    command.args([
        format!("-runs={runs}"),
        format!("-max_total_time={MAX_SECONDS}"),
        format!("-max_len={max_bytes}"),
        "-seed=1".to_owned(),
        "-timeout=20".to_owned(),
        "-rss_limit_mb=1024".to_owned(),
        "-verbosity=0".to_owned(),
        "-print_final_stats=1".to_owned(),
        format!("-artifact_prefix={}/", artifacts.display()),
    ]);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", program.display()))?;
    // libFuzzer reports on stderr.
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
        let (program, artifacts) = (workspace.relative(program), workspace.relative(&artifacts));
        bail!(
            "the fuzz target {name} failed ({})\n    {tail}\n  help: run the saved input again: {program} {artifacts}/FILE",
            output.status
        );
    }
    tried(&said).with_context(|| format!("the fuzz target {name} does not say how many inputs it tried"))
}

/// The number of inputs, from the final statistics.
fn tried(said: &str) -> Result<u64> {
    let number = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match number.and_then(|number| number.trim().parse().ok()) {
        Some(0) | None => bail!("no inputs were tried"),
        Some(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_manifest_is_run() {
        let manifest = fs::read_to_string(Workspace::locate().path("fuzz/Cargo.toml")).unwrap();
        let bins: Vec<&str> = manifest
            .split("[[bin]]")
            .skip(1)
            .filter_map(|bin| bin.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')))
            .collect();
        assert_eq!(bins, TARGETS.map(|target| target.name));
    }

    #[test]
    fn a_run_without_inputs_has_not_passed() {
        assert_eq!(tried("x\nstat::number_of_executed_units: 40000\n").unwrap(), 40_000);
        assert!(tried("stat::number_of_executed_units: 0").is_err() && tried("").is_err());
    }
}
