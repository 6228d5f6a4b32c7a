//! Turns products of dequantised bytes into products of the bytes.
//!
//! `DequantizeLinear` and the quantised operators turn bytes into numbers: minus a zero point, times a scale. If both
//! operands of a product come from bytes, with zero points and scales that the planner knows, the product is computed
//! on the bytes, exactly, and scaled afterwards.
use crate::expr::{Binary, Expr, Node, Ref};
use crate::lower::{Buffer, Origin};
use crate::plan::Draft;
use crate::plan::uses::Uses;
use crate::prim::{BufferId, Conv, Map, Prim, ProductKind};
use crate::shape::{Strides, dense_strides};
use crate::{DType, Scalar, Step, Tensor, View};

/// Replaces products that can be computed from bytes, and removes steps that are no longer used.
pub(super) fn multiply_bytes(draft: &mut Draft) {
    let steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    let mut replaced = false;
    let mut result = Vec::with_capacity(steps.len());
    for step in steps.iter().flatten() {
        match integer_product(step, &steps, &uses, draft) {
            Some(found) => {
                emit(draft, &mut result, step, found);
                replaced = true;
            }
            None => result.push(step.clone()),
        }
    }
    draft.steps = if replaced { without_unread(result, draft) } else { result };
}

/// The bytes that an operand was computed from.
struct Bytes {
    view: View,
    zero: i32,
    scale: Scale,
}

/// The factor applied to the bytes.
enum Scale {
    /// Nothing: the numbers are integers.
    None,
    One(f32),
    /// One number per index of the axis that the product keeps.
    Each(Vec<f32>),
}

/// A product whose operands were bytes.
struct Found {
    operands: [Bytes; 2],
    /// The convolution, without its bias; `None` for a matrix product.
    conv: Option<Conv>,
}

fn integer_product(step: &Step, steps: &[Option<Step>], uses: &Uses, draft: &Draft) -> Option<Found> {
    let (kept, conv) = match step.prim.plain_product()? {
        ProductKind::MatMul(_) => (2, None),
        ProductKind::Conv(conv) => {
            let channels = step.inputs.first()?.shape.get(1).copied()?;
            let plain = conv.groups == 1 || conv.groups == channels;
            (0, Some(plain.then(|| Conv { bias: false, ..conv.clone() })?))
        }
        _ => return None,
    };
    let [left, right] = step.inputs.get(..2)? else { return None };
    let output = step.outputs.first()?;
    let summed =
        output.dtype == DType::F32 || output.dtype == DType::I32 && step.inputs.len() == 2 && alpha(step) == 1.0;
    if !summed || !output.is_dense() {
        return None;
    }
    let left = bytes_of(left, None, steps, uses, draft)?;
    let right = bytes_of(right, Some(kept), steps, uses, draft)?;
    let scaled = |bytes: &Bytes| !matches!(bytes.scale, Scale::None);
    let fits = (output.dtype == DType::F32) == scaled(&left) && scaled(&left) == scaled(&right);
    fits.then_some(Found { operands: [left, right], conv })
}

/// The bytes that an operand was computed from, if any. Scales along an axis are taken to be along the one that the
/// product keeps.
fn bytes_of(view: &View, kept: Option<usize>, steps: &[Option<Step>], uses: &Uses, draft: &Draft) -> Option<Bytes> {
    let id = view.buffer.0 as usize;
    let maker = uses.last_writer[id].filter(|_| uses.writers[id] == 1)?;
    let step = steps[maker].as_ref()?;
    let (Prim::Map(map), [output]) = (&step.prim, &step.outputs[..]) else { return None };
    let made = Dequantised::read(&map.expr)?;
    let source = step.inputs.get(usize::from(made.input))?;
    // Element by element in the same order, so a view of the result is the same view of the bytes.
    let same = source.is_dense() && output.is_dense() && output.offset == 0 && source.shape == output.shape;
    if !same || !matches!(source.dtype, DType::I8 | DType::U8) || !matches!(output.dtype, DType::F32 | DType::I32) {
        return None;
    }
    let constant = |number: u16| -> Option<(&View, &Tensor)> {
        let view = step.inputs.get(usize::from(number))?;
        match &draft.buffers[view.buffer.0 as usize].origin {
            Origin::Constant(tensor) => Some((view, tensor)),
            _ => None,
        }
    };
    let zero = match made.zero {
        None => 0,
        Some(Term::Number(zero)) => zero as i32,
        Some(Term::Input(number)) => {
            let (_, tensor) = constant(number)?;
            let first = tensor.scalars().next()?;
            tensor.scalars().all(|zero| zero == first).then(|| first.as_i64() as i32)?
        }
    };
    let scale = match made.scale {
        None => Scale::None,
        Some(Term::Number(scale)) => Scale::One(scale as f32),
        Some(Term::Input(number)) => {
            let (along, tensor) = constant(number)?;
            let mut axes = (0..along.shape.len()).filter(|&axis| along.shape[axis] > 1 && along.strides[axis] != 0);
            let axis = axes.next().filter(|_| axes.next().is_none())?;
            let kept = kept?;
            let step = dense_strides(&output.shape)[axis];
            let is_kept = view.shape.get(kept) == Some(&output.shape[axis]) && view.strides.get(kept) == Some(&step);
            if !is_kept {
                return None;
            }
            let at = |index: usize| along.offset + index as isize * along.strides[axis];
            let value = |index: usize| tensor.get(at(index) as usize).as_f64() as f32;
            Scale::Each((0..output.shape[axis]).map(value).collect())
        }
    };
    let view = View { buffer: source.buffer, dtype: source.dtype, offset: view.offset + source.offset, ..view.clone() };
    Some(Bytes { view, zero, scale })
}

