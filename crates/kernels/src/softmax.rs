//! Softmax along the last axis: `hip/softmax.hip`.
use graph::{Declined, Step, prim::Softmax};

use crate::{
    Args, Kernel, Launch, Work,
    kernel::type_name,
    layout::{Layout, grid_x},
};

pub(crate) fn work(prim: &Softmax, step: &Step) -> Result<Work, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    if !x.dtype.is_float() {
        return Err(Declined::new(format!("softmax of {}", x.dtype)));
    }
    // Rows on two axes at most, the last axis by itself.
    let layout = Layout::rows([x, y], 1, 2)?;
    let (rows, [columns]) = (layout.outer_elems(), layout.inner::<1>());
    let [x_strides, y_strides] = [layout.strides::<3>(0), layout.strides::<3>(1)];
    let args = Args::new()
        .input("x", 0, x)
        .output("y", 0, y)
        .u32("columns", columns)
        .u32("outer", layout.extents::<3>()[1])
        .i64("x_high", x_strides[0])
        .i64("x_low", x_strides[1])
        .i64("x_column", x_strides[2])
        .i64("y_high", y_strides[0])
        .i64("y_low", y_strides[1])
        .i64("y_column", y_strides[2]);
    let kernel = Kernel::new("softmax", include_str!("../hip/softmax.hip"))
        .set("T", type_name(x.dtype))
        .set("LOG", u8::from(prim.log));
    Ok(Work::one(Launch { kernel, grid: [grid_x(rows)?, 1, 1], threads: 256, lds_bytes: 0, args }))
}
