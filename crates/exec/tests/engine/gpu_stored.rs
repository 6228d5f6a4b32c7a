//! Checks that large constants on a GPU are kept nowhere else and are copied back if the host needs them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use exec::host::HostDevice;
use exec::memory::Purpose;
use exec::{CompiledPartition, Input, Order, RunBy};
use graph::ops::Attribute;
use graph::{DType, Graph, Tensor};

use crate::build::Build;
use crate::common;
use crate::common::run::run_partition;
use crate::common::{numbers, random, tensor};
use crate::fickle::fickle;
use crate::lookup::{COLUMNS, Lookup, Memory, gpu};

/// Serialises the tests: byte counts are process-wide.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes that constants hold on the host.
fn held() -> usize {
    Purpose::Constants.usage().now
}

/// Allowance for constants that planning creates.
const SMALL: usize = 4096;

const DEPTH: usize = 96;
const WIDTH: usize = 200;
const WEIGHT: usize = DEPTH * WIDTH * 4;

/// The use of the weight.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    /// `x · weight`.
    Plain,
    /// `x · exp(weight)`.
    Folded,
    /// `x · exp(weight)`, and two rows of `exp(weight)`.
    ReadTwice,
}

impl Model {
    fn graph(self) -> Graph {
        let mut build = Build::default();
        let x = build.input();
        let mut weight = build.constant(tensor(DType::F32, &[DEPTH, WIDTH], &random(DEPTH * WIDTH, 5)));
        if self != Self::Plain {
            weight = build.node("Exp", &[weight]);
        }
        let mut outputs = vec![build.node("MatMul", &[x, weight])];
        if self == Self::ReadTwice {
            let indices = build.input_of(DType::I64);
            outputs.push(build.with("Gather", &[weight, indices], &[("axis", Attribute::Int(0))]));
        }
        build.outputs(&outputs)
    }

    fn given(self, rows: usize) -> Vec<Tensor> {
        let x = tensor(DType::F32, &[rows, DEPTH], &random(rows * DEPTH, 7));
        let indices = (self == Self::ReadTwice).then(|| Tensor::from_i64s(&[3, 90]));
        [x].into_iter().chain(indices).collect()
    }

    /// Runs on some rows and compares with the host device. Returns how many steps ran on the host.
    fn check(self, program: &CompiledPartition, rows: usize) -> usize {
        let given = self.given(rows);
        let found = run_partition(program, &given).unwrap();
        let wanted = run_partition(&CompiledPartition::new(self.graph(), &HostDevice::new()).unwrap(), &given).unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            common::assert_close(&numbers(found), &numbers(wanted), 1e-4);
        }
        let shapes: Vec<Input<'_>> = given.iter().map(|it| Input { shape: it.shape(), value: None }).collect();
        let prepared = program.plan(&shapes).unwrap();
        let steps = prepared.plan().steps.len();
        assert_eq!(steps, wanted.len(), "nothing is left of what is done to constants alone");
        (0..steps).filter(|&step| matches!(prepared.run_by(step), RunBy::Host { .. })).count()
    }
}

#[test]
fn only_the_device_holds_an_uploaded_constant() {
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
fn a_small_constant_stays_on_the_host() {
    let _turn = turn();
    let (gpu, before) = (gpu(), held());
    let lookup = Lookup::new(&gpu, 1000);
    lookup.prepare(1);
    assert!(held() >= before + 1000 * COLUMNS * 4);
}

#[test]
fn host_fallback_copies_a_constant_back_once() {
    let _turn = turn();
    let (gpu, compiler) = fickle();
    let before = held();
    let program = CompiledPartition::new(Model::Plain.graph(), &gpu).unwrap();
    assert_eq!(Model::Plain.check(&program, 1), 0, "one row has a kernel");
    assert!(held() < before + SMALL);
    compiler.refuse("");
    for rows in [40, 70, 100] {
        assert_eq!(Model::Plain.check(&program, rows), 1, "many rows have another one, which cannot be compiled");
        let more = held() - before;
        assert!((WEIGHT..WEIGHT + SMALL).contains(&more), "{more} bytes are held for steps on the host");
    }
    assert_eq!(Model::Plain.check(&program, 1), 0);
    drop(program);
    assert_eq!(held(), before);
}

#[test]
fn folded_constants_are_computed_once_and_held_only_by_the_device() {
    let _turn = turn();
    let (gpu, before) = (gpu(), held());
    let program = CompiledPartition::new(Model::Folded.graph(), &gpu).unwrap();
    let weights = Purpose::Weights.usage().now;
    for rows in [1, 3, 40] {
        assert_eq!(Model::Folded.check(&program, rows), 0);
        let more = held() - before;
        assert!((WEIGHT..WEIGHT + SMALL).contains(&more), "{more} bytes: the weight that it was computed from stays");
        let uploaded = Purpose::Weights.usage().now - weights;
        assert!(uploaded < WEIGHT + SMALL, "{uploaded} bytes were uploaded");
    }
}

#[test]
fn folded_constants_that_both_read_are_computed_once_and_held_by_both() {
    let _turn = turn();
    let (gpu, compiler) = fickle();
    let (before, weights) = (held(), Purpose::Weights.usage().now);
    compiler.refuse("gather");
    let program = CompiledPartition::new(Model::ReadTwice.graph(), &gpu).unwrap();
    for rows in [1, 3, 40] {
        assert_eq!(Model::ReadTwice.check(&program, rows), 1);
        let more = held() - before;
        assert!((2 * WEIGHT..2 * WEIGHT + SMALL).contains(&more), "{more} bytes: the weight, and what came of it");
        let uploaded = Purpose::Weights.usage().now - weights;
        assert!(uploaded < WEIGHT + SMALL, "{uploaded} bytes were uploaded");
    }
}

#[test]
fn concurrent_plans_upload_a_constant_once() {
    let _turn = turn();
    let (gpu, before, weights) = (gpu(), held(), Purpose::Weights.usage().now);
    let program = CompiledPartition::new(Model::Plain.graph(), &gpu).unwrap();
    std::thread::scope(|scope| {
        for rows in 1..5 {
            let program = &program;
            scope.spawn(move || assert_eq!(Model::Plain.check(program, rows), 0));
        }
    });
    assert!(held() < before + SMALL);
    assert!(Purpose::Weights.usage().now - weights < WEIGHT + SMALL);
}

#[test]
fn the_host_device_keeps_its_constants() {
    let _turn = turn();
    let before = held();
    let program = CompiledPartition::new(Model::Plain.graph(), &HostDevice::new()).unwrap();
    Model::Plain.check(&program, 2);
    assert_eq!(held(), before + WEIGHT);
}
