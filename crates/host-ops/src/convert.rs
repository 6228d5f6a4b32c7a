//! Converts slices between half and single precision.
use graph::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::operand::LANES;
use crate::simd::{each, vectorised};

/// Elements that a conversion keeps on the stack.
const CHUNK: usize = 256;

/// Widens f16. Both slices have the same length.
pub(crate) fn f16_to_f32(from: &[f16], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::is_wide() {
        // SAFETY: the CPU has the features.
        return unsafe { wide::f16_to_f32(from, to) };
    }
    from.convert_to_f32_slice(to);
}

/// Rounds to f16. Both slices have the same length.
pub(crate) fn f32_to_f16(from: &[f32], to: &mut [f16]) {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::is_wide() {
        // SAFETY: the CPU has the features.
        return unsafe { wide::f32_to_f16(from, to) };
    }
    to.convert_from_f32_slice(from);
}

/// Widens some f16 values for immediate use. `WIDE` says that the surrounding code is compiled with the CPU's
/// conversion.
#[inline(always)]
pub(crate) fn f16_lanes<const WIDE: bool>(from: &[f16; LANES]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if WIDE {
        // SAFETY: code compiled for wide vectors runs only after checking the CPU's features.
        return unsafe { wide::f16_lanes(from) };
    }
    from.map(f16::to_f32)
}

/// Widens some bf16 values for immediate use.
#[inline(always)]
pub(crate) fn bf16_lanes<const WIDE: bool>(from: &[bf16; LANES]) -> [f32; LANES] {
    from.map(widened)
}

/// The CPU's conversion instructions, eight at a time: the compiler does not use them by itself.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    use half::f16;

    use crate::operand::LANES;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn f16_lanes(from: &[f16; LANES]) -> [f32; LANES] {
        let mut to = [0.0; LANES];
        for (from, to) in from.as_chunks::<8>().0.iter().zip(to.as_chunks_mut::<8>().0) {
            // SAFETY: both arrays have eight elements.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        to
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn f16_to_f32(from: &[f16], to: &mut [f32]) {
        let (chunks, rest) = from.as_chunks::<8>();
        let (to_chunks, to_rest) = to.as_chunks_mut::<8>();
        for (from, to) in chunks.iter().zip(to_chunks) {
            // SAFETY: both arrays have eight elements.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        for (from, to) in rest.iter().zip(to_rest) {
            *to = from.to_f32();
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn f32_to_f16(from: &[f32], to: &mut [f16]) {
        let (chunks, rest) = from.as_chunks::<8>();
        let (to_chunks, to_rest) = to.as_chunks_mut::<8>();
        for (from, to) in chunks.iter().zip(to_chunks) {
            // SAFETY: both arrays have eight elements.
            unsafe {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), halves);
            }
        }
        for (from, to) in rest.iter().zip(to_rest) {
            *to = f16::from_f32(*from);
        }
    }
}

vectorised! {
    /// Widens bf16.
    pub(crate) fn bf16_to_f32(from: &[bf16], to: &mut [f32]) {
        each(from, to, widened);
    }
}

vectorised! {
    /// Rounds to bf16.
    pub(crate) fn f32_to_bf16(from: &[f32], to: &mut [bf16]) {
        each(from, to, |x| bf16::from_bits(bf16_bits(x)));
    }
}

/// A bf16 is the upper half of an f32.
#[inline(always)]
fn widened(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The nearest bf16, ties to even.
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    // Rounding could carry a NaN into infinity: keep its upper half and make it quiet.
    let quiet = (bits >> 16) as u16 | 0x0040;
    if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }
}

/// Rounds values to a half-precision type and widens them again; for other types they stay unchanged.
pub(crate) fn round_to(dtype: DType, values: &mut [f32]) {
    if !matches!(dtype, DType::F16 | DType::Bf16) {
        return;
    }
    for chunk in values.chunks_mut(CHUNK) {
        match dtype {
            DType::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                f32_to_f16(chunk, &mut halves[..chunk.len()]);
                f16_to_f32(&halves[..chunk.len()], chunk);
            }
            DType::Bf16 => {
                let mut halves = [bf16::ZERO; CHUNK];
                f32_to_bf16(chunk, &mut halves[..chunk.len()]);
                bf16_to_f32(&halves[..chunk.len()], chunk);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_a_round_trip() {
        for bits in 0..=u16::MAX {
            // Nine elements: a vector of eight and a remainder of one.
            let (half, brain) = ([f16::from_bits(bits); 9], [bf16::from_bits(bits)]);
            let (mut singles, mut wide, mut back, mut brain_back) = ([0.0; 9], [0.0], [f16::ZERO; 9], [bf16::ZERO]);
            f16_to_f32(&half, &mut singles);
            assert!(singles.iter().all(|&x| x == half[0].to_f32() || x.is_nan() && half[0].is_nan()), "{bits:#x}");
            f32_to_f16(&singles, &mut back);
            assert!(back == half || half[0].is_nan() && back.iter().all(|x| x.is_nan()), "{bits:#x}");
            bf16_to_f32(&brain, &mut wide);
            f32_to_bf16(&wide, &mut brain_back);
            assert!(brain_back == brain || brain[0].is_nan() && brain_back[0].is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn contiguous_halves_are_widened_like_the_half_crate() {
        let is_same = |got: [f32; LANES], want: [f32; LANES]| {
            got.iter().zip(want).all(|(&got, want)| got == want || got.is_nan() && want.is_nan())
        };
        for first in (0..=u16::MAX).step_by(LANES) {
            let bits: [u16; LANES] = std::array::from_fn(|at| first + at as u16);
            let (halves, brains) = (bits.map(f16::from_bits), bits.map(bf16::from_bits));
            assert!(is_same(f16_lanes::<false>(&halves), halves.map(f16::to_f32)), "{first:#x}");
            assert!(is_same(bf16_lanes::<false>(&brains), brains.map(bf16::to_f32)), "{first:#x}");
            #[cfg(target_arch = "x86_64")]
            if crate::simd::is_wide() {
                assert!(is_same(f16_lanes::<true>(&halves), halves.map(f16::to_f32)), "{first:#x}");
            }
        }
    }

    #[test]
    fn f16_rounds_as_the_half_crate_does() {
        for step in 0..100_000u32 {
            let x = f32::from_bits(step.wrapping_mul(42_949));
            let mut got = [f16::ZERO; 9];
            f32_to_f16(&[x; 9], &mut got);
            let want = f16::from_f32(x);
            assert!(got.iter().all(|&got| got == want || got.is_nan() && want.is_nan()), "{x}");
        }
    }

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        for step in 0..100_000u32 {
            let x = f32::from_bits(step.wrapping_mul(42_949));
            let got = bf16::from_bits(bf16_bits(x));
            let want = bf16::from_f32(x);
            assert!(got == want || got.is_nan() && want.is_nan(), "{x}");
        }
    }
}
