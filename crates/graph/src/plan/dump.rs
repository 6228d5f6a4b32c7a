//! Plans as text, in the same form for every stage of planning.
//!
//! First the buffers, then the steps with the nodes they came from, then the outputs.
use std::fmt;

use crate::lower::Origin;
use crate::plan::{BufferPlace, Draft, Plan};
use crate::{Graph, Prim, Step, View};

/// A draft, before it is placed.
pub(super) struct DraftText<'a> {
    pub graph: &'a Graph,
    pub draft: &'a Draft,
}

impl fmt::Display for DraftText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = &self.draft.steps;
        for (at, buffer) in self.draft.buffers.iter().enumerate().filter(|(at, _)| is_used(steps, *at)) {
            write!(f, "b{at}: {} x {}, ", buffer.elems, buffer.dtype)?;
            match &buffer.origin {
                Origin::Input(number) => writeln!(f, "input {number}")?,
                Origin::Constant(tensor) => writeln!(f, "constant {tensor:?}")?,
                Origin::Step => writeln!(f, "made")?,
            }
        }
        write_steps(f, self.graph, steps)?;
        for (id, output) in self.draft.output_buffers.iter().zip(&self.draft.outputs) {
            writeln!(f, "out b{}: {}{:?}", id.0, output.dtype, output.shape.as_slice())?;
        }
        Ok(())
    }
}

/// A finished plan, with the graph it was made for.
pub struct PlanText<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The plan.
    pub plan: &'a Plan,
}

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "arena of {} bytes, {} in use at once", self.plan.arena_bytes, self.plan.live_bytes)?;
        for (at, place) in self.plan.places.iter().enumerate() {
            match place {
                BufferPlace::Input(number) => writeln!(f, "b{at}: input {number}")?,
                BufferPlace::Output(number) => writeln!(f, "b{at}: output {number}")?,
                BufferPlace::Constant(number) => writeln!(f, "b{at}: constant {:?}", self.plan.constants[*number])?,
                BufferPlace::Arena(offset) => writeln!(f, "b{at}: arena at {offset}")?,
                BufferPlace::Unused => {}
            }
        }
        write_steps(f, self.graph, &self.plan.steps)?;
        for (number, output) in self.plan.outputs.iter().enumerate() {
            writeln!(f, "out {number}: {}{:?}", output.dtype, output.shape.as_slice())?;
        }
        Ok(())
    }
}

fn is_used(steps: &[Step], buffer: usize) -> bool {
    steps.iter().any(|step| step.inputs.iter().chain(&step.outputs).any(|view| view.buffer.0 as usize == buffer))
}

fn write_steps(f: &mut fmt::Formatter<'_>, graph: &Graph, steps: &[Step]) -> fmt::Result {
    let list = |views: &[View]| views.iter().map(|view| format!("{view:?}")).collect::<Vec<_>>().join(", ");
    for (at, step) in steps.iter().enumerate() {
        write!(f, "{at}: {} = {} {}", list(&step.outputs), prim(&step.prim), list(&step.inputs))?;
        match graph.nodes().get(step.node as usize) {
            Some(node) => writeln!(f, "  # {}", node.label())?,
            None => writeln!(f)?,
        }
    }
    Ok(())
}

/// A primitive with its parameters.
fn prim(prim: &Prim) -> String {
    match prim {
        Prim::Map(map) => format!("map {{ {:?} }}", map.expr),
        Prim::Product(product) => product.to_string(),
        other => {
            let text = format!("{other:?}");
            // The variant's name is the name of its parameters.
            let parameters = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
            parameters.map_or_else(|| other.name().to_owned(), str::to_owned)
        }
    }
}
