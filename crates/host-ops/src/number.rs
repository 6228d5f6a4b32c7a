//! The types that rows are computed in: f32 for the three shorter floating-point types, f64, and i64 for all integers
//! and bools.
use graph::DType;
use half::{bf16, f16};

use crate::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::scratch::Plain;

/// Elements that a conversion keeps on the stack.
const CHUNK: usize = 256;

/// A type that rows are computed in.
pub(crate) trait Number: Plain + Send + Sync + PartialOrd {
    /// The element type that is stored as `Self`.
    const DTYPE: DType;
    /// Zero.
    const ZERO: Self;

    /// True for NaN.
    fn is_nan(self) -> bool;

    /// Reads elements of type `dtype` with this stride.
    ///
    /// # Safety
    /// `out.len()` elements starting at `from` can be read.
    unsafe fn load(dtype: DType, from: *const u8, stride: isize, out: &mut [Self]);

    /// Writes elements of type `dtype` with this stride; integers wrap.
    ///
    /// # Safety
    /// `values.len()` elements starting at `to` can be written.
    unsafe fn store(dtype: DType, to: *mut u8, stride: isize, values: &[Self]);
}

/// # Safety
/// Same as for [`Number::load`].
#[inline(always)]
unsafe fn gather<T: Plain, N>(from: *const u8, stride: isize, out: &mut [N], convert: impl Fn(T) -> N) {
    let from = from.cast::<T>();
    if stride == 1 {
        // SAFETY: guaranteed by the caller.
        let from = unsafe { std::slice::from_raw_parts(from, out.len()) };
        for (to, &x) in out.iter_mut().zip(from) {
            *to = convert(x);
        }
    } else {
        for (at, to) in out.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *to = convert(unsafe { from.wrapping_offset(at as isize * stride).read() });
        }
    }
}

/// # Safety
/// Same as for [`Number::store`].
#[inline(always)]
unsafe fn spread<T: Plain, N: Copy>(to: *mut u8, stride: isize, values: &[N], convert: impl Fn(N) -> T) {
    let to = to.cast::<T>();
    for (at, &value) in values.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { to.wrapping_offset(at as isize * stride).write(convert(value)) };
    }
}

impl Number for f32 {
    const DTYPE: DType = DType::F32;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }

    unsafe fn load(dtype: DType, from: *const u8, stride: isize, out: &mut [Self]) {
        let width = dtype.bytes() as isize;
        for (number, out) in out.chunks_mut(CHUNK).enumerate() {
            let from = from.wrapping_offset((number * CHUNK) as isize * stride * width);
            // SAFETY: guaranteed by the caller.
            unsafe {
                match dtype {
                    DType::F16 => {
                        let mut halves = [f16::ZERO; CHUNK];
                        gather(from, stride, &mut halves[..out.len()], |x: f16| x);
                        f16_to_f32(&halves[..out.len()], out);
                    }
                    DType::Bf16 => {
                        let mut halves = [bf16::ZERO; CHUNK];
                        gather(from, stride, &mut halves[..out.len()], |x: bf16| x);
                        bf16_to_f32(&halves[..out.len()], out);
                    }
                    _ => gather(from, stride, out, |x: f32| x),
                }
            }
        }
    }

    unsafe fn store(dtype: DType, to: *mut u8, stride: isize, values: &[Self]) {
        let width = dtype.bytes() as isize;
        for (number, values) in values.chunks(CHUNK).enumerate() {
            let to = to.wrapping_offset((number * CHUNK) as isize * stride * width);
            // SAFETY: guaranteed by the caller.
            unsafe {
                match dtype {
                    DType::F16 => {
                        let mut halves = [f16::ZERO; CHUNK];
                        f32_to_f16(values, &mut halves[..values.len()]);
                        spread(to, stride, &halves[..values.len()], |x| x);
                    }
                    DType::Bf16 => {
                        let mut halves = [bf16::ZERO; CHUNK];
                        f32_to_bf16(values, &mut halves[..values.len()]);
                        spread(to, stride, &halves[..values.len()], |x| x);
                    }
                    _ => spread(to, stride, values, |x| x),
                }
            }
        }
    }
}

impl Number for f64 {
    const DTYPE: DType = DType::F64;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }

    unsafe fn load(dtype: DType, from: *const u8, stride: isize, out: &mut [Self]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match dtype {
                DType::F32 => gather(from, stride, out, |x: f32| f64::from(x)),
                _ => gather(from, stride, out, |x: f64| x),
            }
        }
    }

    unsafe fn store(_: DType, to: *mut u8, stride: isize, values: &[Self]) {
        // SAFETY: guaranteed by the caller.
        unsafe { spread(to, stride, values, |x| x) }
    }
}

macro_rules! integer {
    ($number:ty, $stored:ident: $($dtype:ident $type:ty),*) => {
        impl Number for $number {
            const DTYPE: DType = DType::$stored;
            const ZERO: Self = 0;

            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }

            unsafe fn load(dtype: DType, from: *const u8, stride: isize, out: &mut [Self]) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    match dtype {
                        $(DType::$dtype => gather(from, stride, out, |x: $type| x as $number),)*
                        DType::Bool => gather(from, stride, out, |x: u8| (x != 0) as $number),
                        _ => gather(from, stride, out, |x: $number| x),
                    }
                }
            }

            unsafe fn store(dtype: DType, to: *mut u8, stride: isize, values: &[Self]) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    match dtype {
                        $(DType::$dtype => spread(to, stride, values, |x| x as $type),)*
                        DType::Bool => spread(to, stride, values, |x| u8::from(x != 0)),
                        _ => spread(to, stride, values, |x| x),
                    }
                }
            }
        }
    };
}

integer!(i64, I64: I8 i8, I16 i16, I32 i32);
integer!(u64, U64: U8 u8, U16 u16, U32 u32);

/// Expands `$body` with `$number` as the type that elements of a type are computed in.
macro_rules! with_number {
    ($dtype:expr, $number:ident => $body:expr) => {
        match $dtype {
            DType::F32 | DType::F16 | DType::Bf16 => {
                type $number = f32;
                $body
            }
            DType::F64 => {
                type $number = f64;
                $body
            }
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::Bool => {
                type $number = i64;
                $body
            }
            // Unsigned integers; plans contain no 8-bit floats.
            _ => {
                type $number = u64;
                $body
            }
        }
    };
}

pub(crate) use with_number;
