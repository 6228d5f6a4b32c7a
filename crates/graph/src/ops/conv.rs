//! Convolutions: plain, transposed and quantised.
use crate::lower::Lower;
use crate::ops::window::{AutoPad, Window, split};
use crate::ops::{Entry, NodeInfo, Op, quantized};
use crate::{DType, Declined, LowerError, Prim, Shape, Val, prim};

/// The numbers of spatial axes that devices support.
const MAX_SPATIAL: usize = 3;

/// `Conv`.
#[derive(Debug)]
pub(super) struct Conv {
    window: Window,
    groups: usize,
}

impl Conv {
    /// Reads the attributes; `x` and `w` are the inputs with these operands.
    pub(super) fn parse(node: &NodeInfo<'_>, x: usize, w: usize) -> Result<Self, Declined> {
        for index in [x, w] {
            if let Some(rank) = node.input(index)?.rank
                && !(3..=MAX_SPATIAL + 2).contains(&rank)
            {
                return Err(Declined::new(format!("input {index} has unsupported rank {rank}")));
            }
        }
        let groups = node.attributes.int("group", 1)?;
        let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
        let groups = groups.ok_or_else(|| Declined::new("group is below 1"))?;
        Ok(Self { window: Window::parse(node.attributes)?, groups })
    }

    /// Emits the convolution of x and w. Both have the same type, and so does the result.
    pub(super) fn emit(&self, cx: &mut Lower<'_>, x: &Val, w: &Val, bias: Option<&Val>) -> Result<Val, LowerError> {
        let spatial = check(cx, x, w, self.window.kernel())?;
        let (channels, maps) = (x.shape()[1], w.shape()[0]);
        if channels != w.shape()[1] * self.groups || maps % self.groups != 0 {
            return Err(misfit(cx, x, w, self.groups));
        }
        check_bias(cx, bias, maps)?;
        let placed = self.window.place(cx, &x.shape()[2..], &spatial)?;
        let mut to: Shape = Shape::from_slice(&[x.shape()[0], maps]);
        to.extend_from_slice(&placed.output);
        let prim = prim::Conv {
            strides: placed.strides,
            pads: placed.pads,
            dilations: placed.dilations,
            groups: self.groups,
            bias: bias.is_some(),
        };
        apply(cx, prim::ProductKind::Conv(prim).into(), x, w, bias, &to)
    }
}

impl Op for Conv {
    fn name(&self) -> &'static str {
        "Conv"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, w) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        Ok(vec![self.emit(cx, x, w, inputs.get(2).and_then(Option::as_ref))?])
    }
}

pub(super) fn parse_conv(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    Ok(Box::new(Conv::parse(node, 0, 1)?))
}

/// The kernel's extents, checked against the attribute.
fn check(cx: &Lower<'_>, x: &Val, w: &Val, kernel: Option<Shape>) -> Result<Shape, LowerError> {
    let found = w.shape().get(2..).unwrap_or_default();
    let fits = x.rank() == w.rank() && (1..=MAX_SPATIAL).contains(&found.len());
    if !fits || w.elems() == 0 || x.dtype() != w.dtype() {
        return Err(misfit(cx, x, w, 1));
    }
    match kernel {
        Some(kernel) if kernel[..] != *found => {
            Err(cx.invalid(format!("kernel_shape {kernel:?}, but the weight is {:?}", w.shape())))
        }
        _ => Ok(found.into()),
    }
}

fn misfit(cx: &Lower<'_>, x: &Val, w: &Val, groups: usize) -> LowerError {
    cx.invalid(format!(
        "{}{:?} cannot be convolved with {}{:?} in {groups} groups",
        x.dtype(),
        x.shape(),
        w.dtype(),
        w.shape()
    ))
}

fn check_bias(cx: &Lower<'_>, bias: Option<&Val>, maps: usize) -> Result<(), LowerError> {
    match bias {
        Some(bias) if bias.shape() != [maps] => {
            Err(cx.invalid(format!("a bias of shape {:?} does not match {maps} channels", bias.shape())))
        }
        _ => Ok(()),
    }
}

