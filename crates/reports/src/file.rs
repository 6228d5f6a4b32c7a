//! The files that reports are appended to.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use options::{BackendOptions, hip};

use crate::{Report, line};

/// The files of one report: the one that its own entry names, and the one in the folder for all reports.
///
/// Only options name such files, and a model folder may not set these options (`docs/security.md`).
#[derive(Debug)]
pub struct ReportFile<R> {
    paths: Vec<PathBuf>,
    /// Created when it is needed.
    folder: Option<PathBuf>,
    has_failed: AtomicBool,
    lines: PhantomData<fn(&R)>,
}

impl<R: Report> ReportFile<R> {
    /// The files that the options name for this report; `None` if the report was not requested.
    pub fn named(options: &BackendOptions) -> Option<Self> {
        let mut paths: Vec<PathBuf> = options.get(R::KIND.key()).map(PathBuf::from).into_iter().collect();
        let place = options.get(hip::REPORT_DIR).map(PathBuf::from).zip(R::KIND.file_name());
        let folder = place.map(|(folder, name)| {
            paths.push(folder.join(name));
            folder
        });
        paths.dedup();
        (!paths.is_empty()).then(|| Self { folder, ..Self::in_files(paths) })
    }

    /// A report in the file `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::in_files(vec![path.into()])
    }

    fn in_files(paths: Vec<PathBuf>) -> Self {
        Self { paths, folder: None, has_failed: AtomicBool::new(false), lines: PhantomData }
    }

    /// Appends a line. A write error does not fail the caller; the first one is logged.
    pub fn append(&self, report: &R) {
        for path in &self.paths {
            let done = line::written(report).and_then(|line| self.append_to(path, &line));
            if let Err(error) = done
                && !self.has_failed.swap(true, Ordering::Relaxed)
            {
                let (kind, path) = (R::KIND.name(), path.display());
                tracing::warn!(target: "amdgpu_ep::run", "the {kind} file {path} could not be written: {error}");
            }
        }
    }

    fn append_to(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.folder.as_deref().filter(|folder| path.starts_with(folder)) {
            std::fs::create_dir_all(folder)?;
        }
        append(path, line)
    }
}

/// Writes the line in one call, so that lines of concurrent sessions do not interleave.
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Explain, Memory, Profile, Progress};

    #[test]
    fn lines_are_appended_to_existing_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        for done in [1, 2] {
            ReportFile::new(&path).append(&Progress { work: Activity::Steps, done, of: 2 });
        }
        let want = "{\"work\":\"steps\",\"done\":1,\"of\":2}\n{\"work\":\"steps\",\"done\":2,\"of\":2}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }

    #[test]
    fn an_unwritable_file_does_not_fail_the_session() {
        let folder = tempfile::tempdir().unwrap();
        let file = ReportFile::new(folder.path().join("missing/progress"));
        file.append(&Progress { work: Activity::Kernels, done: 1, of: 1 });
        assert!(file.has_failed.load(Ordering::Relaxed));
    }

    #[test]
    fn options_name_the_files() {
        let options = options::hip::TABLE.read([("ep.hip.progress_file", "a")]).unwrap();
        assert_eq!(ReportFile::<Progress>::named(&options).unwrap().paths, [Path::new("a")]);
        assert!(ReportFile::<Memory>::named(&options).is_none());
    }

    #[test]
    fn a_folder_holds_a_file_for_each_report_and_its_own_file_is_written_too() {
        let temporary = tempfile::tempdir().unwrap();
        let (folder, file) = (temporary.path().join("made/here"), temporary.path().join("own"));
        let entries = [("ep.hip.report_dir", &folder), ("ep.hip.progress_file", &file)];
        let entries = entries.map(|(key, path)| (key, path.to_str().unwrap()));
        let options = options::hip::TABLE.read(entries).unwrap();
        let report = ReportFile::<Progress>::named(&options).unwrap();
        assert!(!folder.exists());
        report.append(&Progress { work: Activity::Steps, done: 1, of: 1 });
        let lines = [folder.join("progress.jsonl"), file].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(lines, ["{\"work\":\"steps\",\"done\":1,\"of\":1}\n"; 2]);
        assert_eq!(ReportFile::<Memory>::named(&options).unwrap().paths, [folder.join("memory.jsonl")]);
        assert_eq!(ReportFile::<Explain>::named(&options).unwrap().paths, [folder.join("explain.jsonl")]);
        assert!(ReportFile::<Profile>::named(&options).is_none());
    }
}
