//! Shows the provider working in ONNX Runtime on any machine; without an AMD GPU it uses the host device.

use anyhow::Result;

use crate::stage::Profile;
use crate::workspace::Workspace;
use crate::{setup, shell, stage};

/// Builds, stages, sets up and runs `python/demo.py`.
///
/// # Errors
/// When a part of it fails; the script exits non-zero unless all of its results were right.
pub fn run(workspace: &Workspace, profile: Profile) -> Result<()> {
    let interpreter = setup::interpreter(workspace)?;
    let stage = stage::run(workspace, profile)?;
    let mut demo = shell::user_program(&interpreter);
    demo.arg(workspace.path("python/demo.py")).env_remove("PYTHONPATH");
    shell::run(demo.arg("--library").arg(stage.umbrella()).arg("--command").arg(stage.command()))
}