fn apply(
    cx: &mut Lower<'_>,
    prim: Prim,
    x: &Val,
    w: &Val,
    bias: Option<&Val>,
    to: &[usize],
) -> Result<Val, LowerError> {
    let mut inputs = vec![x, w];
    inputs.extend(bias);
    cx.apply(prim, &inputs, x.dtype(), to)
}

/// `ConvTranspose`.
#[derive(Debug)]
struct ConvTranspose {
    name: &'static str,
    conv: Conv,
    output_padding: Option<Vec<i64>>,
    output_shape: Option<Vec<i64>>,
    /// The padding is the third input, and the bias comes after it.
    dynamic_pads: bool,
}

impl Op for ConvTranspose {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        if self.dynamic_pads { &[2] } else { &[] }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, w) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let bias = inputs.get(if self.dynamic_pads { 3 } else { 2 }).and_then(Option::as_ref);
        let groups = self.conv.groups;
        let kernel = check(cx, x, w, self.conv.window.kernel())?;
        if x.shape()[1] != w.shape()[0] || x.shape()[1] % groups != 0 {
            return Err(misfit(cx, x, w, groups));
        }
        let maps = w.shape()[1] * groups;
        check_bias(cx, bias, maps)?;
        let input = &x.shape()[2..];
        let rank = input.len();
        let mut placed = self.conv.window.spread(cx, rank)?;
        if let Some(pads) = self.dynamic_pads.then(|| cx.known_i64s(inputs, 2)).transpose()?.flatten() {
            placed.set_pads(cx, &pads)?;
        }
        let list = |name: &str, values: &Option<Vec<i64>>| match values {
            None => Ok(None),
            // Both the whole shape and its spatial part are accepted.
            Some(values) if values.len() >= rank => Ok(Some(values[values.len() - rank..].to_vec())),
            Some(values) => Err(cx.invalid(format!("{name} {values:?} does not match {rank} spatial axes"))),
        };
        let extra = list("output_padding", &self.output_padding)?.unwrap_or_else(|| vec![0; rank]);
        let wanted = list("output_shape", &self.output_shape)?;
        let mut to: Shape = Shape::from_slice(&[x.shape()[0], maps]);
        for axis in 0..rank {
            let (stride, dilation) = (placed.strides[axis] as i128, placed.dilations[axis] as i128);
            let reach = (kernel[axis] as i128 - 1) * dilation + 1;
            let whole = (input[axis] as i128 - 1) * stride + reach + i128::from(extra[axis]);
            let auto_pad = self.conv.window.auto_pad;
            let same = matches!(auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
            let target = match &wanted {
                Some(wanted) => Some(i128::from(wanted[axis])),
                None => same.then(|| input[axis] as i128 * stride),
            };
            if let Some(target) = target {
                let total = isize::try_from((whole - target).max(0)).unwrap_or(isize::MAX);
                let (front, back) = split(total, auto_pad);
                placed.pads[axis] = front;
                placed.pads_end[axis] = back;
            }
            let padded = whole - placed.pads[axis] as i128 - placed.pads_end[axis] as i128;
            let extent = wanted.as_ref().map_or(padded, |wanted| i128::from(wanted[axis]));
            let extent = usize::try_from(extent)
                .map_err(|_| cx.invalid(format!("axis {axis} of the output would have extent {extent}")))?;
            to.push(extent);
        }
        let prim = prim::Conv {
            strides: placed.strides,
            pads: placed.pads,
            dilations: placed.dilations,
            groups,
            bias: bias.is_some(),
        };
        Ok(vec![apply(cx, prim::ProductKind::ConvTranspose(prim).into(), x, w, bias, &to)?])
    }
}

fn parse_conv_transpose(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    conv_transpose(node, "ConvTranspose", false)
}

fn parse_dynamic_pads(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    if node.attributes.text("auto_pad", "NOTSET")? != "NOTSET" {
        return Err(Declined::new("auto_pad together with an input of pads is not supported"));
    }
    conv_transpose(node, "ConvTransposeWithDynamicPads", true)
}

