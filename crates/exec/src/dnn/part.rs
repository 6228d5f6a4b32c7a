//! Convolutions apart from their epilogues, where hipDNN runs only the first.
use graph::{
    Plan, Prim, Step, View,
    plan::{ALIGNMENT, Place},
    prim::{BufferId, Fused, Map},
    shape::dense_strides,
};

use super::Offering;

impl Offering {
    /// The plan with each convolution apart from its epilogue that hipDNN runs alone and not as a whole: a vendor's
    /// convolution and a map of ours are faster than both in code of ours.
    ///
    /// What lies between the two has a place behind the arena, the same for all: it is read by the next step.
    #[must_use]
    pub fn parted(&self, mut plan: Plan) -> Plan {
        let between = plan.arena_bytes.next_multiple_of(ALIGNMENT);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in std::mem::take(&mut plan.steps) {
            let id = BufferId(plan.places.len() as u32);
            let parts = apart(&step, id).filter(|[product, _]| {
                let takes = |step: &Step| matches!(self.offer(step), Some(Ok(_)));
                !takes(&step) && takes(product)
            });
            match parts {
                Some(parts) => {
                    let bytes: usize = parts[0].outputs.iter().map(|view| view.elems() * view.dtype.bytes()).sum();
                    plan.places.push(Place::Arena(between));
                    plan.arena_bytes = plan.arena_bytes.max(between + bytes);
                    steps.extend(parts);
                }
                None => steps.push(step),
            }
        }
        plan.steps = steps;
        plan
    }
}

/// A convolution that stores its result in a buffer, and the map that reads it there.
fn apart(step: &Step, buffer: BufferId) -> Option<[Step; 2]> {
    let Prim::Fused(Fused { product, operands, dtype, epilogue }) = &step.prim else { return None };
    if !matches!(**product, Prim::Conv(_) | Prim::ConvTranspose(_)) {
        return None;
    }
    let made = step.outputs.first()?;
    let (shape, strides) = (made.shape.clone(), dense_order(made));
    let result = View { buffer, dtype: *dtype, shape, strides, offset: 0 };
    let (own, further) = step.inputs.split_at(*operands);
    let inputs = [std::slice::from_ref(&result), further].concat();
    let map = Prim::Map(Map { expr: epilogue.clone() });
    Some([
        Step { node: step.node, prim: (**product).clone(), inputs: own.to_vec(), outputs: vec![result] },
        Step { node: step.node, prim: map, inputs, outputs: step.outputs.clone() },
    ])
}

/// Strides of a dense view with its axes in the order of another's.
fn dense_order(like: &View) -> graph::shape::Strides {
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
