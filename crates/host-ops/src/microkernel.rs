//! The inner loops of matrix products: a few rows times two vectors of columns, kept in registers.
//!
//! For every depth `p`, a kernel adds the outer product of a column of the left operand and a row of the right operand
//! to a tile. The start of each row of the right operand is read from a table. So dense matrices, packed columns and
//! the shifted planes of a convolution all use the same kernels.
use crate::scratch::Plain;

/// The arguments of a kernel call.
pub(crate) struct Strip<C> {
    /// The number of depths.
    pub depth: usize,
    /// The left operand's first element.
    pub left: *const C,
    /// The stride between rows of the left operand; packed kernels use 1.
    pub left_row: isize,
    /// The offset of each depth of the left operand; packed kernels step by the kernel's maximum number of rows.
    pub left_depth: *const isize,
    /// The right operand's first element.
    pub right: *const C,
    /// The offset of each depth of the right operand, where the kernel reads its number of contiguous columns.
    pub right_depth: *const isize,
    /// The tile, row by row.
    pub tile: *mut C,
    /// True if the tile is not initialised yet.
    pub first: bool,
}

/// # Safety
/// Everything in the strip is valid for the kernel's rows and columns.
pub(crate) type Kernel<C> = unsafe fn(&Strip<C>);

/// The kernels of one type on this processor.
pub(crate) struct Kernels<C: 'static> {
    /// The maximum number of rows.
    pub rows: usize,
    /// The columns.
    pub columns: usize,
    /// Indexed by rows minus one, for a packed left operand.
    pub packed: &'static [Kernel<C>],
    /// Indexed by rows minus one, for a left operand in place.
    pub direct: &'static [Kernel<C>],
}

/// A type that products are computed in.
pub(crate) trait Compute: Plain + Send + Sync + PartialOrd + 'static {
    /// Zero.
    const ZERO: Self;
    /// The neutral element of addition, also for -0.0.
    const NOTHING: Self;
    /// A value that is not larger than any other.
    const LOWEST: Self;

    /// The best kernels for this processor.
    fn kernels() -> &'static Kernels<Self>;

    /// Converts a small integer.
    fn whole(value: i32) -> Self;

    /// `self * factor + term`, wrapping for integers.
    fn mul_add(self, factor: Self, term: Self) -> Self;

    /// Same as [`mul_add`](Self::mul_add), in one instruction if the surrounding code is compiled for CPUs that have
    /// it.
    #[inline(always)]
    fn fused<const WIDE: bool>(self, factor: Self, term: Self) -> Self {
        self.mul_add(factor, term)
    }

    /// The sum, wrapping for integers.
    fn plus(self, term: Self) -> Self;

    /// Multiplies by a factor.
    fn scaled(self, alpha: f32) -> Self;

    /// The larger one.
    fn larger(self, other: Self) -> Self;
}

macro_rules! compute_float {
    ($type:ty) => {
        const ZERO: Self = 0.0;
        const NOTHING: Self = -0.0;
        const LOWEST: Self = <$type>::NEG_INFINITY;

        #[inline(always)]
        fn whole(value: i32) -> Self {
            value as Self
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            // Without the instruction, a fused multiply-add is a call into the C library.
            if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
                <$type>::mul_add(self, factor, term)
            } else {
                self * factor + term
            }
        }

        #[inline(always)]
        fn fused<const WIDE: bool>(self, factor: Self, term: Self) -> Self {
            if WIDE { <$type>::mul_add(self, factor, term) } else { Compute::mul_add(self, factor, term) }
        }

        #[inline(always)]
        fn plus(self, term: Self) -> Self {
            self + term
        }

        #[inline(always)]
        fn scaled(self, alpha: f32) -> Self {
            self * <$type>::from(alpha)
        }

        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            if other > self { other } else { self }
        }
    };
}

macro_rules! compute_int {
    ($type:ty) => {
        const ZERO: Self = 0;
        const NOTHING: Self = 0;
        const LOWEST: Self = <$type>::MIN;

        #[inline(always)]
        fn whole(value: i32) -> Self {
            value as Self
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            self.wrapping_mul(factor).wrapping_add(term)
        }

        #[inline(always)]
        fn plus(self, term: Self) -> Self {
            self.wrapping_add(term)
        }

        #[inline(always)]
        fn scaled(self, alpha: f32) -> Self {
            if alpha == 1.0 { self } else { (self as f64 * f64::from(alpha)) as Self }
        }

        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            if other > self { other } else { self }
        }
    };
}

