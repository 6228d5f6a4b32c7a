//! Runs one step on buffers, with sentinel bytes around the elements of the output.
#![allow(dead_code)]
use graph::prim::BufferId;
use graph::shape::{self, Strides};
use graph::{DType, Prim, Scalar, Step, Tensor, View};
use host_ops::{Context, OpError, Parallel, Scratch};
use proptest::prelude::*;

/// Bytes before and after every buffer.
const GUARD: usize = 64;
const SENTINEL: u8 = 0xa5;

/// Each task on its own thread.
pub struct Threads(pub usize);

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
    pub strides: Vec<isize>,
    pub offset: isize,
    /// Elements of the buffer.
    pub elems: usize,
}

impl Layout {
    pub fn dense(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            strides: shape::dense_strides(shape).to_vec(),
            offset: 0,
            elems: shape::elems(shape).unwrap(),
        }
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
        Self { shape: shape.to_vec(), strides, offset, elems: step as usize + 1 }
    }

    /// The element of the buffer at each index, in row-major order of the indices.
    pub fn offsets(&self) -> Vec<usize> {
        indices(&self.shape)
            .iter()
            .map(|index| {
                let along: isize = index.iter().zip(&self.strides).map(|(&at, &stride)| at as isize * stride).sum();
                usize::try_from(self.offset + along).unwrap()
            })
            .collect()
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

/// Every index of a shape in row-major order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let count = shape::elems(shape).unwrap();
    (0..count)
        .map(|flat| {
            let mut rest = flat;
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            index
        })
        .collect()
}

/// The flat position of an index.
pub fn flat(shape: &[usize], index: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (at, extent)| flat * extent + at)
}

/// Deterministic pseudo-random numbers.
pub fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
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

struct Buffer {
    words: Vec<u128>,
    elems: usize,
}

impl Buffer {
    fn new(dtype: DType, elems: usize) -> Self {
        let bytes = 2 * GUARD + elems * dtype.bytes();
        Self { words: vec![u128::from_ne_bytes([SENTINEL; 16]); bytes.div_ceil(16)], elems }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the words are plain bytes, and the slice covers exactly them.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 16) }
    }
}

/// Builds one step.
pub struct Case {
    step: Step,
    buffers: Vec<Buffer>,
    threads: usize,
}

impl Case {
    pub fn new(prim: Prim) -> Self {
        Self { step: Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() }, buffers: Vec::new(), threads: 1 }
    }

    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    fn view(&mut self, dtype: DType, layout: &Layout) -> View {
        self.buffers.push(Buffer::new(dtype, layout.elems));
        View {
            buffer: BufferId(self.buffers.len() as u32 - 1),
            dtype,
            shape: layout.shape.as_slice().into(),
            strides: Strides::from_slice(&layout.strides),
            offset: layout.offset,
        }
    }

    /// Adds an input with these elements in row-major order. If the layout repeats elements, the last one stays.
    pub fn input(mut self, dtype: DType, layout: &Layout, values: &[Scalar]) -> Self {
        let view = self.view(dtype, layout);
        let encoded = Tensor::from_scalars(dtype, &[values.len()], values.iter().copied()).unwrap();
        let width = dtype.bytes();
        let bytes = self.buffers.last_mut().unwrap().bytes();
        for (at, place) in layout.offsets().into_iter().enumerate() {
            bytes[GUARD + place * width..][..width].copy_from_slice(&encoded.bytes()[at * width..][..width]);
        }
        self.step.inputs.push(view);
        self
    }

    /// A dense input.
    pub fn dense(self, dtype: DType, shape: &[usize], values: &[Scalar]) -> Self {
        self.input(dtype, &Layout::dense(shape), values)
    }

    pub fn output(mut self, dtype: DType, layout: &Layout) -> Self {
        let view = self.view(dtype, layout);
        self.step.outputs.push(view);
        self
    }

    /// An output that reuses an input's memory.
    pub fn output_in_place(mut self, dtype: DType, input: usize) -> Self {
        let view = View { dtype, ..self.step.inputs[input].clone() };
        self.step.outputs.push(view);
        self
    }

    /// An input as the step sees it.
    pub fn read(&mut self, input: usize) -> Vec<Scalar> {
        let view = self.step.inputs[input].clone();
        self.decode(&view)
    }

    fn decode(&mut self, view: &View) -> Vec<Scalar> {
        let width = view.dtype.bytes();
        let bytes = self.buffers[view.buffer.0 as usize].bytes();
        let picked: Vec<u8> = places(view).flat_map(|place| bytes[GUARD + place * width..][..width].to_vec()).collect();
        Tensor::from_bytes(view.dtype, &[picked.len() / width], &picked).unwrap().scalars().collect()
    }

    /// Runs the step and returns the elements of each output in row-major order. Panics if any other byte changed.
    pub fn run(mut self) -> Result<Vec<Vec<Scalar>>, OpError> {
        let before: Vec<Vec<u8>> = self.buffers.iter_mut().map(|buffer| buffer.bytes().to_vec()).collect();
        let bases: Vec<*mut u8> =
            self.buffers.iter_mut().map(|buffer| buffer.bytes().as_mut_ptr().wrapping_add(GUARD)).collect();
        let threads = Threads(self.threads);
        let mut scratch = Scratch::default();
        let mut cx = Context { parallel: &threads, scratch: &mut scratch };
        // SAFETY: every view was made for its buffer here, and buffers live until the end of this function.
        let result = unsafe { host_ops::run(&self.step, |id| bases[id.0 as usize], &mut cx) };
        for (at, before) in before.iter().enumerate() {
            let mut written = vec![false; before.len()];
            for view in self.step.outputs.iter().filter(|view| view.buffer.0 as usize == at) {
                let width = view.dtype.bytes();
                places(view).for_each(|place| written[GUARD + place * width..][..width].fill(true));
            }
            let after = self.buffers[at].bytes();
            let changed = (0..before.len()).find(|&byte| !written[byte] && before[byte] != after[byte]);
            assert_eq!(changed, None, "{:?} wrote outside its output", self.step);
        }
        result?;
        let outputs = self.step.outputs.clone();
        Ok(outputs.iter().map(|view| self.decode(view)).collect())
    }
}

fn places(view: &View) -> impl Iterator<Item = usize> {
    let layout = Layout { shape: view.shape.to_vec(), strides: view.strides.to_vec(), offset: view.offset, elems: 0 };
    layout.offsets().into_iter()
}

/// Panics unless both lists agree: integers exactly, floats within `tolerance` of the larger magnitude or of one.
pub fn assert_close(got: &[Scalar], want: &[Scalar], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(is_close(*got, *want, tolerance), "{what}: element {at} is {got:?}, not {want:?}");
    }
}

pub fn is_close(got: Scalar, want: Scalar, tolerance: f64) -> bool {
    match (got, want) {
        (Scalar::Float(got), Scalar::Float(want)) => {
            (got.is_nan() && want.is_nan())
                || got == want
                || (got - want).abs() <= tolerance * got.abs().max(want.abs()).max(1.0)
        }
        _ => got == want,
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
