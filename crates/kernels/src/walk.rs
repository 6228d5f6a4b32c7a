//! Axes in the order in which kernels walk them: `hip/walk.h`.
use graph::{DType, Declined};

/// The header of the kernel sources.
pub(crate) const HEADER: &str = include_str!("../hip/walk.h");

/// The maximum number of axes in a kernel.
pub(crate) const AXES: usize = 6;

/// An axis: its extent and the strides of every view, in elements.
pub(crate) type Axis<const V: usize> = (usize, [isize; V]);

/// Axes of `V` views, as few as possible, the last one fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk<const V: usize> {
    axes: Vec<(u32, [i64; V])>,
    elems: u32,
}

impl<const V: usize> Walk<V> {
    /// These axes in this order; axes that can be merged in every view become one.
    ///
    /// # Errors
    /// More than [`AXES`] are left, or 2³¹ elements or more.
    pub fn new(axes: &[Axis<V>]) -> Result<Self, Declined> {
        let mut merged: Vec<(u64, [i64; V])> = Vec::new();
        for &(extent, strides) in axes.iter().filter(|(extent, _)| *extent != 1) {
            let (extent, strides) = (extent as u64, strides.map(|stride| stride as i64));
            match merged.last_mut() {
                Some((outer, known)) if (0..V).all(|view| known[view] == strides[view].wrapping_mul(extent as i64)) => {
                    *outer = outer.saturating_mul(extent);
                    *known = strides;
                }
                _ => merged.push((extent, strides)),
            }
        }
        let elems = merged.iter().fold(1u64, |elems, &(extent, _)| elems.saturating_mul(extent));
        if elems >= 1 << 31 {
            return Err(Declined::new(format!("{elems} elements along merged axes")));
        }
        if merged.len() > AXES {
            let reason = format!("{} axes that cannot be merged; kernels support {AXES}", merged.len());
            return Err(Declined::new(reason));
        }
        // No extent is larger than the product, unless that is zero.
        let axes = merged.into_iter().map(|(extent, strides)| (extent.min(1 << 31) as u32, strides)).collect();
        Ok(Self { axes, elems: elems as u32 })
    }

    /// These axes unchanged: none are dropped or merged.
    ///
    /// # Errors
    /// Same as for [`new`](Self::new).
    pub fn separate(axes: &[Axis<V>]) -> Result<Self, Declined> {
        let elems = Self::new(axes)?.elems;
        let axes = axes.iter().map(|&(extent, strides)| (extent as u32, strides.map(|stride| stride as i64))).collect();
        Ok(Self { axes, elems })
    }

    /// Same as [`new`](Self::new), in the memory order of the first view: the axis with the smallest stride is the
    /// last.
    ///
    /// # Errors
    /// Same as for [`new`](Self::new).
    pub fn in_memory_order(axes: &[Axis<V>]) -> Result<Self, Declined> {
        let mut sorted = axes.to_vec();
        sorted.retain(|(extent, _)| *extent != 1);
        sorted.sort_by_key(|(_, strides)| std::cmp::Reverse(strides[0].unsigned_abs()));
        Self::new(&sorted)
    }

    /// All elements.
    pub fn elems(&self) -> u32 {
        self.elems
    }

    /// How many axes are left.
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// The extent and the strides of the last axis.
    pub fn last(&self) -> (u32, [i64; V]) {
        self.axes.last().copied().unwrap_or((1, [0; V]))
    }

    /// A view's strides along all axes but the last.
    pub fn outer_strides(&self, view: usize) -> impl Iterator<Item = i64> {
        let outer = self.axes.len().saturating_sub(1);
        self.axes[..outer].iter().map(move |(_, strides)| strides[view])
    }

    /// With `pack` adjacent elements along the last axis as one.
    #[must_use]
    pub fn packed(mut self, pack: u32) -> Self {
        if let Some((extent, strides)) = self.axes.last_mut() {
            *extent /= pack;
            *strides = strides.map(|stride| stride * i64::from(pack));
            self.elems /= pack;
        }
        self
    }

    /// With the last view's strides replaced by those of dense memory in this order.
    #[must_use]
    pub fn to_dense(&self) -> Self {
        let mut dense = self.clone();
        let mut step = 1;
        for (extent, strides) in dense.axes.iter_mut().rev() {
            strides[V - 1] = step;
            step *= i64::from(*extent);
        }
        dense
    }

    /// The fields of `Axes`: the first axis, then extents, factors and shifts.
    pub fn numbers(&self) -> [u32; 1 + 3 * AXES] {
        let mut numbers = [0; 1 + 3 * AXES];
        let first = AXES - self.axes.len().max(1);
        numbers[0] = first as u32;
        for at in 0..AXES {
            let extent = at.checked_sub(AXES - self.axes.len()).map_or(1, |at| self.axes[at].0);
            let (factor, shift) = reciprocal(extent.max(1));
            numbers[1 + at] = extent;
            numbers[1 + AXES + at] = factor;
            numbers[1 + 2 * AXES + at] = shift;
        }
        numbers
    }

