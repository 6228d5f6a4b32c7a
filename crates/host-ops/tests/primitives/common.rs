//! Runs one step on buffers, with sentinel bytes around the elements of the output.
use graph::prim::BufferId;
use graph::shape::{self, Strides};
use graph::{DType, Prim, Scalar, Step, Tensor, View};
use host_ops::{Context, OpError, Parallel, Scratch};
use proptest::prelude::*;
use testkit::ops::{Arrangement, Memory, Sample, compare, gather, list, room, round_numbers, scatter};

pub use testkit::ops::indices;

/// Each task on its own thread.
struct Threads(usize);

impl Parallel for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if tasks == 1 {
            return body(0);
        }
        std::thread::scope(|scope| {
            for task in 0..tasks {
                scope.spawn(move || body(task));
            }
        });
    }
}

/// The layout of a tensor in its buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub shape: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
}

impl Layout {
    pub fn dense(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), strides: shape::dense_strides(shape).to_vec(), offset: 0 }
    }

    /// Axes in a given memory order, with gaps, some backwards and, if allowed, some repeated.
    pub fn arranged(shape: &[usize], order: &[usize], gaps: &[usize], backwards: &[bool], repeated: &[bool]) -> Self {
        let mut strides = vec![0; shape.len()];
        let (mut step, mut offset) = (1isize, 1isize);
        for &axis in order.iter().rev() {
            if repeated[axis] {
                continue;
            }
            step *= gaps[axis] as isize;
            strides[axis] = step;
            if backwards[axis] {
                strides[axis] = -step;
                offset += step * (shape[axis] as isize - 1).max(0);
            }
            step *= shape[axis].max(1) as isize;
        }
        Self { shape: shape.to_vec(), strides, offset }
    }

    /// The number of elements that the tensor has.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }

    fn view(&self, buffer: u32, dtype: DType) -> View {
        View {
            buffer: BufferId(buffer),
            dtype,
            shape: self.shape.as_slice().into(),
            strides: Strides::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

/// Layouts of a shape; only inputs may repeat elements.
pub fn layout(shape: Vec<usize>, may_repeat: bool) -> impl Strategy<Value = Layout> {
    let rank = shape.len();
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let arranged = (
        order,
        prop::collection::vec(1usize..3, rank),
        prop::collection::vec(any::<bool>(), rank),
        prop::collection::vec(prop::bool::weighted(if may_repeat { 0.2 } else { 0.0 }), rank),
    );
    (prop::bool::weighted(0.4), arranged).prop_map(move |(is_dense, (order, gaps, backwards, repeated))| {
        if is_dense { Layout::dense(&shape) } else { Layout::arranged(&shape, &order, &gaps, &backwards, &repeated) }
    })
}

/// Any of the simple layouts.
pub fn arrangement() -> impl Strategy<Value = Arrangement> {
    prop::sample::select(&testkit::ops::ARRANGEMENTS[..])
}

/// A view with a buffer of numbers for it.
pub fn laid(view: View, seed: u64) -> (View, Tensor) {
    let numbers = round_numbers(view.dtype, room(&view), seed);
    (view, numbers)
}

/// Deterministic pseudo-random numbers.
pub fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut next = testkit::ops::noise(seed);
    move || next().wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// Small values of a type: floats with a fraction, integers of both signs if signed, bools.
pub fn values(dtype: DType, count: usize, seed: u64) -> Vec<Scalar> {
    let mut next = noise(seed);
    (0..count)
        .map(|_| {
            let number = (next() % 4001) as i64 - 2000;
            match dtype {
                DType::Bool => Scalar::Int(number & 1),
                _ if dtype.is_float() => Scalar::Float(number as f64 / 500.0).cast(dtype),
                _ if dtype.is_signed() => Scalar::from_i64(number % 100, dtype).cast(dtype),
                _ => Scalar::from_i64(number.abs() % 200, dtype).cast(dtype),
            }
        })
        .collect()
}

/// Elements as numbers.
pub fn numbers(elements: &[Scalar]) -> Vec<f64> {
    elements.iter().map(|element| element.as_f64()).collect()
}

/// Numbers as elements of a type.
pub fn stored(dtype: DType, numbers: impl IntoIterator<Item = f64>) -> Vec<Scalar> {
    numbers.into_iter().map(|number| Scalar::Float(number).cast(dtype)).collect()
}

/// Builds one step.
pub struct Case {
    step: Step,
    inputs: Vec<Tensor>,
    threads: usize,
}

impl Case {
    pub fn new(prim: Prim) -> Self {
        let step = Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() };
        Self { step, inputs: Vec::new(), threads: 1 }
    }

    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Adds an input with these elements in row-major order. If the layout repeats elements, the last one stays.
    pub fn input(mut self, dtype: DType, layout: &Layout, values: &[Scalar]) -> Self {
        let view = layout.view(self.inputs.len() as u32, dtype);
        let elements = Tensor::from_scalars(dtype, &[values.len()], values.iter().copied()).unwrap();
        self.inputs.push(scatter(&view, &elements));
        self.step.inputs.push(view);
        self
    }

    /// A dense input.
    pub fn dense(self, dtype: DType, shape: &[usize], values: &[Scalar]) -> Self {
        self.input(dtype, &Layout::dense(shape), values)
    }

    pub fn output(mut self, dtype: DType, layout: &Layout) -> Self {
        self.step.outputs.push(layout.view(100 + self.step.outputs.len() as u32, dtype));
        self
    }

    /// An output that reuses an input's memory.
    pub fn output_in_place(mut self, dtype: DType, input: usize) -> Self {
        let view = View { dtype, ..self.step.inputs[input].clone() };
        self.step.outputs.push(view);
        self
    }

    /// An input as the step sees it.
    pub fn read(&self, input: usize) -> Vec<Scalar> {
        gather(&self.step.inputs[input], &self.inputs[input]).scalars().collect()
    }

    /// Runs the step and returns the elements of each output in row-major order. Panics if any other byte changed.
    pub fn run(self) -> Result<Vec<Vec<Scalar>>, OpError> {
        let outputs = run(&self.step, &self.inputs, self.threads)?;
        Ok(outputs.iter().map(|output| output.scalars().collect()).collect())
    }
}

/// Runs a step and returns the elements of each output in row-major order. Panics if any other byte changed.
pub fn run(step: &Step, inputs: &[Tensor], threads: usize) -> Result<Vec<Tensor>, OpError> {
    let mut memory = Memory::new(step, inputs);
    let addresses = memory.addresses();
    let address = |id: BufferId| addresses.iter().find(|(known, _)| *known == id).unwrap().1;
    let threads = Threads(threads);
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel: &threads, scratch: &mut scratch };
    // SAFETY: `memory` has a buffer for every view, as large as the view needs, until the end of this function.
    let result = unsafe { host_ops::run(step, address, &mut cx) };
    let outputs = memory.outputs().unwrap();
    result.map(|()| outputs)
}

