//! Limits on a plan: one that exceeds them is rejected before anything is allocated or run.
use crate::plan::{BufferPlace, Plan};
use crate::prim::ProductKind;
use crate::{Graph, LowerError, Prim, Step, View, shape};

/// How much memory and work a plan may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that a run may hold at once: its outputs and its intermediate tensors.
    pub held: usize,
    /// Bytes of the intermediate tensors, which must be allocated. Outputs may exist already.
    pub arena: usize,
    /// Bytes of one tensor that a step reads, even if most of it is a repetition that is never stored. An Expand into a
    /// reduction takes no memory, but may take hours.
    pub walked: usize,
}

impl Default for Budget {
    /// No limits except integer overflow.
    fn default() -> Self {
        Self { held: usize::MAX, arena: usize::MAX, walked: usize::MAX }
    }
}

impl Budget {
    /// Rejects a plan that needs too much.
    pub(super) fn check(&self, graph: &Graph, plan: &Plan) -> Result<(), LowerError> {
        let label = |step: &Step| graph.nodes().get(step.node as usize).map_or_else(String::new, |node| node.label());
        let outputs = plan.outputs.iter().map(|output| shape::bytes(&output.shape, output.dtype).unwrap_or(usize::MAX));
        let bytes = outputs.fold(plan.arena_bytes, usize::saturating_add);
        for (bytes, available) in [(bytes, self.held), (plan.arena_bytes, self.arena)] {
            if bytes > available {
                let (node, largest) = largest(plan).map_or((String::new(), 0), |(step, bytes)| (label(step), bytes));
                return Err(LowerError::NoRoom { node, largest, bytes, available });
            }
        }
        for step in &plan.steps {
            let Some((view, bytes)) = walked(step).filter(|(_, bytes)| *bytes > self.walked) else { continue };
            let (node, shape) = (label(step), view.shape.to_vec());
            return Err(LowerError::TooMuchWork { node, shape, bytes, limit: self.walked });
        }
        Ok(())
    }
}

/// The step that writes the largest tensor, and its bytes.
fn largest(plan: &Plan) -> Option<(&Step, usize)> {
    let made = plan.steps.iter().flat_map(|step| step.outputs.iter().map(move |view| (step, view)));
    let made = made.filter(|(_, view)| matches!(plan.place(view), BufferPlace::Arena(_) | BufferPlace::Output(_)));
    let made = made.map(|(step, view)| (step, shape::bytes(&view.shape, view.dtype).unwrap_or(usize::MAX)));
    made.max_by_key(|(_, bytes)| *bytes)
}

/// The largest tensor that a step reads element by element, and its bytes with repetitions and padding.
pub(super) fn walked(step: &Step) -> Option<(&View, usize)> {
    let repeats_once = match &step.prim {
        // The inputs of these steps are either as large as the outputs, which count as memory, or only partly read.
        Prim::Map(_) | Prim::Gather | Prim::GatherElements(_) | Prim::GatherNd(_) => return None,
        // Weights and caches repeat for each batch and head, and the result is stored for each of them.
        Prim::Append(_)
        | Prim::AppendAttention(_)
        | Prim::CachedAttention(_)
        | Prim::PagedAppend
        | Prim::PagedAttention(_)
        | Prim::Retain
        | Prim::Rotary(_) => true,
        _ => step.is_product(),
    };
    let sized = step.inputs.iter().map(|view| (view, read_bytes(view, repeats_once)));
    sized.chain(padded(step)).max_by_key(|(_, bytes)| *bytes)
}

