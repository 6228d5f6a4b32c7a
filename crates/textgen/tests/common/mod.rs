//! Shared helpers: locations of ONNX Runtime, the provider and the tiny models.
#![allow(dead_code, reason = "each test program uses only some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers may panic")]

pub mod served;
pub mod tiny;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testkit::place;
use textgen::{Config, Model, ProviderRequest, Runtime};

/// Path of the real MIGraphX, set when `cargo xtask test --only migraphx` runs these tests on it.
const REAL_MIGRAPHX: &str = "AMDGPU_EP_TEST_MIGRAPHX";

/// Restarts this test program with the host driver and a MIGraphX library, because a process can choose these only
/// once. The library is the stand-in, unless a real one is given.
pub fn on_the_host_driver() {
    const DRIVER: &str = "AMDGPU_EP_DRIVER";
    if std::env::var_os(DRIVER).is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1)).env(DRIVER, "host");
    // Cargo builds the stand-in beside this program.
    let stand_in = program.with_file_name(format!("{DLL_PREFIX}migraphx_standin{DLL_SUFFIX}"));
    command.env("AMDGPU_EP_MIGRAPHX_LIBRARY", stand_in).env("AMDGPU_EP_MIGRAPHX_TARGET", "ref");
    std::process::exit(command.status().unwrap().code().unwrap_or(2));
}

/// The provider that runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Cpu,
    /// Our provider, with any of its backends.
    Device,
    /// Our provider's migraphx backend.
    Migraphx,
}

/// Whether MIGraphX is the real one.
pub fn has_real_migraphx() -> bool {
    std::env::var_os(REAL_MIGRAPHX).is_some()
}

pub fn runtime() -> Result<Runtime> {
    Ok(Runtime::load(&place::onnxruntime()?)?)
}

/// The configuration of a folder, for a provider.
pub fn config(folder: &Path, on: On) -> Result<Config> {
    let mut config = Config::from_folder(folder)?;
    config.session.intra_threads = Some(1);
    if on != On::Cpu {
        let library = place::staged_library("amdgpu-ep")?;
        config.provider = Some(ProviderRequest { library: Some(library), ..ProviderRequest::default() });
    }
    if on == On::Migraphx {
        config.append_provider("amdgpu", [("profile", "migraphx")])?;
    }
    Ok(config)
}

pub fn load(config: &Config) -> Result<Model> {
    let model = Model::load(&runtime()?, config)?;
    if config.provider.is_some() && !model.notices().is_empty() {
        bail!("{}", model.notices().join("; "));
    }
    Ok(model)
}

/// The golden file: the tiny models, and the tokens that they must generate. Fails if the models cannot be made here.
pub fn goldens() -> Result<Value> {
    place::python()?;
    let path = place::root().join("tests/tiny_llm/goldens.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

/// A golden model's folder, created once.
pub fn folder(golden: &Value) -> Result<PathBuf> {
    let name = golden["name"].as_str().context("this model has no name")?;
    let made = Command::new(place::python()?)
        .arg(place::root().join("tests/tiny_models.py"))
        .arg(name)
        .stderr(Stdio::inherit())
        .output()?;
    if !made.status.success() {
        bail!("tests/tiny_models.py failed on {name}");
    }
    Ok(PathBuf::from(String::from_utf8(made.stdout)?.trim_end()))
}

/// Token ids of a golden.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap() as u32).collect()
}
