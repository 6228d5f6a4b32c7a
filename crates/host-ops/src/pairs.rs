//! Products of 16-bit integers, two at a time, as used for products of bytes.
//!
//! A byte minus its zero point fits 16 bits, and the product of two of them 17 bits and a sign. So the sum of two
//! products fits 32 bits, and no saturating instruction is used.
use crate::microkernel::{Compute, Kernel, Kernels, Strip};
use crate::operand::Source;
use crate::scratch::Plain;
use crate::tensor::Element;

/// Two adjacent elements along the depth of a product, or one sum of products.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct Pairs(pub i32);

// SAFETY: an `i32`, for which any bit pattern is valid.
unsafe impl Plain for Pairs {}
// SAFETY: no element type is stored this way.
unsafe impl Element for Pairs {
    const DTYPES: &'static [graph::DType] = &[];
}

impl Pairs {
    /// Two adjacent elements, the first one in the low half.
    #[inline(always)]
    pub(crate) fn of(first: i16, second: i16) -> Self {
        Self(i32::from(first) & 0xffff | i32::from(second) << 16)
    }

    #[inline(always)]
    fn halves(self) -> (i32, i32) {
        (i32::from(self.0 as i16), self.0 >> 16)
    }

    /// Reinterprets sums as `i32`.
    pub(crate) fn sums(values: &[Self]) -> &[i32] {
        // SAFETY: `Pairs` is an `i32` and nothing else.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}

impl Source<Self> for Pairs {
    const SAME: bool = true;

    fn read(self) -> Self {
        self
    }

    fn read_all(from: &[Self], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

impl Compute for Pairs {
    const ZERO: Self = Self(0);
    const NOTHING: Self = Self(0);
    const LOWEST: Self = Self(i32::MIN);

    fn kernels() -> &'static Kernels<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                return x86::AVX512;
            }
            if is_x86_feature_detected!("avx2") {
                return x86::AVX2;
            }
        }
        PORTABLE
    }

    fn whole(value: i32) -> Self {
        Self(value)
    }

    /// `term` plus both products.
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        let ((a, b), (c, d)) = (self.halves(), factor.halves());
        Self(term.0.wrapping_add(a * c).wrapping_add(b * d))
    }

    fn plus(self, term: Self) -> Self {
        Self(self.0.wrapping_add(term.0))
    }

