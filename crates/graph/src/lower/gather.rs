//! Reading by index.
use crate::lower::val::Indices;
use crate::lower::{Lower, Storage, Val};
use crate::prim::{Axis, BatchDims};
use crate::{DType, LowerError, Prim, Scalar, Shape, Tensor, shape};

/// A selection along an axis with more pieces than this becomes a gather instead of a copy per piece.
const MAX_PIECES: usize = 8;
/// The planner handles at most this many known indices itself.
const MAX_INDICES: usize = 1 << 16;

impl Val {
    /// The element at an index, if the value is known.
    pub(crate) fn get(&self, index: &[usize]) -> Option<Scalar> {
        match self.storage() {
            Storage::Known(tensor) => Some(tensor.get(self.at(index))),
            Storage::Buffer(_) => None,
        }
    }
}

impl Lower<'_> {
    /// Slices of data along an axis; the indices' axes replace that axis.
    ///
    /// # Errors
    /// A known index is out of range, or the output is too large.
    pub fn gather(&mut self, data: &Val, indices: &Val, axis: usize) -> Result<Val, LowerError> {
        let extent = data.shape()[axis];
        let mut to: Shape = data.shape()[..axis].into();
        to.extend_from_slice(indices.shape());
        to.extend_from_slice(&data.shape()[axis + 1..]);
        let elems = shape::elems(&to).unwrap_or(usize::MAX);
        if extent == 0 && elems > 0 {
            return Err(
                self.invalid(format!("axis {axis} of {:?} is empty, so there is nothing to gather", data.shape()))
            );
        }
        // With more indices than this, examining them costs the planner more than it gains.
        if let Some(list) = (indices.elems() <= MAX_INDICES).then(|| indices.to_tensor()).flatten() {
            let list = list
                .to_i64s()
                .into_iter()
                .map(|index| self.index(index, extent))
                .collect::<Result<Vec<usize>, LowerError>>()?;
            let evenly_spaced = pieces(&list, isize::MAX).len() <= 1;
            if evenly_spaced || elems <= self.known_limit() && data.is_known() {
                let taken = self.take(data, axis, &list)?;
                return self.reshape(&taken, &to);
            }
        }
        let count = indices.elems();
        let flat = self.reshape(data, &around(data.shape(), axis, extent))?;
        let list = self.reshape(indices, &[count])?;
        let taken = self.apply(Prim::Gather, &[&flat, &list], data.dtype(), &around(data.shape(), axis, count))?;
        self.reshape(&taken, &to)
    }

    /// The elements at known positions along an axis, each below the extent: a view, a few copies, or a gather.
    ///
    /// # Errors
    /// The output is too large.
    pub fn take(&mut self, data: &Val, axis: usize, places: &[usize]) -> Result<Val, LowerError> {
        if let [] | [_] = &pieces(places, isize::MAX)[..] {
            let (start, step) = (places.first().copied().unwrap_or(0), places.get(1).copied().unwrap_or(0));
            let step = if places.len() > 1 { step as isize - start as isize } else { 1 };
            return Ok(data.sliced(axis, start, step, places.len()));
        }
        let mut to: Shape = data.shape().into();
        to[axis] = places.len();
        if data.is_known() && shape::elems(&to).is_some_and(|elems| elems <= self.known_limit()) {
            return self.known_from(data.dtype(), &to, |index| {
                let mut from: Shape = index.into();
                from[axis] = places[index[axis]];
                data.get(&from)
            });
        }
        let runs = pieces(places, 1);
        if runs.len() > MAX_PIECES {
            let list: Vec<i64> = places.iter().map(|&place| place as i64).collect();
            let flat = self.reshape(data, &around(data.shape(), axis, data.shape()[axis]))?;
            let list = Val::i64s(&list);
            let taken = self.apply(Prim::Gather, &[&flat, &list], data.dtype(), &around(&to, axis, places.len()))?;
            return self.reshape(&taken, &to);
        }
        let parts: Vec<Val> = runs.iter().map(|run| data.sliced(axis, run.start, run.step, run.count)).collect();
        self.concat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// Elements by index along an axis; the result has the indices' shape.
    ///
    /// # Errors
    /// Ranks or extents do not match, or a known index is out of range.
    pub fn gather_elements(&mut self, data: &Val, indices: &Val, axis: usize) -> Result<Val, LowerError> {
        self.check_elements(data, indices, axis)?;
        let to: Shape = indices.shape().into();
        if indices.is_known() && data.is_known() && indices.elems() <= self.known_limit() {
            let places = self.places_along(data, indices, axis)?;
            let mut places = places.into_iter();
            return self.known_from(data.dtype(), &to, |_| data.get(&places.next()?));
        }
        self.apply(Prim::GatherElements(Axis(axis)), &[data, indices], data.dtype(), &to)
    }

    /// Slices by index tuples along the indices' last axis; data and indices share `batch` leading axes.
    ///
    /// # Errors
    /// Ranks or extents do not match, or a known index is out of range.
    pub fn gather_nd(&mut self, data: &Val, indices: &Val, batch: usize) -> Result<Val, LowerError> {
        let Some((&depth, outer)) = indices.shape().split_last() else {
            return Err(self.invalid("the indices have no axes"));
        };
        let fits = batch < indices.rank() && batch + depth <= data.rank() && data.shape()[..batch] == outer[..batch];
        if !fits {
            return Err(self.invalid(format!(
                "indices of shape {:?} with {batch} batch axes do not match data of shape {:?}",
                indices.shape(),
                data.shape()
            )));
        }
        let inner = &data.shape()[batch + depth..];
        let to: Shape = outer.iter().chain(inner).copied().collect();
        if shape::elems(&to) == Some(0) {
            return self.known_from(data.dtype(), &to, |_| None);
        }
        if data.elems() == 0 {
            return Err(
                self.invalid(format!("data of shape {:?} is empty, so there is nothing to gather", data.shape()))
            );
        }
        if indices.is_known() && data.is_known() && shape::elems(&to).is_some_and(|elems| elems <= self.known_limit()) {
            let tuples = self.tuples(data, indices, batch)?;
            let mut at = 0..;
            let slice = shape::elems(inner).unwrap_or(1);
            return self.known_from(data.dtype(), &to, |index| {
                let mut from = tuples.get(at.next()? / slice)?.clone();
                from.extend_from_slice(&index[outer.len()..]);
                data.get(&from)
            });
        }
        self.apply(Prim::GatherNd(BatchDims(batch)), &[data, indices], data.dtype(), &to)
    }

    /// A known tensor whose elements are computed from their index; it is an error if the function returns `None`.
    pub(crate) fn known_from(
        &self,
        dtype: DType,
        to: &[usize],
        mut element: impl FnMut(&[usize]) -> Option<Scalar>,
    ) -> Result<Val, LowerError> {
        let scalars: Option<Vec<Scalar>> = Indices::new(to).map(|index| element(&index)).collect();
        let tensor = scalars.and_then(|scalars| Tensor::from_scalars(dtype, to, scalars));
        tensor.map(Val::known).ok_or_else(|| self.invalid("the planner needs a value that is not known"))
    }

    /// An index below the extent; negative ones count from the end.
    pub(crate) fn index(&self, index: i64, extent: usize) -> Result<usize, LowerError> {
        shape::axis(index, extent)
            .ok_or_else(|| self.invalid(format!("index {index} is out of range for an axis of {extent} elements")))
    }

    /// Checks the shapes of a gather or scatter of elements.
    pub(crate) fn check_elements(&self, data: &Val, indices: &Val, axis: usize) -> Result<(), LowerError> {
        let within = |at: usize| at == axis || indices.shape()[at] <= data.shape()[at];
        let fits = data.rank() == indices.rank() && (0..data.rank()).all(within);
        let hollow = indices.elems() > 0 && data.elems() == 0;
        if fits && !hollow {
            return Ok(());
        }
        Err(self.invalid(format!(
            "indices of shape {:?} do not match data of shape {:?} along axis {axis}",
            indices.shape(),
            data.shape()
        )))
    }

    /// The positions in data that known indices along an axis point to, in row-major order of the indices.
    pub(crate) fn places_along(&self, data: &Val, indices: &Val, axis: usize) -> Result<Vec<Shape>, LowerError> {
        let mut places = Vec::with_capacity(indices.elems());
        for mut place in Indices::new(indices.shape()) {
            let index = indices.get(&place).map_or(0, Scalar::as_i64);
            place[axis] = self.index(index, data.shape()[axis])?;
            places.push(place);
        }
        Ok(places)
    }

    /// The leading coordinates in data that known index tuples point to, including the batch axes.
    pub(crate) fn tuples(&self, data: &Val, indices: &Val, batch: usize) -> Result<Vec<Shape>, LowerError> {
        let Some((&depth, outer)) = indices.shape().split_last() else { return Ok(Vec::new()) };
        let mut tuples = Vec::new();
        for mut at in Indices::new(outer) {
            let mut tuple: Shape = at[..batch].into();
            for coordinate in 0..depth {
                at.push(coordinate);
                let index = indices.get(&at).map_or(0, Scalar::as_i64);
                tuple.push(self.index(index, data.shape()[batch + coordinate])?);
                at.pop();
            }
            tuples.push(tuple);
        }
        Ok(tuples)
    }
}

