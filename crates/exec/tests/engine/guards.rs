//! Checks that a step writes only its outputs: not the bytes around inputs, outputs and arena, nor other blocks of the
//! arena.

use std::ops::Range;

use exec::host::HostDevice;
use exec::{CompiledPartition, Input, Serial};
use graph::ops::Attribute;
use graph::plan::BufferPlace;
use graph::{DType, Graph, Plan, Step, Tensor, ValueId, View};
use host_ops::{Context, Scratch};
use proptest::prelude::*;

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{random, tensor};

/// Bytes before and after every block, and their value. They keep blocks aligned.
const GUARD_BYTES: usize = 256;
const GUARD: u8 = 0xC3;

/// All memory of a run in one allocation: inputs, outputs and arena, each surrounded by guards.
struct Memory {
    lines: Vec<Line>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    arena: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

impl Memory {
    fn new(plan: &Plan, given: &[Tensor]) -> Self {
        let mut end = GUARD_BYTES;
        let mut block = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(64) + GUARD_BYTES;
            start
        };
        let inputs: Vec<_> = given.iter().map(|tensor| block(tensor.bytes().len())).collect();
        let outputs = plan.outputs.iter().map(|out| block(out.shape.iter().product::<usize>() * out.dtype.bytes()));
        let outputs = outputs.collect();
        let arena = block(plan.arena_bytes);
        let mut memory = Self { lines: vec![Line([GUARD; 64]); end.div_ceil(64)], inputs, outputs, arena };
        for (at, tensor) in given.iter().enumerate() {
            let start = memory.inputs[at];
            for (at, &byte) in tensor.bytes().iter().enumerate() {
                memory.lines[(start + at) / 64].0[(start + at) % 64] = byte;
            }
        }
        memory
    }

    fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.0).collect()
    }

    /// Where a view's buffer starts; `None` for constants, which are stored elsewhere.
    fn start(&self, plan: &Plan, view: &View) -> Option<usize> {
        match plan.place(view) {
            BufferPlace::Input(number) => Some(self.inputs[*number]),
            BufferPlace::Output(number) => Some(self.outputs[*number]),
            BufferPlace::Arena(offset) => Some(self.arena + offset),
            BufferPlace::Constant(_) | BufferPlace::Unused => None,
        }
    }

    /// The bytes a step may write.
    fn writable(&self, plan: &Plan, step: &Step) -> Vec<Range<usize>> {
        let ranges = step.outputs.iter().filter(|view| view.elems() > 0).map(|view| {
            let reach = view.shape.iter().zip(&view.strides).map(|(&extent, &stride)| (extent as isize - 1) * stride);
            let (low, high) =
                reach.fold((view.offset, view.offset), |(low, high), reach| (low + reach.min(0), high + reach.max(0)));
            let start = self.start(plan, view).expect("a step writes to memory of its run");
            let width = view.dtype.bytes();
            start + low as usize * width..start + (high as usize + 1) * width
        });
        ranges.collect()
    }
}

/// Runs a plan step by step and fails if a step changes a byte that it may not write. Returns the outputs' bytes.
fn run_guarded(plan: &Plan, given: &[Tensor]) -> Vec<Vec<u8>> {
    let mut memory = Memory::new(plan, given);
    let mut scratch = Scratch::default();
    for step in &plan.steps {
        let before = memory.bytes();
        let writable = memory.writable(plan, step);
        let base = memory.lines.as_mut_ptr().cast::<u8>();
        let starts = (&memory.inputs, &memory.outputs, memory.arena);
        let address = |buffer: graph::prim::BufferId| match &plan.places[buffer.0 as usize] {
            BufferPlace::Input(number) => base.wrapping_add(starts.0[*number]),
            BufferPlace::Output(number) => base.wrapping_add(starts.1[*number]),
            BufferPlace::Arena(offset) => base.wrapping_add(starts.2 + offset),
            BufferPlace::Constant(number) => plan.constants[*number].bytes().as_ptr().cast_mut(),
            BufferPlace::Unused => std::ptr::null_mut(),
        };
        let mut cx = Context { parallel: &Serial, scratch: &mut scratch };
        // SAFETY: every block is as large as the plan says, aligned, and not used by anything else.
        unsafe { host_ops::run(step, address, &mut cx) }.unwrap();
        for (at, (was, is)) in before.into_iter().zip(memory.bytes()).enumerate() {
            if was != is && !writable.iter().any(|range| range.contains(&at)) {
                panic!("{step:?} changed byte {at}, and may write {writable:?}");
            }
        }
    }
    let all = memory.bytes();
    let outputs = plan.outputs.iter().zip(&memory.outputs).map(|(out, &start)| {
        let bytes = out.shape.iter().product::<usize>() * out.dtype.bytes();
        all[start..start + bytes].to_vec()
    });
    outputs.collect()
}

/// What to add to a graph: an operator, the value it reads (counted from the last), and numbers for its parameters.
type Choice = (usize, usize, usize, usize);

/// A graph under construction whose values all have three axes.
struct Growing {
    build: Build,
    values: Vec<(ValueId, [usize; 3])>,
}

impl Growing {
    fn floats(&mut self, shape: &[usize], seed: usize) -> ValueId {
        self.build.constant(tensor(DType::F32, shape, &random(shape.iter().product(), seed as u64)))
    }

