//! Execution of plans, and rankings of engines.

use super::{check, require};
use crate::Result;
use crate::sys::{Backend, Descriptor, Handle, RankingOutcome};

/// Enqueues a plan on the handle's stream.
///
/// # Errors
/// A tensor is missing, or the engine fails.
///
/// # Safety
/// Handle, plan and pack are alive and of this backend. The addresses in the pack are valid until the work is done.
pub unsafe fn execute(backend: &dyn Backend, handle: Handle, plan: Descriptor, pack: Descriptor) -> Result<()> {
    // SAFETY: the caller vouches for all of them.
    let status = unsafe { backend.execute(handle, plan, pack) };
    check(backend, || "executing a plan".into(), status)
}

/// Passes the backend an order of engines, best first, to store for graphs like this one.
///
/// # Errors
/// The backend cannot store rankings.
///
/// # Safety
/// Handle and graph are alive and of this backend.
pub unsafe fn write_ranking(
    backend: &dyn Backend,
    handle: Handle,
    graph: Descriptor,
    engines: &[i64],
) -> Result<RankingOutcome> {
    require(backend, "hipdnnBackendWriteEngineRankingResults_ext")?;
    let mut outcome = RankingOutcome::DECLINED_DISABLED;
    // SAFETY: the pointer and the count come from one slice; the caller vouches for the handle and the graph.
    let status = unsafe { backend.write_engine_ranking(handle, graph, engines.as_ptr(), engines.len(), &mut outcome) };
    check(backend, || "setting a ranking of engines".into(), status)?;
    Ok(outcome)
}
