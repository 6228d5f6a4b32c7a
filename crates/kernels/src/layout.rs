//! Views of one shape, merged into as few axes as possible.
use graph::{Declined, View};

/// The common shape of some views, as kernels walk it: axes that can be merged in every view are one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    extents: Vec<u32>,
    /// Strides of each view, in elements.
    strides: Vec<Vec<i64>>,
}

impl Layout {
    /// The last `inner` axes unchanged, and the axes before them, merged into at most `most`. The views agree in the
    /// outer axes; the inner extents are the first view's.
    ///
    /// # Errors
    /// More than `most` outer axes are left, or an extent is 2³¹ or more.
    pub fn new(views: &[&View], inner: usize, most: usize) -> Result<Self, Declined> {
        let shape = &views[0].shape;
        let outer = shape.len().saturating_sub(inner);
        let mut extents: Vec<u64> = Vec::new();
        let mut strides: Vec<Vec<i64>> = vec![Vec::new(); views.len()];
        for axis in 0..outer {
            let extent = shape[axis] as u64;
            if extent == 1 {
                continue;
            }
            let step = |view: &View| view.strides[axis] as i64;
            let joins = extents.last().is_some_and(|&last| last * extent < 1 << 31)
                && views.iter().zip(&strides).all(|(view, known)| {
                    known.last().is_some_and(|&outer| outer == step(view).wrapping_mul(extent as i64))
                });
            if joins && let Some(last) = extents.last_mut() {
                *last *= extent;
                strides.iter_mut().zip(views).for_each(|(known, view)| {
                    if let Some(last) = known.last_mut() {
                        *last = step(view);
                    }
                });
            } else {
                extents.push(extent);
                strides.iter_mut().zip(views).for_each(|(known, view)| known.push(step(view)));
            }
        }
        if extents.len() > most {
            let reason = format!("{} axes that cannot be merged; kernels support {most}", extents.len());
            return Err(Declined::new(reason));
        }
        let missing = most - extents.len();
        extents.splice(0..0, std::iter::repeat_n(1, missing));
        strides.iter_mut().for_each(|known| {
            known.splice(0..0, std::iter::repeat_n(0, missing));
        });
        for axis in outer..shape.len() {
            extents.push(shape[axis] as u64);
            strides.iter_mut().zip(views).for_each(|(known, view)| known.push(view.strides[axis] as i64));
        }
        let fits = |extent: u64| u32::try_from(extent).ok().filter(|&extent| extent < 1 << 31);
        let extents = extents.iter().map(|&extent| fits(extent)).collect::<Option<_>>();
        let extents = extents.ok_or_else(|| Declined::new("an axis of 2^31 elements or more"))?;
        Ok(Self { extents, strides })
    }

    /// All extents; the first ones are 1 if fewer axes are left.
    pub fn extents<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|at| self.extents.get(at).copied().unwrap_or(1))
    }

    /// A view's strides, in the same order.
    pub fn strides<const N: usize>(&self, view: usize) -> [i64; N] {
        std::array::from_fn(|at| self.strides[view].get(at).copied().unwrap_or(0))
    }
}

/// The number of blocks along x.
///
/// # Errors
/// It exceeds what every driver supports.
pub(crate) fn grid_x(blocks: u64) -> Result<u32, Declined> {
    // HIP requires grid times block to be below 2³², and blocks have up to 1024 threads.
    u32::try_from(blocks)
        .ok()
        .filter(|&blocks| blocks < 1 << 22)
        .ok_or_else(|| Declined::new(format!("a launch of {blocks} blocks")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::DType;
    use graph::prim::BufferId;

    fn view(shape: &[usize], strides: &[isize]) -> View {
        let (shape, strides) = (shape.into(), strides.iter().copied().collect());
        View { buffer: BufferId(0), dtype: DType::F32, shape, strides, offset: 0 }
    }

    #[test]
    fn axes_merge_where_all_views_allow_it() {
        let dense = view(&[2, 3, 4, 5], &[60, 20, 5, 1]);
        let turned = view(&[2, 3, 4, 5], &[60, 5, 15, 1]);
        let layout = Layout::new(&[&dense, &dense], 1, 2).unwrap();
        assert_eq!(layout.extents::<3>(), [1, 24, 5]);
        assert_eq!(layout.strides::<3>(0), [0, 5, 1]);
        let layout = Layout::new(&[&dense, &turned], 1, 3).unwrap();
        assert_eq!(layout.extents::<4>(), [2, 3, 4, 5]);
        assert!(Layout::new(&[&dense, &turned], 1, 2).is_err());
    }
}
