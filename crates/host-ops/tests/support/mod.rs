//! Steps on small tensors: values as doubles, any type, any layout, sentinels around every output.
#![allow(dead_code)]
use graph::prim::BufferId;
use graph::shape::{self, Shape, Strides};
use graph::{DType, Prim, Step, View};
use half::{bf16, f16};
use host_ops::{Context, OpError, Parallel, Scratch, Serial};

/// Elements before and after every tensor.
const GUARD: usize = 40;
const SENTINEL: u8 = 0xa5;

/// Three threads for every run, to expose races.
pub struct Threads;

impl Parallel for Threads {
    fn threads(&self) -> usize {
        3
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| (0..tasks).for_each(|task| drop(scope.spawn(move || body(task)))));
    }
}

/// The memory layout of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Row by row.
    Dense,
    /// The first axis innermost.
    Reversed,
    /// Row by row with a gap after every element of the last axis.
    Gaps,
}

impl Layout {
    pub const ALL: [Self; 3] = [Self::Dense, Self::Reversed, Self::Gaps];

    fn strides(self, shape: &[usize]) -> Strides {
        match self {
            Self::Dense => shape::dense_strides(shape),
            Self::Reversed => {
                let turned: Shape = shape.iter().rev().copied().collect();
                shape::dense_strides(&turned).into_iter().rev().collect()
            }
            Self::Gaps => shape::dense_strides(shape).into_iter().map(|stride| stride * 2).collect(),
        }
    }
}

/// A test tensor.
#[derive(Clone, Debug)]
pub struct Data {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub layout: Layout,
    pub values: Vec<f64>,
}

impl Data {
    pub fn new(dtype: DType, shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        let mut data = Self { dtype, shape: shape.to_vec(), layout: Layout::Dense, values };
        // Rounded to what the type can represent.
        data.values = data.values.iter().map(|&value| read(dtype, &write(dtype, value))).collect();
        data
    }

    /// Pseudo-random values: multiples of 1/64 in ±2, or integers in ±9.
    pub fn noise(dtype: DType, shape: &[usize], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let values = (0..shape.iter().product::<usize>())
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                match (dtype.is_float(), dtype.is_signed()) {
                    (true, _) => (state % 257) as f64 / 64.0 - 2.0,
                    (_, true) => (state % 19) as f64 - 9.0,
                    _ => (state % 10) as f64,
                }
            })
            .collect();
        Self::new(dtype, shape, values)
    }

    pub fn laid(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The element at an index.
    pub fn at(&self, index: &[usize]) -> f64 {
        let strides = shape::dense_strides(&self.shape);
        self.values[index.iter().zip(&strides).map(|(&i, &s)| i * s as usize).sum::<usize>()]
    }
}

/// An output's type, shape and layout.
#[derive(Clone, Debug)]
pub struct Out {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub layout: Layout,
}

impl Out {
    pub fn new(dtype: DType, shape: &[usize]) -> Self {
        Self { dtype, shape: shape.to_vec(), layout: Layout::Dense }
    }

    pub fn laid(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }
}

fn write(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F64 => value.to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        DType::U64 => (value as u64).to_ne_bytes().to_vec(),
        _ => (value as i64).to_le_bytes()[..dtype.bytes()].to_vec(),
    }
}

fn read(dtype: DType, bytes: &[u8]) -> f64 {
    macro_rules! as_f64 {
        ($type:ty) => {
            <$type>::from_ne_bytes(bytes.try_into().unwrap()) as f64
        };
    }
    match dtype {
        DType::F32 => as_f64!(f32),
        DType::F64 => as_f64!(f64),
        DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::Bf16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::I8 => as_f64!(i8),
        DType::I16 => as_f64!(i16),
        DType::I32 => as_f64!(i32),
        DType::I64 => as_f64!(i64),
        DType::U8 | DType::Bool => as_f64!(u8),
        DType::U16 => as_f64!(u16),
        DType::U32 => as_f64!(u32),
        DType::U64 => as_f64!(u64),
    }
}

/// Offsets of all elements, row by row.
fn offsets(view: &View) -> Vec<usize> {
    let mut all = vec![view.offset];
    for (&extent, &stride) in view.shape.iter().zip(&view.strides) {
        all = all.iter().flat_map(|&at| (0..extent as isize).map(move |i| at + i * stride)).collect();
    }
    all.into_iter().map(|at| at as usize).collect()
}