/// The loop itself, vectorised by the compiler.
///
/// # Safety
/// Same as for [`Kernel`].
#[inline(always)]
pub(crate) unsafe fn portable<C: Compute, const ROWS: usize, const COLUMNS: usize, const STEP: usize>(
    strip: &Strip<C>,
) {
    let mut sums = [[C::ZERO; COLUMNS]; ROWS];
    // SAFETY: the caller vouches for the strip.
    unsafe {
        if !strip.first {
            sums = strip.tile.cast::<[[C; COLUMNS]; ROWS]>().read_unaligned();
        }
        for p in 0..strip.depth {
            let row = strip.right.offset(*strip.right_depth.add(p)).cast::<[C; COLUMNS]>().read_unaligned();
            let column = if STEP > 0 { strip.left.add(p * STEP) } else { strip.left.offset(*strip.left_depth.add(p)) };
            for (r, sums) in sums.iter_mut().enumerate() {
                let step = if STEP > 0 { 1 } else { strip.left_row };
                let factor = *column.offset(r as isize * step);
                for (sum, &value) in sums.iter_mut().zip(&row) {
                    *sum = factor.mul_add(value, *sum);
                }
            }
        }
        strip.tile.cast::<[[C; COLUMNS]; ROWS]>().write_unaligned(sums);
    }
}

/// A table with one kernel for each number of rows.
macro_rules! table {
    ($name:ident, $type:ty, $step:expr, $($rows:literal)*) => {
        &[$($name::<$rows, $step> as Kernel<$type>),*]
    };
}

/// Kernels that the compiler vectorises for an instruction set.
macro_rules! compiled {
    ($name:ident, $type:ty, $columns:literal $(, $feature:literal)?) => {
        /// # Safety
        /// Same as for [`Kernel`]; the processor has the features named.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name<const ROWS: usize, const STEP: usize>(strip: &Strip<$type>) {
            // SAFETY: guaranteed by the caller.
            unsafe { portable::<$type, ROWS, $columns, STEP>(strip) }
        }
    };
}

/// Kernels in intrinsics, with two vectors per row.
#[cfg(target_arch = "x86_64")]
macro_rules! intrinsic {
    ($name:ident, $type:ty, $feature:literal, $lanes:literal, $zero:ident $splat:ident $load:ident $store:ident $fma:ident) => {
        /// # Safety
        /// Same as for [`Kernel`]; the processor has the features named.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const ROWS: usize, const STEP: usize>(strip: &Strip<$type>) {
            use std::arch::x86_64::{$fma, $load, $splat, $store, $zero};
            let mut sums = [[$zero(); 2]; ROWS];
            // SAFETY: the caller vouches for the strip.
            unsafe {
                if !strip.first {
                    for (r, sums) in sums.iter_mut().enumerate() {
                        sums[0] = $load(strip.tile.add(r * 2 * $lanes));
                        sums[1] = $load(strip.tile.add((r * 2 + 1) * $lanes));
                    }
                }
                for p in 0..strip.depth {
                    let row = strip.right.offset(*strip.right_depth.add(p));
                    let (low, high) = ($load(row), $load(row.add($lanes)));
                    let column =
                        if STEP > 0 { strip.left.add(p * STEP) } else { strip.left.offset(*strip.left_depth.add(p)) };
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let step = if STEP > 0 { 1 } else { strip.left_row };
                        let factor = $splat(*column.offset(r as isize * step));
                        sums[0] = $fma(factor, low, sums[0]);
                        sums[1] = $fma(factor, high, sums[1]);
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    $store(strip.tile.add(r * 2 * $lanes), sums[0]);
                    $store(strip.tile.add((r * 2 + 1) * $lanes), sums[1]);
                }
            }
        }
    };
}

/// A set of kernels with both forms of the left operand.
macro_rules! kernels {
    ($name:ident, $type:ty, $most:literal x $columns:literal: $($rows:literal)*) => {
        &Kernels {
            rows: $most,
            columns: $columns,
            packed: table!($name, $type, $most, $($rows)*),
            direct: table!($name, $type, 0, $($rows)*),
        }
    };
}

compiled!(f32_portable, f32, 8);
compiled!(f64_portable, f64, 4);
compiled!(i32_portable, i32, 8);
compiled!(i64_portable, i64, 4);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, Kernels, Strip, portable};

    intrinsic!(f32_avx512, f32, "avx512f", 16, _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps);
    intrinsic!(f64_avx512, f64, "avx512f", 8, _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd);
    intrinsic!(f32_avx2, f32, "avx2,fma", 8, _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps);
    intrinsic!(f64_avx2, f64, "avx2,fma", 4, _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd);
    compiled!(i32_avx2, i32, 16, "avx2");
    compiled!(i64_avx2, i64, 8, "avx2");

    pub(super) static F32_AVX512: &Kernels<f32> = kernels!(f32_avx512, f32, 12 x 32: 1 2 3 4 5 6 7 8 9 10 11 12);
    pub(super) static F64_AVX512: &Kernels<f64> = kernels!(f64_avx512, f64, 12 x 16: 1 2 3 4 5 6 7 8 9 10 11 12);
    pub(super) static F32_AVX2: &Kernels<f32> = kernels!(f32_avx2, f32, 6 x 16: 1 2 3 4 5 6);
    pub(super) static F64_AVX2: &Kernels<f64> = kernels!(f64_avx2, f64, 6 x 8: 1 2 3 4 5 6);
    pub(super) static I32_AVX2: &Kernels<i32> = kernels!(i32_avx2, i32, 4 x 16: 1 2 3 4);
    pub(super) static I64_AVX2: &Kernels<i64> = kernels!(i64_avx2, i64, 4 x 8: 1 2 3 4);
}