    fn ints(&mut self, values: &[i64]) -> ValueId {
        self.build.constant(Tensor::from_i64s(values))
    }

    fn add(&mut self, (op, back, axis, number): Choice) {
        let (x, shape) = self.values[self.values.len() - 1 - back % self.values.len()];
        let axis = axis % 3;
        let int = |value: usize| Attribute::Int(value as i64);
        let mut to = shape;
        let made = match op % 16 {
            0 => self.build.node(["Relu", "Sigmoid", "Exp", "Neg"][number % 4], &[x]),
            1 => {
                let partner = self.values.iter().find(|(_, other)| *other == shape).map_or(x, |(id, _)| *id);
                self.build.node(["Add", "Mul", "Max"][number % 3], &[x, partner])
            }
            2 => {
                let perm = [[1, 0, 2], [0, 2, 1], [2, 1, 0], [2, 0, 1]][number % 4];
                to = perm.map(|from| shape[from]);
                self.build.with("Transpose", &[x], &[("perm", Attribute::Ints(perm.map(|p| p as i64).to_vec()))])
            }
            3 => self.build.with("Softmax", &[x], &[("axis", int(axis))]),
            4 => {
                to[axis] = 1;
                self.build.mean(x, &[axis as i64])
            }
            5 if shape[axis] < 20 => {
                to[axis] *= 2;
                self.build.with("Concat", &[x, x], &[("axis", int(axis))])
            }
            6 if shape[axis] > 1 => {
                to[axis] -= 1;
                let (starts, ends, axes) = (self.ints(&[1]), self.ints(&[i64::MAX]), self.ints(&[axis as i64]));
                self.build.node("Slice", &[x, starts, ends, axes])
            }
            7 if shape[axis] > 1 => {
                let mut pads = [0; 6];
                (pads[axis], pads[3 + axis]) = (1, number as i64 % 2);
                to[axis] += 1 + number % 2;
                let pads = self.ints(&pads);
                let mode = Attribute::Text(["constant", "edge", "reflect"][number % 3].to_owned());
                self.build.with("Pad", &[x, pads], &[("mode", mode)])
            }
            8 => {
                to[2] = 1 + number % 17;
                let weight = self.floats(&[shape[2], to[2]], number);
                self.build.node("MatMul", &[x, weight])
            }
            9 => {
                let scale = self.floats(&shape[2..], number);
                self.build.with("LayerNormalization", &[x, scale], &[("axis", Attribute::Int(-1))])
            }
            10 => {
                let axis = self.build.constant(tensor(DType::I64, &[], &[axis as f64]));
                self.build.with("CumSum", &[x, axis], &[("reverse", int(number % 2))])
            }
            11 => {
                let indices: Vec<i64> = (0..1 + number % 4).map(|at| (at * 7 % shape[axis]) as i64).collect();
                to[axis] = indices.len();
                let indices = self.ints(&indices);
                self.build.with("Gather", &[x, indices], &[("axis", int(axis))])
            }
            12 => {
                to[1] = 1 + number % 5;
                let weight = self.floats(&[to[1], shape[1], 3], number);
                self.build.with("Conv", &[x, weight], &[("pads", Attribute::Ints(vec![1, 1]))])
            }
            13 if shape[2] > 1 => {
                to[2] -= 1;
                self.build.with("MaxPool", &[x], &[("kernel_shape", Attribute::Ints(vec![2]))])
            }
            14 => {
                let first = self.floats(&shape[1..], number);
                self.build.node("PRelu", &[x, first])
            }
            15 if to.iter().product::<usize>() < 2000 => {
                to[axis] *= 2;
                let mut repeats = [1; 3];
                repeats[axis] = 2;
                let repeats = self.ints(&repeats);
                self.build.node("Tile", &[x, repeats])
            }
            _ => return,
        };
        self.values.push((made, to));
    }
}

fn graph(shape: [usize; 3], choices: &[Choice]) -> Graph {
    let mut build = Build::default();
    let x = build.input();
    let mut growing = Growing { build, values: vec![(x, shape)] };
    choices.iter().for_each(|&choice| growing.add(choice));
    let mut outputs: Vec<_> = growing.values[1..].iter().rev().step_by(3).map(|(id, _)| *id).collect();
    outputs.truncate(3);
    growing.build.outputs(&outputs)
}

fn check(shape: [usize; 3], choices: &[Choice]) {
    let given = [tensor(DType::F32, &shape, &random(shape.iter().product(), 7))];
    let program = CompiledPartition::new(graph(shape, choices), &HostDevice::new()).unwrap();
    let prepared = program.plan(&[Input { shape: &shape, value: None }]).unwrap();
    let found = run_guarded(prepared.plan(), &given);
    let wanted = run_partition(&program, &given).unwrap();
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(&found[..], wanted.bytes());
    }
}

/// Gather reads the first of three channels, so the convolution cannot store its result in place of the map's.
#[test]
fn a_part_of_a_product_does_not_overwrite_it() {
    check([1, 1, 1], &[(0, 0, 0, 0), (12, 0, 0, 57), (11, 0, 1, 4)]);
}

proptest! {
    #[test]
    fn steps_write_only_their_outputs(
        shape in [1usize..4, 1usize..6, 1usize..20],
        choices in prop::collection::vec((0usize..16, 0usize..4, 0usize..3, 0usize..60), 3..16),
    ) {
        check(shape, &choices);
    }
}
