//! NVIDIA's run-time compiler from PyPI, which needs no GPU.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::built;
use crate::setup::{self, RuntimeSource};
use crate::shard;
use crate::shell;
use crate::test::{Context, Outcome};

const PACKAGE: &str = "nvidia-cuda-nvrtc";
const VERSION: &str = "13.0.88";
const TARGET: &str = "sm_90";

/// Compiles the part of the kernels that is due for the CUDA twin.
///
/// # Errors
/// A source does not compile. A package that is not available is a skip.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    let folder = match setup::third_party(context.workspace, context.python()?, PACKAGE, VERSION)? {
        RuntimeSource::Folder(folder) => folder,
        _ => return Ok(Outcome::Skipped(format!("pip found no {PACKAGE} {VERSION} for this machine"))),
    };
    let mut test = Command::new(built::test(context.workspace, "kernel-catalogue", "compilers")?);
    test.env("AMDGPU_EP_CUDA_LIBRARY_PATH", library_folder(folder)?).env("AMDGPU_EP_TEST_KERNELS_NVIDIA", TARGET);
    let shard = context.due(super::PARTS, 2);
    test.args(["--nocapture", "nvrtc"]).env(shard::VARIABLE, shard.variable());
    shell::run(&mut test)?;
    Ok(Outcome::Passed(format!("{PACKAGE} {VERSION}, {TARGET}{}", shard.note())))
}

/// Finds the folder of `libnvrtc.so.*` below `top`.
fn library_folder(top: PathBuf) -> Result<PathBuf> {
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)?.flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with("libnvrtc.so") {
                return Ok(folder);
            }
        }
    }
    None.with_context(|| format!("{} does not contain libnvrtc.so", top.display()))
}
