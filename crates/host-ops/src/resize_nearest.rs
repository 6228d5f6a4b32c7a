//! Nearest-neighbour interpolation: copies elements of any type.
use graph::prim::{Nearest, Resize};
use smallvec::SmallVec;

use crate::convolve::Shared;
use crate::resize_table::{coordinate, is_copied, is_outside, nearest};
use crate::{Context, Element, Tensor, TensorMut};

/// Converts the primitive's extrapolation parameter.
pub(crate) trait Fill: Element {
    fn fill(value: f32) -> Self;
}

macro_rules! fill {
    ($($type:ty: $fill:expr;)*) => {
        $(
            impl Fill for $type {
                fn fill(value: f32) -> Self {
                    $fill(value)
                }
            }
        )*
    };
}

fill! {
    f32: |x| x;
    f64: f64::from;
    half::f16: half::f16::from_f32;
    half::bf16: half::bf16::from_f32;
    i8: |x| x as i8;
    u8: |x| x as u8;
    i32: |x| x as i32;
    i64: |x| x as i64;
}

/// Marks an index outside the input.
const OUTSIDE: isize = isize::MIN;

pub(crate) fn run<T: Fill>(prim: &Resize, rounding: Nearest, x: &Tensor<'_>, out: TensorMut<'_>, cx: &mut Context<'_>) {
    let (input, output) = (x.shape(), out.shape());
    let rank = output.len();
    // The input offset for each output index of each axis.
    let mut tables: SmallVec<[&[isize]; 6]> = SmallVec::new();
    let mut rest = cx.scratch.get::<isize>(output.iter().sum());
    for axis in 0..rank {
        let table;
        (table, rest) = rest.split_at_mut(output[axis]);
        for (at, entry) in table.iter_mut().enumerate() {
            let index = if is_copied(prim, axis, input[axis], output[axis]) {
                Some(at)
            } else {
                let coordinate = coordinate(prim, axis, at, input[axis], output[axis]);
                (!is_outside(prim, coordinate, input[axis])).then(|| nearest(rounding, coordinate, input[axis]))
            };
            *entry = index.map_or(OUTSIDE, |index| index as isize * x.strides()[axis]);
        }
        tables.push(table);
    }
    let other = T::fill(prim.extrapolation);
    let whole = [0isize];
    let last = tables.last().copied().unwrap_or(&whole);
    let step = out.strides().last().copied().unwrap_or(1);
    let (from, to) = (Shared(x.as_ptr::<T>().cast_mut()), Shared(out.as_ptr::<T>()));
    cx.parallel.ranges(out.elems() / last.len(), (1usize << 13).div_ceil(last.len()), |range| {
        let (from, to) = (&from, &to);
        for row in range {
            let (mut rest, mut read, mut write, mut is_outside) = (row, 0, 0, false);
            for axis in (0..rank.saturating_sub(1)).rev() {
                let at = rest % output[axis];
                rest /= output[axis];
                is_outside |= tables[axis][at] == OUTSIDE;
                read += if is_outside { 0 } else { tables[axis][at] };
                write += at as isize * out.strides()[axis];
            }
            let (from, to) = (from.0.wrapping_offset(read), to.0.wrapping_offset(write));
            for (at, &offset) in last.iter().enumerate() {
                // SAFETY: the views' memory covers their extents, and each element is stored once.
                unsafe {
                    let value = if is_outside || offset == OUTSIDE { other } else { from.offset(offset).read() };
                    to.offset(at as isize * step).write(value);
                }
            }
        }
    });
}
