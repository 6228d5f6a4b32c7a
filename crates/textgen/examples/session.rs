//! A model on AMD GPUs with the `ort` crate alone; `docs/rust.md` explains it.
//!
//! `cargo run -p textgen --example session -- libonnxruntime.so libamdgpu-ep.so model.onnx`
#![allow(missing_docs)]

use std::path::Path;

use ort::environment::Environment;
use ort::session::Session;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [onnxruntime, provider, model] = &arguments[..] else {
        anyhow::bail!("usage: session ONNXRUNTIME_LIBRARY PROVIDER_LIBRARY MODEL");
    };
    // ONNX Runtime would resolve a relative path against its own folder.
    let provider = std::path::absolute(provider)?;
    let environment = ort::init_from(onnxruntime)?.build()?;
    let session = session(&environment, &provider, model.as_ref())?;
    for input in session.inputs() {
        println!("{}: {:?}", input.name(), input.dtype());
    }
    Ok(())
}

const PROVIDER: &str = "AMDGPUExecutionProvider";

/// A session with the provider's devices first, if it has any.
pub fn session(environment: &Environment, provider: &Path, model: &Path) -> ort::Result<Session> {
    environment.register_ep_library(PROVIDER, provider)?;
    let devices: Vec<_> =
        environment.devices().filter(|device| device.ep().is_ok_and(|name| name == PROVIDER)).collect();
    let mut builder = Session::builder(environment)?;
    if !devices.is_empty() {
        let options = [(format!("{PROVIDER}.profile"), "hip".to_owned())];
        builder = builder.with_devices(devices, Some(&options))?;
    }
    builder.commit_from_file(model)
}
