//! Slicing and padding.
use crate::lower::{Lower, Val};
use crate::{LowerError, Shape, shape};

/// The planner lists at most this many positions along an axis.
const MAX_PLACES: usize = 1 << 28;

/// Part of an axis, as Python's `start:end:step`: negative values count from the end, then are clamped to the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// The first element.
    pub start: i64,
    /// One past the last element.
    pub end: i64,
    /// The distance from one element to the next; negative values run backwards. Never 0.
    pub step: i64,
}

/// Which of its own elements a tensor is padded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The nearest element, at the border.
    Edge,
    /// The tensor mirrored at the element at the border.
    Reflect,
    /// The tensor, repeated.
    Wrap,
}

impl SliceSpec {
    /// First element, step and count for an axis.
    pub fn resolve(self, extent: usize) -> (usize, isize, usize) {
        // Wide enough for any sum of two 64-bit numbers: models use huge values for "to the end".
        let (extent, step) = (extent as i128, i128::from(self.step));
        let from_end = |at: i64| if at < 0 { i128::from(at) + extent } else { i128::from(at) };
        let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
        let start = from_end(self.start).clamp(low, high);
        let end = from_end(self.end).clamp(low, high);
        let span = if step > 0 { end - start } else { start - end };
        let count = if span > 0 { (span + step.abs() - 1) / step.abs() } else { 0 };
        if count == 0 {
            return (0, 1, 0);
        }
        // A single element has no neighbour, so a step beyond the axis need not fit its type.
        let step = if count == 1 { 1 } else { step as isize };
        (start as usize, step, count as usize)
    }
}

impl Lower<'_> {
    /// Part of a value along an axis, as a view; a known value stays known.
    ///
    /// # Errors
    /// The step is 0.
    pub fn slice(&self, value: &Val, axis: usize, spec: SliceSpec) -> Result<Val, LowerError> {
        if spec.step == 0 {
            return Err(self.invalid(format!("the slice of axis {axis} has a step of 0")));
        }
        let (start, step, count) = spec.resolve(value.shape()[axis]);
        Ok(value.sliced(axis, start, step, count))
    }

    /// A value padded with `before` and `after` elements around each axis; `fill` is one element of the same type.
    ///
    /// # Errors
    /// The types differ, or the output is too large.
    pub fn pad_constant(
        &mut self,
        value: &Val,
        before: &[usize],
        after: &[usize],
        fill: &Val,
    ) -> Result<Val, LowerError> {
        if fill.elems() != 1 || fill.dtype() != value.dtype() {
            return Err(self.invalid(format!(
                "{}{:?} cannot pad a tensor of {}",
                fill.dtype(),
                fill.shape(),
                value.dtype()
            )));
        }
        let fill = self.reshape(fill, &[])?;
        let to = self.padded(value.shape(), before, after)?;
        let padded: Vec<usize> = (0..to.len()).filter(|&axis| to[axis] != value.shape()[axis]).collect();
        let small = shape::elems(&to).is_some_and(|elems| elems <= self.known_limit());
        if padded.len() <= 1 || small && value.is_known() && fill.is_known() {
            let mut whole = value.clone();
            for axis in padded {
                whole = self.pad_axis(&whole, axis, before[axis], after[axis], &fill)?;
            }
            return Ok(whole);
        }
        let whole = self.fresh(value.dtype(), &to)?;
        let filling = self.expand(&fill, &to)?;
        self.copy_into(&filling, &whole)?;
        let mut inside = whole.clone();
        for axis in padded {
            inside = inside.sliced(axis, before[axis], 1, value.shape()[axis]);
        }
        self.copy_into(value, &inside)?;
        Ok(whole)
    }

    fn pad_axis(
        &mut self,
        value: &Val,
        axis: usize,
        before: usize,
        after: usize,
        fill: &Val,
    ) -> Result<Val, LowerError> {
        let mut parts = Vec::with_capacity(3);
        for count in [before, after] {
            let mut border: Shape = value.shape().into();
            border[axis] = count;
            parts.push(self.expand(fill, &border)?);
        }
        parts.insert(1, value.clone());
        parts.retain(|part| part.shape()[axis] > 0);
        if parts.is_empty() {
            return Ok(value.clone());
        }
        self.concat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// A value padded with its own elements.
    ///
    /// # Errors
    /// An axis to be padded is empty, or the output is too large.
    pub fn pad_with_itself(
        &mut self,
        value: &Val,
        before: &[usize],
        after: &[usize],
        outside: Outside,
    ) -> Result<Val, LowerError> {
        let to = self.padded(value.shape(), before, after)?;
        let mut whole = value.clone();
        for axis in 0..to.len() {
            let extent = value.shape()[axis];
            if to[axis] == extent {
                continue;
            }
            if extent == 0 {
                return Err(self.invalid(format!("axis {axis} is empty, so it cannot be padded with its own elements")));
            }
            whole = if outside == Outside::Edge {
                let mut parts = Vec::with_capacity(3);
                for (start, step, count) in [(0, 0, before[axis]), (0, 1, extent), (extent - 1, 0, after[axis])] {
                    parts.push(whole.sliced(axis, start, step, count));
                }
                parts.retain(|part| part.shape()[axis] > 0);
                self.concat(&parts.iter().collect::<Vec<_>>(), axis)?
            } else if to[axis] <= MAX_PLACES {
                let first = before[axis] as i128;
                let places: Vec<usize> = (0..to[axis]).map(|at| outside.place(at as i128 - first, extent)).collect();
                self.take(&whole, axis, &places)?
            } else {
                return Err(self.invalid(format!("axis {axis} would be too large with {} elements", to[axis])));
            };
        }
        Ok(whole)
    }

    fn padded(&self, shape: &[usize], before: &[usize], after: &[usize]) -> Result<Shape, LowerError> {
        let extents = shape.iter().zip(before).zip(after);
        let to: Option<Shape> =
            extents.map(|((&extent, &before), &after)| extent.checked_add(before)?.checked_add(after)).collect();
        // The bound keeps lists of positions, and intermediate steps, within the address space.
        to.filter(|to| shape::elems(to).is_some_and(|elems| isize::try_from(elems).is_ok())).ok_or_else(|| {
            self.invalid(format!("shape {shape:?} would be too large with padding {before:?} and {after:?}"))
        })
    }
}

