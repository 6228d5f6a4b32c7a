//! Kernels for wide vectors.
use std::arch::x86_64::*;

use super::activations::Left;
use super::kernel::{Job, Kernels, floats, tables};
use super::panel::COLUMNS;
use crate::simd::prefetch;

static VNNI: Kernels = Kernels::new(true, 6, tables!(vnni: 1 2 3 4 5 6));
static BYTES: Kernels = Kernels::new(true, 2, tables!(bytes: 1 2));
static AVX512: Kernels = Kernels::new(false, 8, tables!(floats_avx512: 1 2 3 4 5 6 7 8));
static AVX2: Kernels = Kernels::new(false, 4, tables!(floats_avx2: 1 2 3 4));

/// The sets of kernels that this processor can run, the best first.
pub(super) fn choices() -> impl Iterator<Item = &'static Kernels> {
    let has_512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let has_vnni = has_512 && is_x86_feature_detected!("avx512vnni");
    let has_256 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    [(has_vnni, &VNNI), (has_256, &BYTES), (has_512, &AVX512), (has_256, &AVX2)]
        .into_iter()
        .filter_map(|(has, kernels)| has.then_some(kernels))
}

/// # Safety
/// Same as for [`Kernel`](super::kernel::Kernel).
#[target_feature(enable = "avx512f,avx512bw,fma")]
unsafe fn floats_avx512<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    // SAFETY: guaranteed by the caller.
    unsafe { floats::<BITS, ROWS, PANELS>(job) }
}

/// # Safety
/// Same as for [`Kernel`](super::kernel::Kernel).
#[target_feature(enable = "avx2,fma")]
unsafe fn floats_avx2<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    // SAFETY: guaranteed by the caller.
    unsafe { floats::<BITS, ROWS, PANELS>(job) }
}

/// Products of bytes, four per lane. A single row is limited by memory, so the next panels are prefetched.
///
/// # Safety
/// Same as for [`Kernel`](super::kernel::Kernel).
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn vnni<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    let Left { blocks, block, bytes, sums, scales, starts, .. } = job.left;
    let (per_word, parts) = (32 / BITS as usize, 8 / BITS as usize);
    let words = block / per_word;
    let mask = _mm512_set1_epi8((u8::MAX >> (8 - BITS)).cast_signed());
    let has_zeros = !job.panels[0].zeros.is_null();
    let mut totals = [[_mm512_setzero_ps(); PANELS]; ROWS];
    // SAFETY: the caller vouches for panels, rows and output.
    unsafe {
        for b in 0..blocks {
            let mut dots = [[_mm512_setzero_si512(); PANELS]; ROWS];
            for (r, dots) in dots.iter_mut().enumerate() {
                *dots = [_mm512_set1_epi32(*starts.add(r * blocks + b)); PANELS];
            }
            for w in b * words..(b + 1) * words {
                let mut word: [__m512i; PANELS] = std::array::from_fn(|p| {
                    let from = job.panels[p].weights.add(w * 64);
                    if ROWS == 1 {
                        prefetch(from.wrapping_add(PANELS * blocks * words * 64));
                    }
                    _mm512_loadu_si512(from.cast())
                });
                for part in 0..parts {
                    let weights = word.map(|word| if BITS == 8 { word } else { _mm512_and_si512(word, mask) });
                    word = word.map(|word| if BITS == 8 { word } else { _mm512_srli_epi32::<BITS>(word) });
                    for (r, dots) in dots.iter_mut().enumerate() {
                        let from = bytes.add(r * blocks * block + w * per_word + part * 4);
                        let left = _mm512_set1_epi32(from.cast::<i32>().read_unaligned());
                        for (dot, weights) in dots.iter_mut().zip(weights) {
                            *dot = _mm512_dpbusd_epi32(*dot, weights, left);
                        }
                    }
                }
            }
            for p in 0..PANELS {
                let panel = &job.panels[p];
                let from = panel.scales.add(b * COLUMNS);
                if ROWS == 1 {
                    prefetch(from.wrapping_add(PANELS * blocks * COLUMNS).cast());
                }
                let scale = _mm512_loadu_ps(from);
                for (r, (totals, dots)) in totals.iter_mut().zip(&dots).enumerate() {
                    let factor = _mm512_mul_ps(scale, _mm512_set1_ps(*scales.add(r * blocks + b)));
                    totals[p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[p]), factor, totals[p]);
                }
                if has_zeros {
                    let zero = _mm512_loadu_ps(panel.zeros.add(b * COLUMNS));
                    for (r, totals) in totals.iter_mut().enumerate() {
                        let sum = _mm512_set1_ps(*sums.add(r * blocks + b));
                        totals[p] = _mm512_fnmadd_ps(zero, sum, totals[p]);
                    }
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            for (p, &total) in totals.iter().enumerate() {
                _mm512_storeu_ps(job.out.add(r * job.out_row + p * COLUMNS), total);
            }
        }
    }
}

