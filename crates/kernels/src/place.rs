//! Index tuples: `hip/place.h`.
use graph::{DType, Declined, View};

use crate::{Args, kernel::type_name};

/// Indices of a tuple, at most; as in the text.
const DEPTH: usize = 8;

/// What the indices of a tuple count along, in order.
pub(crate) struct Tuple {
    /// Elements per position, and positions.
    axes: Vec<(i64, i64)>,
    /// From one index of a tuple to the next.
    step: i64,
    index_type: &'static str,
}

impl Tuple {
    /// Tuples of `indices`, whose members are `step` apart and count along these axes of `view`.
    ///
    /// # Errors
    /// The axes are more than kernels take, or the indices are no integers of 32 or 64 bits.
    pub fn new(indices: &View, step: isize, view: &View, axes: std::ops::Range<usize>) -> Result<Self, Declined> {
        if axes.len() > DEPTH {
            return Err(Declined::new(format!("{} indices in a tuple; kernels take {DEPTH}", axes.len())));
        }
        if !matches!(indices.dtype, DType::I32 | DType::I64) {
            return Err(Declined::new(format!("indices of type {}", indices.dtype)));
        }
        let axes = axes.map(|axis| (view.strides[axis] as i64, view.shape[axis] as i64)).collect();
        Ok(Self { axes, step: step as i64, index_type: type_name(indices.dtype) })
    }

    /// How many indices a tuple has.
    pub fn depth(&self) -> u32 {
        self.axes.len() as u32
    }

    /// Elements per position along each axis.
    pub fn along(&self) -> impl Iterator<Item = i64> {
        self.axes.iter().map(|&(along, _)| along)
    }

    /// The indices' type in texts.
    pub const fn index_type(&self) -> &'static str {
        self.index_type
    }

    /// The arguments with `index_step`, `along` and `extent`.
    pub fn add_to(&self, args: Args) -> Args {
        let [along, extent]: [Vec<i64>; 2] =
            [self.along().collect(), self.axes.iter().map(|&(_, extent)| extent).collect()];
        args.i64("index_step", self.step).i64s("along", &padded(&along)).i64s("extent", &padded(&extent))
    }
}

/// As many numbers as kernels take.
pub(crate) fn padded(values: &[i64]) -> [i64; DEPTH] {
    std::array::from_fn(|at| values.get(at).copied().unwrap_or(0))
}
