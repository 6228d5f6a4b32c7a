//! Checks a gate, the value it gates and the norm before them as one step on a GPU: in every type, for few rows and for
//! more, with float and 4-bit weights.

use std::sync::Mutex;

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, Input, RunBy, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};
use testkit::part;

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, device, numbers, random, tensor};

/// Serialises simulation: the wave width is a process-wide setting.
static SIMULATOR: Mutex<()> = Mutex::new(());

const DEPTH: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    packed: bool,
    columns: usize,
    /// Adds a bias row to each product, before the gate.
    biased: bool,
}

fn product(build: &mut Build, case: Case, x: ValueId, seed: u64) -> ValueId {
    let Case { dtype, packed, columns, biased } = case;
    let small = |count: usize, seed: u64| random(count, seed).iter().map(|number| number / 16.0).collect::<Vec<f64>>();
    let made = if packed {
        let byte = |number: &f64| ((number + 2.0) * 64.0) as u8;
        let bytes: Vec<u8> = random(columns * DEPTH / 2, seed).iter().map(byte).collect();
        let weights = build.constant(Tensor::from_bytes(DType::U8, &[columns, DEPTH / 32, 16], &bytes).unwrap());
        let scales = build.constant(tensor(dtype, &[columns, DEPTH / 32], &small(columns * DEPTH / 32, seed + 1)));
        let int = |name, value: usize| (name, Attribute::Int(value as i64));
        let attributes = [int("K", DEPTH), int("N", columns), int("bits", 4), int("block_size", 32)];
        build.contrib("MatMulNBits", &[x, weights, scales], &attributes)
    } else {
        let weights = build.constant(tensor(dtype, &[DEPTH, columns], &small(DEPTH * columns, seed)));
        build.node("MatMul", &[x, weights])
    };
    if !biased {
        return made;
    }
    let bias = build.constant(tensor(dtype, &[columns], &random(columns, seed + 2)));
    build.node("Add", &[made, bias])
}

fn graph(case: Case) -> Graph {
    let mut build = Build::default();
    let x = build.input_of(case.dtype);
    let scale = build.constant(tensor(case.dtype, &[DEPTH], &random(DEPTH, 1)));
    let normed = build.with("SimplifiedLayerNormalization", &[x, scale], &[("epsilon", Attribute::Float(1e-5))]);
    let (gate, up) = (product(&mut build, case, normed, 2), product(&mut build, case, normed, 6));
    let sigmoid = build.node("Sigmoid", &[gate]);
    let silu = build.node("Mul", &[gate, sigmoid]);
    let gated = build.node("Mul", &[silu, up]);
    build.outputs(&[gated])
}

/// The result of a graph for some rows, and its steps.
fn run(device: &dyn Device, graph: &Graph, off: &str, x: &Tensor) -> (Vec<f64>, Vec<&'static str>) {
    let (passes, unknown) = Selection::without(off);
    assert!(unknown.is_empty());
    let program = CompiledPartition::with(graph.clone(), device, Settings { passes, ..Settings::default() }).unwrap();
    let plan = program.plan(&[Input { shape: x.shape(), value: None }]).unwrap();
    let steps: Vec<&str> = plan.plan().steps.iter().map(|step| step.prim.name()).collect();
    for at in (0..steps.len()).filter(|_| device.name() != "host") {
        assert!(!matches!(plan.run_by(at), RunBy::Host { .. }), "{}: {:?}", steps[at], plan.run_by(at));
    }
    (numbers(&run_partition(&program, std::slice::from_ref(x)).unwrap()[0]), steps)
}

#[test]
fn gated_rows_are_right_in_every_type_and_row_count() {
    let _turn = SIMULATOR.lock().unwrap();
    for target in part::due(["gfx1100", "gfx942"]) {
        let gpu = device::simulated(target);
        for (dtype, close) in [(DType::F32, 1e-4), (DType::F16, 1e-2), (DType::Bf16, 6e-2)] {
            for (packed, columns, biased) in
                [(false, 96, false), (false, 33, false), (true, 96, false), (true, 34, false), (true, 96, true)]
            {
                let case = Case { dtype, packed, columns, biased };
                let graph = graph(case);
                for shape in [&[1, DEPTH][..], &[2, DEPTH], &[2, 1, DEPTH], &[1, 3, DEPTH], &[8, DEPTH], &[3, 3, DEPTH]]
                {
                    let x = tensor(dtype, shape, &random(shape.iter().product(), 9));
                    let (wanted, _) = run(&HostDevice::new(), &graph, "", &x);
                    let rows = x.elems() / DEPTH;
                    for off in ["", "normed-products", "gated-products", "normed-products,gated-products"] {
                        let (found, steps) = run(&gpu, &graph, off, &x);
                        let what = format!("{case:?} of {shape:?} without {off:?}: {steps:?}");
                        assert_close(&found, &wanted, close);
                        let may_gate = !off.contains("gated") && !biased && rows <= if packed { 8 } else { 2 };
                        let is_gated = steps.iter().any(|step| step.starts_with("gated"));
                        assert_eq!(is_gated, may_gate, "{what}");
                    }
                }
            }
        }
    }
}
