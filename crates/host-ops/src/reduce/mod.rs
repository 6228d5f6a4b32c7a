//! Reductions over the last axes of a strided view.
//!
//! Memory is read in its own order. If the reduced axes are the inner ones, each result comes from contiguous memory;
//! if the kept axes are the inner ones, a block of results is computed row by row. Partial sums are combined in double
//! precision.
mod fold;

use std::marker::PhantomData;
use std::ops::Range;

use graph::DType;
use graph::prim::{Reduce, ReduceKind};

use crate::number::with_number;
use crate::walk::Walk;
use crate::{Context, OpError, Tensor, TensorMut};
use fold::{Arith, Fold, fold_columns, fold_row, identity, merge};

/// Elements folded in their own type before the results are combined in a wider one.
const STRETCH: usize = 1024;
/// Results computed at once, row by row.
const BLOCK: usize = 512;
/// Rows folded in their own type before the results are combined in a wider one.
const DEPTH: usize = 64;
/// Minimum number of elements per task.
const GRAIN: usize = 32 * 1024;

pub(crate) fn run(
    reduce: &Reduce,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if reduce.kind == ReduceKind::LogSumExp && !x.dtype().is_float() {
        return Err(OpError::Unsupported { prim: "reduce", dtype: x.dtype() });
    }
    if y.elems() > 0 {
        with_number!(x.dtype(), N => reduce_as::<N>(reduce, &x, &y, cx));
    }
    Ok(())
}

fn reduce_as<N: Arith>(reduce: &Reduce, x: &Tensor<'_>, y: &TensorMut<'_>, cx: &mut Context<'_>) {
    let kept = x.shape().len() - reduce.axes;
    // The output may keep the reduced axes with extent one.
    let stays = &y.strides()[..kept.min(y.strides().len())];
    let (outer, inner) = (&x.shape()[..kept], &x.shape()[kept..]);
    let results = Walk::new(outer, &[&x.strides()[..kept], stays], |_| false);
    let count: usize = inner.iter().product();
    let reduction = Reduction::<N> { kind: reduce.kind, x, y, results: &results, count, number: PhantomData };
    if count == 0 {
        return reduction.fill();
    }
    let goes = Walk::new(inner, &[&x.strides()[kept..]], |_| false);
    let grain = (GRAIN / count).max(1);
    let nearest = |shape: &[usize], strides: &[isize]| {
        let far = |(&extent, &stride): (&usize, &isize)| (extent > 1).then_some(stride.unsigned_abs());
        shape.iter().zip(strides).filter_map(far).min().unwrap_or(usize::MAX)
    };
    if nearest(outer, &x.strides()[..kept]) < nearest(inner, &x.strides()[kept..]) {
        cx.parallel.ranges(results.elems(), grain.max(64), |range| reduction.columns(&goes, range));
    } else {
        cx.parallel.ranges(results.elems(), grain, |range| reduction.rows(&goes, range));
    }
}

struct Reduction<'a, N> {
    kind: ReduceKind,
    x: &'a Tensor<'a>,
    y: &'a TensorMut<'a>,
    /// View 0 is the input, view 1 the output.
    results: &'a Walk,
    count: usize,
    number: PhantomData<fn() -> N>,
}

