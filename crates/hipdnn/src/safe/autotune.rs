//! Finds the fastest engine by timing all of them.

use std::fmt::Display;
use std::time::Duration;

use super::{Choice, OperationGraph, Plan, Refusal};
use crate::Result;

/// How to time engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autotune {
    /// Which engines to try.
    pub choice: Choice,
    /// Executions before measuring starts.
    pub warm_up: usize,
    /// Measured executions; the median counts.
    pub runs: usize,
}

impl Default for Autotune {
    fn default() -> Self {
        Self { choice: Choice::default(), warm_up: 1, runs: 5 }
    }
}

/// A plan and the time of one execution.
pub struct TimedPlan {
    /// The plan.
    pub plan: Plan,
    /// The median over its executions.
    pub time: Duration,
}

/// The engines of a graph, ordered by speed.
pub struct Ranking {
    /// The plans, fastest first; never empty.
    pub plans: Vec<TimedPlan>,
    /// The engines that could not create a plan, or whose plan failed.
    pub refused: Vec<Refusal>,
}

impl Ranking {
    /// The ids of the engines, fastest first, for [`remember_ranking`](OperationGraph::remember_ranking).
    pub fn engines(&self) -> Vec<i64> {
        self.plans.iter().map(|timed| timed.plan.engine()).collect()
    }
}

impl OperationGraph {
    /// Creates a plan on every engine, calls `run` to execute and time each one, and ranks them. The caller chooses the
    /// stream and therefore how to time it: with events around [`Plan::execute`], or with the clock around it and a
    /// wait.
    ///
    /// An engine whose plan fails is left out, with the reason.
    ///
    /// ```no_run
    /// # use std::{error::Error, ffi::c_void, time::Duration};
    /// # fn tune(
    /// #     graph: &hipdnn::OperationGraph, handle: &hipdnn::Handle, stream: &hip::Stream,
    /// #     tensors: [(i64, *mut c_void); 2], workspace: *mut c_void,
    /// # ) -> Result<(), Box<dyn Error>> {
    /// let (start, end) = (stream.device().timing_event()?, stream.device().timing_event()?);
    /// let ranking = graph.autotune(&hipdnn::Autotune::default(), |plan| -> Result<_, Box<dyn Error>> {
    ///     start.record(stream.raw())?;
    ///     // SAFETY: the tensors' memory and the workspace are as large as the graph says.
    ///     unsafe { plan.execute(handle, tensors, workspace)? };
    ///     end.record(stream.raw())?;
    ///     end.synchronize()?;
    ///     Ok(Duration::from_secs_f32(end.elapsed_ms(&start)? / 1e3))
    /// })?;
    /// let fastest = &ranking.plans[0].plan;
    /// graph.remember_ranking(handle, &ranking.engines())?;
    /// # let _ = fastest; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No engine supports the graph, or all that do failed.
    pub fn autotune<E: Display>(
        &self,
        how: &Autotune,
        mut run: impl FnMut(&Plan) -> Result<Duration, E>,
    ) -> Result<Ranking> {
        let (plans, mut refused) = self.plans(&how.choice)?;
        let mut timed = Vec::with_capacity(plans.len());
        for plan in plans {
            match median(how, || run(&plan)) {
                Ok(time) => timed.push(TimedPlan { plan, time }),
                Err(error) => {
                    refused.push(Refusal { engine: plan.engine(), reason: error.to_string(), status: None });
                }
            }
        }
        if timed.is_empty() {
            return Err(self.no_plan(refused));
        }
        // For equal times the backend's order decides: the sort is stable.
        timed.sort_by_key(|timed| timed.time);
        Ok(Ranking { plans: timed, refused })
    }
}

fn median<E>(how: &Autotune, mut run: impl FnMut() -> Result<Duration, E>) -> Result<Duration, E> {
    for _ in 0..how.warm_up {
        run()?;
    }
    let mut times = vec![run()?];
    for _ in 1..how.runs {
        times.push(run()?);
    }
    let middle = times.len() / 2;
    Ok(*times.select_nth_unstable(middle).1)
}
