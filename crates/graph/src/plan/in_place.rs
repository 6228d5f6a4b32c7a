//! Caches that a run may update in place: no step reads the old contents afterwards.
use crate::expr::Expr;
use crate::lower::{Buffer, Origin};
use crate::plan::Draft;
use crate::prim::{BufferId, Map, Prim};
use crate::shape::dense_strides;
use crate::{Shape, Step, View};

/// Makes steps that read a past after its update, or as part of it, read a copy that is made before all other work.
pub(super) fn keep_apart(draft: &mut Draft) {
    let mut copies = Vec::new();
    for at in 0..draft.steps.len() {
        for &(input, output) in draft.steps[at].updates() {
            let (past, present) = (draft.steps[at].inputs[input].buffer, draft.steps[at].outputs[output].buffer);
            let given = matches!(draft.buffers[past.0 as usize].origin, Origin::Input(_));
            if given && draft.output_buffers.contains(&present) && readers(draft, at, input).next().is_some() {
                let copy = draft.add(Buffer { origin: Origin::Step, ..draft.buffers[past.0 as usize].clone() });
                readers(draft, at, input).for_each(|view| view.buffer = copy);
                copies.push(whole(draft, past, copy));
            }
        }
    }
    draft.steps.splice(0..0, copies);
}

/// The views that read a step's past, its operand `own`, when it may already be overwritten. Another past of the same
/// step, elsewhere in the buffer, is overwritten only by its own output.
fn readers(draft: &mut Draft, at: usize, own: usize) -> impl Iterator<Item = &mut View> {
    let past = &draft.steps[at].inputs[own];
    let (buffer, offset) = (past.buffer, past.offset);
    let pasts = draft.steps[at].updates();
    let views = draft.steps[at..].iter_mut().enumerate().flat_map(move |(number, step)| {
        let views = step.inputs.iter_mut().enumerate();
        let others = views.filter(move |(input, view)| !(number == 0 && is_apart(pasts, own, offset, *input, view)));
        others.map(|(_, view)| view)
    });
    views.filter(move |view| view.buffer == buffer)
}

/// Whether an operand of an update is the past `own` at `offset`, or another past that its output does not overwrite.
pub(super) fn is_apart(pasts: &[(usize, usize)], own: usize, offset: isize, input: usize, view: &View) -> bool {
    input == own || view.offset != offset && pasts.iter().any(|&(other, _)| other == input)
}

/// Copies a whole buffer.
fn whole(draft: &Draft, from: BufferId, to: BufferId) -> Step {
    let Buffer { dtype, elems, .. } = draft.buffers[from.0 as usize];
    let shape = [elems];
    let view =
        |buffer| View { buffer, dtype, shape: Shape::from_slice(&shape), strides: dense_strides(&shape), offset: 0 };
    let prim = Prim::Map(Map { expr: Expr::copy(dtype, dtype) });
    Step { node: 0, prim, inputs: vec![view(from)], outputs: vec![view(to)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::plan::OutputSpec;
    use crate::prim::{Append, Filled};

    fn view(buffer: u32) -> View {
        let shape = Shape::from_slice(&[1, 1, 4, 2]);
        View { buffer: BufferId(buffer), dtype: DType::F32, strides: dense_strides(&shape), shape, offset: 0 }
    }

    fn copy(from: u32, to: u32) -> Step {
        let prim = Prim::Map(Map { expr: Expr::copy(DType::F32, DType::F32) });
        Step { node: 0, prim, inputs: vec![view(from)], outputs: vec![view(to)] }
    }

    /// Buffers 0 to 2 are inputs: lengths and the past's keys and values. The updated keys and values are 3 and 4, and
    /// `others` write 5 around the update. All three are outputs.
    fn draft(before: Vec<Step>, behind: Vec<Step>) -> Draft {
        let buffer = |origin| Buffer { dtype: DType::F32, elems: 8, origin };
        let prim = Prim::Append(Append { filled: Filled::default(), past: true, rotary: None });
        let inputs = vec![view(0), view(0), view(0), view(1), view(2)];
        let update = Step { node: 0, prim, inputs, outputs: vec![view(3), view(4)] };
        let mut buffers: Vec<Buffer> = (0..3).map(|at| buffer(Origin::Input(at))).collect();
        buffers.extend((0..3).map(|_| buffer(Origin::Step)));
        let spec = || OutputSpec { dtype: DType::F32, shape: Shape::from_slice(&[1, 1, 4, 2]), shown: None };
        Draft {
            buffers,
            steps: before.into_iter().chain([update]).chain(behind).collect(),
            output_buffers: vec![BufferId(3), BufferId(4), BufferId(5)],
            outputs: vec![spec(), spec(), spec()],
        }
    }

    #[test]
    fn a_reader_before_the_update_reads_the_past_directly() {
        let mut draft = draft(vec![copy(1, 5)], Vec::new());
        keep_apart(&mut draft);
        assert_eq!(draft.steps.len(), 2);
        assert_eq!(draft.steps[0].inputs[0].buffer, BufferId(1));
    }

    #[test]
    fn a_reader_after_the_update_reads_an_earlier_copy() {
        let mut draft = draft(Vec::new(), vec![copy(2, 5)]);
        keep_apart(&mut draft);
        let [first, update, behind] = &draft.steps[..] else { panic!("{:?}", draft.steps) };
        assert_eq!((first.inputs[0].buffer, behind.inputs[0].buffer), (BufferId(2), first.outputs[0].buffer));
        assert_eq!(update.inputs[4].buffer, BufferId(2));
        assert_ne!(first.outputs[0].buffer, BufferId(2));
    }

    #[test]
    fn a_past_that_no_output_can_share_is_not_copied() {
        let mut draft = draft(Vec::new(), vec![copy(2, 5)]);
        draft.output_buffers = vec![BufferId(3), BufferId(5)];
        draft.outputs.pop();
        keep_apart(&mut draft);
        assert_eq!(draft.steps.len(), 2);
    }
}
