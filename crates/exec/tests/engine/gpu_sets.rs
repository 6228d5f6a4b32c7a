//! Tests sessions with precompiled kernels from the catalogue.

use std::path::PathBuf;
use std::sync::Arc;

use exec::gpu::GpuDevice;
use exec::memory::Purpose;
use exec::{CompiledPartition, Input, RunBy};
use graph::DType;
use graph::ops::Attribute;
use kernel_catalogue::catalogue;
use kernels::sim::Simulator;
use kernels::{Arch, CachedCompiler, Compiled, Compiler, Counts, NoCompiler};

use crate::common;
use crate::common::{Case, random, tensor};

const TARGET: &str = "gfx1100";

fn device(compiler: impl Compiler + 'static) -> GpuDevice {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    GpuDevice::new(driver.devices().unwrap().remove(0), Arch::new(TARGET, 64), Arc::new(compiler))
}

/// The catalogue's kernels whose labels start with one of these, built by the simulator.
fn set(labels: &[&str]) -> PathBuf {
    let tmp = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (simulator, folder) = (Simulator::new(&tmp.join("sim")).unwrap(), tmp.join("set"));
    simulator.set_wave(32).unwrap();
    let arch = Arch::new(TARGET, 64);
    let mut compiled = Vec::new();
    for sample in catalogue().iter().filter(|sample| labels.iter().any(|label| sample.label.starts_with(label))) {
        for launch in kernels::work(&sample.step, &arch).unwrap().launches {
            let code = simulator.compile(&launch.kernel, &arch).unwrap();
            compiled.push(Compiled { kernel: launch.kernel.name.to_owned(), text: launch.kernel.text(), code });
        }
    }
    kernels::write_set(&folder, TARGET, &compiled).unwrap();
    folder
}

fn cases() -> [Case; 3] {
    let x = tensor(DType::F32, &[64, 1024], &random(64 * 1024, 1));
    let rows = tensor(DType::F32, &[2, 1, 256], &random(512, 2));
    let columns = tensor(DType::F32, &[2, 256, 256], &random(131_072, 4));
    let (table, indices) = (tensor(DType::F32, &[9, 8], &random(72, 3)), tensor(DType::I64, &[3], &[8.0, 0.0, 4.0]));
    [
        Case::new("Softmax", 13, vec![x], &[DType::F32]),
        Case::new("MatMul", 13, vec![rows, columns], &[DType::F32]),
        Case::new("Gather", 13, vec![table, indices], &[DType::F32]).attribute("axis", Attribute::Int(0)),
    ]
}

#[test]
fn a_session_with_a_shipped_set_needs_no_compiler() {
    let folder = set(&["softmax f32", "gather f32", "matmul one row f32"]);
    let none = || NoCompiler { reason: "libhiprtc is not installed".into() };
    let gpu = device(CachedCompiler::new(none(), None, 0).with_shipped(folder));
    for case in cases() {
        let (graph, given) = case.graph().unwrap();
        let program = CompiledPartition::new(graph.clone(), &gpu).unwrap();
        let shapes: Vec<Input<'_>> = given.iter().map(|x| Input { shape: x.shape(), value: None }).collect();
        let prepared = program.plan(&shapes).unwrap();
        assert!(matches!(prepared.run_by(0), RunBy::Own { .. }), "{:?}", prepared.run_by(0).why());
        let found = common::run::run_partition(&program, &given).unwrap();
        let wanted = common::run::run_on_host(graph, &given).unwrap();
        common::assert_close(&common::numbers(&found[0]), &common::numbers(&wanted[0]), 1e-4);
    }
    let counts = gpu.counts().unwrap();
    assert_eq!((counts.kept, counts.compiled), (0, 0));
    assert!(counts.shipped >= 3, "{counts:?}");
}

#[test]
fn a_step_without_a_kernel_runs_on_the_host() {
    let none = NoCompiler { reason: "libhiprtc is not installed".into() };
    let gpu = device(CachedCompiler::new(none, None, 0).with_shipped(PathBuf::from("no such folder")));
    let (graph, given) = cases()[0].graph().unwrap();
    let program = CompiledPartition::new(graph.clone(), &gpu).unwrap();
    let prepared = program.plan(&[Input { shape: given[0].shape(), value: None }]).unwrap();
    let RunBy::Host { why } = prepared.run_by(0) else { panic!("who runs it?") };
    assert!(why.ends_with("is not in the shipped set, and there is no compiler: libhiprtc is not installed"), "{why}");
    let found = common::run::run_partition(&program, &given).unwrap();
    assert_eq!(found, common::run::run_on_host(graph, &given).unwrap());
    let copies = 2 * given[0].bytes().len();
    assert!(Purpose::Working.usage().peak >= copies, "operands on the host are counted");
    assert_eq!(gpu.counts(), Some(Counts { shipped: 0, kept: 0, compiled: 1 }));
}
