//! Registers a plugin, lists its devices, copies, runs a model, and unregisters, a given number of times.
//!
//! `cargo xtask test --only valgrind` runs it under valgrind: `ort_cycle <library> <cycles>`.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ort_client::{
    Allocator, Device, DeviceMemory, Element, Environment, LogLevel, Registration, Runtime, Session, SessionOptions,
    Value,
};
use testkit::onnx::{Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};
use testkit::place;

const EP: &str = "AMDGPUExecutionProvider";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, cycles] = arguments.as_slice() else { bail!("usage: ort_cycle <library> <cycles>") };
    let environment = Environment::new(&Runtime::load(&place::onnxruntime()?)?, "ort_cycle", LogLevel::Error)?;
    // ONNX Runtime resolves a relative path from its own folder.
    let library = std::path::absolute(Path::new(library))?;
    let model = model();
    for cycle in 0..cycles.parse().context("cycles is not a number")? {
        let registration = Registration::new(&environment, EP, &library)?;
        once(&environment, &registration, &model).with_context(|| format!("cycle {cycle}"))?;
        registration.unregister()?;
    }
    println!("{cycles} cycles");
    Ok(())
}

fn model() -> Vec<u8> {
    let rows = || Dim::from("rows");
    let graph = Graph::new("cycle")
        .input(ValueInfo::tensor("x", ElementType::Float, [rows(), Dim::from(2)]))
        .initializer(Tensor::floats("w", [2, 2], &[1.0, 0.5, -1.0, 2.0]))
        .node(Node::new("MatMul", ["x", "w"], ["product"]))
        .node(Node::new("Relu", ["product"], ["y"]))
        .output(ValueInfo::tensor("y", ElementType::Float, [rows(), Dim::from(2)]));
    Model::new(graph).opset("", 17).to_bytes()
}

fn session(device: &Device, model: &[u8], options: &[(&str, &str)]) -> ort_client::Result<Session> {
    let mut settings = SessionOptions::new(device.registration().environment())?;
    settings.devices(std::slice::from_ref(device), options)?;
    Session::from_bytes(&mut settings, model)
}

fn once(environment: &Environment, registration: &Registration, model: &[u8]) -> Result<()> {
    let devices = registration.devices()?;
    let device = devices.first().context("the library listed no device (is AMDGPU_EP_DRIVER=host set?)")?;
    ensure!(!device.metadata().is_empty(), "the device has no metadata");
    ensure!(registration.clone().unregister().is_err(), "a library in use was unregistered");
    ensure!(session(device, model, &[("profile", "no such profile")]).is_err(), "an unknown profile was accepted");
    let (runtime, session) = (environment.runtime(), session(device, model, &[])?);
    let input = Value::from_slice(runtime, &[2, 2], &[1.0_f32, 2.0, 3.0, -4.0])?;
    for memory in [DeviceMemory::Device, DeviceMemory::HostAccessible] {
        let allocator = Allocator::shared(device, memory).with_context(|| format!("{memory:?} memory"))?;
        check_statistics(&allocator).with_context(|| format!("{memory:?} memory"))?;
        let mut there = Value::on_device(&allocator, Element::F32, &[2, 2])?;
        let mut back = Value::from_slice(runtime, &[2, 2], &[0.0_f32; 4])?;
        environment.copy(&[&input], &mut [&mut there])?;
        environment.copy(&[&there], &mut [&mut back])?;
        ensure!(back.to_vec::<f32>()? == input.to_vec::<f32>()?, "{memory:?} memory changed the content");
        check_output(&session, &there)?;
    }
    check_output(&session, &input)
}

fn check_output(session: &Session, input: &Value) -> Result<()> {
    let found = session.run(&[("x", input)], &["y"])?[0].to_vec::<f32>()?;
    ensure!(found == [0.0, 4.5, 7.0, 0.0], "wrong result: {found:?}");
    Ok(())
}

/// ONNX Runtime documents the names of the counters.
fn check_statistics(allocator: &Allocator) -> Result<()> {
    let counter = |name: &str| -> Result<i64> {
        let stats = allocator.stats()?;
        let found = stats.iter().find(|(key, _)| key == name).with_context(|| format!("no {name} in {stats:?}"))?;
        found.1.parse().with_context(|| format!("{name} is {:?}", found.1))
    };
    let (in_use, allocations) = (counter("InUse")?, counter("NumAllocs")?);
    ensure!(allocator.probe(5000)? != 0, "no memory was allocated");
    ensure!(counter("InUse")? == in_use, "freed memory still counts as in use");
    ensure!(counter("NumAllocs")? == allocations + 1, "the allocation was not counted");
    ensure!(counter("MaxInUse")? >= in_use + 5000, "the peak is below what was in use");
    Ok(())
}