    fn scaled(self, _: f32) -> Self {
        self
    }

    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

/// # Safety
/// Same as for [`Kernel`].
unsafe fn portable<const ROWS: usize, const STEP: usize>(strip: &Strip<Pairs>) {
    // SAFETY: guaranteed by the caller.
    unsafe { crate::microkernel::portable::<Pairs, ROWS, 8, STEP>(strip) }
}

macro_rules! kernels {
    ($name:ident, $most:literal x $columns:literal: $($rows:literal)*) => {
        &Kernels {
            rows: $most,
            columns: $columns,
            packed: &[$($name::<$rows, $most> as Kernel<Pairs>),*],
            direct: &[$($name::<$rows, 0> as Kernel<Pairs>),*],
        }
    };
}

static PORTABLE: &Kernels<Pairs> = kernels!(portable, 4 x 8: 1 2 3 4);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
        _mm256_storeu_si256, _mm512_dpwssd_epi32, _mm512_loadu_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
        _mm512_storeu_epi32,
    };

    use super::{Kernel, Kernels, Pairs, Strip};

    /// Kernels with two vectors per row; `$add` adds the products of its first two operands to the third.
    macro_rules! kernel {
        ($name:ident, $feature:literal, $lanes:literal, $zero:ident $splat:ident $load:ident $store:ident $add:ident) => {
            /// # Safety
            /// Same as for [`Kernel`]; the processor has the features named.
            #[target_feature(enable = $feature)]
            unsafe fn $name<const ROWS: usize, const STEP: usize>(strip: &Strip<Pairs>) {
                let mut sums = [[$zero(); 2]; ROWS];
                // SAFETY: the caller vouches for the strip.
                unsafe {
                    if !strip.first {
                        for (r, sums) in sums.iter_mut().enumerate() {
                            sums[0] = $load(strip.tile.add(r * 2 * $lanes).cast());
                            sums[1] = $load(strip.tile.add((r * 2 + 1) * $lanes).cast());
                        }
                    }
                    for p in 0..strip.depth {
                        let row = strip.right.offset(*strip.right_depth.add(p));
                        let (low, high) = ($load(row.cast()), $load(row.add($lanes).cast()));
                        let column = if STEP > 0 {
                            strip.left.add(p * STEP)
                        } else {
                            strip.left.offset(*strip.left_depth.add(p))
                        };
                        for (r, sums) in sums.iter_mut().enumerate() {
                            let step = if STEP > 0 { 1 } else { strip.left_row };
                            let factor = $splat((*column.offset(r as isize * step)).0);
                            sums[0] = $add(factor, low, sums[0]);
                            sums[1] = $add(factor, high, sums[1]);
                        }
                    }
                    for (r, sums) in sums.iter().enumerate() {
                        $store(strip.tile.add(r * 2 * $lanes).cast(), sums[0]);
                        $store(strip.tile.add((r * 2 + 1) * $lanes).cast(), sums[1]);
                    }
                }
            }
        };
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn add_avx512(
        a: std::arch::x86_64::__m512i,
        b: std::arch::x86_64::__m512i,
        sum: std::arch::x86_64::__m512i,
    ) -> std::arch::x86_64::__m512i {
        _mm512_dpwssd_epi32(sum, a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_avx2(a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
        _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
    }

    kernel!(pairs_avx512, "avx512f,avx512vnni", 16, _mm512_setzero_si512 _mm512_set1_epi32 _mm512_loadu_epi32 _mm512_storeu_epi32 add_avx512);
    kernel!(pairs_avx2, "avx2", 8, _mm256_setzero_si256 _mm256_set1_epi32 _mm256_loadu_si256 _mm256_storeu_si256 add_avx2);

    pub(super) static AVX512: &Kernels<Pairs> = kernels!(pairs_avx512, 12 x 32: 1 2 3 4 5 6 7 8 9 10 11 12);
    pub(super) static AVX2: &Kernels<Pairs> = kernels!(pairs_avx2, 6 x 16: 1 2 3 4 5 6);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<&'static Kernels<Pairs>> {
        let mut all = vec![PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(x86::AVX2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                all.push(x86::AVX512);
            }
        }
        all
    }

    #[test]
    fn every_kernel_sums_the_extremes_of_bytes_exactly() {
        let values = [-255i16, 255, -128, 127, 0, 1];
        for kernels in all() {
            let (depth, most, columns) = (9, kernels.rows, kernels.columns);
            let value = |at: usize| values[at % values.len()];
            let pair = |at: usize| Pairs::of(value(at), value(at * 5 + 1));
            let left: Vec<Pairs> = (0..most * depth).map(pair).collect();
            let right: Vec<Pairs> = (0..depth * columns).map(|at| pair(at + 3)).collect();
            let right_depth: Vec<isize> = (0..depth).map(|p| (p * columns) as isize).collect();
            for (at, kernel) in kernels.packed.iter().enumerate() {
                let rows = at + 1;
                let mut tile = vec![Pairs(7); rows * columns];
                let strip = Strip {
                    depth,
                    left: left.as_ptr(),
                    left_row: 1,
                    left_depth: std::ptr::null(),
                    right: right.as_ptr(),
                    right_depth: right_depth.as_ptr(),
                    tile: tile.as_mut_ptr(),
                    first: true,
                };
                // SAFETY: the vectors hold everything that the strip refers to.
                unsafe { kernel(&strip) };
                for r in 0..rows {
                    for c in 0..columns {
                        let want: i64 = (0..depth)
                            .map(|p| {
                                let (l, r) = (left[p * most + r].halves(), right[p * columns + c].halves());
                                i64::from(l.0) * i64::from(r.0) + i64::from(l.1) * i64::from(r.1)
                            })
                            .sum();
                        assert_eq!(i64::from(tile[r * columns + c].0), want, "{rows}x{columns} at {r},{c}");
                    }
                }
            }
        }
    }
}
