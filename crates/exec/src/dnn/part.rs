//! Splits steps that hipDNN cannot run as one graph but can run in parts.
//!
//! A product with an epilogue is first split from its epilogue, and then also from its bias or factor. That is the
//! smallest graph: one operation. Attention becomes its two products. Our own code runs the maps and the softmax
//! between products.
use graph::expr::{Binary, Expr, Ref};
use graph::plan::{ALIGNMENT, BufferPlace};
use graph::prim::{BufferId, Conv, Map, MatMul, ProductKind};
use graph::shape::{Strides, dense_strides};
use graph::{Plan, Prim, Step, View};

use super::{Offering, scores};

impl Offering {
    /// Splits each step that hipDNN cannot run as a whole into parts whose products it can run, if the policy says so.
    /// `is_taken` tells which steps another backend takes first.
    #[must_use]
    pub fn parted(&self, mut plan: Plan, is_taken: &dyn Fn(&Step) -> bool) -> Plan {
        let behind = plan.arena_bytes.next_multiple_of(ALIGNMENT);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in std::mem::take(&mut plan.steps) {
            match self.parts(&step, plan.places.len() as u32, is_taken) {
                // Buffers between parts are placed after the arena, at the same place for all steps: no other step
                // reads them.
                Some(parts) => {
                    let mut end = behind;
                    for bytes in parts.bytes {
                        plan.places.push(BufferPlace::Arena(end));
                        end = (end + bytes).next_multiple_of(ALIGNMENT);
                    }
                    plan.arena_bytes = plan.arena_bytes.max(end);
                    steps.extend(parts.steps);
                }
                None => steps.push(step),
            }
        }
        plan.steps = steps;
        plan
    }

    /// The largest parts of a step that hipDNN runs; `None` if the step is not split.
    fn parts(&self, step: &Step, first: u32, is_taken: &dyn Fn(&Step) -> bool) -> Option<Parts> {
        let takes = |step: &Step| matches!(self.offer(step), Some(Ok(_)));
        let is_open = self.offers.splits(step, is_taken);
        let Some(Err(declined)) = is_open.then(|| self.offer(step)).flatten() else { return None };
        let ways: [fn(&Step, u32) -> Option<Parts>; 4] =
            [without_epilogue, alone, scores::products, scores::bare_products];
        let mut ways = ways.into_iter().filter_map(|way| way(step, first));
        let found = ways.find(|parts| parts.steps.iter().filter(|part| is_product(&part.prim)).all(takes))?;
        let (name, count) = (step.prim.name(), found.steps.len());
        tracing::debug!(target: "amdgpu_ep::compile", "a {name} runs as {count} steps, not as one hipDNN graph: {declined}");
        Some(found)
    }
}

/// Steps that together do the work of one, and the memory between them.
pub(super) struct Parts {
    pub steps: Vec<Step>,
    node: u32,
    /// The id of the first buffer between them.
    first: u32,
    /// The size of each of these buffers.
    bytes: Vec<usize>,
}

impl Parts {
    /// No steps yet. Buffers between the steps get ids from `first` on.
    pub fn new(node: u32, first: u32) -> Self {
        Self { steps: Vec::new(), node, first, bytes: Vec::new() }
    }

    /// A new dense buffer with the shape and type of a view, and these strides.
    pub fn between(&mut self, like: &View, strides: Strides) -> View {
        let buffer = BufferId(self.first + self.bytes.len() as u32);
        self.bytes.push(like.elems() * like.dtype.bytes());
        View { buffer, strides, offset: 0, ..like.clone() }
    }

    /// Adds a step.
    pub fn push(&mut self, prim: Prim, inputs: Vec<View>, output: View) {
        self.steps.push(Step { node: self.node, prim, inputs, outputs: vec![output] });
    }
}

fn is_product(prim: &Prim) -> bool {
    let kind = prim.plain_product();
    matches!(kind, Some(ProductKind::Conv(_) | ProductKind::ConvTranspose(_) | ProductKind::MatMul(_)))
}

