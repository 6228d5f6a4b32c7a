//! The host device with hipDNN.
#![allow(dead_code, clippy::unwrap_used)]
use std::sync::OnceLock;

use crate::common::run::run_partition;
use exec::dnn::{Libraries, Mode, Offering};
use exec::host::HostDevice;
use exec::{CompiledPartition, Input, RunBy};
use graph::{Graph, Tensor};

/// The host driver's device.
pub fn driver() -> hip::Device {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    driver.devices().unwrap().remove(0)
}

/// Offers every step to the library that was built with these tests.
pub fn offering() -> Offering {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    let offering = LIBRARIES.get_or_init(Libraries::default).offering(&driver(), Mode::On).unwrap();
    assert!(offering.fault().is_none(), "{:?}", offering.fault());
    offering
}

/// The host device with hipDNN.
pub fn device() -> HostDevice {
    HostDevice::new().with_dnn(offering())
}

/// The backend of each step of the plan for these inputs: `own: map`, with the reason after a comma.
pub fn run_by(program: &CompiledPartition, given: &[Tensor]) -> Vec<String> {
    let value = |at: usize| program.needs_value(at).then(|| given[at].bytes());
    let inputs: Vec<Input<'_>> =
        given.iter().enumerate().map(|(at, tensor)| Input { shape: tensor.shape(), value: value(at) }).collect();
    let prepared = program.plan(&inputs).unwrap();
    let steps = prepared.plan().steps.iter().enumerate();
    steps
        .map(|(at, step)| match prepared.run_by(at) {
            RunBy::Own { why: Some(why) } => format!("own: {}, {why}", step.prim.name()),
            by => by.label(step),
        })
        .collect()
}

/// The results of a graph with and without hipDNN, and the backend of each step.
pub fn both(graph: &Graph, given: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>, Vec<String>) {
    let with = CompiledPartition::new(graph.clone(), &device()).unwrap();
    let without = CompiledPartition::new(graph.clone(), &HostDevice::new()).unwrap();
    (run_partition(&with, given).unwrap(), run_partition(&without, given).unwrap(), run_by(&with, given))
}
