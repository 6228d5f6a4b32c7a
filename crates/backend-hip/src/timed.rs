//! Measures step times for `amdgpu-ep bench --steps` and `explain --steps`.
//!
//! The device measures the times. Steps are timed one by one, so a run takes longer and is not replayed as a captured
//! graph.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exec::{Peak, RunBy};
use graph::{DType, Graph, Step};
use reports::{Profile, ReportFile, TimedStep};

use crate::steps::{origin, rounded};

/// A run of a partition. The recorded steps are written when it is dropped.
pub(crate) struct TimedRun {
    file: Arc<ReportFile<Profile>>,
    partition: Arc<str>,
    steps: Mutex<Vec<TimedStep>>,
}

impl TimedRun {
    pub fn new(file: &Arc<ReportFile<Profile>>, partition: &Arc<str>) -> Self {
        Self { file: file.clone(), partition: partition.clone(), steps: Mutex::default() }
    }

    /// Adds a step.
    pub fn add(&self, graph: &Graph, step: &Step, by: RunBy<'_>, took: Duration, peak: Option<Peak>) {
        let entry = entry(graph, step, by, took, peak);
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
}

impl Drop for TimedRun {
    fn drop(&mut self) {
        let times = std::mem::take(self.steps.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !times.is_empty() {
            self.file.append(&Profile { partition: self.partition.to_string(), times });
        }
    }
}

fn entry(graph: &Graph, step: &Step, by: RunBy<'_>, took: Duration, peak: Option<Peak>) -> TimedStep {
    let (node, op) = origin(graph, step);
    let cost = step.cost();
    TimedStep {
        node,
        op,
        step: step.prim.name().to_owned(),
        run_by: by.label(step),
        micros: rounded(took.as_secs_f64() * 1e6, 3),
        bytes: cost.bytes,
        flops: cost.flops,
        share_of_peak: share_of_peak(step, took, peak).map(|share| rounded(share, 4)),
    }
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
    use graph::expr::Expr;
    use graph::prim::{BufferId, Map, Prim};
    use graph::{View, shape};

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
    fn a_run_is_one_line_unless_it_has_no_steps() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times");
        let (runs, partition): (_, Arc<str>) = (Arc::new(ReportFile::new(&file)), "p".into());
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
        let wanted = "{\"partition\":\"p\",\"times\":[{\"node\":\"\",\"op\":\"\",\"step\":\"map\",\"run_by\":\"own: map\",\"micros\":1.5,\"bytes\":16,\"flops\":0,\"share_of_peak\":null},";
        assert!(lines[0].starts_with(wanted), "{}", lines[0]);
    }
}