/// Runs a step on one and on three threads, and compares the elements of each output with numbers.
#[track_caller]
pub fn check(sample: &Sample, expected: &[Vec<f64>], relative: f64, what: impl std::fmt::Debug) {
    assert_eq!(sample.step.outputs.len(), expected.len());
    for threads in [1, 3] {
        let found = run(&sample.step, &sample.inputs, threads).unwrap();
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            if let Err(difference) = compare(&list(found), expected, relative) {
                panic!("output {number} of {what:?} on {threads} threads: {difference}");
            }
        }
    }
}

/// Panics unless both lists agree: integers exactly, floats within `tolerance` of the larger magnitude or of one.
pub fn assert_close(got: &[Scalar], want: &[Scalar], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(is_close(*got, *want, tolerance), "{what}: element {at} is {got:?}, not {want:?}");
    }
}

fn is_close(got: Scalar, want: Scalar, tolerance: f64) -> bool {
    match (got, want) {
        (Scalar::Float(got), Scalar::Float(want)) => {
            (got.is_nan() && want.is_nan())
                || got == want
                || (got - want).abs() <= tolerance * got.abs().max(want.abs()).max(1.0)
        }
        _ => got == want,
    }
}

/// The rounding error of a type, for results that are compared with numbers in double precision.
pub fn error(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1e-2,
        _ => 0.0,
    }
}

/// The rounding error of a type, with some margin for sums of a few dozen elements.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 4e-6,
    }
}
