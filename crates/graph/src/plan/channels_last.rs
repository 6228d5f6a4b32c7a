//! Lays images out with their channels innermost, on devices whose convolutions prefer that.
//!
//! Only strides change: a buffer of `[n, c, h, w]` that convolutions write or read, and that every step sees as a
//! whole, is laid out as `[n, h, w, c]`. Where such an image meets a buffer with a fixed layout (an input, an output, a
//! part of another tensor), a copy is inserted. Weights follow; folding then copies constants once.
use crate::expr::Expr;
use crate::lower::{Buffer, Origin};
use crate::plan::Draft;
use crate::prim::{BufferId, Map, Prim, ProductKind};
use crate::shape::{self, Strides};
use crate::{DType, Shape, Step, View};

/// Changes the layout of images. Copies of constants that this adds are folded later.
pub(super) fn relayout(draft: &mut Draft) {
    let chosen = choose(draft);
    if !chosen.contains(&true) {
        return;
    }
    for step in &mut draft.steps {
        for view in step.inputs.iter_mut().chain(&mut step.outputs) {
            if chosen[view.buffer.0 as usize] {
                view.strides = channels_last(&view.shape);
            }
        }
    }
    for step in std::mem::take(&mut draft.steps) {
        if is_conv(&step.prim) { around(draft, step, &chosen) } else { draft.steps.push(step) }
    }
}

/// True for convolutions over two spatial axes, with or without an epilogue, that have one group.
fn is_conv(prim: &Prim) -> bool {
    let Some(ProductKind::Conv(conv)) = prim.product().map(|product| &product.kind) else { return false };
    conv.strides.len() == 2 && conv.groups == 1
}

/// Which buffers change: those that can, and are connected to a convolution through steps that work in either layout.
fn choose(draft: &Draft) -> Vec<bool> {
    let free = free(draft);
    let mut chosen = vec![false; draft.buffers.len()];
    for step in draft.steps.iter().filter(|step| is_conv(&step.prim)) {
        for view in images(step) {
            chosen[view.buffer.0 as usize] |= free[view.buffer.0 as usize];
        }
    }
    // Elementwise work and pools run best in the layout of their inputs.
    loop {
        let mut grown = false;
        for step in draft.steps.iter().filter(|step| matches!(step.prim, Prim::Map(_) | Prim::Pool(_))) {
            let views = || step.inputs.iter().chain(&step.outputs).map(|view| view.buffer.0 as usize);
            if views().any(|at| chosen[at]) {
                for at in views().filter(|&at| free[at]) {
                    grown |= !std::mem::replace(&mut chosen[at], true);
                }
            }
        }
        if !grown {
            return chosen;
        }
    }
}

/// The data, the result and the epilogue's operands of a convolution, if they have the form of images.
fn images(step: &Step) -> impl Iterator<Item = &View> {
    let own = step.own_inputs();
    let data = step.inputs.iter().take(1).chain(step.inputs.iter().skip(own)).chain(&step.outputs);
    data.filter(|view| view.shape.len() == 4 && view.is_dense())
}

/// Buffers that only steps of this plan see, all of them as the same whole image of floats.
fn free(draft: &Draft) -> Vec<bool> {
    let mut free: Vec<bool> = draft.buffers.iter().map(|buffer| buffer.origin == Origin::Step).collect();
    for buffer in &draft.output_buffers {
        free[buffer.0 as usize] = false;
    }
    let mut seen: Vec<Option<&Shape>> = vec![None; draft.buffers.len()];
    for view in draft.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs)) {
        let at = view.buffer.0 as usize;
        let is_image = view.shape.len() == 4
            && view.is_dense()
            && view.offset == 0
            && view.elems() == draft.buffers[at].elems
            && matches!(view.dtype, DType::F16 | DType::Bf16 | DType::F32);
        free[at] &= is_image && *seen[at].get_or_insert(&view.shape) == &view.shape;
    }
    free
}

/// Adds a convolution that works on channels-last images, with the copies that this needs.
fn around(draft: &mut Draft, mut step: Step, chosen: &[bool]) {
    let own = step.own_inputs();
    let result = step.outputs[0].clone();
    let is_given = |view: &View| {
        let whole = view.shape.len() == 4 && view.elems() > 1 && !chosen.get(view.buffer.0 as usize).unwrap_or(&false);
        whole && view.strides != channels_last(&view.shape)
    };
    let mut before = Vec::new();
    for (at, view) in step.inputs.iter_mut().enumerate() {
        let is_image = at == 0 || at >= own && view.shape == result.shape && !view.strides.contains(&0);
        // A kernel of one element is the same in either layout.
        let is_weight = at == 1 && view.shape.iter().skip(2).any(|&extent| extent > 1);
        if (is_image || is_weight) && is_given(view) {
            let moved = image(draft, view);
            before.push(copy(step.node, view.clone(), moved.clone()));
            *view = moved;
        }
    }
    draft.steps.append(&mut before);
    if is_given(&result) {
        let moved = image(draft, &result);
        step.outputs[0] = moved.clone();
        let behind = copy(step.node, moved, result);
        draft.steps.extend([step, behind]);
    } else {
        draft.steps.push(step);
    }
}

/// A new channels-last buffer for the contents of a view.
fn image(draft: &mut Draft, of: &View) -> View {
    let buffer: BufferId = draft.add(Buffer { dtype: of.dtype, elems: of.elems(), origin: Origin::Step });
    View { buffer, strides: channels_last(&of.shape), offset: 0, ..of.clone() }
}

fn copy(node: u32, from: View, to: View) -> Step {
    let prim = Prim::Map(Map { expr: Expr::copy(from.dtype, to.dtype) });
    Step { node, prim, inputs: vec![from], outputs: vec![to] }
}

/// Strides of `[n, c, h, w]` laid out as `[n, h, w, c]`.
fn channels_last(extents: &[usize]) -> Strides {
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| extents.get(axis).copied().unwrap_or(1));
    let inner = shape::dense_strides(&[n, h, w, c]);
    [inner[0], inner[3], inner[1], inner[2]].into_iter().collect()
}
