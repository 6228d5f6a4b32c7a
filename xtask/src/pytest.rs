//! The Python suites: the integration suite once per ONNX Runtime version, the GenAI suite, hostile model folders,
//! the server, and its application for Ray.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};

use crate::amd::Machine;
use crate::setup::{self, ORT_VERSIONS, Python, RuntimeSource};
use crate::shard::Shard;
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, debian, junit, shard, shell, stage};

/// Test files with these prefixes run once, in the virtual environment's ONNX Runtime: only that one has GenAI, and
/// terminals, pictures, the processes of tests and the tools of `cargo xtask families` behave the same with all versions.
const GENAI_SUITE: [&str; 8] = [
    "test_genai",
    "test_textgen",
    "test_demo_model",
    "test_chat",
    "test_terminal",
    "test_demo_picture",
    "test_fork_server",
    "test_families",
];

/// Files whose tests run on a configurable MIGraphX: the stand-in, or a real one.
const MIGRAPHX_SUITE: [&str; 2] = ["test_migraphx", "test_genai_migraphx"];

/// The number of parts of hostile folders, and of the integration suite in releases between the oldest and the newest.
/// Each commit runs a different part in each of these releases, so every test runs in one of them.
const PARTS: usize = 3;

/// Runs the integration suite in ONNX Runtime `version`: all of it in the oldest and the newest, otherwise the part
/// that is due.
///
/// # Errors
/// When a test fails.
pub fn integration(context: &Context<'_>, version: &str) -> Result<Outcome> {
    let python = context.python()?;
    let runtime = python.runtimes.iter().find(|runtime| runtime.version == version);
    let folder = match runtime.map(|runtime| &runtime.source) {
        Some(RuntimeSource::Environment) => None,
        Some(RuntimeSource::Folder(folder)) => Some(folder),
        Some(RuntimeSource::Unavailable(reason)) => return Ok(Outcome::Skipped(reason.clone())),
        None => return Ok(Outcome::Skipped(format!("onnxruntime {version} is not set up"))),
    };
    let place = ORT_VERSIONS.iter().position(|&known| known == version).unwrap_or_default();
    let is_between = place > 0 && place + 1 < ORT_VERSIONS.len();
    let shard = if is_between { context.due(PARTS, place) } else { Shard::WHOLE };
    let mut files = files(context, &["test_"])?;
    files.retain(|file| !GENAI_SUITE.iter().any(|start| file_name(file).starts_with(start)));
    let stand_in = stage::stand_in(context.workspace)?;
    let outcome = suite(context, &format!("ort-{version}"), |pytest| {
        pytest
            .args(files)
            .env(shard::VARIABLE, shard.variable())
            .env("AMDGPU_EP_TEST_ORT_VERSION", version)
            .env("AMDGPU_EP_TEST_MIGRAPHX", stand_in);
        if let Some(folder) = folder {
            pytest.env("PYTHONPATH", folder);
        }
    })?;
    Ok(outcome.with(&shard.note()))
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
}

/// Runs sessions with `part`, a staged folder with some of the backends.
///
/// # Errors
/// When a test fails.
pub fn backend_choice(context: &Context<'_>, name: &str, part: &Stage) -> Result<Outcome> {
    suite(context, name, |pytest| {
        pytest
            .arg("tests/python/test_backend_choice.py")
            .env("AMDGPU_EP_LIBRARY", part.umbrella())
            .env("AMDGPU_EP_TEST_BACKENDS", part.backends.to_string());
    })
}

/// Runs the GenAI suite.
///
/// # Errors
/// When a test fails.
pub fn genai(context: &Context<'_>) -> Result<Outcome> {
    let files = files(context, &GENAI_SUITE)?;
    let stand_in = stage::stand_in(context.workspace)?;
    suite(context, "genai", |pytest| {
        pytest.args(files).env("AMDGPU_EP_TEST_MIGRAPHX", stand_in);
    })
}

/// Runs hostile model folders through the command, Python and GenAI: a third of the tests, and the next commits the
/// others.
///
/// # Errors
/// When a folder does harm, or a run ends in neither a result nor a readable message.
pub fn hostile(context: &Context<'_>) -> Result<Outcome> {
    if !shell::succeeds("cc", &["--version"]) {
        return Ok(Outcome::Skipped("no C compiler (cc) to build the library that must not be loaded".into()));
    }
    let shard = context.due(PARTS, 0);
    let outcome = suite(context, "hostile", |pytest| {
        pytest.args(["tests/hostile", "-o", "tmp_path_retention_policy=failed"]).env(shard::VARIABLE, shard.variable());
    })?;
    Ok(outcome.with(&shard.note()))
}

