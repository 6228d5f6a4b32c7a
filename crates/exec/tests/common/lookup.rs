//! Looks up table rows by index on the simulated GPU.
#![allow(dead_code, clippy::unwrap_used)]
use std::sync::Arc;

use exec::gpu::GpuDevice;
use exec::{CompiledPartition, ExecError, Input, Order, Prepared, Run, Serial};
use graph::DType;
use graph::ops::Attribute;

use crate::common::{self, Case, device, random};

/// The host driver's device with kernels in the wave simulator.
pub fn gpu() -> GpuDevice {
    device::simulated("gfx1100")
}

/// Looks up table rows by index: the data `[rows, 3]` is a constant, the indices are an input.
pub struct Lookup {
    pub program: CompiledPartition,
    rows: usize,
}

pub const COLUMNS: usize = 3;

impl Lookup {
    pub fn new(gpu: &GpuDevice, rows: usize) -> Self {
        let table = common::tensor(DType::F32, &[rows, COLUMNS], &random(rows * COLUMNS, 3));
        let inputs = vec![table, common::tensor(DType::I64, &[1], &[0.0])];
        let mut case = Case::new("Gather", 13, inputs, &[DType::F32]).attribute("axis", Attribute::Int(0));
        case.constants.push(0);
        Self { program: CompiledPartition::new(case.graph().unwrap().0, gpu).unwrap(), rows }
    }

    pub fn prepare(&self, count: usize) -> Arc<dyn Prepared> {
        self.program.plan(&[Input { shape: &[count], value: None }]).unwrap()
    }
}

/// Indices and the rows found, at fixed addresses, followed by sentinels.
pub struct Memory {
    pub indices: Vec<i64>,
    pub found: Vec<f32>,
}

pub const SENTINEL: f32 = 12345.0;

impl Memory {
    pub fn new(indices: &[i64]) -> Self {
        Self { indices: indices.to_vec(), found: vec![SENTINEL; indices.len() * COLUMNS + 4] }
    }

    pub fn run(&mut self, lookup: &Lookup, order: Order<'_>) -> Result<(), ExecError> {
        let (inputs, outputs) = ([self.indices.as_ptr().cast()], [self.found.as_mut_ptr().cast()]);
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: the vectors have the planned sizes, and every test keeps them until the work is done.
        unsafe { lookup.prepare(self.indices.len()).run(run, order) }
    }

    pub fn check(&self, lookup: &Lookup) {
        let table = random(lookup.rows * COLUMNS, 3);
        let wanted = self.indices.iter().flat_map(|&row| &table[row as usize * COLUMNS..][..COLUMNS]);
        let wanted: Vec<f32> = wanted.map(|&value| value as f32).chain([SENTINEL; 4]).collect();
        assert_eq!(self.found, wanted);
    }

    pub fn is_untouched(&self) -> bool {
        self.found.iter().all(|&value| value == SENTINEL)
    }
}
