//! The rules that every stage of planning relies on; checked in debug builds.
use crate::lower::{Buffer, Origin};
use crate::plan::{ALIGNMENT, BufferPlace, Draft, Plan, in_place};
use crate::{Graph, Step, View};

/// Checks a draft: views stay within their buffers, nothing is read before it is written, inputs and constants are
/// never written, and every output is written.
///
/// # Errors
/// The first broken rule, with the step.
pub(super) fn draft(graph: &Graph, draft: &Draft) -> Result<(), String> {
    let mut written: Vec<bool> = draft.buffers.iter().map(|buffer| buffer.origin != Origin::Step).collect();
    for (at, step) in draft.steps.iter().enumerate() {
        let broken = |reason: &str, view: &View| Err(format!("step {at}, {step:?}: {view:?} {reason}"));
        for view in step.inputs.iter().chain(&step.outputs) {
            if !draft.buffers.get(view.buffer.0 as usize).is_some_and(|buffer| holds(buffer, view)) {
                return broken("exceeds its buffer", view);
            }
        }
        if let Some(view) = step.inputs.iter().find(|view| !written[view.buffer.0 as usize]) {
            return broken("is read before it is written", view);
        }
        for view in &step.outputs {
            if draft.buffers[view.buffer.0 as usize].origin != Origin::Step {
                return broken("is an input or a constant, but is written", view);
            }
            written[view.buffer.0 as usize] = true;
        }
        if step.node as usize >= graph.nodes().len().max(1) {
            return Err(format!("step {at}, {step:?}: there is no node {}", step.node));
        }
    }
    for (number, (id, spec)) in draft.output_buffers.iter().zip(&draft.outputs).enumerate() {
        let buffer = &draft.buffers[id.0 as usize];
        let elems = crate::shape::elems(&spec.shape);
        if buffer.dtype != spec.dtype || Some(buffer.elems) != elems {
            return Err(format!(
                "output {number} is {spec:?}, but its buffer has {} elements of {}",
                buffer.elems, buffer.dtype
            ));
        }
        if buffer.elems > 0 && (!written[id.0 as usize] || buffer.origin != Origin::Step) {
            return Err(format!("output {number} is never written"));
        }
        if draft.output_buffers[..number].contains(id) {
            return Err(format!("output {number} shares its buffer with another output"));
        }
    }
    Ok(())
}

/// True if all elements of a view are within a buffer.
fn holds(buffer: &Buffer, view: &View) -> bool {
    if view.shape.len() != view.strides.len() || view.dtype.bytes() != buffer.dtype.bytes() {
        return false;
    }
    if view.shape.contains(&0) {
        return true;
    }
    let (mut first, mut last) = (view.offset as i128, view.offset as i128);
    for (&extent, &stride) in view.shape.iter().zip(&view.strides) {
        let reach = (extent as i128 - 1) * stride as i128;
        if reach < 0 { first += reach } else { last += reach }
    }
    first >= 0 && last < buffer.elems as i128
}

/// Checks a placed plan against its buffers' sizes in bytes. Every used buffer has a place. Buffers alive at the same
/// time do not overlap, except for a result that reuses the slot of an operand with the same layout. A past that may be
/// updated in place is not read afterwards, and its update is not written before.
///
/// # Errors
/// The first broken rule, with the buffers.
pub(super) fn placed(plan: &Plan, bytes: &[usize]) -> Result<(), String> {
    updates(plan)?;
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; bytes.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        for view in step.inputs.iter().chain(&step.outputs) {
            let life = lives[view.buffer.0 as usize].get_or_insert((at, at));
            life.1 = at;
        }
    }
    // Buffers in the arena: number, life, start, end.
    let mut used = Vec::new();
    for (at, life) in lives.iter().enumerate() {
        let Some(life) = *life else { continue };
        match plan.places[at] {
            BufferPlace::Unused => return Err(format!("b{at} is used but has no place")),
            BufferPlace::Constant(number)
                if plan.constants.get(number).is_none_or(|held| held.len_bytes() != bytes[at]) =>
            {
                return Err(format!("b{at} is constant {number}, which does not exist or has another size"));
            }
            BufferPlace::Output(number) if number >= plan.outputs.len() => {
                return Err(format!("b{at} is output {number}, which does not exist"));
            }
            BufferPlace::Arena(start) => {
                if start % ALIGNMENT != 0 || start + bytes[at] > plan.arena_bytes {
                    return Err(format!("b{at} at {start} does not fit in an arena of {} bytes", plan.arena_bytes));
                }
                used.push((at, life, start, start + bytes[at]));
            }
            _ => {}
        }
    }
    for (number, &(a, life_a, start_a, end_a)) in used.iter().enumerate() {
        for &(b, life_b, start_b, end_b) in &used[..number] {
            let meet = life_a.0 <= life_b.1 && life_b.0 <= life_a.1;
            if !meet || end_a <= start_b || end_b <= start_a {
                continue;
            }
            let (from, to, at) = if life_a.1 == life_b.0 { (a, b, life_a.1) } else { (b, a, life_b.1) };
            let handed = life_a.1 == life_b.0 || life_b.1 == life_a.0;
            if !handed || start_a != start_b || !takes_over(&plan.steps[at], from, to) {
                return Err(format!("b{a} and b{b} overlap in the arena while both are in use"));
            }
        }
    }
    Ok(())
}

