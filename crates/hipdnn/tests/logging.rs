//! A backend's messages reach callbacks and `tracing`.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]
mod common;

use std::sync::{Arc, Mutex};

use hipdnn::log::{self, to_callback, to_tracing};
use hipdnn::sys::{LogCallbackMode, Severity, Status};

use common::backend;

/// Stores what `tracing` forwards to the `log` crate.
struct RecordedLog(Mutex<Vec<(::log::Level, String, String)>>);

impl ::log::Log for RecordedLog {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &::log::Record<'_>) {
        let line = (record.level(), record.target().to_owned(), record.args().to_string());
        self.0.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

static LOG: RecordedLog = RecordedLog(Mutex::new(Vec::new()));

/// A single test, because level, callbacks and the logger are shared by the process.
#[test]
fn messages_reach_callbacks_and_tracing_until_unregistered() {
    ::log::set_logger(&LOG).unwrap();
    ::log::set_max_level(::log::LevelFilter::Trace);
    let folder = tempfile::tempdir().unwrap();
    let old = common::open(&common::build(folder.path(), &["VERSION=\"0.3.9.x\""])).unwrap();
    let warned = LOG.0.lock().unwrap().iter().any(|(level, target, text)| {
        *level == ::log::Level::Warn && target == "hipdnn::load" && text.contains("is hipDNN 0.3.9.x")
    });
    assert!(warned, "numbers changed before {}", old.version());

    let backend = backend();
    assert_eq!(log::level(&*backend).unwrap(), Severity::OFF);
    log::set_level(&*backend, Severity::INFO).unwrap();
    assert_eq!(log::level(&*backend).unwrap(), Severity::INFO);
    let error = log::set_level(&*backend, Severity(9)).unwrap_err();
    assert_eq!(error.status(), Some(Status::BAD_PARAM));
    assert!(error.to_string().ends_with("no such severity"), "{error}");

    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = heard.clone();
    let callback = move |severity: Severity, text: &str| to.lock().unwrap().push((severity, text.to_owned()));
    let registration = to_callback(&backend, Severity::WARN, LogCallbackMode::SYNC, callback).unwrap();
    let panics = to_callback(&backend, Severity::INFO, LogCallbackMode::SYNC, |_, _| panic!("a bad callback")).unwrap();
    let traced = to_tracing(&backend, Severity::INFO).unwrap();
    for (severity, text) in [(Severity::INFO, "one"), (Severity::WARN, "two"), (Severity::FATAL, "three\0cut")] {
        log::write(&*backend, severity, text);
    }
    let wanted = [(Severity::WARN, "two".to_owned()), (Severity::FATAL, "three".to_owned())];
    assert_eq!(*heard.lock().unwrap(), wanted, "only what is severe enough");
    let lines = |lines: &RecordedLog| {
        let lines = lines.0.lock().unwrap();
        lines.iter().filter(|line| line.1 == "hipdnn::backend").cloned().collect::<Vec<_>>()
    };
    let line = |level, text: &str| (level, "hipdnn::backend".to_owned(), text.to_owned());
    use ::log::Level;
    assert_eq!(lines(&LOG), [line(Level::Info, "one"), line(Level::Warn, "two"), line(Level::Error, "three")]);

    drop((registration, panics));
    log::write(&*backend, Severity::ERROR, "four");
    assert_eq!(heard.lock().unwrap().len(), 2, "it was unregistered");
    assert_eq!(lines(&LOG).len(), 4, "the other one was not");
    drop(traced);
    log::write(&*backend, Severity::ERROR, "five");
    assert_eq!(lines(&LOG).len(), 4);
}