/// Runs the server with real clients, in an environment of their own.
///
/// # Errors
/// When a test fails.
pub fn serve(context: &Context<'_>) -> Result<Outcome> {
    let python = &context.python()?.interpreter;
    let runtime = onnxruntime_library(python)?;
    let library = context.stage()?.umbrella();
    let interpreter = setup::tools(
        context.workspace,
        "serve-venv",
        "requirements-serve.txt",
        "anthropic, langchain_openai, llm, openai, schemathesis, selenium",
    )?;
    // Without a browser, the tests of the page are skipped with this reason.
    let browser = debian::install(&["chromium", "chromedriver"], &["chromium", "chromium-driver"]);
    let clients = Python { interpreter, runtimes: Vec::new() };
    run(context.workspace, &clients, "serve", |pytest| {
        if let Err(reason) = &browser {
            pytest.env("AMDGPU_EP_TEST_NO_BROWSER", reason);
        }
        pytest
            .args(["tests/serve", "--durations", "5"])
            .env("AMDGPU_EP_LIBRARY", library)
            .env("AMDGPU_EP_TEST_ORT", runtime)
            .env("AMDGPU_EP_TEST_ONNX_PYTHON", python);
    })
}

/// Runs the application for Ray Serve on a Ray cluster of this machine, in an environment of its own.
///
/// # Errors
/// When a test fails.
pub fn ray(context: &Context<'_>) -> Result<Outcome> {
    let runtime = onnxruntime_library(&context.python()?.interpreter)?;
    let library = context.stage()?.umbrella();
    let interpreter = match setup::tools(context.workspace, "ray-venv", "requirements-ray.txt", "openai, ray.serve") {
        Ok(interpreter) => interpreter,
        // There are no wheels of Ray for some versions of Python.
        Err(error) => return Ok(Outcome::Skipped(format!("Ray could not be installed: {error:#}"))),
    };
    let clients = Python { interpreter, runtimes: Vec::new() };
    run(context.workspace, &clients, "ray", |pytest| {
        pytest
            .args(["tests/ray", "--durations", "5", "-W", "ignore::DeprecationWarning"])
            .env("AMDGPU_EP_LIBRARY", library)
            .env("AMDGPU_EP_TEST_ORT", runtime);
    })
}

/// The library of the `onnxruntime` package that an interpreter imports.
fn onnxruntime_library(interpreter: &Path) -> Result<PathBuf> {
    let script = "import importlib.util, pathlib\n\
                  package = pathlib.Path(importlib.util.find_spec('onnxruntime').origin).parent\n\
                  print(next(package.glob('capi/libonnxruntime.so.*')))";
    let path = shell::capture(Command::new(interpreter).args(["-c", script]))?;
    Ok(PathBuf::from(path.trim()))
}

/// Runs half of the migraphx suite on the real `library`, each test in an interpreter that can load it. The next commit
/// runs the others.
///
/// # Errors
/// When a test fails.
pub fn migraphx(context: &Context<'_>, interpreter: &Path, library: &Path) -> Result<Outcome> {
    let files = files(context, &MIGRAPHX_SUITE)?;
    let shard = context.due(2, 1);
    let outcome = suite(context, "migraphx", |pytest| {
        pytest
            .args(files)
            .env(shard::VARIABLE, shard.variable())
            .env("AMDGPU_EP_TEST_PYTHON", interpreter)
            .env("AMDGPU_EP_TEST_MIGRAPHX", library);
    })?;
    Ok(outcome.with(&shard.note()))
}

/// Runs sessions on a real HIP runtime that finds no GPU, each test in an interpreter that can load it.
///
/// # Errors
/// When a test fails.
pub fn without_gpu(context: &Context<'_>, interpreter: &Path, library: &Path) -> Result<Outcome> {
    suite(context, "without-gpu", |pytest| {
        pytest
            .arg("tests/python/test_no_gpu.py")
            .env("AMDGPU_EP_TEST_PYTHON", interpreter)
            .env("AMDGPU_EP_TEST_REAL_HIP", "1")
            .env("AMDGPU_EP_HIP_LIBRARY", library);
    })
}

/// Runs `tests` on an emulated AMD GPU, each test in an interpreter that `machine` starts. Sessions find precompiled
/// kernels in the folder `set`, if it is given.
///
/// # Errors
/// When a test fails.
pub fn emulated(
    context: &Context<'_>,
    name: &str,
    tests: &[String],
    machine: &Machine,
    set: Option<&Path>,
) -> Result<Outcome> {
    let interpreter = machine.interpreter(&context.python()?.interpreter)?;
    suite(context, name, |pytest| {
        pytest
            .args(tests)
            .envs(machine.environment())
            .env("AMDGPU_EP_TEST_PYTHON", interpreter)
            .env("AMDGPU_EP_TEST_DRIVER", "amd")
            .envs(set.map(|set| ("AMDGPU_EP_KERNEL_PATH", set)));
    })
}

/// Writes the sources of the kernels that models need on `target` with `units` compute units into a folder.
///
/// # Errors
/// When a session fails.
pub fn recorded(context: &Context<'_>, target: &str, units: u32, texts: &Path) -> Result<()> {
    context.stage()?;
    let stage = stage::simulating(context.workspace)?;
    suite(context, "kernel-texts", |pytest| {
        pytest
            .arg("tests/python/test_kernel_sets.py")
            .env("AMDGPU_EP_LIBRARY", stage.umbrella())
            .env("AMDGPU_EP_SIMULATE", format!("{target}@{units}"))
            .env("AMDGPU_EP_SIMULATE_TEXTS", texts);
    })
    .map(drop)
}

