//! Conversions between stored elements and the types they are computed in.
use half::{bf16, f16};

use crate::convert::{bf16_lanes, bf16_to_f32, f16_lanes, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::microkernel::Compute;
use crate::scratch::Plain;
use crate::simd::each;
use crate::tensor::Element;

/// Elements converted at a time.
const CHUNK: usize = 64;
/// Contiguous elements read at a time for immediate use.
pub(crate) const LANES: usize = 16;

/// An element that can be read as `C`.
pub(crate) trait Source<C: Plain>: Element {
    /// True if it is stored as `C`, so that kernels can read it in place.
    const SAME: bool;

    /// The value.
    fn read(self) -> C;

    /// Reads as many contiguous values.
    fn read_all(from: &[Self], to: &mut [C]);

    /// Reads some contiguous values, in a loop that is compiled for wide vectors if `WIDE` is true (see
    /// [`vectorised`](crate::simd::vectorised)).
    #[inline(always)]
    fn lanes<const WIDE: bool>(from: &[Self; LANES]) -> [C; LANES] {
        from.map(Self::read)
    }
}

/// An element that can be written from `C`.
pub(crate) trait Target<C: Compute>: Element {
    /// Converts to the nearest value; integers wrap, and fractions are truncated.
    fn write(value: C) -> Self;

    /// Writes as many contiguous values, each plus a term.
    fn write_sums(values: &[C], term: C, to: &mut [Self]);
}

macro_rules! operand {
    ($($type:ty as $compute:ty, $same:literal: $read:expr, $write:expr
        $(, $read_all:path, $write_all:path, $lanes:ident)?;)*) => {
        $(
            impl Source<$compute> for $type {
                const SAME: bool = $same;

                #[inline(always)]
                fn read(self) -> $compute {
                    $read(self)
                }

                #[inline(always)]
                #[allow(unreachable_code)]
                fn read_all(from: &[Self], to: &mut [$compute]) {
                    $(return $read_all(from, to);)?
                    each(from, to, $read);
                }

                $(
                    #[inline(always)]
                    fn lanes<const WIDE: bool>(from: &[Self; LANES]) -> [$compute; LANES] {
                        $lanes::<WIDE>(from)
                    }
                )?
            }

            impl Target<$compute> for $type {
                #[inline(always)]
                fn write(value: $compute) -> Self {
                    $write(value)
                }

                #[inline(always)]
                #[allow(unreachable_code)]
                fn write_sums(values: &[$compute], term: $compute, to: &mut [Self]) {
                    $(
                        let mut sums = [0.0; CHUNK];
                        for (to, values) in to.chunks_mut(CHUNK).zip(values.chunks(CHUNK)) {
                            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value + term);
                            $write_all(&sums[..values.len()], to);
                        }
                        return;
                    )?
                    each(values, to, |value| $write(value.plus(term)));
                }
            }
        )*
    };
}

operand! {
    f32 as f32, true: |x| x, |x| x;
    f16 as f32, false: f16::to_f32, f16::from_f32, f16_to_f32, f32_to_f16, f16_lanes;
    bf16 as f32, false: bf16::to_f32, bf16::from_f32, bf16_to_f32, f32_to_bf16, bf16_lanes;
    f64 as f64, true: |x| x, |x| x;
    i8 as i32, false: i32::from, |x| x as i8;
    u8 as i32, false: i32::from, |x| x as u8;
    i16 as i32, false: i32::from, |x| x as i16;
    u16 as i32, false: i32::from, |x| x as u16;
    i32 as i32, true: |x| x, |x| x;
    u32 as i32, false: |x| x as i32, |x| x as u32;
    i64 as i64, true: |x| x, |x| x;
    u64 as i64, false: |x| x as i64, |x| x as u64;
    i8 as f32, false: f32::from, |x| x as i8;
    u8 as f32, false: f32::from, |x| x as u8;
    i32 as f64, false: f64::from, |x| x as i32;
    i64 as f64, false: |x| x as f64, |x| x as i64;
}

/// Bytes widened to 16 bits, so that the zero point can be subtracted.
macro_rules! short {
    ($($type:ty)*) => {
        $(
            impl Source<i16> for $type {
                const SAME: bool = false;

                #[inline(always)]
                fn read(self) -> i16 {
                    i16::from(self)
                }

                #[inline(always)]
                fn read_all(from: &[Self], to: &mut [i16]) {
                    each(from, to, i16::from);
                }
            }
        )*
    };
}

short!(i8 u8);
