//! Lists which backend runs each step of a plan.
use std::fmt;

use graph::Graph;

use crate::{Prepared, RunBy};

/// The steps of a plan, one per line, each with its backend and, if hipDNN declined the step, the reason.
pub(crate) struct Assignment<'a> {
    pub graph: &'a Graph,
    pub prepared: &'a dyn Prepared,
}

impl Assignment<'_> {
    /// True if hipDNN was asked about any step.
    pub fn was_asked(&self) -> bool {
        let steps = 0..self.prepared.plan().steps.len();
        steps.into_iter().any(|at| self.prepared.run_by(at) != RunBy::Own { why: None })
    }
}

impl fmt::Display for Assignment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.prepared.plan().steps.iter().enumerate() {
            let by = self.prepared.run_by(at);
            let node = self.graph.nodes().get(step.node as usize).map_or_else(String::new, |node| node.label());
            write!(f, "{at:>4}  {}  {node}  {}", step.prim.name(), by.label(step))?;
            match by.why() {
                Some(why) => writeln!(f, " ({why})")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
