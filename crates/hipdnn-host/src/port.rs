//! The caller's tensors: how they lie in memory, and how they get into and out of what the engine reads and writes.

use graph::expr::Expr;
use graph::prim::{BufferId, Map, Prim, Step, View};
use graph::{DType, Shape};
use host_ops::Context;

use crate::format::{Format, Numbers, Small};
use crate::trouble::Trouble;

/// A tensor that the caller brings, its axes from the outermost to the innermost.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub uid: i64,
    /// How its elements are stored.
    pub format: Format,
    /// Its extents.
    pub dims: Vec<usize>,
    /// Its strides in elements.
    pub strides: Vec<usize>,
    /// True for a scalar that the caller gives in host memory, and may change as soon as the call returns.
    pub is_by_value: bool,
}

impl Port {
    /// Bytes of one element; 0 for half of one.
    pub fn element_bytes(&self) -> usize {
        self.format.bits() / 8
    }

    /// True if the elements lie one behind the other.
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

/// How a tensor is brought to the engine, decided once.
pub struct Stage {
    /// Elements with gaps between them, gathered by a copy of this element type.
    gaps: Option<Gaps>,
    code: Option<(Small, Numbers)>,
    elems: usize,
    /// Bytes of an element as the engine sees it, in memory of its own; 0 if it reads the caller's.
    bytes: usize,
}

/// Copies between the caller's memory (buffer 0) and dense memory (buffer 1).
struct Gaps {
    gather: Step,
    scatter: Step,
    bytes: usize,
}

/// The memory of a stage.
#[derive(Default)]
pub struct Room {
    /// The tensor as the engine sees it.
    values: Vec<u64>,
    /// Its codes without gaps.
    codes: Vec<u64>,
}

impl Stage {
    /// How this tensor is brought to the engine.
    ///
    /// # Errors
    /// The engine has no way.
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
            return Err(format!("tensor {} has gaps between halves of bytes", port.uid));
        }
        let dtype = if code.is_some() { DType::U8 } else { port.format.dtype() };
        let gaps = Gaps {
            gather: copy(port, dtype, [BufferId(0), BufferId(1)]),
            scatter: copy(port, dtype, [BufferId(1), BufferId(0)]),
            bytes: elems * dtype.bytes(),
        };
        Ok(Self { gaps: Some(gaps), code, elems, bytes: port.format.dtype().bytes() })
    }

    /// Memory for it.
    ///
    /// # Errors
    /// There is not that much.
    pub fn room(&self) -> Result<Room, Trouble> {
        let codes = if self.code.is_some() { self.gaps.as_ref().map_or(0, |gaps| gaps.bytes) } else { 0 };
        Ok(Room { values: words(self.elems.saturating_mul(self.bytes))?, codes: words(codes)? })
    }

    /// Where the engine finds the tensor.
    pub fn address(&self, given: *mut u8, room: &mut Room) -> *mut u8 {
        if self.bytes == 0 { given } else { room.values.as_mut_ptr().cast() }
    }

    /// Brings the caller's tensor in.
    ///
    /// # Safety
    /// `given` holds the tensor, and nobody changes it meanwhile.
    pub unsafe fn bring_in(&self, given: *mut u8, room: &mut Room, cx: &mut Context<'_>) -> Result<(), Trouble> {
        let values = self.address(given, room);
        let mut source = given;
        if let Some(gaps) = &self.gaps {
            source = if self.code.is_some() { room.codes.as_mut_ptr().cast() } else { values };
            // SAFETY: the caller's promise; the other side has room for every element.
            unsafe { move_between(&gaps.gather, given, source, cx)? };
        }
        if let Some((small, numbers)) = &self.code {
            // SAFETY: `source` holds every code, the room every value.
            unsafe { decode(*small, numbers, source, values.cast(), self.elems) };
        }
        Ok(())
    }

    /// Takes a result out to the caller's tensor.
    ///
    /// # Safety
    /// As for `bring_in`, for writing.
    pub unsafe fn take_out(&self, given: *mut u8, room: &mut Room, cx: &mut Context<'_>) -> Result<(), Trouble> {
        let mut source = self.address(given, room);
        if let Some((small, numbers)) = &self.code {
            let codes = if self.gaps.is_some() { room.codes.as_mut_ptr().cast() } else { given };
            // SAFETY: the room holds every value, `codes` has room for every code.
            unsafe { encode(*small, numbers, source.cast(), codes, self.elems) };
            source = codes;
        }
        if let Some(gaps) = &self.gaps {
            // SAFETY: the caller's promise; the other side holds every element.
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
unsafe fn move_between(step: &Step, given: *mut u8, dense: *mut u8, cx: &mut Context<'_>) -> Result<(), Trouble> {
    let address = |buffer: BufferId| if buffer == BufferId(0) { given } else { dense };
    // SAFETY: the caller's promise.
    Ok(unsafe { host_ops::run(step, address, cx) }?)
}

/// # Safety
/// `codes` holds as many codes, `values` has room for as many values.
unsafe fn decode(small: Small, numbers: &Numbers, codes: *const u8, values: *mut f32, count: usize) {
    for at in 0..count {
        // SAFETY: the caller's promise. Of two halves in a byte the lower one is first.
        unsafe {
            let code =
                if small.bits() == 8 { codes.add(at).read() } else { (codes.add(at / 2).read() >> (at % 2 * 4)) & 0xF };
            values.add(at).write(numbers.by_code[usize::from(code)]);
        }
    }
}

/// # Safety
/// `values` holds as many values, `codes` has room for as many codes.
unsafe fn encode(small: Small, numbers: &Numbers, values: *const f32, codes: *mut u8, count: usize) {
    for at in 0..count {
        // SAFETY: the caller's promise. The other half of a byte is kept: it may not be this tensor's.
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

/// Zeroed memory of so many bytes.
///
/// # Errors
/// There is not that much.
pub fn words(bytes: usize) -> Result<Vec<u64>, Trouble> {
    let count = bytes.div_ceil(8);
    let mut words = Vec::new();
    words.try_reserve_exact(count).map_err(|_| Trouble::NoMemory { bytes })?;
    words.resize(count, 0);
    Ok(words)
}