struct Memory {
    words: Vec<u128>,
    bytes: usize,
}

impl Memory {
    fn new(view: &View) -> Self {
        let span: isize = view.shape.iter().zip(&view.strides).map(|(&e, &s)| (e.max(1) as isize - 1) * s.abs()).sum();
        let bytes = (span as usize + 1 + 2 * GUARD) * view.dtype.bytes();
        Self { words: vec![u128::from_ne_bytes([SENTINEL; 16]); bytes.div_ceil(16)], bytes }
    }

    fn as_bytes(&mut self) -> &mut [u8] {
        // SAFETY: the words hold that many bytes, and bytes have no alignment.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.bytes) }
    }
}

/// Runs one step, serially and on threads, checks the sentinels, and returns the outputs' values.
pub fn run(prim: Prim, inputs: &[Data], outputs: &[Out]) -> Result<Vec<Vec<f64>>, OpError> {
    let serial = run_on(prim.clone(), inputs, outputs, &Serial)?;
    let threaded = run_on(prim, inputs, outputs, &Threads)?;
    for (serial, threaded) in serial.iter().zip(&threaded) {
        for (a, b) in serial.iter().zip(threaded) {
            assert!(
                (a - b).abs() <= 1e-5 * a.abs().max(1.0) || a.to_bits() == b.to_bits(),
                "threads change {a} to {b}"
            );
        }
    }
    Ok(serial)
}

fn run_on(prim: Prim, inputs: &[Data], outputs: &[Out], parallel: &dyn Parallel) -> Result<Vec<Vec<f64>>, OpError> {
    let view = |at: usize, dtype: DType, shape: &[usize], layout: Layout| View {
        buffer: BufferId(at as u32),
        dtype,
        shape: shape.iter().copied().collect(),
        strides: layout.strides(shape),
        offset: GUARD as isize,
    };
    let in_views: Vec<View> =
        inputs.iter().enumerate().map(|(at, data)| view(at, data.dtype, &data.shape, data.layout)).collect();
    let out_views: Vec<View> = outputs
        .iter()
        .enumerate()
        .map(|(at, out)| view(inputs.len() + at, out.dtype, &out.shape, out.layout))
        .collect();
    let mut memory: Vec<Memory> = in_views.iter().chain(&out_views).map(Memory::new).collect();
    for ((data, view), memory) in inputs.iter().zip(&in_views).zip(&mut memory) {
        let width = data.dtype.bytes();
        for (&value, at) in data.values.iter().zip(offsets(view)) {
            memory.as_bytes()[at * width..(at + 1) * width].copy_from_slice(&write(data.dtype, value));
        }
    }
    let addresses: Vec<*mut u8> = memory.iter_mut().map(|memory| memory.as_bytes().as_mut_ptr()).collect();
    let step = Step { node: 0, prim, inputs: in_views, outputs: out_views };
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel, scratch: &mut scratch };
    // SAFETY: every buffer holds its view and outlives the call.
    unsafe { host_ops::run(&step, |buffer| addresses[buffer.0 as usize], &mut cx)? };
    Ok(step
        .outputs
        .iter()
        .zip(&mut memory[inputs.len()..])
        .map(|(view, memory)| {
            let width = view.dtype.bytes();
            let bytes = memory.as_bytes();
            let places = offsets(view);
            let values = places.iter().map(|&at| read(view.dtype, &bytes[at * width..(at + 1) * width])).collect();
            for &at in &places {
                bytes[at * width..(at + 1) * width].fill(SENTINEL);
            }
            assert!(bytes.iter().all(|&byte| byte == SENTINEL), "wrote outside its output");
            values
        })
        .collect())
}

/// The allowed error of a result, relative to the size of its terms.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1e-2,
        _ => 0.0,
    }
}

/// Asserts that all values are close.
#[track_caller]
pub fn assert_near(got: &[f64], want: &[f64], tolerance: f64, what: impl std::fmt::Debug) {
    assert_eq!(got.len(), want.len(), "{what:?}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(near || got == want || got.is_nan() && want.is_nan(), "at {at}: {got}, not {want}; {what:?}");
    }
}

/// All indices of a shape, row by row.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &extent| {
        all.iter().flat_map(|index| (0..extent).map(move |i| index.iter().copied().chain([i]).collect())).collect()
    })
}
