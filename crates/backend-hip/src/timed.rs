//! Measures step times for `amdgpu-ep bench --steps` and `explain --steps`.
//!
//! The session-config entry `ep.hip.profile_file` names a file. Each run of a partition appends a line of JSON:
//! `{"partition":…,"times":[{"node":…,"op":…,"step":…,"run_by":…,"micros":…,"bytes":…,"flops":…,"share_of_peak":…}]}`.
//! Times are measured by the device. `share_of_peak` is relative to the chip's peak performance, or `null` if that is
//! unknown. Steps are timed one by one, so a run takes longer and is not replayed as a captured graph.
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use exec::{Peak, RunBy};
use graph::{DType, Graph, Step};

use crate::{explain, json};

/// The file that step times are appended to.
pub(crate) struct TimedRuns {
    file: PathBuf,
}

impl TimedRuns {
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }
}

/// One run of a partition. The recorded steps are written when it is dropped.
pub(crate) struct TimedRun {
    runs: Arc<TimedRuns>,
    partition: Arc<str>,
    steps: Mutex<Vec<String>>,
}

impl TimedRun {
    pub fn new(runs: &Arc<TimedRuns>, partition: &Arc<str>) -> Self {
        Self { runs: runs.clone(), partition: partition.clone(), steps: Mutex::default() }
    }

    /// Adds a step.
    pub fn add(&self, graph: &Graph, step: &Step, by: RunBy<'_>, took: Duration, peak: Option<Peak>) {
        let line = entry(graph, step, by, took, peak);
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl Drop for TimedRun {
    fn drop(&mut self) {
        let steps = self.steps.get_mut().unwrap_or_else(PoisonError::into_inner);
        if steps.is_empty() {
            return;
        }
        let line = format!("{{\"partition\":{},\"times\":[{}]}}\n", json::text(&self.partition), steps.join(","));
        if let Err(error) = explain::append(&self.runs.file, &line) {
            let file = self.runs.file.display();
            tracing::warn!(target: "amdgpu_ep::run", "the profile file {file} could not be written: {error}");
        }
    }
}

fn entry(graph: &Graph, step: &Step, by: RunBy<'_>, took: Duration, peak: Option<Peak>) -> String {
    let node = graph.nodes().get(step.node as usize);
    let (name, op) = node.map_or(("", ""), |node| (node.name.as_str(), node.op.name()));
    let (name, op, prim) = (json::text(name), json::text(op), json::text(step.prim.name()));
    let (by, micros, cost) = (json::text(&by.label(step)), took.as_secs_f64() * 1e6, step.cost());
    let (bytes, flops) = (cost.bytes, cost.flops);
    let share = share_of_peak(step, took, peak).map_or_else(|| "null".to_owned(), |share| format!("{share:.4}"));
    format!(
        "{{\"node\":{name},\"op\":{op},\"step\":{prim},\"run_by\":{by},\"micros\":{micros:.3},\"bytes\":{bytes},\"flops\":{flops},\"share_of_peak\":{share}}}"
    )
}

/// The step's speed relative to the chip's peak: the time to move its bytes or to do its operations, whichever is
/// longer, divided by the actual time.
pub(crate) fn share_of_peak(step: &Step, took: Duration, peak: Option<Peak>) -> Option<f64> {
    let cost = step.cost();
    let is_half = step.inputs.first().is_some_and(|view| matches!(view.dtype, DType::F16 | DType::Bf16));
    let least = peak?.seconds(cost.bytes, cost.flops, is_half && step.is_product());
    (took > Duration::ZERO).then(|| least / took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use graph::{
        View,
        expr::Expr,
        prim::{BufferId, Map, Prim},
        shape,
    };

    use super::*;

    fn copy(elems: usize) -> Step {
        let extents = &[elems];
        let strides = shape::dense_strides(extents);
        let view =
            View { buffer: BufferId(0), dtype: DType::F32, shape: extents.as_slice().into(), strides, offset: 0 };
        let prim = Prim::Map(Map { expr: Expr::copy(DType::F32, DType::F32) });
        Step { node: 0, prim, inputs: vec![view.clone()], outputs: vec![view] }
    }

    #[test]
    fn a_copy_at_half_the_bandwidth_has_half_the_peak() {
        let peak = Some(Peak { bytes_per_second: 8e9, flops_f32: 1e12, flops_f16: 1e12 });
        // 8 MB take at least a millisecond.
        let share = share_of_peak(&copy(1_000_000), Duration::from_millis(2), peak).unwrap();
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        assert_eq!(share_of_peak(&copy(1), Duration::ZERO, peak), None);
        assert_eq!(share_of_peak(&copy(1), Duration::from_millis(1), None), None);
    }

    #[test]
    fn a_run_is_one_line_and_a_run_without_steps_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times");
        let (runs, partition): (_, Arc<str>) = (Arc::new(TimedRuns::new(&file)), "p".into());
        drop(TimedRun::new(&runs, &partition));
        assert!(!file.exists());
        for _ in 0..2 {
            let run = TimedRun::new(&runs, &partition);
            run.add(&Graph::new(), &copy(2), RunBy::Own { why: None }, Duration::from_nanos(1500), None);
            run.add(&Graph::new(), &copy(3), RunBy::Own { why: None }, Duration::from_micros(2), None);
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let wanted = "{\"partition\":\"p\",\"times\":[{\"node\":\"\",\"op\":\"\",\"step\":\"map\",\"run_by\":\"own: map\",\"micros\":1.500,\"bytes\":16,\"flops\":0,\"share_of_peak\":null},";
        assert!(lines[0].starts_with(wanted), "{}", lines[0]);
    }
}
