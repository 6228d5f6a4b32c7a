//! The caller's tensors: their memory layout, and how they are copied into and out of the engine's buffers.

use graph::expr::Expr;
use graph::prim::{BufferId, Map, Prim, Step, View};
use graph::{DType, Shape};
use host_ops::Context;

use crate::format::{Format, Numbers, Small};
use crate::run_error::RunError;

/// A tensor that the caller provides, with its axes from outermost to innermost.
#[derive(Clone, Debug)]
pub struct Port {
    /// The uid.
    pub uid: i64,
    /// How its elements are stored.
    pub format: Format,
    /// The extents.
    pub dims: Vec<usize>,
    /// The strides in elements.
    pub strides: Vec<usize>,
    /// True for a scalar in host memory that the caller may change as soon as the call returns.
    pub is_by_value: bool,
}

impl Port {
    /// Bytes of one element; 0 for four-bit elements.
    pub fn element_bytes(&self) -> usize {
        self.format.bits() / 8
    }

    /// True if the elements are contiguous.
    pub fn is_dense(&self) -> bool {
        let mut step = 1;
        self.dims.iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == step;
            step *= extent;
            fits
        })
    }

    fn elems(&self) -> usize {
        self.dims.iter().product()
    }
}

/// How a tensor is staged for the engine, decided once.
pub struct Stage {
    /// Copies for a tensor with gaps between its elements.
    gaps: Option<Gaps>,
    code: Option<(Small, Numbers)>,
    elems: usize,
    /// Bytes per element in the staging buffer; 0 if the engine uses the caller's memory directly.
    bytes: usize,
}

/// Copies between the caller's memory (buffer 0) and dense memory (buffer 1).
struct Gaps {
    gather: Step,
    scatter: Step,
    bytes: usize,
}

/// The staging buffers of a tensor.
#[derive(Default)]
pub struct StagingBuffers {
    /// The tensor as the engine sees it.
    values: Vec<u64>,
    /// The codes without gaps.
    codes: Vec<u64>,
}

impl Stage {
    /// Decides how to stage this tensor.
    ///
    /// # Errors
    /// The engine cannot stage it.
    pub fn new(port: &Port) -> Result<Self, String> {
        let code = match port.format {
            Format::Small(small) => Some((small, small.numbers())),
            Format::Plain(_) => None,
        };
        let elems = port.elems();
        if port.is_dense() {
            let bytes = if code.is_some() { size_of::<f32>() } else { 0 };
            return Ok(Self { gaps: None, code, elems, bytes });
        }
        if port.format.bits() < 8 {
            return Err(format!("tensor {} has gaps between its 4-bit elements", port.uid));
        }
        let dtype = if code.is_some() { DType::U8 } else { port.format.dtype() };
        let gaps = Gaps {
            gather: copy(port, dtype, [BufferId(0), BufferId(1)]),
            scatter: copy(port, dtype, [BufferId(1), BufferId(0)]),
            bytes: elems * dtype.bytes(),
        };
        Ok(Self { gaps: Some(gaps), code, elems, bytes: port.format.dtype().bytes() })
    }