fn conv_transpose(node: &NodeInfo<'_>, name: &'static str, dynamic_pads: bool) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    let list = |name: &str| -> Result<Option<Vec<i64>>, Declined> {
        let values = node.attributes.ints(name)?.filter(|values| !values.is_empty());
        match values {
            Some(values) if values.iter().any(|value| !(0..1 << 31).contains(value)) => {
                Err(Declined::new(format!("{name} {values:?}")))
            }
            values => Ok(values.map(<[i64]>::to_vec)),
        }
    };
    let (output_padding, output_shape) = (list("output_padding")?, list("output_shape")?);
    let conv = Conv::parse(node, 0, 1)?;
    Ok(Box::new(ConvTranspose { name, conv, output_padding, output_shape, dynamic_pads }))
}

/// `ConvInteger`: convolution of 8-bit integers minus their zero points, in 32 bits.
#[derive(Debug)]
struct ConvInteger {
    conv: Conv,
}

impl Op for ConvInteger {
    fn name(&self) -> &'static str {
        "ConvInteger"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, w) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let zero = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let w_zero = zero(3).map(|zero| channels(cx, zero, 0, w.rank())).transpose()?;
        let x = quantized::centred(cx, x, zero(2))?;
        let w = quantized::centred(cx, w, w_zero.as_ref())?;
        Ok(vec![self.conv.emit(cx, &x, &w, None)?])
    }
}

fn parse_conv_integer(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, quantized::byte)?;
    node.accept(1, quantized::byte)?;
    Ok(Box::new(ConvInteger { conv: Conv::parse(node, 0, 1)? }))
}

/// `QLinearConv`: like `ConvInteger`, rescaled to 8 bits.
#[derive(Debug)]
struct QLinearConv {
    conv: Conv,
}

impl Op for QLinearConv {
    fn name(&self) -> &'static str {
        "QLinearConv"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let get = |cx: &Lower<'_>, at| cx.required(inputs, at).cloned();
        let (x, w) = (get(cx, 0)?, get(cx, 3)?);
        let rank = w.rank();
        let (w_scale, w_zero) = (get(cx, 4)?, get(cx, 5)?);
        let (w_scale, w_zero) = (channels(cx, &w_scale, 1, rank)?, channels(cx, &w_zero, 0, rank)?);
        let x_zero = get(cx, 2)?;
        let left = quantized::centred(cx, &x, Some(&x_zero))?;
        let right = quantized::centred(cx, &w, Some(&w_zero))?;
        let sums = self.conv.emit(cx, &left, &right, inputs.get(8).and_then(Option::as_ref))?;
        let (x_scale, y_scale, y_zero) = (get(cx, 1)?, get(cx, 6)?, get(cx, 7)?);
        let scale = quantized::scale(cx, &x_scale, &w_scale, &y_scale)?;
        Ok(vec![quantized::requantized(cx, &sums, &scale, &y_zero)?])
    }
}

pub(super) fn parse_qlinear_conv(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in [0, 3, 7] {
        node.accept(index, quantized::byte)?;
    }
    for index in [1, 4, 6] {
        node.accept(index, DType::is_float)?;
    }
    Ok(Box::new(QLinearConv { conv: Conv::parse(node, 0, 3)? }))
}

/// One number per output channel, shaped to lie along `axis` of a tensor of some rank; a single number gets no axes.
fn channels(cx: &mut Lower<'_>, value: &Val, axis: usize, rank: usize) -> Result<Val, LowerError> {
    if value.elems() == 1 {
        return cx.reshape(value, &[]);
    }
    let mut to = Shape::from_elem(1, rank - axis);
    to[0] = value.elems();
    cx.reshape(value, &to)
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Conv", parse: parse_conv },
    Entry { domain: "", op_type: "ConvTranspose", parse: parse_conv_transpose },
    Entry { domain: "com.microsoft", op_type: "ConvTransposeWithDynamicPads", parse: parse_dynamic_pads },
    Entry { domain: "", op_type: "ConvInteger", parse: parse_conv_integer },
    Entry { domain: "", op_type: "QLinearConv", parse: parse_qlinear_conv },
];

