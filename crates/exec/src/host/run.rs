//! Executes the steps of a plan, one after the other.
use std::ops::Range;
use std::time::Instant;

use graph::{Graph, Plan, Tensor};
use host_ops::{Parallel, Pool};

use crate::ExecError;
use crate::device::{Observer, RunBy};
use crate::ffi::RunMemory;
use crate::ffi::host::{BoundPlan, OutputMemory, RunState};

/// Runs a plan. Steps are timed only if there is an `observer`.
///
/// # Errors
/// A step found data that breaks its operator's rules.
pub(super) fn execute(
    graph: &Graph,
    plan: &Plan,
    memory: RunMemory<'_>,
    state: &mut RunState,
    parallel: &dyn Parallel,
    observer: Option<&dyn Observer>,
) -> Result<(), ExecError> {
    let bound = BoundPlan::new(plan, memory, state.reserve(plan.arena_bytes, 0)?);
    execute_part(graph, bound, 0..plan.steps.len(), state, parallel, observer)
}

/// Runs some of a plan's steps, with the state that has its arena. The steps before them are done.
///
/// # Errors
/// As for [`execute`].
pub(super) fn execute_part(
    graph: &Graph,
    bound: BoundPlan<'_>,
    steps: Range<usize>,
    state: &mut RunState,
    parallel: &dyn Parallel,
    observer: Option<&dyn Observer>,
) -> Result<(), ExecError> {
    let done = steps.into_iter().try_for_each(|at| {
        let step = &bound.plan().steps[at];
        let start = observer.is_some().then(Instant::now);
        bound.run_step(at, state, parallel).map_err(|source| {
            let node = graph.nodes().get(step.node as usize).map_or_else(String::new, |node| node.label());
            ExecError::Step { node, source }
        })?;
        if let (Some(observer), Some(start)) = (observer, start) {
            observer.step(step, RunBy::Own { why: None }, start, start.elapsed());
        }
        Ok(())
    });
    state.count_scratch();
    done
}

/// Runs a plan without inputs and returns its outputs; `None` if a step fails, which the run itself will then report.
pub(super) fn run_prologue(graph: &Graph, plan: &Plan) -> Option<Vec<Tensor>> {
    let (made, mut state) = (OutputMemory::new(plan), RunState::default());
    let bound = made.bind(state.reserve(plan.arena_bytes, 0).ok()?);
    // Threads start only if the work is large enough, and end here: all weights of a model may need a new layout.
    let pool = Pool::new();
    execute_part(graph, bound, 0..plan.steps.len(), &mut state, &pool, None).ok()?;
    Some(made.tensors())
}
