//! Reports the progress of work that a session waits for: each compiled kernel and each measured step.
use std::sync::Arc;

use exec::gpu::{Activity, OnProgress};
use reports::{Progress, ReportFile};

/// Appends each report to a file.
pub(crate) fn writer(file: ReportFile<Progress>) -> OnProgress {
    Arc::new(move |work, done, of| {
        let work = match work {
            Activity::Kernels => reports::Activity::Kernels,
            Activity::Steps => reports::Activity::Steps,
        };
        file.append(&Progress { work, done: done as u64, of: of as u64 });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress");
        let progress = writer(ReportFile::new(&file));
        progress(Activity::Steps, 1, 2);
        progress(Activity::Kernels, 1, 7);
        let lines = "{\"work\":\"steps\",\"done\":1,\"of\":2}\n{\"work\":\"kernels\",\"done\":1,\"of\":7}\n";
        assert_eq!(std::fs::read_to_string(file).unwrap(), lines);
        writer(ReportFile::new(folder.path().join("none/progress")))(Activity::Steps, 1, 1);
    }
}
