//! Images from pieces: Col2Im and MaxUnpool.
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ScatterKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Tensor, Val};

/// Adds up the columns of an image, which may overlap.
#[derive(Debug)]
struct Col2Im {
    dilations: Option<Vec<usize>>,
    strides: Option<Vec<usize>>,
    /// Padding before each axis, then after each.
    pads: Option<Vec<usize>>,
}

impl Op for Col2Im {
    fn name(&self) -> &'static str {
        "Col2Im"
    }

    /// The shapes of the image and of a block.
    fn host_inputs(&self) -> &[usize] {
        &[1, 2]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let columns = cx.required(inputs, 0)?;
        let (image, block) = (cx.known(inputs, 1)?.to_i64s(), cx.known(inputs, 2)?.to_i64s());
        let (image, block) = (cx.extents(&image)?, cx.extents(&block)?);
        let axes = image.len();
        let of = |values: &Option<Vec<usize>>, count: usize, default: usize| {
            values.clone().filter(|values| values.len() == count).unwrap_or_else(|| vec![default; count])
        };
        let (strides, dilations) = (of(&self.strides, axes, 1), of(&self.dilations, axes, 1));
        let pads = of(&self.pads, 2 * axes, 0);
        let mismatch = |cx: &Lower<'_>| {
            cx.invalid(format!("columns of shape {:?} for blocks {block:?} of an image {image:?}", columns.shape()))
        };
        let &[batch, rows, count] = columns.shape() else { return Err(mismatch(cx)) };
        if block.len() != axes || axes == 0 {
            return Err(mismatch(cx));
        }
        // Extents with padding, and the places of a block along each axis.
        let mut padded = Shape::new();
        let mut places = Shape::new();
        for axis in 0..axes {
            let whole = image[axis].checked_add(pads[axis]).and_then(|it| it.checked_add(pads[axes + axis]));
            let reach = block[axis].checked_sub(1).and_then(|it| it.checked_mul(dilations[axis]));
            let (Some(whole), Some(reach)) = (whole, reach) else { return Err(mismatch(cx)) };
            let Some(room) = whole.checked_sub(reach + 1) else { return Err(mismatch(cx)) };
            padded.push(whole);
            places.push(room / strides[axis] + 1);
        }
        let product = |extents: &[usize]| crate::shape::elems(extents).ok_or_else(|| mismatch(cx));
        let (pixels, taps, spots) = (product(&padded)?, product(&block)?, product(&places)?);
        if spots != count || taps == 0 || rows % taps != 0 {
            return Err(mismatch(cx));
        }
        let channels = rows / taps;
        let index = |tap: usize, spot: usize| {
            let (mut tap, mut spot, mut flat, mut step) = (tap, spot, 0, 1);
            for axis in (0..axes).rev() {
                let at = spot % places[axis] * strides[axis] + tap % block[axis] * dilations[axis];
                flat += at * step;
                step *= padded[axis];
                (tap, spot) = (tap / block[axis], spot / places[axis]);
            }
            Scalar::Int(flat as i64)
        };
        cx.bytes(DType::I64, &[taps, spots])?;
        let indices = (0..taps).flat_map(|tap| (0..spots).map(move |spot| (tap, spot)));
        let indices = Tensor::from_scalars(DType::I64, &[1, taps * spots], indices.map(|(tap, spot)| index(tap, spot)));
        let indices = indices.ok_or_else(|| mismatch(cx))?;
        let indices = cx.expand(&Val::known(indices), &[batch * channels, taps * spots])?;
        let updates = cx.reshape(columns, &[batch * channels, taps * spots])?;
        let empty = cx.full(columns.dtype(), &[batch * channels, pixels], Scalar::zero(columns.dtype()))?;
        let sum = cx.scatter_elements(&empty, &indices, &updates, 1, ScatterKind::Add)?;
        let to: Shape = [batch, channels].into_iter().chain(padded.iter().copied()).collect();
        let mut sum = cx.reshape(&sum, &to)?;
        for axis in 0..axes {
            sum = sum.sliced(axis + 2, pads[axis], 1, image[axis]);
        }
        Ok(vec![sum])
    }
}

/// Numbers of an attribute that are not negative.
fn sizes(node: &NodeInfo<'_>, name: &str, least: usize) -> Result<Option<Vec<usize>>, Declined> {
    let Some(values) = node.attributes.ints(name)? else { return Ok(None) };
    let sizes: Option<Vec<usize>> = values.iter().map(|&value| usize::try_from(value).ok()).collect();
    match sizes.filter(|sizes| sizes.iter().all(|&size| size >= least)) {
        Some(sizes) => Ok(Some(sizes)),
        None => Err(Declined::new(format!("{name} is {values:?}"))),
    }
}

fn parse_col2im(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    Ok(Box::new(Col2Im {
        dilations: sizes(node, "dilations", 1)?,
        strides: sizes(node, "strides", 1)?,
        pads: sizes(node, "pads", 0)?,
    }))
}

/// Puts the results of a MaxPool back to where they came from; all other elements are zero.
#[derive(Debug)]
struct MaxUnpool {
    kernel: Vec<usize>,
    strides: Option<Vec<usize>>,
    pads: Option<Vec<usize>>,
}

impl Op for MaxUnpool {
    fn name(&self) -> &'static str {
        "MaxUnpool"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let axes = self.kernel.len();
        if x.rank() != axes + 2 || indices.shape() != x.shape() {
            return Err(cx.invalid(format!(
                "{:?} with indices {:?} for a window of {axes} axes",
                x.shape(),
                indices.shape()
            )));
        }
        let mut to: Shape = x.shape()[..2].into();
        for axis in 0..axes {
            let stride = self.strides.as_ref().map_or(1, |strides| strides[axis]);
            let pads = self.pads.as_ref().map_or(0, |pads| pads[axis] + pads[axes + axis]);
            let whole = x.shape()[axis + 2].checked_sub(1).and_then(|last| last.checked_mul(stride));
            let extent = whole.and_then(|whole| whole.checked_add(self.kernel[axis])?.checked_sub(pads));
            to.push(extent.ok_or_else(|| cx.invalid(format!("{:?} with padding of {pads}", x.shape())))?);
        }
        let elems = crate::shape::elems(&to).ok_or_else(|| cx.invalid("the result is too large"))?;
        let empty = cx.full(x.dtype(), &[elems], Scalar::zero(x.dtype()))?;
        let [indices, x] = [indices, x].map(|value| cx.reshape(value, &[value.elems()]));
        let result = cx.scatter_elements(&empty, &indices?, &x?, 0, ScatterKind::Replace)?;
        Ok(vec![cx.reshape(&result, &to)?])
    }
}

fn parse_max_unpool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    node.accept(1, |dtype| dtype == DType::I64)?;
    if node.optional(2).is_some() {
        return Err(Declined::new("output_shape is not supported; the extents follow from the window without it"));
    }
    let kernel = sizes(node, "kernel_shape", 1)?.ok_or_else(|| Declined::new("kernel_shape is missing"))?;
    let (strides, pads) = (sizes(node, "strides", 1)?, sizes(node, "pads", 0)?);
    let has = |values: &Option<Vec<usize>>, count: usize| values.as_ref().is_none_or(|values| values.len() == count);
    if !has(&strides, kernel.len()) || !has(&pads, 2 * kernel.len()) {
        return Err(Declined::new("kernel_shape, strides and pads do not match"));
    }
    Ok(Box::new(MaxUnpool { kernel, strides, pads }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Col2Im", parse: parse_col2im },
    Entry { domain: "", op_type: "MaxUnpool", parse: parse_max_unpool },
];