/// Runs sessions on the host driver with kernels under the wave simulator, as if for `target`.
///
/// # Errors
/// When a test fails.
pub fn simulated(context: &Context<'_>, target: &str) -> Result<Outcome> {
    // Stage first: the staged libraries lack the simulator, and each change of features rebuilds the backend.
    context.stage()?;
    let stage = stage::simulating(context.workspace)?;
    let files = ["simulated", "sessions", "capture", "weights"].map(|name| format!("tests/python/test_{name}.py"));
    suite(context, "simulated", |pytest| {
        pytest
            .args(files)
            .env("AMDGPU_EP_LIBRARY", stage.umbrella())
            .env("AMDGPU_EP_SIMULATE", target)
            .env("AMDGPU_EP_SIMULATE_DIR", stage.root.join("kernels"));
    })
}

/// The test files whose names begin with one of these prefixes.
fn files(context: &Context<'_>, starts: &[&str]) -> Result<Vec<PathBuf>> {
    let tests = context.workspace.root().join("tests/python");
    let mut files = Vec::new();
    for entry in fs::read_dir(&tests).with_context(|| format!("cannot read {}", tests.display()))? {
        let file = entry?.path();
        let is_wanted = starts.iter().any(|start| file_name(&file).starts_with(start));
        if is_wanted {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn suite(context: &Context<'_>, name: &str, arrange: impl FnOnce(&mut Command)) -> Result<Outcome> {
    // The suites use the SDK's example plugins as backends.
    let (library, examples) = (context.stage()?.umbrella(), built::examples(context.workspace, "ort-ep")?);
    run(context.workspace, context.python()?, name, |pytest| {
        pytest.args(["--dist", "worksteal", "--numprocesses"]).arg(workers().to_string());
        pytest.env("AMDGPU_EP_LIBRARY", library).env("AMDGPU_EP_TEST_EXAMPLES", examples);
        arrange(pytest);
    })
}

/// Runs pytest from the repository root with the arguments that `arrange` adds, and counts its tests.
///
/// # Errors
/// When a test fails.
pub fn run(workspace: &Workspace, python: &Python, name: &str, arrange: impl FnOnce(&mut Command)) -> Result<Outcome> {
    let results = workspace.target().join("test-results");
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let report = results.join(format!("{name}.xml"));
    // A report of an earlier run must not be mistaken for this run's.
    let _ = fs::remove_file(&report);
    let mut pytest = shell::user_program(&python.interpreter);
    pytest
        .current_dir(workspace.root())
        .args(["-m", "pytest", "--quiet", "-rfEs", "-p", "no:cacheprovider", "--junitxml"])
        .arg(&report)
        .env_remove("PYTHONPATH");
    arrange(&mut pytest);
    junit::explained(shell::run(&mut pytest), &report)?;
    let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    Ok(Counts::of(&report).map_or_else(|| Outcome::Passed(String::new()), Counts::outcome))
}

/// Every test has its own process, so tests can run in parallel; more than a few would only wait for memory.
pub fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(4)
}

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    tests: usize,
    skipped: usize,
    reason: String,
}

impl Counts {
    /// Reads pytest's JUnit report.
    fn of(report: &str) -> Option<Self> {
        let suite = &report[report.find("<testsuite ")?..];
        let number = |name: &str| junit::attribute(suite, name)?.parse().ok();
        let reason =
            suite.find("<skipped").and_then(|at| junit::attribute(&suite[at..], "message")).unwrap_or_default();
        Some(Self { tests: number("tests")?, skipped: number("skipped")?, reason: reason.to_owned() })
    }

    /// A suite in which no test ran has not passed.
    fn outcome(self) -> Outcome {
        match self {
            Self { tests, skipped, reason } if tests == skipped => Outcome::Skipped(reason),
            Self { tests, skipped: 0, .. } => Outcome::Passed(format!("{tests} tests")),
            Self { tests, skipped, reason } => {
                Outcome::Passed(format!("{} tests, {skipped} skipped ({reason})", tests - skipped))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0"?><testsuites name="all"><testsuite name="pytest" errors="0" failures="0"
        skipped="1" tests="3" time="0.1"><testcase name="a" /><testcase name="b"><skipped type="pytest.skip"
        message="no models">at 1</skipped></testcase></testsuite></testsuites>"#;

    #[test]
    fn counts_come_from_the_report() {
        let report = REPORT.replace("\n       ", "");
        assert_eq!(Counts::of(&report), Some(Counts { tests: 3, skipped: 1, reason: "no models".into() }));
    }

    #[test]
    fn a_suite_of_skips_is_skipped() {
        let counts = Counts { tests: 2, skipped: 2, reason: "no models".into() };
        assert!(matches!(counts.outcome(), Outcome::Skipped(reason) if reason == "no models"));
    }

    #[test]
    fn some_skips_are_named_in_the_note() {
        let counts = Counts { tests: 5, skipped: 2, reason: "old runtime".into() };
        assert!(matches!(counts.outcome(), Outcome::Passed(note) if note == "3 tests, 2 skipped (old runtime)"));
    }
}
