//! Large constants that a GPU has are kept nowhere else, and come back to the host where it needs them.
#![allow(clippy::unwrap_used, clippy::panic)]
#[path = "common/lookup.rs"]
mod lookup;

mod common;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use common::{Case, numbers, random, tensor};
use exec::{
    Input, Order, Program, RunBy,
    gpu::GpuDevice,
    host::{HostDevice, run_program},
    memory::Purpose,
};
use graph::{DType, Graph, Node, Tensor};
use kernels::{Arch, CompileError, Compiler, Kernel, sim::Simulator};
use lookup::{COLUMNS, Lookup, Memory, gpu};

/// All count bytes, which are the process's, not a test's.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What constants hold on the host.
fn held() -> usize {
    Purpose::Constants.usage().now
}

/// Room for constants that planning makes.
const SMALL: usize = 4096;

const DEPTH: usize = 96;
const WIDTH: usize = 200;
const WEIGHT: usize = DEPTH * WIDTH * 4;

/// `x · weight`, or `x · exp(weight)`, with `x` of any number of rows.
fn product(is_folded: bool) -> Graph {
    let weight = tensor(DType::F32, &[DEPTH, WIDTH], &random(DEPTH * WIDTH, 5));
    let mut case = Case::new("MatMul", 13, vec![rows(1), weight.clone()], &[DType::F32]);
    case.constants.push(1);
    let mut graph = case.graph().unwrap().0;
    if is_folded {
        let (exp, _) = Case::new("Exp", 13, vec![weight], &[DType::F32]).graph().unwrap();
        let product = graph.nodes()[0].clone();
        let mut whole = Graph::new();
        let ids: Vec<_> =
            graph.values().iter().map(|it| whole.add_value(&it.name, it.dtype, it.constant.clone())).collect();
        let result = whole.add_value("exp", DType::F32, None);
        let of_exp = Node { inputs: vec![product.inputs[1]], outputs: vec![Some(result)], ..exp.nodes()[0].clone() };
        whole.add_node(of_exp);
        whole.add_node(Node { inputs: vec![product.inputs[0], Some(result)], ..product });
        whole.set_inputs(vec![ids[0]]);
        whole.set_outputs(graph.outputs().to_vec());
        graph = whole;
    }
    graph
}

fn rows(count: usize) -> Tensor {
    tensor(DType::F32, &[count, DEPTH], &random(count * DEPTH, 7))
}

/// Runs on some rows and compares with the host device. Says whether the device ran the product.
fn check(program: &Program, is_folded: bool, count: usize) -> bool {
    let given = [rows(count)];
    let found = run_program(program, &given).unwrap();
    let wanted = run_program(&Program::new(product(is_folded), &HostDevice::new()).unwrap(), &given).unwrap();
    common::assert_close(&numbers(&found[0]), &numbers(&wanted[0]), 1e-4);
    let prepared = program.plan(&[Input { shape: given[0].shape(), value: None }]).unwrap();
    assert_eq!(prepared.plan().steps.len(), 1);
    !matches!(prepared.run_by(0), RunBy::Host { .. })
}

/// The simulator, until it is broken.
struct Fickle {
    simulator: Simulator,
    is_broken: AtomicBool,
}

impl Compiler for Fickle {
    fn version(&self) -> String {
        self.simulator.version()
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        if self.is_broken.load(Ordering::Relaxed) {
            return kernels::NoCompiler { reason: "it broke".into() }.compile(kernel, arch);
        }
        self.simulator.compile(kernel, arch)
    }
}

fn fickle() -> (GpuDevice, Arc<Fickle>) {
    let simulator = Simulator::new(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim")).unwrap();
    let arch = Arch::new("gfx1100", 4);
    simulator.set_wave(arch.wave).unwrap();
    let compiler = Arc::new(Fickle { simulator, is_broken: AtomicBool::new(false) });
    let device = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    (GpuDevice::new(device, arch, compiler.clone()), compiler)
}

#[test]
fn a_constant_that_was_uploaded_is_held_by_the_device_alone_whatever_shapes_follow() {
    let _turn = turn();
    let (gpu, before, weights) = (gpu(), held(), Purpose::Weights.usage().now);
    let (lookup, table) = (Lookup::new(&gpu, 50_000), 50_000 * COLUMNS * 4);
    assert_eq!(held(), before + table, "nothing is uploaded yet");
    lookup.prepare(1);
    assert!(held() < before + SMALL, "{} bytes are held beside the device's", held() - before);
    assert!(Purpose::Weights.usage().now >= weights + table);
    for count in 1..5 {
        let mut memory = Memory::new(&vec![49_999; count]);
        memory.run(&lookup, Order::Now).unwrap();
        memory.check(&lookup);
        assert!(held() < before + SMALL);
    }
    drop(lookup);
    assert_eq!((held(), Purpose::Weights.usage().now), (before, weights), "all is freed with the program");
}

#[test]
fn a_small_constant_stays_for_the_plans_to_come() {
    let _turn = turn();
    let (gpu, before) = (gpu(), held());
    let lookup = Lookup::new(&gpu, 1000);
    lookup.prepare(1);
    assert!(held() >= before + 1000 * COLUMNS * 4);
}

#[test]
fn steps_that_fall_back_to_the_host_get_their_constant_back_once() {
    let _turn = turn();
    let (gpu, compiler) = fickle();
    let before = held();
    let program = Program::new(product(false), &gpu).unwrap();
    assert!(check(&program, false, 1), "one row has a kernel");
    assert!(held() < before + SMALL);
    compiler.is_broken.store(true, Ordering::Relaxed);
    for count in [40, 70, 100] {
        assert!(!check(&program, false, count), "many rows have another one, which can't be compiled");
        let more = held() - before;
        assert!((WEIGHT..WEIGHT + SMALL).contains(&more), "{more} bytes are held for steps on the host");
    }
    assert!(check(&program, false, 1));
    drop(program);
    assert_eq!(held(), before);
}

#[test]
fn what_is_computed_from_constants_is_held_by_the_device_alone_and_computed_once() {
    let _turn = turn();
    let (gpu, before) = (gpu(), held());
    let program = Program::new(product(true), &gpu).unwrap();
    let weights = Purpose::Weights.usage().now;
    for count in [1, 3, 40] {
        assert!(check(&program, true, count));
        let more = held() - before;
        assert!((WEIGHT..WEIGHT + SMALL).contains(&more), "{more} bytes: the weight that it was computed from stays");
        let uploaded = Purpose::Weights.usage().now - weights;
        assert!(uploaded < WEIGHT + SMALL, "{uploaded} bytes were uploaded");
    }
}

#[test]
fn plans_made_at_once_upload_a_constant_once() {
    let _turn = turn();
    let (gpu, before, weights) = (gpu(), held(), Purpose::Weights.usage().now);
    let program = Program::new(product(false), &gpu).unwrap();
    std::thread::scope(|scope| {
        for count in 1..5 {
            let program = &program;
            scope.spawn(move || assert!(check(program, false, count)));
        }
    });
    assert!(held() < before + SMALL);
    assert!(Purpose::Weights.usage().now - weights < WEIGHT + SMALL);
}

#[test]
fn the_host_device_keeps_its_constants() {
    let _turn = turn();
    let before = held();
    let host = HostDevice::new();
    let program = Program::new(product(false), &host).unwrap();
    check(&program, false, 2);
    assert_eq!(held(), before + WEIGHT);
}