/// A number in an expression, or an input of it.
#[derive(Clone, Copy)]
enum Term {
    Number(f64),
    Input(u16),
}

/// `(input - zero) · scale`, parsed from an expression.
struct Dequantised {
    input: u16,
    zero: Option<Term>,
    scale: Option<Term>,
}

impl Dequantised {
    fn read(expr: &Expr) -> Option<Self> {
        let nodes = expr.nodes();
        // These types represent bytes exactly.
        let plain = |at: Ref| {
            let mut at = at;
            while let (Node::Cast(from), DType::F32 | DType::I32) = nodes[usize::from(at)] {
                at = from;
            }
            at
        };
        let term = |at: Ref| match nodes[usize::from(plain(at))].0 {
            Node::Const(value) => Some(Term::Number(value.as_f64())),
            Node::Input(number) => Some(Term::Input(number)),
            _ => None,
        };
        let mut at = plain((nodes.len() as Ref).checked_sub(1)?);
        let mut made = Self { input: 0, zero: None, scale: None };
        if let (Node::Binary(Binary::Mul, a, b), DType::F32) = nodes[usize::from(at)] {
            made.scale = Some(term(b)?);
            at = plain(a);
        }
        if let (Node::Binary(Binary::Sub, a, b), DType::F32 | DType::I32) = nodes[usize::from(at)] {
            made.zero = Some(term(b)?);
            at = plain(a);
        }
        let Node::Input(input) = nodes[usize::from(at)].0 else { return None };
        Some(Self { input, ..made })
    }
}

/// The factor of a matrix product.
fn alpha(step: &Step) -> f32 {
    if let Some(ProductKind::MatMul(product)) = step.prim.plain_product() { product.alpha } else { 1.0 }
}

/// Replaces a step with the product of bytes, and with a map from its sums to the step's result.
fn emit(draft: &mut Draft, steps: &mut Vec<Step>, step: &Step, found: Found) {
    let Found { operands: [left, right], conv } = found;
    let channel = if conv.is_some() { 1 } else { 2 };
    let output = &step.outputs[0];
    let zeros = [left.zero, right.zero];
    let prim = Prim::from(match conv {
        Some(conv) => ProductKind::IntegerConv { conv, zeros },
        None => ProductKind::IntegerMatMul { zeros },
    });
    let inputs = vec![left.view, right.view];
    let factor = match left.scale {
        Scale::One(factor) => factor * alpha(step),
        _ => return steps.push(Step { node: step.node, prim, inputs, outputs: step.outputs.clone() }),
    };
    let sums = draft.add(Buffer { dtype: DType::I32, elems: output.elems(), origin: Origin::Step });
    let sums = View { buffer: sums, dtype: DType::I32, offset: 0, ..output.clone() };
    steps.push(Step { node: step.node, prim, inputs, outputs: vec![sums.clone()] });
    let along = |buffer: BufferId, stride: isize, offset: isize| {
        let mut strides: Strides = Strides::from_elem(0, output.shape.len());
        strides[channel] = stride;
        View { buffer, dtype: DType::F32, shape: output.shape.clone(), strides, offset }
    };
    let mut expr = Expr::new();
    let mut inputs = vec![sums];
    let sum = expr.input(0, DType::I32);
    let mut value = expr.cast(sum, DType::F32);
    let factor = match right.scale {
        Scale::Each(scales) => {
            let values = scales.iter().map(|scale| Scalar::Float(f64::from(scale * factor)));
            let Some(tensor) = Tensor::from_scalars(DType::F32, &[scales.len()], values) else { return };
            let buffer = Buffer { dtype: DType::F32, elems: scales.len(), origin: Origin::Constant(tensor) };
            inputs.push(along(draft.add(buffer), 1, 0));
            expr.input(1, DType::F32)
        }
        Scale::One(scale) => expr.constant(Scalar::Float(f64::from(scale * factor)), DType::F32),
        Scale::None => expr.constant(Scalar::Float(f64::from(factor)), DType::F32),
    };
    value = expr.binary(Binary::Mul, value, factor);
    if let Some(bias) = step.inputs.get(2) {
        inputs.push(along(bias.buffer, bias.strides.first().copied().unwrap_or(0), bias.offset));
        let bias = expr.input(inputs.len() as u16 - 1, DType::F32);
        value = expr.binary(Binary::Add, value, bias);
    }
    expr.finish(value);
    steps.push(Step { node: step.node, prim: Prim::Map(Map { expr }), inputs, outputs: vec![output.clone()] });
}

/// The steps without those whose results are unused.
fn without_unread(steps: Vec<Step>, draft: &Draft) -> Vec<Step> {
    let mut wanted = vec![false; draft.buffers.len()];
    draft.output_buffers.iter().for_each(|buffer| wanted[buffer.0 as usize] = true);
    let mut kept: Vec<Step> = steps
        .into_iter()
        .rev()
        .filter(|step| {
            let is_wanted = step.outputs.iter().any(|view| wanted[view.buffer.0 as usize]);
            if is_wanted {
                step.inputs.iter().for_each(|view| wanted[view.buffer.0 as usize] = true);
            }
            is_wanted
        })
        .collect();
    kept.reverse();
    kept
}
