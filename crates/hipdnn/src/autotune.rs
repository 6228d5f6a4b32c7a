//! The fastest engine, by trying all.

use std::time::Duration;

use crate::operation_graph::{Choice, OperationGraph, Refusal};
use crate::plan::Plan;
use crate::{Error, Result};

/// How engines are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autotune {
    /// Which engines are tried.
    pub choice: Choice,
    /// Executions before anything is measured.
    pub warm_up: usize,
    /// Executions that are measured; their median counts.
    pub runs: usize,
}

impl Default for Autotune {
    fn default() -> Self {
        Self { choice: Choice::default(), warm_up: 1, runs: 5 }
    }
}

/// A plan, and what one execution takes.
pub struct TimedPlan {
    /// The plan.
    pub plan: Plan,
    /// The median of its executions.
    pub time: Duration,
}

/// The engines of a graph by speed.
pub struct Ranking {
    /// The plans, the fastest first; never empty.
    pub plans: Vec<TimedPlan>,
    /// The engines that made no plan, or one that failed.
    pub refused: Vec<Refusal>,
}

impl Ranking {
    /// The ids of the engines, the fastest first, as
    /// [`remember_ranking`](OperationGraph::remember_ranking) takes them.
    pub fn engines(&self) -> Vec<i64> {
        self.plans.iter().map(|timed| timed.plan.engine()).collect()
    }
}

impl OperationGraph {
    /// Makes a plan on every engine, lets `run` execute and time each one, and ranks them. Whoever executes knows the
    /// stream, and so how to time it: by events around [`Plan::execute`], or by the clock around that and a wait.
    ///
    /// An engine whose plan fails is left out with its reason.
    ///
    /// # Errors
    /// No engine runs the graph, or each one that does failed.
    pub fn autotune(&self, how: &Autotune, mut run: impl FnMut(&Plan) -> Result<Duration>) -> Result<Ranking> {
        let (plans, mut refused) = self.plans(&how.choice)?;
        let mut timed = Vec::with_capacity(plans.len());
        for plan in plans {
            match median(how, || run(&plan)) {
                Ok(time) => timed.push(TimedPlan { plan, time }),
                Err(error) => refused.push(Refusal { engine: plan.engine(), reason: error.to_string() }),
            }
        }
        if timed.is_empty() {
            return Err(self.no_plan(refused));
        }
        // Of equal times the backend's own order decides: the sort is stable.
        timed.sort_by_key(|timed| timed.time);
        Ok(Ranking { plans: timed, refused })
    }
}

fn median(how: &Autotune, mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    for _ in 0..how.warm_up {
        run()?;
    }
    let mut times = (0..how.runs.max(1)).map(|_| run()).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    times.get(times.len() / 2).copied().ok_or_else(|| Error::invalid("autotune", "nothing was measured"))
}