/// Same as [`vnni`], with vectors of half the length and without the VNNI instruction.
///
/// # Safety
/// Same as for [`Kernel`](super::kernel::Kernel).
#[target_feature(enable = "avx2,fma")]
unsafe fn bytes<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    let Left { blocks, block, bytes, sums, scales, starts, .. } = job.left;
    let (per_word, parts) = (32 / BITS as usize, 8 / BITS as usize);
    let words = block / per_word;
    let mask = _mm256_set1_epi8((u8::MAX >> (8 - BITS)).cast_signed());
    // SAFETY: the caller vouches for panels, rows and output.
    unsafe {
        for half in 0..2 * PANELS {
            let panel = &job.panels[half / 2];
            let first = half % 2 * 8;
            let mut totals = [_mm256_setzero_ps(); ROWS];
            for b in 0..blocks {
                let mut dots: [__m256i; ROWS] = std::array::from_fn(|r| _mm256_set1_epi32(*starts.add(r * blocks + b)));
                for w in b * words..(b + 1) * words {
                    let mut word = _mm256_loadu_si256(panel.weights.add((w * COLUMNS + first) * 4).cast());
                    for part in 0..parts {
                        let weights = if BITS == 8 { word } else { _mm256_and_si256(word, mask) };
                        if BITS < 8 {
                            word = _mm256_srl_epi32(word, _mm_cvtsi32_si128(BITS.cast_signed()));
                        }
                        for (r, dot) in dots.iter_mut().enumerate() {
                            let from = bytes.add(r * blocks * block + w * per_word + part * 4);
                            let left = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
                            *dot = _mm256_add_epi32(*dot, products::<BITS>(weights, left));
                        }
                    }
                }
                let scale = _mm256_loadu_ps(panel.scales.add(b * COLUMNS + first));
                for (r, total) in totals.iter_mut().enumerate() {
                    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(*scales.add(r * blocks + b)));
                    *total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), factor, *total);
                    if !panel.zeros.is_null() {
                        let zero = _mm256_loadu_ps(panel.zeros.add(b * COLUMNS + first));
                        *total = _mm256_fnmadd_ps(zero, _mm256_set1_ps(*sums.add(r * blocks + b)), *total);
                    }
                }
            }
            for (r, &total) in totals.iter().enumerate() {
                _mm256_storeu_ps(job.out.add(r * job.out_row + half / 2 * COLUMNS + first), total);
            }
        }
    }
}

/// The sums of four products in each lane.
#[target_feature(enable = "avx2")]
fn products<const BITS: u32>(weights: __m256i, left: __m256i) -> __m256i {
    if BITS < 8 {
        // Pairs of products of so few bits fit 16 bits.
        return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, left), _mm256_set1_epi16(1));
    }
    let zero = _mm256_setzero_si256();
    let sign = _mm256_cmpgt_epi8(zero, left);
    let low = _mm256_madd_epi16(_mm256_unpacklo_epi8(weights, zero), _mm256_unpacklo_epi8(left, sign));
    let high = _mm256_madd_epi16(_mm256_unpackhi_epi8(weights, zero), _mm256_unpackhi_epi8(left, sign));
    _mm256_hadd_epi32(low, high)
}
