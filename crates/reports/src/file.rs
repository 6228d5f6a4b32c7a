//! The files that reports are appended to.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use options::BackendOptions;

use crate::{Report, line};

/// The file of one report.
///
/// Only options name such files, and a model folder may not set these options (`docs/security.md`).
#[derive(Debug)]
pub struct ReportFile<R> {
    path: PathBuf,
    has_failed: AtomicBool,
    lines: PhantomData<fn(&R)>,
}

impl<R: Report> ReportFile<R> {
    /// The file that the options name for this report; `None` if nobody asked for it.
    pub fn named(options: &BackendOptions) -> Option<Self> {
        options.get(R::KIND.key()).map(Self::new)
    }

    /// A report in the file `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), has_failed: AtomicBool::new(false), lines: PhantomData }
    }

    /// Appends a line. A write error does not fail the caller; the first one is logged.
    pub fn append(&self, report: &R) {
        let done = line::written(report).and_then(|line| append(&self.path, &line));
        if let Err(error) = done
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            let (kind, path) = (R::KIND.name(), self.path.display());
            tracing::warn!(target: "amdgpu_ep::run", "the {kind} file {path} could not be written: {error}");
        }
    }
}

/// Writes the line in one call, so that lines of concurrent sessions do not interleave.
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Progress, Work};

    #[test]
    fn lines_are_added_to_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        for done in [1, 2] {
            ReportFile::new(&path).append(&Progress { work: Work::Steps, done, of: 2 });
        }
        let want = "{\"work\":\"steps\",\"done\":1,\"of\":2}\n{\"work\":\"steps\",\"done\":2,\"of\":2}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = ReportFile::new(folder.path().join("missing/progress"));
        file.append(&Progress { work: Work::Kernels, done: 1, of: 1 });
        assert!(file.has_failed.load(Ordering::Relaxed));
    }

    #[test]
    fn options_name_the_files() {
        let options = options::hip::TABLE.read([("ep.hip.progress_file", "a")]).unwrap();
        assert_eq!(ReportFile::<Progress>::named(&options).unwrap().path, Path::new("a"));
        assert!(ReportFile::<crate::Memory>::named(&options).is_none());
    }
}
