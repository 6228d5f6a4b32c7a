//! Translates steps to hipDNN graphs.
use graph::prim::{Conv, Epilogue as FusedEpilogue, Filled, MatMul, Norm, Pool, PoolKind, ProductKind};
use graph::{Declined, Prim, Step, View};
use hipdnn::sys::{PointwiseMode, ResampleMode};
use hipdnn::{Convolution, Resample, Scalar, Tensor, TensorId};

use super::attention;
use super::epilogue::Epilogue;
use super::sketch::{Repeats, Sketch};

/// True for the primitives that hipDNN has operations for.
pub(super) fn is_known(prim: &Prim) -> bool {
    match prim {
        Prim::Pool(_) | Prim::Norm(_) | Prim::Attention(_) => true,
        // Only the device knows how full a cache is, unless it is empty.
        Prim::CachedAttention(prim) => prim.filled == Filled::EMPTY,
        prim => prim.product_and_epilogue().is_some_and(|(kind, _)| {
            matches!(kind, ProductKind::Conv(_) | ProductKind::ConvTranspose(_) | ProductKind::MatMul(_))
        }),
    }
}

/// The hipDNN graph for a step.
pub(super) fn sketch(step: &Step) -> Result<Sketch, Declined> {
    let ([x, ..], [y, ..]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("it has no inputs or no outputs"));
    };
    if step.outputs.len() > 1 {
        return Err(Declined::new("it has several outputs"));
    }
    let mut sketch = Sketch::new(step.prim.name(), x.dtype)?;
    let axes = rank(&step.prim, x);
    let made = operation(&mut sketch, &step.prim, &step.inputs, y)?;
    match &step.prim {
        Prim::Attention(_) => sketch.write(step.inputs.len(), made, &attention::four_axes(y), 4)?,
        _ => sketch.write(step.inputs.len(), made, y, axes)?,
    }
    Ok(sketch)
}

/// The number of axes of the graph's tensors.
fn rank(prim: &Prim, x: &View) -> usize {
    match prim {
        // hipDNN never normalises the first axis.
        Prim::Norm(norm) => x.shape.len().max(norm.axes + 1),
        _ => x.shape.len(),
    }
}

fn operation(sketch: &mut Sketch, prim: &Prim, inputs: &[View], y: &View) -> Result<TensorId, Declined> {
    match prim {
        Prim::Pool(pool) => window(sketch, pool, &inputs[0], y),
        Prim::Norm(norm) => normalisation(sketch, norm, inputs),
        Prim::Attention(prim) => attention::attention(sketch, prim, inputs),
        Prim::CachedAttention(prim) => attention::prompt(sketch, prim, inputs),
        other => {
            let (kind, epilogue) = other.product_and_epilogue().ok_or_else(|| unknown(other))?;
            let own = epilogue.map_or(inputs.len(), |epilogue| epilogue.operands);
            let made = match kind {
                ProductKind::Conv(conv) => convolution(sketch, conv, &inputs[..own], y, false)?,
                ProductKind::ConvTranspose(conv) => convolution(sketch, conv, &inputs[..own], y, true)?,
                ProductKind::MatMul(matmul) => product(sketch, matmul, &inputs[..own])?,
                _ => return Err(unknown(other)),
            };
            epilogue.map_or(Ok(made), |epilogue| with_epilogue(sketch, epilogue, made, inputs, y))
        }
    }
}

fn unknown(prim: &Prim) -> Declined {
    Declined::new(format!("hipDNN has no operation for {}", prim.name()))
}

/// Adds the operations of an epilogue to those of its product.
fn with_epilogue(
    sketch: &mut Sketch,
    epilogue: &FusedEpilogue,
    made: TensorId,
    inputs: &[View],
    y: &View,
) -> Result<TensorId, Declined> {
    let axes = y.shape.len();
    let mut operands: Vec<Option<TensorId>> = vec![None; inputs.len() - epilogue.operands];
    let mut input = |sketch: &mut Sketch, number: usize| {
        let Some(further) = number.checked_sub(1) else { return Ok(made) };
        if let Some(known) = operands[further] {
            return Ok(known);
        }
        let at = epilogue.operands + further;
        let id = sketch.read(at, &inputs[at], axes, Repeats::Anywhere)?;
        operands[further] = Some(id);
        Ok(id)
    };
    let result = Epilogue { expr: &epilogue.expr, input: &mut input, made: Vec::new(), counts: None }.write(sketch)?;
    // A tensor that the caller provides cannot also be the output.
    if operands.contains(&Some(result)) {
        return Ok(sketch.pointwise(PointwiseMode::IDENTITY, &[result]));
    }
    Ok(result)
}

