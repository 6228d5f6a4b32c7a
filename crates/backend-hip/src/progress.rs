//! Reports the progress of work that a session waits for.
//!
//! The session-config entry `ep.hip.progress_file` names a file. Each compiled kernel and each measured step adds one
//! line of JSON: `{"work":"kernels","done":n,"of":n}`, or `"steps"`. The count restarts for each plan.
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use exec::gpu::{OnProgress, Work};

use crate::explain;

/// Appends lines to a file. A write error is logged only once.
pub(crate) fn writer(file: impl Into<PathBuf>) -> OnProgress {
    let (file, failed) = (file.into(), AtomicBool::new(false));
    Arc::new(move |work, done, of| {
        if let Err(error) = explain::append(&file, &line(work, done, of))
            && !failed.swap(true, Ordering::Relaxed)
        {
            let file = file.display();
            tracing::warn!(target: "amdgpu_ep::compile", "the progress file {file} could not be written: {error}");
        }
    })
}

fn line(work: Work, done: usize, of: usize) -> String {
    let work = match work {
        Work::Kernels => "kernels",
        Work::Steps => "steps",
    };
    format!("{{\"work\":\"{work}\",\"done\":{done},\"of\":{of}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress");
        let progress = writer(&file);
        progress(Work::Steps, 1, 2);
        progress(Work::Kernels, 1, 7);
        let lines = "{\"work\":\"steps\",\"done\":1,\"of\":2}\n{\"work\":\"kernels\",\"done\":1,\"of\":7}\n";
        assert_eq!(std::fs::read_to_string(file).unwrap(), lines);
        writer(folder.path().join("none/progress"))(Work::Steps, 1, 1);
    }
}
