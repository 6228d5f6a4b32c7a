//! Runs a program over blocks of elements.
use std::mem::MaybeUninit;

use graph::expr::Unary;
use graph::{DType, Scalar};
use half::{bf16, f16};

use super::binary::{binary_bool, binary_f32, binary_f64, binary_int, compare, select};
use super::lane::{FromI32, Lane as _, To, cast, cast_f32, to_bool};
use super::program::{Action, Fill, Instruction, Operand, Program, Target};
use super::unary::{classify, unary_bool, unary_f32, unary_f64, unary_int};
use crate::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, round_to};
use crate::scratch::Plain;
use crate::simd::each;
use crate::walk::Walk;
use crate::{Tensor, TensorMut};

/// Elements of a block that goes through registers.
const BLOCK: usize = 1024;
/// Elements of a block that goes from memory to memory.
const DIRECT_BLOCK: usize = 16 * BLOCK;
/// Rows shorter than this share blocks.
const SHORT_ROW: usize = 128;
/// Size of all registers in words; they are on the stack.
const WORDS: usize = 4096;

/// True if blocks end at row ends.
pub(super) fn keeps_rows(walk: &Walk) -> bool {
    walk.rank() == 1 || walk.row() >= SHORT_ROW
}

/// A map that is ready to run. View 0 of the walk is the output, followed by the inputs.
pub(super) struct Job<'a> {
    pub program: &'a Program,
    pub walk: &'a Walk,
    pub inputs: &'a [Tensor<'a>],
    pub output: TensorMut<'a>,
}

/// Expands `$body` with `$type` as the Rust type that the list has for an element type.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr, { $($pattern:pat => $rust:ty),* } $(, _ => $other:expr)?) => {
        match $dtype {
            $($pattern => {
                type $type = $rust;
                $body
            })*
            $(_ => $other,)?
        }
    };
}

/// Expands `$body` with `$type` as the type of an element in a register; all other types are bytes.
macro_rules! with_lane {
    ($dtype:expr, $type:ident => $body:expr) => {
        with_type!($dtype, $type => $body, {
            DType::F32 | DType::F16 | DType::Bf16 => f32, DType::F64 => f64,
            DType::I8 => i8, DType::I16 => i16, DType::I32 => i32, DType::I64 => i64,
            DType::U16 => u16, DType::U32 => u32, DType::U64 => u64, _ => u8
        })
    };
}

/// Same as [`with_lane`], for integers only; other types expand `$other`.
macro_rules! with_int {
    ($dtype:expr, $type:ident => $body:expr, _ => $other:expr) => {
        with_type!($dtype, $type => $body, {
            DType::I8 => i8, DType::I16 => i16, DType::I32 => i32, DType::I64 => i64,
            DType::U8 => u8, DType::U16 => u16, DType::U32 => u32, DType::U64 => u64
        }, _ => $other)
    };
}

impl Job<'_> {
    /// Computes the elements of a range of the walk.
    pub(super) fn run(&self, range: std::ops::Range<usize>) {
        let registers = self.program.registers;
        let block = if registers == 0 && self.program.result.is_none() {
            DIRECT_BLOCK
        } else {
            let lanes = WORDS * 8 / (registers.max(1) * self.program.lane_bytes);
            // Whole cache lines keep the registers aligned.
            lanes.min(BLOCK) & !63
        };
        if block > 0 {
            let mut words = [MaybeUninit::<u64>::uninit(); WORDS];
            self.blocks(range, block, words.as_mut_ptr().cast());
        } else {
            // More registers than should be on the stack: no operator produces such an expression.
            let mut words = vec![MaybeUninit::<u64>::uninit(); registers * 64];
            self.blocks(range, 64, words.as_mut_ptr().cast());
        }
    }

    fn blocks(&self, range: std::ops::Range<usize>, block: usize, registers: *mut u8) {
        let stride = block * self.program.lane_bytes;
        let mut lanes = Lanes { job: self, registers, stride, position: range.start, count: block.min(range.len()) };
        for &(fill, dtype, register) in &self.program.fills {
            lanes.fill(fill, dtype, register);
        }
        let (row, keeps_rows) = (self.walk.row(), keeps_rows(self.walk));
        while lanes.position < range.end {
            let left = range.end - lanes.position;
            let left = if keeps_rows { left.min(row - lanes.position % row) } else { left };
            // Blocks of similar size instead of full blocks and a remainder.
            lanes.count =
                if left <= block { left } else { left.div_ceil(left.div_ceil(block)).next_multiple_of(16).min(block) };
            for instruction in &self.program.instructions {
                lanes.step(instruction);
            }
            if let Some(result) = self.program.result {
                lanes.store(result);
            }
            lanes.position += lanes.count;
        }
    }
}

