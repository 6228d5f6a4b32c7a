//! Shared helpers: locations of ONNX Runtime, the provider and the tiny models.
#![allow(dead_code, reason = "every test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

pub mod tiny;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

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
    let stand_in = program.with_file_name("libmigraphx_standin.so");
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

/// The golden file: the tiny models, and the tokens that they must generate.
pub fn goldens() -> Result<Value> {
    let path = shared("data/tiny_llm_golden.json")?;
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

fn shared(file: &str) -> Result<PathBuf> {
    let path = place::root().join("../shared").join(file);
    if !path.exists() {
        bail!("../shared/{file} is not beside this clone");
    }
    Ok(path)
}

/// A golden model's folder, created once.
pub fn folder(golden: &Value) -> Result<PathBuf> {
    // Two tests must not create the same model at once.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap();
    let name = golden["name"].as_str().context("a model without a name")?;
    let models = place::root().join("target/test-models");
    let folder = models.join(name);
    if folder.join("genai_config.json").exists() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&models)?;
    let draft = models.join(format!(".{name}.{}", std::process::id()));
    let arguments = golden["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let made = Command::new(place::python()?)
        .arg(shared("tools/make_tiny_llm.py")?)
        .arg(&draft)
        .args(arguments)
        .stdout(Stdio::null())
        .status()?;
    if !made.success() {
        bail!("the maker of tiny models failed on {name}");
    }
    // Another process may have been faster.
    if std::fs::rename(&draft, &folder).is_err() {
        std::fs::remove_dir_all(&draft)?;
    }
    Ok(folder)
}

/// Token ids of a golden.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap() as u32).collect()
}
