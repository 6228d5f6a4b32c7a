//! Runs graphs of the frontend on this backend, loaded as a user loads it.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use hipdnn::sys::{Backend, DataType};
use hipdnn::{Graph, Handle, Loaded, Search, Tensor, TensorId};

/// The library that was built with these tests.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].map(|folder| folder.join("libhipdnn_host.so"));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} is there")).clone()
}

/// The backend.
pub fn backend() -> Arc<dyn Backend> {
    Arc::new(Loaded::open(&Search { place: Some(library()), ..Search::default() }).unwrap())
}

/// Numbers of one element type in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F32,
    F64,
    F16,
    Bf16,
}

impl Element {
    pub fn code(self) -> DataType {
        match self {
            Self::F32 => DataType::FLOAT,
            Self::F64 => DataType::DOUBLE,
            Self::F16 => DataType::HALF,
            Self::Bf16 => DataType::BFLOAT16,
        }
    }

    fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            Self::Bf16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        }
    }

    fn number(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
            Self::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
            Self::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
            Self::Bf16 => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        }
    }

    fn size(self) -> usize {
        self.bytes(0.0).len()
    }

    /// What results may differ by, for numbers around 1 and sums of a few hundred terms.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::F64 => 1e-9,
            Self::F32 => 2e-4,
            Self::F16 => 2e-2,
            Self::Bf16 => 1.2e-1,
        }
    }

    /// A number as this type holds it.
    pub fn rounded(self, value: f64) -> f64 {
        self.number(&self.bytes(value))
    }
}

/// A tensor of the caller's: extents, strides, and values in the order of the extents.
#[derive(Clone, Debug)]
pub struct Data {
    pub element: Element,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub values: Vec<f64>,
}

impl Data {
    /// Deterministic numbers between -1 and 1.
    pub fn random(element: Element, dims: &[i64], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let values = (0..dims.iter().product::<i64>())
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                element.rounded((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
            })
            .collect();
        Self { element, dims: dims.to_vec(), strides: packed(dims, &(0..dims.len()).collect::<Vec<_>>()), values }
    }

    pub fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        self.values.iter_mut().for_each(|value| *value = self.element.rounded(change(*value)));
        self
    }

    /// With the channels innermost.
    pub fn channels_last(mut self, wanted: bool) -> Self {
        if wanted && self.dims.len() > 2 {
            let order: Vec<usize> = std::iter::once(0).chain(2..self.dims.len()).chain([1]).collect();
            self.strides = packed(&self.dims, &order);
        }
        self
    }

    pub fn tensor(&self) -> Tensor {
        Tensor::new(&self.dims).strides(&self.strides).typed(self.element.code())
    }

    pub fn at(&self, index: &[i64]) -> f64 {
        self.values[flat(&self.dims, index)]
    }
}

fn packed(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut step) = (vec![0; dims.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

pub fn flat(dims: &[i64], index: &[i64]) -> usize {
    dims.iter().zip(index).fold(0, |at, (extent, index)| at * extent + index) as usize
}

/// Every index of a shape, in order.
pub fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &extent in dims {
        all = all.iter().flat_map(|index| (0..extent).map(|at| [&index[..], &[at]].concat())).collect();
    }
    all
}

fn places(dims: &[i64], strides: &[i64]) -> Vec<usize> {
    let place = |index: &Vec<i64>| index.iter().zip(strides).map(|(at, stride)| at * stride).sum::<i64>() as usize;
    indices(dims).iter().map(place).collect()
}

/// Builds a graph whose results are of one type, runs it, and gives each result's values in the order of its extents.
pub fn run(
    graph: &mut Graph,
    inputs: &[(TensorId, &Data)],
    outputs: &[TensorId],
    element: Element,
) -> Result<Vec<Vec<f64>>, hipdnn::Error> {
    let handle = Handle::new(backend())?;
    for &output in outputs {
        graph.output(output, Tensor::default().typed(element.code()));
    }
    let plan = graph.build(&handle)?.plan()?;
    const GUARD: u8 = 0xA5;
    let size = |data: &Data| places(&data.dims, &data.strides).into_iter().max().unwrap_or(0) + 1;
    let mut memory: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(_, data)| {
            let bytes = data.element.size();
            let mut memory = vec![GUARD; size(data) * bytes];
            for (place, value) in places(&data.dims, &data.strides).into_iter().zip(&data.values) {
                memory[place * bytes..][..bytes].copy_from_slice(&data.element.bytes(*value));
            }
            memory
        })
        .collect();
    let shapes: Vec<(Vec<i64>, Vec<i64>)> = outputs
        .iter()
        .map(|&id| {
            let (dims, strides) = graph.extents(id);
            (dims.to_vec(), strides.to_vec())
        })
        .collect();
    let bytes = element.size();
    for (dims, strides) in &shapes {
        let last = places(dims, strides).into_iter().max().unwrap_or(0);
        memory.push(vec![GUARD; (last + 1) * bytes + 16]);
    }
    let ids = inputs.iter().map(|(id, _)| *id).chain(outputs.iter().copied());
    let uids: Vec<i64> = ids.map(|id| graph.uid(id).unwrap()).collect();
    let addresses: Vec<*mut c_void> = memory.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
    // SAFETY: every tensor has the memory its extents and strides ask for; the host backend takes host memory.
    unsafe { plan.execute(&handle, uids.into_iter().zip(addresses), std::ptr::null_mut())? };
    let made = &memory[inputs.len()..];
    Ok(shapes
        .iter()
        .zip(made)
        .map(|((dims, strides), memory)| {
            assert!(memory[memory.len() - 16..].iter().all(|&byte| byte == GUARD), "written behind the end");
            places(dims, strides).into_iter().map(|place| element.number(&memory[place * bytes..][..bytes])).collect()
        })
        .collect())
}

/// Fails if a result differs from its reference by more than the type allows.
pub fn assert_close(found: &[f64], wanted: &[f64], element: Element) {
    assert_eq!(found.len(), wanted.len());
    for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let allowed = element.tolerance() * (1.0 + wanted.abs());
        let same = found == wanted || (found.is_nan() && wanted.is_nan()) || (found - wanted).abs() <= allowed;
        assert!(same, "element {at}: {found} instead of {wanted} ({element:?})");
    }
}