/// The padded input of a convolution or pool: a large window or stride reads much of it for a small output.
fn padded(step: &Step) -> Option<(&View, usize)> {
    let (x, output) = (step.inputs.first()?, step.outputs.first()?);
    let (kernel, strides, dilations) = match &step.prim {
        Prim::Pool(pool) => (&pool.kernel[..], &pool.strides, &pool.dilations),
        Prim::Product(product) => match &product.kind {
            ProductKind::Conv(conv) | ProductKind::IntegerConv { conv, .. } => {
                (step.inputs.get(1)?.shape.get(2..)?, &conv.strides, &conv.dilations)
            }
            _ => return None,
        },
        _ => return None,
    };
    let reach = |outputs: usize, kernel: usize, stride: usize, dilation: usize| {
        let last = outputs.saturating_sub(1).saturating_mul(stride);
        last.saturating_add(kernel.saturating_sub(1).saturating_mul(dilation)).saturating_add(1)
    };
    let axes = output.shape.get(2..)?.iter().zip(kernel).zip(strides.iter().zip(dilations));
    let spatial = axes.map(|((&outputs, &kernel), (&stride, &dilation))| reach(outputs, kernel, stride, dilation));
    let extents = x.shape.iter().take(2).copied().chain(spatial);
    Some((x, extents.fold(x.dtype.bytes(), usize::saturating_mul)))
}

/// Bytes of a view, where repetitions along all axes except the last two may count once.
fn read_bytes(view: &View, repeats_once: bool) -> usize {
    let matrix = view.shape.len().saturating_sub(2);
    let extents = view.shape.iter().zip(&view.strides).enumerate();
    let counted = extents.map(
        |(axis, (&extent, &stride))| {
            if repeats_once && axis < matrix && stride == 0 { extent.min(1) } else { extent }
        },
    );
    counted.fold(view.dtype.bytes(), usize::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::prim::{BufferId, Pool, PoolKind, Reduce, ReduceKind};
    use crate::shape::Strides;

    fn view(shape: &[usize], strides: &[isize]) -> View {
        let strides: Strides = strides.into();
        View { buffer: BufferId(0), dtype: DType::F32, shape: shape.into(), strides, offset: 0 }
    }

    fn bytes_of(prim: Prim, input: View) -> Option<usize> {
        let step = Step { node: 0, prim, inputs: vec![input], outputs: vec![view(&[1], &[1])] };
        walked(&step).map(|(_, bytes)| bytes)
    }

    #[test]
    fn a_pool_counts_its_padding() {
        let list = |values: &[usize]| values.into();
        let pool = |kernel: usize| Pool {
            kind: PoolKind::Max { column_major: false },
            kernel: list(&[kernel, kernel]),
            strides: list(&[1, 1]),
            pads: [0, 0].into_iter().collect(),
            pads_end: [0, 0].into_iter().collect(),
            dilations: list(&[1, 1]),
        };
        for (kernel, want) in [(2, 3 * 5 * 5 * 4), (1 << 30, 3 * ((1 << 30) + 3) * ((1 << 30) + 3) * 4)] {
            let image = view(&[1, 3, 4, 4], &[48, 16, 4, 1]);
            let step =
                Step { node: 0, prim: Prim::Pool(pool(kernel)), inputs: vec![image.clone()], outputs: vec![image] };
            assert_eq!(walked(&step).map(|(_, bytes)| bytes), Some(want));
        }
    }

    #[test]
    fn reductions_count_repetitions_and_products_those_of_their_matrices() {
        let reduce = || Prim::Reduce(Reduce { kind: ReduceKind::Max, axes: 1 });
        let product = || Prim::matmul(1.0);
        assert_eq!(bytes_of(reduce(), view(&[1 << 40], &[0])), Some(1 << 42));
        assert_eq!(bytes_of(reduce(), view(&[1 << 40, 1 << 40], &[0, 0])), Some(usize::MAX));
        assert_eq!(bytes_of(reduce(), view(&[1 << 40, 0], &[0, 1])), Some(0));
        assert_eq!(bytes_of(product(), view(&[1 << 40, 3, 5], &[0, 5, 1])), Some(60));
        assert_eq!(bytes_of(product(), view(&[2, 1 << 20, 1 << 20], &[1, 0, 0])), Some(1 << 43));
        assert_eq!(bytes_of(Prim::Gather, view(&[1 << 40], &[0])), None);
    }
}