/// The block being computed.
struct Lanes<'a> {
    job: &'a Job<'a>,
    registers: *mut u8,
    stride: usize,
    position: usize,
    count: usize,
}

impl Lanes<'_> {
    fn read<T: Plain>(&self, operand: Operand) -> &[T] {
        let start: *const T = match operand {
            Operand::Register(register) => self.registers.wrapping_add(usize::from(register) * self.stride).cast(),
            Operand::Input(number) => {
                let offset = self.job.walk.offset(usize::from(number) + 1, self.position);
                self.job.inputs[usize::from(number)].start().cast::<T>().wrapping_offset(offset)
            }
        };
        // SAFETY: the compiler gives each register one type at a time, and writes it before it is read; direct inputs
        // have unit stride within a block and elements of type `T`, and no output shares their memory.
        unsafe { std::slice::from_raw_parts(start, self.count) }
    }

    #[allow(clippy::mut_from_ref)]
    fn write<T: Plain>(&self, target: Target) -> &mut [T] {
        let start: *mut T = match target {
            Target::Register(register) => self.registers.wrapping_add(usize::from(register) * self.stride).cast(),
            Target::Output => {
                let offset = self.job.walk.offset(0, self.position);
                self.job.output.start().cast::<T>().wrapping_offset(offset)
            }
        };
        // SAFETY: the compiler never lets an instruction write a register that it reads; a direct output has unit
        // stride within a block and elements of type `T`, and no direct input shares its memory. Any bit pattern is a
        // valid `T`.
        unsafe { std::slice::from_raw_parts_mut(start, self.count) }
    }

    fn fill(&self, fill: Fill, dtype: DType, register: u16) {
        let target = Target::Register(register);
        match fill {
            Fill::Scalar(value) => match dtype {
                DType::F32 | DType::F16 | DType::Bf16 => self.write(target).fill(value.as_f64() as f32),
                DType::F64 => self.write(target).fill(value.as_f64()),
                DType::Bool => self.write(target).fill(u8::from(value.as_bool())),
                _ => with_int!(dtype, T => self.write(target).fill(wrapped(value) as T), _ => {}),
            },
            // All positions of a uniform view are the same element.
            Fill::Input(number) => self.load(number, target),
        }
    }

    fn load(&self, number: u16, target: Target) {
        let input = &self.job.inputs[usize::from(number)];
        match input.dtype() {
            DType::F16 => {
                self.load_halves(number, target, f16_to_f32);
            }
            DType::Bf16 => {
                self.load_halves(number, target, bf16_to_f32);
            }
            DType::Bool => {
                let out = self.write::<u8>(target);
                self.pieces(number, out);
                out.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            dtype => match dtype.bytes() {
                1 => self.pieces(number, self.write::<u8>(target)),
                2 => self.pieces(number, self.write::<u16>(target)),
                4 => self.pieces(number, self.write::<u32>(target)),
                _ => self.pieces(number, self.write::<u64>(target)),
            },
        }
    }

    /// Widens a block of an input, in place if it is contiguous.
    fn load_halves<T: Plain>(&self, number: u16, target: Target, widen: impl Fn(&[T], &mut [f32])) {
        let (walk, view) = (self.job.walk, usize::from(number) + 1);
        let out = self.write(target);
        if walk.row_stride(view) == 1 && self.position % walk.row() + self.count <= walk.row() {
            let from = self.job.inputs[usize::from(number)].start().cast::<T>();
            let from = from.wrapping_offset(walk.offset(view, self.position));
            // SAFETY: the block is within one row of the view, whose elements are contiguous.
            return widen(unsafe { std::slice::from_raw_parts(from, self.count) }, out);
        }
        let mut halves = [MaybeUninit::<T>::uninit(); BLOCK];
        // SAFETY: every bit pattern is valid for a plain type, and all elements are written before they are read.
        let halves = unsafe { std::slice::from_raw_parts_mut(halves.as_mut_ptr().cast::<T>(), self.count) };
        self.pieces(number, halves);
        widen(halves, out);
    }

    /// Gathers a block of an input.
    fn pieces<T: Plain>(&self, number: u16, out: &mut [T]) {
        let (view, start) = (usize::from(number) + 1, self.job.inputs[usize::from(number)].start().cast::<T>());
        let stride = self.job.walk.row_stride(view);
        self.job.walk.pieces(view, self.position, self.count, |done, offset, length| {
            let (from, to) = (start.wrapping_offset(offset), &mut out[done..done + length]);
            if stride == 1 {
                // SAFETY: the walk stays within the view, whose memory the caller of `run` vouches for.
                to.copy_from_slice(unsafe { std::slice::from_raw_parts(from, length) });
            } else if stride == 0 {
                // SAFETY: as above.
                to.fill(unsafe { from.read() });
            } else {
                for (at, to) in to.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *to = unsafe { from.wrapping_offset(at as isize * stride).read() };
                }
            }
        });
    }

    fn store(&self, result: Operand) {
        match self.job.output.dtype() {
            DType::F16 => {
                self.store_halves(result, f32_to_f16);
            }
            DType::Bf16 => {
                self.store_halves(result, f32_to_bf16);
            }
            dtype => match dtype.bytes() {
                1 => self.put_pieces(self.read::<u8>(result)),
                2 => self.put_pieces(self.read::<u16>(result)),
                4 => self.put_pieces(self.read::<u32>(result)),
                _ => self.put_pieces(self.read::<u64>(result)),
            },
        }
    }

    /// Rounds a block into the output, in place if it is contiguous.
    fn store_halves<T: Plain>(&self, result: Operand, round: impl Fn(&[f32], &mut [T])) {
        let walk = self.job.walk;
        if walk.row_stride(0) == 1 && self.position % walk.row() + self.count <= walk.row() {
            let to = self.job.output.start().cast::<T>().wrapping_offset(walk.offset(0, self.position));
            // SAFETY: the block is within one row of the output, whose elements are contiguous; `result` is a register,
            // because halves are never used in place.
            return round(self.read(result), unsafe { std::slice::from_raw_parts_mut(to, self.count) });
        }
        let mut halves = [MaybeUninit::<T>::uninit(); BLOCK];
        // SAFETY: every bit pattern is valid for a plain type, and all elements are written before they are read.
        let halves = unsafe { std::slice::from_raw_parts_mut(halves.as_mut_ptr().cast::<T>(), self.count) };
        round(self.read(result), halves);
        self.put_pieces(halves);
    }

    fn put_pieces<T: Plain>(&self, values: &[T]) {
        let (start, stride) = (self.job.output.start().cast::<T>(), self.job.walk.row_stride(0));
        self.job.walk.pieces(0, self.position, self.count, |done, offset, length| {
            let (to, from) = (start.wrapping_offset(offset), &values[done..done + length]);
            if stride == 1 {
                // SAFETY: the walk stays within the output, which tasks write disjointly; `values` is a register, or an
                // input that shares no memory with the output.
                unsafe { std::slice::from_raw_parts_mut(to, length) }.copy_from_slice(from);
            } else {
                for (at, &value) in from.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { to.wrapping_offset(at as isize * stride).write(value) };
                }
            }
        });
    }

    fn step(&self, instruction: &Instruction) {
        let &Instruction { action, from, to, target } = instruction;
        match action {
            Action::Load(number) => self.load(number, target),
            Action::Index(axis) => self.job.walk.indices(usize::from(axis), self.position, self.write(target)),
            Action::Unary(op @ (Unary::IsNan | Unary::IsInf), a) => match from {
                DType::F64 => classify(op, self.read(a), self.write(target), f64::is_nan, f64::is_infinite),
                _ if from.is_float() => classify(op, self.read(a), self.write(target), f32::is_nan, f32::is_infinite),
                _ => self.write::<u8>(target).fill(0),
            },
            Action::Unary(op, a) => match from {
                DType::F32 | DType::F16 | DType::Bf16 => {
                    unary_f32(op, self.read(a), self.write(target));
                    round_to(from, self.write(target));
                }
                DType::F64 => unary_f64(op, self.read(a), self.write(target)),
                DType::Bool => unary_bool(op, self.read(a), self.write(target)),
                _ => with_int!(from, T => unary_int::<T>(op, self.read(a), self.write(target)), _ => {}),
            },
            Action::Binary(op, a, b) if op.is_comparison() => {
                with_lane!(from, T => compare::<T>(op, self.read(a), self.read(b), self.write(target)));
            }
            Action::Binary(op, a, b) => match from {
                DType::F32 | DType::F16 | DType::Bf16 => {
                    binary_f32(op, self.read(a), self.read(b), self.write(target));
                    round_to(from, self.write(target));
                }
                DType::F64 => binary_f64(op, self.read(a), self.read(b), self.write(target)),
                DType::Bool => binary_bool(op, self.read(a), self.read(b), self.write(target)),
                _ => with_int!(from, T => binary_int::<T>(op, self.read(a), self.read(b), self.write(target)), _ => {}),
            },
            Action::Select(c, a, b) => match from.compute().bytes() {
                1 => select::<u8>(self.read(c), self.read(a), self.read(b), self.write(target)),
                2 => select::<u16>(self.read(c), self.read(a), self.read(b), self.write(target)),
                4 => select::<u32>(self.read(c), self.read(a), self.read(b), self.write(target)),
                _ => select::<u64>(self.read(c), self.read(a), self.read(b), self.write(target)),
            },
            Action::Cast(a) => self.cast(a, from, to, target),
        }
    }

    fn cast(&self, a: Operand, from: DType, to: DType, target: Target) {
        match to {
            DType::F16 | DType::Bf16 if from.compute() == DType::F32 => {
                let out = self.write::<f32>(target);
                out.copy_from_slice(self.read(a));
                round_to(to, out);
            }
            // Directly from double precision: going through single precision would round twice.
            DType::F16 => {
                with_lane!(from, T => each(self.read::<T>(a), self.write(target), |x| f16::from_f64(x.widened()).to_f32()))
            }
            DType::Bf16 => {
                with_lane!(from, T => each(self.read::<T>(a), self.write(target), |x| bf16::from_f64(x.widened()).to_f32()))
            }
            DType::Bool => with_lane!(from, T => to_bool::<T>(self.read(a), self.write(target))),
            DType::F32 => with_lane!(from, T => cast::<T, f32>(self.read(a), self.write(target))),
            DType::F64 => with_lane!(from, T => cast::<T, f64>(self.read(a), self.write(target))),
            _ => with_int!(to, T => self.cast_int::<T>(a, from, self.write(target)), _ => {}),
        }
    }

    fn cast_int<T>(&self, a: Operand, from: DType, out: &mut [T])
    where
        T: Plain + FromI32,
        f32: To<T>,
        f64: To<T>,
        i8: To<T>,
        i16: To<T>,
        i32: To<T>,
        i64: To<T>,
        u8: To<T>,
        u16: To<T>,
        u32: To<T>,
        u64: To<T>,
    {
        if from.compute() == DType::F32 && cast_f32(self.read(a), out) {
            return;
        }
        with_lane!(from, A => cast::<A, T>(self.read(a), out));
    }
}

/// The bits of an integer constant.
fn wrapped(value: Scalar) -> i64 {
    match value {
        Scalar::Uint(value) => value as i64,
        other => other.as_i64(),
    }
}
