//! Convolutions whose windows have offsets: DeformConv. The image is sampled at the places of all taps, and a product
//! with the weights follows.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::grid_sample::{BILINEAR, FAR, Image};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{Declined, LowerError, Scalar, Shape, Val};

/// `DeformConv`: inputs x, weights, offsets, bias, mask.
#[derive(Debug)]
struct DeformConv {
    strides: [usize; 2],
    dilations: [usize; 2],
    /// Padding before both axes, then after both.
    pads: [usize; 4],
    groups: usize,
    offset_groups: usize,
}

/// The extents of a convolution.
struct Extents {
    /// The extents of the window.
    window: [usize; 2],
    /// The extents of the result.
    to: [usize; 2],
}

impl Op for DeformConv {
    fn name(&self) -> &'static str {
        "DeformConv"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, weights, offsets) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let mismatch = |cx: &Lower<'_>| {
            let [x, w, offsets] = [x, weights, offsets].map(Val::shape);
            cx.invalid(format!("an image {x:?}, weights {w:?} and offsets {offsets:?} do not match"))
        };
        let (&[batch, channels, height, width], &[filters, depth, rows, columns]) = (x.shape(), weights.shape()) else {
            return Err(mismatch(cx));
        };
        let window = [rows, columns];
        let mut to = [0; 2];
        for axis in 0..2 {
            let whole = [height, width][axis] + self.pads[axis] + self.pads[2 + axis];
            let reach = window[axis].checked_sub(1).map(|last| last * self.dilations[axis] + 1);
            let room = reach.and_then(|reach| whole.checked_sub(reach)).ok_or_else(|| mismatch(cx))?;
            to[axis] = room / self.strides[axis] + 1;
        }
        let (taps, points, sets) = (rows * columns, to[0] * to[1], self.offset_groups);
        let fits = channels == depth * self.groups
            && filters % self.groups == 0
            && channels % sets == 0
            && offsets.shape() == [batch, 2 * sets * taps, to[0], to[1]];
        if !fits || height * width == 0 {
            return Err(mismatch(cx));
        }
        let offsets = cx.reshape(offsets, &[batch * sets, taps, 2, points])?;
        let extents = Extents { window, to };
        let coordinates = [0, 1].map(|axis| {
            let own = cx.reshape(&offsets.sliced(2, axis, 1, 1), &[batch * sets, 1, taps * points])?;
            self.coordinates(cx, &own, &extents, axis)
        });
        let [y, x_at] = coordinates;
        let flat = cx.reshape(x, &[batch * sets, channels / sets, height * width])?;
        let image = Image { extents: Shape::from_slice(&[height, width]), op: &BILINEAR };
        let mut read = image.sample(cx, &flat, &[y?, x_at?])?;
        if let Some(mask) = given(4) {
            if mask.shape() != [batch, sets * taps, to[0], to[1]] {
                return Err(cx.invalid(format!("a mask {:?} for {taps} taps of {to:?} windows", mask.shape())));
            }
            let mask = cx.reshape(mask, &[batch * sets, 1, taps * points])?;
            read = cx.binary(Binary::Mul, &read, &mask)?;
        }
        let read = cx.reshape(&read, &[batch, self.groups, depth * taps, points])?;
        let weights = cx.reshape(weights, &[1, self.groups, filters / self.groups, depth * taps])?;
        let product = cx.matmul(&weights, &read)?;
        let result = cx.reshape(&product, &[batch, filters, to[0], to[1]])?;
        let Some(bias) = given(3) else { return Ok(vec![result]) };
        if bias.shape() != [filters] {
            return Err(cx.invalid(format!("a bias {:?} for {filters} filters", bias.shape())));
        }
        let bias = cx.reshape(bias, &[filters, 1, 1])?;
        Ok(vec![cx.binary(Binary::Add, &result, &bias)?])
    }
}

impl DeformConv {
    /// The coordinates of all taps `[…, 1, taps · points]` along an axis.
    fn coordinates(
        &self,
        cx: &mut Lower<'_>,
        offsets: &Val,
        Extents { window, to }: &Extents,
        axis: usize,
    ) -> Result<Val, LowerError> {
        let dtype = offsets.dtype().compute();
        cx.map(&[offsets], dtype, |expr, operands| {
            let int = |expr: &mut crate::expr::Expr, value: usize| {
                expr.constant(Scalar::Int(value as i64), crate::DType::I64)
            };
            let (at, points) = (expr.index(2), int(expr, to[0] * to[1]));
            let (tap, point) = (expr.binary(Binary::Div, at, points), expr.binary(Binary::Mod, at, points));
            let [columns, width] = [window[1], to[1]].map(|value| int(expr, value));
            let kind = if axis == 0 { Binary::Div } else { Binary::Mod };
            let (tap, point) = (expr.binary(kind, tap, columns), expr.binary(kind, point, width));
            let [stride, dilation, pad] =
                [self.strides[axis], self.dilations[axis], self.pads[axis]].map(|value| int(expr, value));
            let (moved, inner) = (expr.binary(Binary::Mul, point, stride), expr.binary(Binary::Mul, tap, dilation));
            let place = expr.binary(Binary::Add, moved, inner);
            let place = expr.binary(Binary::Sub, place, pad);
            let (place, offset) = (expr.cast(place, dtype), expr.cast(operands[0], dtype));
            let found = expr.binary(Binary::Add, place, offset);
            let [low, high] = [-FAR, FAR].map(|value| expr.constant(Scalar::Float(value), dtype));
            let found = expr.binary(Binary::Max, found, low);
            expr.binary(Binary::Min, found, high)
        })
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| dtype.is_float())?;
    for at in 1..5 {
        if let Some(other) = node.optional(at).filter(|other| other.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, but the image is {dtype}", other.dtype)));
        }
    }
    for at in 0..2 {
        if node.input(at)?.rank.is_some_and(|rank| rank != 4) {
            return Err(Declined::new("only images with two spatial axes are supported"));
        }
    }
    let numbers = |name: &str, least: i64, default: &[usize]| -> Result<Vec<usize>, Declined> {
        match node.attributes.ints(name)? {
            None => Ok(default.to_vec()),
            Some(values) if values.len() == default.len() && values.iter().all(|&value| value >= least) => {
                Ok(values.iter().map(|&value| value as usize).collect())
            }
            Some(values) => Err(Declined::new(format!("{name} is {values:?}"))),
        }
    };
    let count = |name: &str| match node.attributes.int(name, 1)? {
        count @ 1.. => Ok(count as usize),
        count => Err(Declined::new(format!("{name} is {count}"))),
    };
    let pair = |values: Vec<usize>| [values[0], values[1]];
    let pads = numbers("pads", 0, &[0; 4])?;
    Ok(Box::new(DeformConv {
        strides: pair(numbers("strides", 1, &[1; 2])?),
        dilations: pair(numbers("dilations", 1, &[1; 2])?),
        pads: [pads[0], pads[1], pads[2], pads[3]],
        groups: count("group")?,
        offset_groups: count("offset_group")?,
    }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "DeformConv", parse }];
