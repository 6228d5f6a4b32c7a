//! Products of small blocks of rows, and the softmax between two of them.
use std::array::from_fn;

use crate::math::fused;
use crate::simd::vectorised;

/// Elements of a vector.
const LANES: usize = 8;

vectorised! {
    /// Products of rows `a [_, size]` and rows of `b` with stride `pitch`: `out[r · out_pitch + j] = a[r] · b[j]`.
    pub(crate) fn products(
        a: &[f32],
        size: usize,
        b: &[f32],
        pitch: usize,
        count: usize,
        out: &mut [f32],
        out_pitch: usize,
    ) {
        let rows = a.len() / size.max(1);
        let mut row = 0;
        while row < rows {
            let (a, out) = (&a[row * size..], &mut out[row * out_pitch..]);
            row += match rows - row {
                0..4 => {
                    tiles_of::<WIDE, 1>(a, size, b, pitch, count, out, out_pitch);
                    1
                }
                _ => {
                    tiles_of::<WIDE, 4>(a, size, b, pitch, count, out, out_pitch);
                    4
                }
            };
        }
    }
}

/// `R` rows of `a` with all rows of `b`.
#[inline(always)]
fn tiles_of<const WIDE: bool, const R: usize>(
    a: &[f32],
    size: usize,
    b: &[f32],
    pitch: usize,
    count: usize,
    out: &mut [f32],
    out_pitch: usize,
) {
    let a: [&[f32]; R] = from_fn(|row| &a[row * size..][..size]);
    let mut at = 0;
    while at + 2 <= count {
        let b: [&[f32]; 2] = from_fn(|column| &b[(at + column) * pitch..][..size]);
        for (row, sums) in dots::<WIDE, _, _>(a, b).into_iter().enumerate() {
            out[row * out_pitch + at..][..2].copy_from_slice(&sums);
        }
        at += 2;
    }
    if at < count {
        for (row, sums) in dots::<WIDE, _, _>(a, [&b[at * pitch..][..size]]).into_iter().enumerate() {
            out[row * out_pitch + at] = sums[0];
        }
    }
}

/// Dot products of rows of the same length.
#[inline(always)]
fn dots<const WIDE: bool, const R: usize, const K: usize>(a: [&[f32]; R], b: [&[f32]; K]) -> [[f32; K]; R] {
    let size = a.iter().chain(&b).map(|row| row.len()).min().unwrap_or(0);
    let whole = size - size % LANES;
    let mut sums = [[[0.0f32; LANES]; K]; R];
    for at in (0..whole).step_by(LANES) {
        // SAFETY: all rows have `size` numbers, and the whole vector at `at` is below `whole`. Slices would have bounds
        // checks, and the sums would then not stay in registers.
        let load = |row: &[f32]| unsafe { row.as_ptr().add(at).cast::<[f32; LANES]>().read_unaligned() };
        let b = b.map(load);
        for (sums, a) in sums.iter_mut().zip(a.map(load)) {
            for (sums, b) in sums.iter_mut().zip(&b) {
                *sums = from_fn(|lane| fused::fma::<WIDE>(a[lane], b[lane], sums[lane]));
            }
        }
    }
    from_fn(|row| {
        from_fn(|column| {
            let tail = a[row][whole..].iter().zip(&b[column][whole..]).map(|(x, y)| x * y).sum::<f32>();
            let lanes = &sums[row][column];
            let half: [f32; 4] = from_fn(|lane| lanes[lane] + lanes[lane + 4]);
            (half[0] + half[2]) + (half[1] + half[3]) + tail
        })
    })
}

vectorised! {
    /// Transposes rows of `a` with stride `pitch`: `out[d · out_pitch + j] = a[j][d]`.
    pub(crate) fn transpose(a: &[f32], pitch: usize, size: usize, out: &mut [f32], out_pitch: usize) {
        for (number, rows) in a.chunks(LANES * pitch).enumerate() {
            for (column, to) in out.chunks_mut(out_pitch).take(size).enumerate() {
                let to = &mut to[number * LANES..];
                for (to, from) in to.iter_mut().zip(rows[column..].iter().step_by(pitch)).take(LANES) {
                    *to = *from;
                }
            }
        }
    }
}