impl Outside {
    /// The element to use at a position, which may be outside `0..extent`.
    fn place(self, at: i128, extent: usize) -> usize {
        let extent = extent as i128;
        let place = match self {
            Self::Edge => at.clamp(0, extent - 1),
            Self::Wrap => at.rem_euclid(extent),
            Self::Reflect if extent == 1 => 0,
            Self::Reflect => {
                let period = 2 * (extent - 1);
                let phase = at.rem_euclid(period);
                if phase < extent { phase } else { period - phase }
            }
        };
        place as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_outside_follow_numpy() {
        let around = |outside: Outside, extent| (-5..6).map(|at| outside.place(at, extent)).collect::<Vec<_>>();
        assert_eq!(around(Outside::Edge, 3), [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2]);
        assert_eq!(around(Outside::Reflect, 3), [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1]);
        assert_eq!(around(Outside::Wrap, 3), [1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(around(Outside::Reflect, 1), [0; 11]);
    }

    proptest! {
        /// Against the definition: walk from the start until past the end, keeping positions on the axis.
        #[test]
        fn slices_follow_python(start in -12i64..12, end in -12i64..12, step in -4i64..5, extent in 0usize..8) {
            prop_assume!(step != 0);
            let length = extent as i64;
            let absolute = |at: i64| if at < 0 { at + length } else { at };
            let (mut at, end_at) = if step > 0 {
                (absolute(start).clamp(0, length), absolute(end).clamp(0, length))
            } else {
                (absolute(start).clamp(-1, length - 1), absolute(end).clamp(-1, length - 1))
            };
            let mut want = Vec::new();
            while (step > 0 && at < end_at) || (step < 0 && at > end_at) {
                want.push(at as usize);
                at += step;
            }
            let (first, stride, count) = SliceSpec { start, end, step }.resolve(extent);
            let found: Vec<usize> = (0..count).map(|i| (first as isize + i as isize * stride) as usize).collect();
            prop_assert_eq!(found, want);
        }

        #[test]
        fn slices_with_huge_numbers_stay_on_the_axis(start: i64, end: i64, step: i64, extent in 0usize..5) {
            prop_assume!(step != 0);
            let (first, stride, count) = SliceSpec { start, end, step }.resolve(extent);
            prop_assert!(count <= extent);
            for at in 0..count {
                prop_assert!((first as isize + at as isize * stride) < extent as isize);
                prop_assert!((first as isize + at as isize * stride) >= 0);
            }
        }
    }
}