    /// Allocates its staging buffers.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn staging(&self) -> Result<StagingBuffers, RunError> {
        let codes = if self.code.is_some() { self.gaps.as_ref().map_or(0, |gaps| gaps.bytes) } else { 0 };
        Ok(StagingBuffers { values: words(self.elems.saturating_mul(self.bytes))?, codes: words(codes)? })
    }

    /// The address of the tensor for the engine.
    pub fn address(&self, given: *mut u8, staging: &mut StagingBuffers) -> *mut u8 {
        if self.bytes == 0 { given } else { staging.values.as_mut_ptr().cast() }
    }

    /// Copies the caller's tensor in.
    ///
    /// # Safety
    /// `given` points to the tensor, and nothing changes the tensor during the call.
    pub unsafe fn bring_in(
        &self,
        given: *mut u8,
        staging: &mut StagingBuffers,
        cx: &mut Context<'_>,
    ) -> Result<(), RunError> {
        let values = self.address(given, staging);
        let mut source = given;
        if let Some(gaps) = &self.gaps {
            source = if self.code.is_some() { staging.codes.as_mut_ptr().cast() } else { values };
            // SAFETY: upheld by the caller; the other side has space for every element.
            unsafe { move_between(&gaps.gather, given, source, cx)? };
        }
        if let Some((small, numbers)) = &self.code {
            // SAFETY: `source` holds a code for every element, and the buffer has space for every value.
            unsafe { decode(*small, numbers, source, values.cast(), self.elems) };
        }
        Ok(())
    }

    /// Copies a result out to the caller's tensor.
    ///
    /// # Safety
    /// As for `bring_in`, for writing.
    pub unsafe fn take_out(
        &self,
        given: *mut u8,
        staging: &mut StagingBuffers,
        cx: &mut Context<'_>,
    ) -> Result<(), RunError> {
        let mut source = self.address(given, staging);
        if let Some((small, numbers)) = &self.code {
            let codes = if self.gaps.is_some() { staging.codes.as_mut_ptr().cast() } else { given };
            // SAFETY: the buffer has every value, and `codes` has space for every code.
            unsafe { encode(*small, numbers, source.cast(), codes, self.elems) };
            source = codes;
        }
        if let Some(gaps) = &self.gaps {
            // SAFETY: upheld by the caller; the other side has every element.
            unsafe { move_between(&gaps.scatter, given, source, cx)? };
        }
        Ok(())
    }
}

fn copy(port: &Port, dtype: DType, [from, to]: [BufferId; 2]) -> Step {
    let shape = Shape::from_slice(&port.dims);
    let view = |buffer: BufferId| {
        let strides = match buffer {
            BufferId(0) => port.strides.iter().map(|&stride| stride as isize).collect(),
            _ => graph::shape::dense_strides(&shape),
        };
        View { buffer, dtype, shape: shape.clone(), strides, offset: 0 }
    };
    let prim = Prim::Map(Map { expr: Expr::copy(dtype, dtype) });
    Step { node: 0, prim, inputs: vec![view(from)], outputs: vec![view(to)] }
}

/// # Safety
/// Both addresses are valid for the step's views.
unsafe fn move_between(step: &Step, given: *mut u8, dense: *mut u8, cx: &mut Context<'_>) -> Result<(), RunError> {
    let address = |buffer: BufferId| if buffer == BufferId(0) { given } else { dense };
    // SAFETY: upheld by the caller.
    Ok(unsafe { host_ops::run(step, address, cx) }?)
}

/// # Safety
/// `codes` has `count` codes, and `values` has space for `count` values.
unsafe fn decode(small: Small, numbers: &Numbers, codes: *const u8, values: *mut f32, count: usize) {
    for at in 0..count {
        // SAFETY: upheld by the caller. The lower half of a byte comes first.
        unsafe {
            let code =
                if small.bits() == 8 { codes.add(at).read() } else { (codes.add(at / 2).read() >> (at % 2 * 4)) & 0xF };
            values.add(at).write(numbers.by_code[usize::from(code)]);
        }
    }
}

/// # Safety
/// `values` has `count` values, and `codes` has space for `count` codes.
unsafe fn encode(small: Small, numbers: &Numbers, values: *const f32, codes: *mut u8, count: usize) {
    for at in 0..count {
        // SAFETY: upheld by the caller. The other half of a byte is kept: it may belong to another tensor.
        unsafe {
            let code = small.encode(values.add(at).read(), numbers);
            if small.bits() == 8 {
                codes.add(at).write(code);
            } else {
                let (byte, shift) = (codes.add(at / 2), at % 2 * 4);
                byte.write((byte.read() & !(0xF << shift)) | code << shift);
            }
        }
    }
}

/// Allocates zeroed memory of this many bytes.
///
/// # Errors
/// There is not enough memory.
pub fn words(bytes: usize) -> Result<Vec<u64>, RunError> {
    let count = bytes.div_ceil(8);
    let mut words = Vec::new();
    words.try_reserve_exact(count).map_err(|_| RunError::NoMemory { bytes })?;
    words.resize(count, 0);
    Ok(words)
}