vectorised! {
    /// Turns scores into weights relative to the largest score so far, and rescales the earlier sums to it.
    pub(crate) fn soften(scores: &mut [f32], largest: &mut f32, weight: &mut f32, sums: &mut [f32]) {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = scores.as_chunks::<LANES>();
        // NaN shows up in the sum of weights.
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = if x > *lane { x } else { *lane };
            }
        }
        let found = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &x| if x > best { x } else { best });
        if found > *largest {
            if *largest != f32::NEG_INFINITY {
                let factor = fused::exp::<WIDE>(*largest - found);
                *weight *= factor;
                sums.iter_mut().for_each(|sum| *sum *= factor);
            }
            *largest = found;
        }
        // If everything is masked so far, minus infinity minus the shift is still minus infinity.
        let shift = if *largest == f32::NEG_INFINITY { 0.0 } else { *largest };
        let mut totals = [0.0f32; LANES];
        let (chunks, rest) = scores.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (total, x) in totals.iter_mut().zip(chunk) {
                *x = if *x == f32::NEG_INFINITY { 0.0 } else { fused::exp::<WIDE>(*x - shift) };
                *total += *x;
            }
        }
        for x in rest {
            *x = if *x == f32::NEG_INFINITY { 0.0 } else { fused::exp::<WIDE>(*x - shift) };
            totals[0] += *x;
        }
        *weight += totals.iter().sum::<f32>();
    }
}

vectorised! {
    /// Applies a soft cap to scores.
    pub(crate) fn cap(scores: &mut [f32], bound: f32) {
        for score in scores {
            *score = bound * fused::tanh::<WIDE>(*score / bound);
        }
    }
}

vectorised! {
    /// Adds rows of `b` with stride `pitch` times weights: `sums[r] += Σ weights[r · weight_pitch + j] · b[j]`.
    pub(crate) fn add_weighted(
        weights: &[f32],
        weight_pitch: usize,
        count: usize,
        b: &[f32],
        pitch: usize,
        sums: &mut [f32],
        width: usize,
    ) {
        let rows = sums.len() / width.max(1);
        let mut row = 0;
        while row < rows {
            let (weights, sums) = (&weights[row * weight_pitch..], &mut sums[row * width..]);
            row += match rows - row {
                0..4 => {
                    add_to::<WIDE, 1>(weights, weight_pitch, count, b, pitch, sums, width);
                    1
                }
                _ => {
                    add_to::<WIDE, 4>(weights, weight_pitch, count, b, pitch, sums, width);
                    4
                }
            };
        }
    }
}

/// Columns summed in registers.
const COLUMNS: usize = 2 * LANES;

#[inline(always)]
fn add_to<const WIDE: bool, const R: usize>(
    weights: &[f32],
    weight_pitch: usize,
    count: usize,
    b: &[f32],
    pitch: usize,
    sums: &mut [f32],
    width: usize,
) {
    let weights: [&[f32]; R] = from_fn(|row| &weights[row * weight_pitch..][..count]);
    let mut column = 0;
    while column + COLUMNS <= width {
        let mut held: [[f32; COLUMNS]; R] = [[0.0; COLUMNS]; R];
        for at in 0..count {
            let Some(values) = b[at * pitch + column..].first_chunk::<COLUMNS>() else { return };
            for (held, weights) in held.iter_mut().zip(weights) {
                for (sum, &value) in held.iter_mut().zip(values) {
                    *sum = fused::fma::<WIDE>(weights[at], value, *sum);
                }
            }
        }
        for (row, held) in held.iter().enumerate() {
            sums[row * width + column..][..COLUMNS].iter_mut().zip(held).for_each(|(sum, x)| *sum += x);
        }
        column += COLUMNS;
    }
    for column in column..width {
        for (row, weights) in weights.iter().enumerate() {
            let added = weights.iter().enumerate().map(|(at, weight)| weight * b[at * pitch + column]).sum::<f32>();
            sums[row * width + column] += added;
        }
    }
}