/// A product that stores its result, followed by its epilogue as a map.
fn without_epilogue(step: &Step, first: u32) -> Option<Parts> {
    let (kind, Some(epilogue)) = step.prim.product_and_epilogue()? else { return None };
    let made = step.outputs.first()?;
    let mut parts = Parts::new(step.node, first);
    let result = parts.between(&View { dtype: epilogue.dtype, ..made.clone() }, dense_order(made));
    let (own, further) = step.inputs.split_at(epilogue.operands);
    parts.push(kind.clone().into(), own.to_vec(), result.clone());
    let inputs = [&[result], further].concat();
    parts.push(Prim::Map(Map { expr: epilogue.expr.clone() }), inputs, made.clone());
    Some(parts)
}

/// A product without its bias or factor, which is one operation, followed by everything else as a map.
fn alone(step: &Step, first: u32) -> Option<Parts> {
    let made = step.outputs.first()?;
    let (kind, epilogue) = step.prim.product_and_epilogue()?;
    let dtype = epilogue.map_or(made.dtype, |epilogue| epilogue.dtype);
    let (own, further) = step.inputs.split_at(step.own_inputs());
    let without_bias = |conv: &Conv| Conv { bias: false, ..conv.clone() };
    let (bare, factor, bias) = match kind {
        ProductKind::Conv(conv) if conv.bias => (ProductKind::Conv(without_bias(conv)), None, Some(own.get(2)?)),
        ProductKind::ConvTranspose(conv) if conv.bias => {
            (ProductKind::ConvTranspose(without_bias(conv)), None, Some(own.get(2)?))
        }
        ProductKind::MatMul(MatMul { alpha }) if *alpha != 1.0 => {
            (ProductKind::MatMul(MatMul { alpha: 1.0 }), Some(*alpha), None)
        }
        _ => return None,
    };
    let mut parts = Parts::new(step.node, first);
    // Without its factor, a product may exceed the largest half.
    let stored = if factor.is_some() { dtype.compute() } else { dtype };
    let result = parts.between(&View { dtype: stored, ..made.clone() }, dense_order(made));
    parts.push(bare.into(), own[..2].to_vec(), result.clone());

    let mut expr = Expr::new();
    let mut value = expr.input(0, dtype);
    if let Some(factor) = factor {
        let factor = expr.constant(graph::Scalar::Float(factor.into()), dtype);
        value = expr.binary(Binary::Mul, value, factor);
    }
    let mut inputs = [&[result], further].concat();
    if let Some(bias) = bias {
        let added = expr.input(inputs.len() as u16, bias.dtype);
        value = expr.binary(Binary::Add, value, added);
        inputs.push(channels(bias, made)?);
    }
    let value = match epilogue {
        Some(epilogue) => {
            let operands = (1..).zip(further).map(|(number, view)| expr.input(number, view.dtype));
            let arguments: Vec<Ref> = [value].into_iter().chain(operands).collect();
            expr.inline(&epilogue.expr, &arguments)
        }
        None => expr.cast(value, dtype),
    };
    expr.finish(value);
    parts.push(Prim::Map(Map { expr }), inputs, made.clone());
    Some(parts)
}

/// A vector along the second axis of a result, broadcast along the others.
fn channels(bias: &View, made: &View) -> Option<View> {
    let &[stride] = &bias.strides[..] else { return None };
    let mut strides = Strides::from_elem(0, made.shape.len());
    *strides.get_mut(1)? = stride;
    Some(View { shape: made.shape.clone(), strides, ..bias.clone() })
}

/// The strides of a dense view whose axes have the same order as another view's.
fn dense_order(like: &View) -> Strides {
    let mut order: Vec<usize> = (0..like.shape.len()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(like.strides[axis]));
    let mut strides = dense_strides(&like.shape);
    let mut step = 1;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= like.shape[axis].cast_signed();
    }
    strides
}