fn convolution(
    sketch: &mut Sketch,
    conv: &Conv,
    inputs: &[View],
    y: &View,
    transposed: bool,
) -> Result<TensorId, Declined> {
    let (x, w) = (&inputs[0], &inputs[1]);
    let axes = x.shape.len();
    // A transposed convolution is the data gradient of the forward convolution.
    let (data, made) = if transposed { (y, x) } else { (x, y) };
    let mut parameters = Convolution::new(axes - 2);
    for axis in 0..axes - 2 {
        let [stride, dilation] = [conv.strides[axis], conv.dilations[axis]].map(|value| value as i64);
        let reach = dilation * (w.shape[axis + 2] as i64 - 1) + 1;
        let along = Along { data: data.shape[axis + 2] as i64, made: made.shape[axis + 2] as i64, reach, stride };
        let pre = conv.pads[axis] as i64;
        parameters.pre_padding[axis] = pre;
        parameters.post_padding[axis] = along.post_padding(pre)?;
        parameters.strides[axis] = stride;
        parameters.dilations[axis] = dilation;
    }
    let from = sketch.read(0, x, axes, Repeats::Never)?;
    let filter = sketch.read(1, w, axes, Repeats::Never)?;
    let result = if transposed {
        let dims: Vec<i64> = y.shape.iter().map(|&extent| extent as i64).collect();
        sketch.graph.convolution_to_data(from, filter, &dims, parameters)
    } else {
        sketch.graph.convolution(from, filter, parameters)
    };
    if !conv.bias {
        return Ok(result);
    }
    let bias = sketch.read_channels(2, &inputs[2], axes)?;
    Ok(sketch.pointwise(PointwiseMode::ADD, &[result, bias]))
}

/// Windows along one axis.
struct Along {
    data: i64,
    made: i64,
    reach: i64,
    stride: i64,
}

impl Along {
    fn fits(&self, pre: i64, post: i64) -> bool {
        let room = self.data + pre + post - self.reach;
        room >= 0 && room / self.stride + 1 == self.made
    }

    /// The padding after the data that gives the result its extent: the same as before the data if possible, because
    /// engines prefer that.
    fn post_padding(&self, pre: i64) -> Result<i64, Declined> {
        let least = (self.made - 1) * self.stride + self.reach - self.data - pre;
        let found = [pre, least.max(0)].into_iter().find(|&post| pre >= 0 && self.fits(pre, post));
        found.ok_or_else(|| Declined::new("its padding is negative or does not match its output"))
    }
}

fn product(sketch: &mut Sketch, matmul: &MatMul, inputs: &[View]) -> Result<TensorId, Declined> {
    let a = sketch.read(0, &inputs[0], 3, Repeats::InBatch)?;
    let b = sketch.read(1, &inputs[1], 3, Repeats::InBatch)?;
    let made = sketch.graph.matmul(a, b);
    if matmul.alpha == 1.0 {
        return Ok(made);
    }
    let alpha = sketch.number(matmul.alpha.into());
    Ok(sketch.pointwise(PointwiseMode::MUL, &[made, alpha]))
}

fn window(sketch: &mut Sketch, pool: &Pool, x: &View, y: &View) -> Result<TensorId, Declined> {
    if pool.dilations.iter().any(|&dilation| dilation != 1) {
        return Err(Declined::new("its window is dilated"));
    }
    let mode = match pool.kind {
        PoolKind::Max { .. } => ResampleMode::MAXPOOL,
        PoolKind::Average { count_pad: false } => ResampleMode::AVGPOOL_EXCLUDE_PADDING,
        PoolKind::Average { count_pad: true } => ResampleMode::AVGPOOL_INCLUDE_PADDING,
        PoolKind::Lp { p } => return Err(Declined::new(format!("its window computes a norm (p = {p})"))),
    };
    let axes = x.shape.len();
    let lengths = pool.kernel.iter().map(|&extent| extent as i64).collect::<Vec<_>>();
    let mut what = Resample::new(mode, &lengths);
    for axis in 0..axes - 2 {
        let (reach, stride) = (pool.kernel[axis] as i64, pool.strides[axis] as i64);
        let along = Along { data: x.shape[axis + 2] as i64, made: y.shape[axis + 2] as i64, reach, stride };
        let pre = pool.pads[axis] as i64;
        let post = along.post_padding(pre)?;
        // Counted padding must match the model exactly, and no window may reach beyond it.
        let post = if mode == ResampleMode::AVGPOOL_INCLUDE_PADDING { pool.pads_end[axis] as i64 } else { post };
        if post < 0 || !along.fits(pre, post) {
            return Err(Declined::new("its last window extends beyond its padding"));
        }
        if pre.max(post) >= reach {
            return Err(Declined::new("a whole window fits into its padding"));
        }
        what.strides[axis] = stride;
        what.pre_padding[axis] = pre;
        what.post_padding[axis] = post;
    }
    let x = sketch.read(0, x, axes, Repeats::Never)?;
    Ok(sketch.graph.resample(what, x))
}

fn normalisation(sketch: &mut Sketch, norm: &Norm, inputs: &[View]) -> Result<TensorId, Declined> {
    let x = &inputs[0];
    if !norm.scale || (norm.centre && !norm.bias) {
        return Err(Declined::new("it has no scale or no bias, which hipDNN requires"));
    }
    if norm.round_before_scale && x.dtype != x.dtype.compute() {
        return Err(Declined::new(format!("it rounds to {} before scaling", x.dtype)));
    }
    let axes = x.shape.len().max(norm.axes + 1);
    let data = sketch.read(0, x, axes, Repeats::Never)?;
    let scale = sketch.read(1, &inputs[1], axes, Repeats::Never)?;
    let bias = if norm.bias { Some(sketch.read(2, &inputs[2], axes, Repeats::Never)?) } else { None };
    let epsilon = sketch.graph.tensor(Tensor::scalar(Scalar::F32(norm.epsilon)));
    Ok(match bias {
        Some(bias) if norm.centre => sketch.graph.layer_norm(data, [scale, bias], epsilon, norm.axes),
        bias => sketch.graph.rms_norm(data, scale, bias, epsilon, norm.axes),
    })
}