impl<N: Arith> Reduction<'_, N> {
    /// The result of reducing no elements.
    fn fill(&self) {
        let value = N::finish(self.kind, identity(Fold::of(self.kind)), 0, N::ZERO);
        for position in 0..self.results.elems() {
            self.put(position, value);
        }
    }

    fn put(&self, position: usize, value: N) {
        let width = self.y.dtype().bytes() as isize;
        let to = self.y.start().wrapping_offset(self.results.offset(1, position) * width);
        // SAFETY: the walk stays within the output, and each task has its own positions.
        unsafe { N::store(self.y.dtype(), to, 1, &[value]) };
    }

    /// The address of an element of the input.
    fn from(&self, offset: isize) -> *const u8 {
        self.x.start().wrapping_offset(offset * self.x.dtype().bytes() as isize)
    }

    /// Computes each result from contiguous memory. `goes` walks the reduced axes.
    fn rows(&self, goes: &Walk, range: Range<usize>) {
        let fold = Fold::of(self.kind);
        for position in range {
            let mut shift = N::ZERO;
            if fold == Fold::SumExp {
                let mut largest = N::LOWEST;
                self.stretches(goes, position, |x| largest = fold_row(Fold::Max, x, shift).larger(largest));
                shift = largest.shift();
            }
            let mut folded: N::Wide = identity(fold);
            self.stretches(goes, position, |x| folded = merge(fold, folded, fold_row(fold, x, shift).widen()));
            self.put(position, N::finish(self.kind, folded, self.count, shift));
        }
    }

    /// Calls `body` with the elements of one result, piece by piece.
    fn stretches(&self, goes: &Walk, position: usize, mut body: impl FnMut(&[N])) {
        let base = self.results.offset(0, position);
        if self.is_stored() && goes.rank() == 1 && goes.row_stride(0) == 1 {
            // SAFETY: the row is within the input, whose elements are stored as `N`.
            let row = unsafe { std::slice::from_raw_parts(self.from(base).cast::<N>(), self.count) };
            return row.chunks(STRETCH).for_each(body);
        }
        let mut memory = [N::ZERO; STRETCH];
        for start in (0..self.count).step_by(STRETCH) {
            let stretch = &mut memory[..STRETCH.min(self.count - start)];
            goes.pieces(0, start, stretch.len(), |done, offset, length| {
                let from = self.from(base + offset);
                // SAFETY: the walk stays within the input.
                unsafe { N::load(self.x.dtype(), from, goes.row_stride(0), &mut stretch[done..done + length]) };
            });
            body(stretch);
        }
    }

    /// True if elements are stored in the type they are computed in.
    fn is_stored(&self) -> bool {
        self.x.dtype() == N::DTYPE
    }

    /// Computes blocks of results, row by row.
    fn columns(&self, goes: &Walk, range: Range<usize>) {
        let (row, fold) = (self.results.row(), Fold::of(self.kind));
        let mut position = range.start;
        while position < range.end {
            let count = (row - position % row).min(range.end - position).min(BLOCK);
            let mut shifts = [N::ZERO; BLOCK];
            let shifts = &mut shifts[..count];
            if fold == Fold::SumExp {
                shifts.fill(N::LOWEST);
                self.fold_rows(Fold::Max, goes, position, shifts, &[], |_| {});
                shifts.iter_mut().for_each(|shift| *shift = shift.shift());
            }
            let mut folded = [identity::<N::Wide>(fold); BLOCK];
            let mut partial = [identity::<N>(fold); BLOCK];
            self.fold_rows(fold, goes, position, &mut partial[..count], shifts, |partial| {
                for (folded, partial) in folded.iter_mut().zip(partial) {
                    *folded = merge(fold, *folded, partial.widen());
                    *partial = identity(fold);
                }
            });
            for at in 0..count {
                self.put(position + at, N::finish(self.kind, folded[at], self.count, shifts[at]));
            }
            position += count;
        }
    }

    /// Folds every row of a block into `results`; `flush` may empty them in between, and does at the end.
    fn fold_rows(
        &self,
        fold: Fold,
        goes: &Walk,
        position: usize,
        results: &mut [N],
        shifts: &[N],
        mut flush: impl FnMut(&mut [N]),
    ) {
        let (base, stride) = (self.results.offset(0, position), self.results.row_stride(0));
        let mut memory = [N::ZERO; BLOCK];
        let mut depth = 0;
        goes.pieces(0, 0, self.count, |_, offset, length| {
            for at in 0..length as isize {
                let from = self.from(base + offset + at * goes.row_stride(0));
                let row = if self.is_stored() && stride == 1 {
                    // SAFETY: the walks stay within the input, whose elements are stored as `N`.
                    unsafe { std::slice::from_raw_parts(from.cast::<N>(), results.len()) }
                } else {
                    let row = &mut memory[..results.len()];
                    // SAFETY: as above.
                    unsafe { N::load(self.x.dtype(), from, stride, row) };
                    row
                };
                fold_columns(fold, results, row, shifts);
                depth += 1;
                if depth % DEPTH == 0 {
                    flush(results);
                }
            }
        });
        flush(results);
    }
}
