//! Index tuples: `hip/place.h`.
use graph::{DType, Declined, View};

use crate::Args;
use crate::kernel::type_name;

/// Maximum number of indices in a tuple; as in the source.
const DEPTH: usize = 8;

/// The axes of a tuple's indices, in order.
pub(crate) struct Tuple {
    /// Stride and extent.
    axes: Vec<(i64, i64)>,
    /// The stride between the indices of a tuple.
    step: i64,
    index_type: &'static str,
}

impl Tuple {
    /// Tuples of `indices`, whose members have stride `step` and index these axes of `view`.
    ///
    /// # Errors
    /// There are more axes than kernels support, or the indices are not 32-bit or 64-bit integers.
    pub fn new(indices: &View, step: isize, view: &View, axes: std::ops::Range<usize>) -> Result<Self, Declined> {
        if axes.len() > DEPTH {
            return Err(Declined::new(format!("{} indices in a tuple; kernels support {DEPTH}", axes.len())));
        }
        if !matches!(indices.dtype, DType::I32 | DType::I64) {
            return Err(Declined::new(format!("indices of type {}", indices.dtype)));
        }
        let axes = axes.map(|axis| (view.strides[axis] as i64, view.shape[axis] as i64)).collect();
        Ok(Self { axes, step: step as i64, index_type: type_name(indices.dtype) })
    }

    /// The number of indices in a tuple.
    pub fn depth(&self) -> u32 {
        self.axes.len() as u32
    }

    /// The stride of each axis.
    pub fn along(&self) -> impl Iterator<Item = i64> {
        self.axes.iter().map(|&(along, _)| along)
    }

    /// The indices' type in sources.
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

/// Pads to the number of values that kernels expect.
pub(crate) fn padded(values: &[i64]) -> [i64; DEPTH] {
    std::array::from_fn(|at| values.get(at).copied().unwrap_or(0))
}