#[cfg(test)]
mod tests {
    use crate::ops::trial::{Trial, device};

    #[test]
    fn convolutions_have_the_shapes_that_onnx_defines() {
        let conv = || Trial::new("Conv", 11).input(device(&[2, 4, 7, 9])).input(device(&[6, 2, 3, 2])).int("group", 2);
        assert_eq!(conv().shapes(), Ok(vec![vec![2, 6, 5, 8]]));
        let spread = conv().ints("strides", &[2, 1]).ints("dilations", &[1, 3]).ints("pads", &[1, 0, 0, 2]);
        assert_eq!(spread.shapes(), Ok(vec![vec![2, 6, 3, 8]]));
        assert_eq!(conv().text("auto_pad", "SAME_LOWER").shapes(), Ok(vec![vec![2, 6, 7, 9]]));
        assert_eq!(conv().input(device(&[6])).steps(), Ok(vec!["conv"]));
    }

    #[test]
    fn transposed_convolutions_have_the_shapes_that_onnx_defines() {
        let conv = || Trial::new("ConvTranspose", 11).input(device(&[1, 1, 3, 3])).input(device(&[1, 2, 3, 3]));
        assert_eq!(conv().shapes(), Ok(vec![vec![1, 2, 5, 5]]));
        let strided = || conv().ints("strides", &[3, 2]);
        assert_eq!(strided().shapes(), Ok(vec![vec![1, 2, 9, 7]]));
        assert_eq!(strided().ints("output_padding", &[1, 1]).shapes(), Ok(vec![vec![1, 2, 10, 8]]));
        assert_eq!(strided().ints("output_shape", &[10, 8]).shapes(), Ok(vec![vec![1, 2, 10, 8]]));
        assert_eq!(strided().ints("output_shape", &[1, 2, 10, 8]).shapes(), Ok(vec![vec![1, 2, 10, 8]]));
        assert_eq!(strided().ints("pads", &[1, 2, 1, 2]).shapes(), Ok(vec![vec![1, 2, 7, 3]]));
        assert_eq!(conv().ints("strides", &[2, 2]).text("auto_pad", "SAME_UPPER").shapes(), Ok(vec![vec![1, 2, 6, 6]]));
        assert_eq!(
            conv().ints("pads", &[3, 0, 3, 0]).shapes(),
            Err("ConvTranspose: axis 0 of the output would have extent -1".to_owned())
        );
    }

    #[test]
    fn mismatched_weights_are_rejected() {
        let conv = |w| Trial::new("Conv", 11).input(device(&[2, 4, 7])).input(device(w)).shapes();
        let message = |w: &str| Err(format!("Conv: f32[2, 4, 7] cannot be convolved with f32{w} in 1 groups"));
        assert_eq!(conv(&[6, 3, 3]), message("[6, 3, 3]"));
        assert_eq!(conv(&[6, 4, 3, 3]), message("[6, 4, 3, 3]"));
        assert_eq!(conv(&[6, 4, 0]), message("[6, 4, 0]"));
        let trial = Trial::new("Conv", 11).input(device(&[2, 4, 7])).input(device(&[6, 4, 3])).input(device(&[5]));
        assert_eq!(trial.shapes(), Err("Conv: a bias of shape [5] does not match 6 channels".to_owned()));
    }

    #[test]
    fn declines_unsupported_convolutions() {
        let trial = Trial::new("Conv", 11).input(device(&[1; 6])).input(device(&[1; 6]));
        assert_eq!(trial.shapes(), Err("input 0 has unsupported rank 6".to_owned()));
        let trial = Trial::new("Conv", 11).int("group", 0).input(device(&[1; 3])).input(device(&[1; 3]));
        assert_eq!(trial.shapes(), Err("group is below 1".to_owned()));
    }
}