/// Checks the rule of [`Append`](crate::prim::Append): an output of the run may be its past, an input of the run.
fn updates(plan: &Plan) -> Result<(), String> {
    for (at, step) in plan.steps.iter().enumerate() {
        for &(input, output) in step.updates() {
            let (past, present) = (&step.inputs[input], &step.outputs[output]);
            if !matches!((plan.place(past), plan.place(present)), (BufferPlace::Input(_), BufferPlace::Output(_))) {
                continue;
            }
            let apart = |at: usize, view| in_place::is_apart(step.updates(), input, past.offset, at, view);
            let own = step.inputs.iter().enumerate().filter(|(at, view)| !apart(*at, view)).map(|(_, view)| view);
            let behind = plan.steps[at + 1..].iter().flat_map(|step| &step.inputs);
            if own.chain(behind).any(|view| view.buffer == past.buffer) {
                return Err(format!("step {at}, {step:?}: {past:?} may be overwritten, but is read elsewhere"));
            }
            let mut before = plan.steps[..at].iter().flat_map(|step| &step.outputs);
            if before.any(|view| view.buffer == present.buffer) {
                return Err(format!("step {at}, {step:?}: {present:?} may be the past, but is written before"));
            }
        }
    }
    Ok(())
}

/// True if a step reads one buffer only at the elements it writes in another.
fn takes_over(step: &Step, from: usize, to: usize) -> bool {
    let layout = |view: &View| (view.shape.clone(), view.strides.clone(), view.offset, view.dtype.bytes());
    step.outputs.iter().filter(|view| view.buffer.0 as usize == to).all(|output| {
        let mut read = step.inputs.iter().filter(|view| view.buffer.0 as usize == from);
        read.all(|input| layout(input) == layout(output))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;
    use crate::plan::OutputSpec;
    use crate::prim::{Append, BufferId, Filled, Map};
    use crate::shape::dense_strides;
    use crate::{DType, Prim, Shape};

    fn view(buffer: u32, elems: usize, offset: isize) -> View {
        let shape = Shape::from_slice(&[elems]);
        View { buffer: BufferId(buffer), dtype: DType::F32, strides: dense_strides(&shape), shape, offset }
    }

    fn copy(from: View, to: View) -> Step {
        let prim = Prim::Map(Map { expr: Expr::copy(DType::F32, DType::F32) });
        Step { node: 0, prim, inputs: vec![from], outputs: vec![to] }
    }

    /// Buffer 0 is an input, steps write 1 and 2, all have four elements; 2 is the output.
    fn made(steps: Vec<Step>) -> Draft {
        let buffer = |origin| Buffer { dtype: DType::F32, elems: 4, origin };
        Draft {
            buffers: vec![buffer(Origin::Input(0)), buffer(Origin::Step), buffer(Origin::Step)],
            steps,
            output_buffers: vec![BufferId(2)],
            outputs: vec![OutputSpec { dtype: DType::F32, shape: Shape::from_slice(&[4]), shown: None }],
        }
    }

    fn fault(steps: Vec<Step>) -> String {
        draft(&Graph::new(), &made(steps)).err().unwrap_or_default()
    }

    #[test]
    fn a_valid_draft_passes() {
        assert_eq!(fault(vec![copy(view(0, 4, 0), view(1, 4, 0)), copy(view(1, 4, 0), view(2, 4, 0))]), "");
    }

    #[test]
    fn broken_drafts_are_reported() {
        let last = || copy(view(1, 4, 0), view(2, 4, 0));
        assert!(fault(vec![copy(view(0, 4, 1), view(2, 4, 0))]).contains("exceeds its buffer"));
        assert!(fault(vec![copy(view(0, 4, -1), view(2, 4, 0))]).contains("exceeds its buffer"));
        assert!(fault(vec![last()]).contains("read before it is written"));
        assert!(fault(vec![copy(view(0, 4, 0), view(0, 4, 0)), last()]).contains("an input or a constant"));
        assert!(fault(vec![copy(view(0, 4, 0), view(1, 4, 0))]).contains("never written"));
        let stray = Step { node: 7, ..copy(view(0, 4, 0), view(2, 4, 0)) };
        assert!(fault(vec![stray]).contains("there is no node 7"));
    }

    /// Three buffers of 16 bytes, each computed from the one before; the second and third are at these arena offsets.
    fn overlap(second: usize, third: usize, steps: Vec<Step>) -> String {
        let plan = Plan {
            steps,
            places: vec![
                BufferPlace::Input(0),
                BufferPlace::Arena(second),
                BufferPlace::Arena(third),
                BufferPlace::Output(0),
            ],
            constants: Vec::new(),
            outputs: vec![OutputSpec { dtype: DType::F32, shape: Shape::from_slice(&[4]), shown: None }],
            arena_bytes: 512,
            live_bytes: 512,
        };
        placed(&plan, &[16; 4]).err().unwrap_or_default()
    }

    #[test]
    fn a_past_that_may_be_overwritten_is_not_read_after_its_update() {
        let cache = |buffer: u32| View {
            shape: Shape::from_slice(&[1, 1, 4, 1]),
            strides: dense_strides(&[1, 1, 4, 1]),
            ..view(buffer, 4, 0)
        };
        let update = || Step {
            node: 0,
            prim: Prim::Append(Append { filled: Filled::default(), past: true, rotary: None }),
            inputs: vec![view(0, 4, 0), cache(0), cache(0), cache(1), cache(2)],
            outputs: vec![cache(3), cache(4)],
        };
        let fault = |steps: Vec<Step>| {
            let plan = Plan {
                steps,
                places: (0..3).map(BufferPlace::Input).chain((0..3).map(BufferPlace::Output)).collect(),
                constants: Vec::new(),
                outputs: vec![OutputSpec { dtype: DType::F32, shape: Shape::from_slice(&[4]), shown: None }; 3],
                arena_bytes: 0,
                live_bytes: 0,
            };
            placed(&plan, &[16; 6]).err().unwrap_or_default()
        };
        let read = || copy(view(2, 4, 0), view(5, 4, 0));
        assert_eq!(fault(vec![read(), update()]), "");
        assert!(fault(vec![update(), read()]).contains("may be overwritten, but is read elsewhere"));
        assert!(fault(vec![copy(view(0, 4, 0), view(4, 4, 0)), update()]).contains("is written before"));
    }

    #[test]
    fn only_a_result_of_the_same_layout_reuses_an_operands_memory() {
        let chain = |read: View| {
            vec![copy(view(0, 4, 0), view(1, 4, 0)), copy(read, view(2, 4, 0)), copy(view(2, 4, 0), view(3, 4, 0))]
        };
        assert_eq!(overlap(0, 256, chain(view(1, 4, 0))), "");
        assert_eq!(overlap(0, 0, chain(view(1, 4, 0))), "");
        let reversed = View { strides: [-1].into_iter().collect(), offset: 3, ..view(1, 4, 0) };
        assert_eq!(overlap(0, 0, chain(reversed)), "b2 and b1 overlap in the arena while both are in use");
        let mut read_again = chain(view(1, 4, 0));
        read_again[2].inputs.push(view(1, 4, 0));
        assert_eq!(overlap(0, 0, read_again), "b2 and b1 overlap in the arena while both are in use");
        assert!(overlap(0, 512, chain(view(1, 4, 0))).contains("does not fit in an arena"));
        assert!(overlap(8, 256, chain(view(1, 4, 0))).contains("does not fit in an arena"));
    }
}