    /// A view's strides along [`AXES`] axes.
    pub fn strides(&self, view: usize) -> [i64; AXES] {
        let missing = AXES - self.axes.len();
        std::array::from_fn(|at| at.checked_sub(missing).map_or(0, |at| self.axes[at].1[view]))
    }
}

/// A factor and a shift that compute quotients of numbers below 2³¹.
pub(crate) fn reciprocal(divisor: u32) -> (u32, u32) {
    let shift = 31 + divisor.next_power_of_two().trailing_zeros();
    ((1u64 << shift).div_ceil(u64::from(divisor)) as u32, shift)
}

/// How many adjacent elements can be moved at once: a power of two that divides all these numbers, up to 16 bytes and
/// `most`.
pub(crate) fn pack(dtype: DType, most: u32, numbers: impl IntoIterator<Item = i64>) -> u32 {
    let widest = (16 / dtype.bytes() as u32).min(most);
    let zeros = numbers.into_iter().map(i64::trailing_zeros).min().unwrap_or(0);
    1 << zeros.min(widest.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_merge_in_memory_order() {
        let walk = Walk::new(&[(2, [12]), (3, [4]), (4, [1])]).unwrap();
        assert_eq!((walk.rank(), walk.elems(), walk.last()), (1, 24, (24, [1])));
        let turned = [(4, [1]), (2, [12]), (3, [4])];
        assert_eq!(Walk::new(&turned).unwrap().rank(), 2);
        assert_eq!(Walk::in_memory_order(&turned).unwrap().rank(), 1);
        assert_eq!(walk.packed(4).last(), (6, [4]));
        assert!(Walk::new(&[(1 << 16, [0]), (1 << 15, [1])]).is_err());
        assert_eq!(Walk::new(&[(0, [5]), (1 << 40, [1])]).unwrap().elems(), 0);
    }

    #[test]
    fn quotients_are_exact_below_two_to_the_31() {
        for divisor in (1..2000).chain([1 << 16, (1 << 16) + 1, (1 << 30) - 1, 1 << 30, (1 << 31) - 1]) {
            let (factor, shift) = reciprocal(divisor);
            let most = (1u32 << 31) - 1;
            for number in [0, 1, divisor - 1, divisor, most / divisor * divisor - 1, most / divisor * divisor, most] {
                let quotient = (u64::from(number) * u64::from(factor)) >> shift;
                assert_eq!(quotient, u64::from(number / divisor), "{number} / {divisor}");
            }
        }
    }

    /// As `offset_at` of the text.
    fn offset_at(numbers: &[u32], strides: &[i64; AXES], mut number: u32) -> i64 {
        let first = numbers[0] as usize;
        let mut offset = 0;
        for axis in (first + 1..AXES).rev() {
            let (factor, shift) = (numbers[1 + AXES + axis], numbers[1 + 2 * AXES + axis]);
            let above = ((u64::from(number) * u64::from(factor)) >> shift) as u32;
            offset += i64::from(number - above * numbers[1 + axis]) * strides[axis];
            number = above;
        }
        offset + i64::from(number) * strides[first]
    }

    proptest::proptest! {
        #[test]
        fn walks_visit_every_element_in_order(axes in proptest::collection::vec((1usize..4, -20isize..20), 0..=6)) {
            let axes: Vec<Axis<1>> = axes.into_iter().map(|(extent, stride)| (extent, [stride])).collect();
            let wanted = axes.iter().fold(vec![0i64], |offsets, &(extent, [stride])| {
                let steps = |offset: i64| (0..extent as i64).map(move |at| offset + at * stride as i64);
                offsets.into_iter().flat_map(steps).collect()
            });
            let walk = Walk::new(&axes).unwrap();
            let offset = |walk: &Walk<1>, at| offset_at(&walk.numbers(), &walk.strides(0), at);
            let found: Vec<i64> = (0..walk.elems()).map(|at| offset(&walk, at)).collect();
            proptest::prop_assert_eq!(&found, &wanted);
            let sorted = Walk::in_memory_order(&axes).unwrap();
            let mut found: Vec<i64> = (0..sorted.elems()).map(|at| offset(&sorted, at)).collect();
            let mut wanted = wanted;
            found.sort_unstable();
            wanted.sort_unstable();
            proptest::prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn packs_divide_all_extents_and_strides() {
        assert_eq!(pack(DType::F16, 8, [1024, 0, 64]), 8);
        assert_eq!(pack(DType::F32, 8, [1024, 0, 64]), 4);
        assert_eq!(pack(DType::F16, 8, [6]), 2);
        assert_eq!(pack(DType::F16, 8, [49]), 1);
    }
}
