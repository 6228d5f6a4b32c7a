//! Half precision to single and back, a slice at a time.
use graph::DType;
use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::simd::{each, vectorised};

/// Elements a conversion holds on the stack.
const CHUNK: usize = 256;

/// Widens f16.
pub(crate) fn f16_to_f32(from: &[f16], to: &mut [f32]) {
    from.convert_to_f32_slice(to);
}

/// Rounds to f16.
pub(crate) fn f32_to_f16(from: &[f32], to: &mut [f16]) {
    to.convert_from_f32_slice(from);
}

vectorised! {
    /// Widens bf16.
    pub(crate) fn bf16_to_f32(from: &[bf16], to: &mut [f32]) {
        each(from, to, |x| f32::from_bits(u32::from(x.to_bits()) << 16));
    }
}

vectorised! {
    /// Rounds to bf16.
    pub(crate) fn f32_to_bf16(from: &[f32], to: &mut [bf16]) {
        each(from, to, |x| bf16::from_bits(bf16_bits(x)));
    }
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

/// Rounds values to a half-precision type and widens them again; other types stay as they are.
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
    fn every_half_survives_the_way_there_and_back() {
        for bits in 0..=u16::MAX {
            let (half, brain) = ([f16::from_bits(bits)], [bf16::from_bits(bits)]);
            let (mut wide, mut back, mut brain_back) = ([0.0], [f16::ZERO], [bf16::ZERO]);
            f16_to_f32(&half, &mut wide);
            f32_to_f16(&wide, &mut back);
            assert!(back == half || half[0].is_nan() && back[0].is_nan(), "{bits:#x}");
            bf16_to_f32(&brain, &mut wide);
            f32_to_bf16(&wide, &mut brain_back);
            assert!(brain_back == brain || brain[0].is_nan() && brain_back[0].is_nan(), "{bits:#x}");
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