static F32: &Kernels<f32> = kernels!(f32_portable, f32, 4 x 8: 1 2 3 4);
static F64: &Kernels<f64> = kernels!(f64_portable, f64, 4 x 4: 1 2 3 4);
static I32: &Kernels<i32> = kernels!(i32_portable, i32, 4 x 8: 1 2 3 4);
static I64: &Kernels<i64> = kernels!(i64_portable, i64, 4 x 4: 1 2 3 4);

/// All sets of kernels of a type that this processor can run, the best first.
trait Choices: Compute {
    fn choices() -> impl Iterator<Item = &'static Kernels<Self>>;
}

macro_rules! choices {
    ($($type:ty, $rules:ident: $([$($feature:tt)*] $table:ident)* | $portable:ident;)*) => {
        $(
            impl Choices for $type {
                fn choices() -> impl Iterator<Item = &'static Kernels<Self>> {
                    let best: [Option<&'static Kernels<Self>>; 2] = [None; 2];
                    #[cfg(target_arch = "x86_64")]
                    let best = {
                        let mut best = best;
                        let mut at = 0;
                        $(
                            best[at] = (true $(&& is_x86_feature_detected!($feature))*).then_some(x86::$table);
                            at += 1;
                        )*
                        debug_assert!(at <= 2);
                        best
                    };
                    best.into_iter().flatten().chain([$portable])
                }
            }

            impl Compute for $type {
                $rules!($type);

                fn kernels() -> &'static Kernels<Self> {
                    Self::choices().next().unwrap_or($portable)
                }
            }
        )*
    };
}

choices! {
    f32, compute_float: ["avx512f"] F32_AVX512 ["avx2" "fma"] F32_AVX2 | F32;
    f64, compute_float: ["avx512f"] F64_AVX512 ["avx2" "fma"] F64_AVX2 | F64;
    i32, compute_int: ["avx2"] I32_AVX2 | I32;
    i64, compute_int: ["avx2"] I64_AVX2 | I64;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kernel adds small integers, so that every type gives the exact sum.
    fn check<C: Choices>(number: impl Fn(i64) -> C + Copy) {
        for kernels in C::choices() {
            let (most, columns, depth) = (kernels.rows, kernels.columns, 7);
            for (packed, table) in [(true, kernels.packed), (false, kernels.direct)] {
                for (at, kernel) in table.iter().enumerate() {
                    let rows = at + 1;
                    let left: Vec<C> = (0..most * depth).map(|i| number(i as i64 % 11 - 5)).collect();
                    let right: Vec<C> = (0..depth * (columns + 3)).map(|i| number(i as i64 % 7 - 3)).collect();
                    // Packed operands are stored depth by depth, the direct one row by row and backwards in depth.
                    let left_row = if packed { 1 } else { depth as isize };
                    let left_depth: Vec<isize> = (0..depth as isize).rev().collect();
                    let right_depth: Vec<isize> =
                        (0..depth).map(|p| ((p * 3 % depth) * (columns + 3)) as isize).collect();
                    let mut tile = vec![number(1); rows * columns + 1];
                    for first in [true, false] {
                        let strip = Strip {
                            depth,
                            left: left.as_ptr(),
                            left_row,
                            left_depth: left_depth.as_ptr(),
                            right: right.as_ptr(),
                            right_depth: right_depth.as_ptr(),
                            tile: tile.as_mut_ptr(),
                            first,
                        };
                        // SAFETY: the vectors hold everything that the tables refer to.
                        unsafe { kernel(&strip) };
                    }
                    for r in 0..rows {
                        for c in 0..columns {
                            let want: i64 = (0..depth)
                                .map(|p| {
                                    let l = if packed { p * most + r } else { r * depth + depth - 1 - p };
                                    let r = (p * 3 % depth) * (columns + 3) + c;
                                    (l as i64 % 11 - 5) * (r as i64 % 7 - 3)
                                })
                                .sum();
                            assert!(
                                tile[r * columns + c] == number(2 * want),
                                "{rows}x{columns} packed {packed} at {r},{c}"
                            );
                        }
                    }
                    assert!(tile[rows * columns] == number(1), "{rows}x{columns} wrote past its tile");
                }
            }
        }
    }

    #[test]
    fn every_kernel_of_this_processor_adds_exactly() {
        check(|value| value as f32);
        check(|value| value as f64);
        check(|value| value as i32);
        check(|value| value);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(i32::MAX.mul_add(2, 3), 1);
        assert_eq!(Compute::plus(i64::MAX, 1), i64::MIN);
    }
}