/// A shape as `[outer, count, inner]` around an axis.
fn around(shape: &[usize], axis: usize, count: usize) -> [usize; 3] {
    // If the product overflows, the tensor is rejected later, when it gets its buffer.
    let product = |extents: &[usize]| shape::elems(extents).unwrap_or(usize::MAX);
    [product(&shape[..axis]), count, product(&shape[axis + 1..])]
}

/// Evenly spaced positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    step: isize,
    count: usize,
}

/// Splits positions into evenly spaced runs, as long as a greedy search finds, with steps of at most `max_step` in
/// either direction.
fn pieces(places: &[usize], max_step: isize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &place in places {
        if let Some(run) = runs.last_mut() {
            let last = run.start as isize + run.step * (run.count as isize - 1);
            let step = place as isize - last;
            if (run.count == 1 && step.unsigned_abs() <= max_step.unsigned_abs()) || run.step == step {
                (run.step, run.count) = (step, run.count + 1);
                continue;
            }
        }
        runs.push(Run { start: place, step: 0, count: 1 });
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_cover_the_original_positions(places in prop::collection::vec(0usize..6, 0..20), max in 0isize..4) {
            let mut back = Vec::new();
            for run in pieces(&places, max) {
                prop_assert!(run.step.abs() <= max);
                back.extend((0..run.count as isize).map(|at| (run.start as isize + at * run.step) as usize));
            }
            prop_assert_eq!(back, places);
        }
    }

    #[test]
    fn evenly_spaced_positions_are_one_run() {
        for (places, runs) in [(&[3][..], 1), (&[3, 3, 3], 1), (&[4, 2, 0], 1), (&[], 0), (&[0, 1, 3], 2)] {
            assert_eq!(pieces(places, isize::MAX).len(), runs, "{places:?}");
        }
    }
}
