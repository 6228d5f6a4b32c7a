//! Tests of the engine from Python: real models, random graphs, changing shapes, corrupted models.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::setup::{self, Python};
use crate::shell;
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;

/// Arguments for the step of `cargo xtask test`: the same graphs every time, few enough to run within a minute.
const STEP_GRAPHS: [&str; 4] = ["--seed", "1", "--count", "300"];

/// The minimum share of all models' nodes that the engine must claim.
const LEAST_SHARE: &str = "0.95";

/// As [`STEP_GRAPHS`], for corrupted models. The time limit is far more than all cases need, even with other steps
/// running.
const STEP_CORRUPT: [&str; 6] = ["--seed", "1", "--count", "2000", "--seconds", "1200"];

/// Runs real models and compares the results with recorded outputs, or with the CPU provider's. With `bench`, also
/// compares the speed with the CPU provider's. The models of Python packages always run, those of the collection only
/// if it is beside the repository.
///
/// # Errors
/// When the build fails or a model's result is wrong.
pub fn models(workspace: &Workspace, python: &Python, stage: &Stage, only: &[String], bench: bool) -> Result<Outcome> {
    let mut script = script(workspace, python, &stage.backend(), "tests/models.py");
    if only.is_empty() {
        script.args(["--least-share", LEAST_SHARE]);
    } else {
        script.arg("--only").arg(only.join(","));
    }
    if bench {
        script.arg("--bench");
    }
    shell::run_to_last_line(&mut script).map(Outcome::Passed)
}

/// The models of the step below: in one, all convolutions have fused activations; the others are in half precision.
const HIPDNN_MODELS: &str = "light_resnet50,light_squeezenet_fp16,squeezenet_fp16";

/// The step of `cargo xtask test` that runs models with hipDNN for their convolutions.
///
/// # Errors
/// When a model's result is wrong, or hipDNN does not run a convolution.
pub fn hipdnn_step(context: &Context<'_>) -> Result<Outcome> {
    let library = context.stage()?.backend();
    let mut script = script(context.workspace, context.python()?, &library, "tests/models.py");
    script.args(["--hipdnn", "--only", HIPDNN_MODELS]);
    shell::run_to_last_line(&mut script).map(Outcome::Passed)
}

/// Runs random graphs with and without the engine, passing `arguments` to the script.
///
/// # Errors
/// When two results differ.
pub fn random_graphs(workspace: &Workspace, python: &Python, stage: &Stage, arguments: &[String]) -> Result<String> {
    shell::run_to_last_line(script(workspace, python, &stage.backend(), "tests/random_graphs.py").args(arguments))
}

/// The step of `cargo xtask test` that runs random graphs.
///
/// # Errors
/// When two results differ.
pub fn random_graphs_step(context: &Context<'_>) -> Result<Outcome> {
    let arguments = STEP_GRAPHS.map(str::to_owned);
    random_graphs(context.workspace, context.python()?, context.stage()?, &arguments).map(Outcome::Passed)
}

/// The step of `cargo xtask test` that runs one session with many input shapes.
///
/// # Errors
/// When a result is wrong or memory grows with the number of shapes.
pub fn shapes_step(context: &Context<'_>) -> Result<Outcome> {
    let library = context.stage()?.backend();
    let mut script = script(context.workspace, context.python()?, &library, "tests/dynamic_shapes.py");
    shell::run_to_last_line(&mut script).map(Outcome::Passed)
}

/// Runs corrupted models and inputs through the umbrella on the host driver, passing `arguments` to the script.
///
/// # Errors
/// When one of them crashes the process, hangs, or fails without a readable message.
pub fn corrupt(workspace: &Workspace, python: &Python, stage: &Stage, arguments: &[String]) -> Result<String> {
    let mut script = script(workspace, python, &stage.umbrella(), "tests/corrupt_models.py");
    script.env("AMDGPU_EP_DRIVER", "host").env("PYTHONPATH", setup::node_tests(workspace, python)?);
    // Building the node tests divides by zero on purpose; a panic's backtrace would only hide its message.
    script.env("PYTHONWARNINGS", "ignore::RuntimeWarning").env("RUST_BACKTRACE", "0");
    shell::run_to_last_line(script.args(arguments))
}

/// The step of `cargo xtask test` that runs corrupted models.
///
/// # Errors
/// As [`corrupt`].
pub fn corrupt_step(context: &Context<'_>) -> Result<Outcome> {
    let arguments = STEP_CORRUPT.map(str::to_owned);
    corrupt(context.workspace, context.python()?, context.stage()?, &arguments).map(Outcome::Passed)
}

fn script(workspace: &Workspace, python: &Python, library: &Path, path: &str) -> Command {
    let mut command = shell::user_program(&python.interpreter);
    command.current_dir(workspace.root()).arg(path).arg("--library").arg(library).env_remove("PYTHONPATH");
    command
}
