//! Finding and checking a backend library at run time.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hipdnn::sys::{Backend, SYMBOLS};
use hipdnn::{LoadError, Loaded, Search};

use common::{build, open, stand_in};

#[test]
fn a_missing_library_is_reported_with_every_file_tried() {
    let folder = tempfile::tempdir().unwrap();
    let Err(error) = open(folder.path()) else { panic!("nothing is there") };
    let LoadError::NotFound { tried } = &error else { panic!("{error}") };
    let names: Vec<_> = tried.iter().map(|attempt| attempt.file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["libhipdnn_backend.so", "libhipdnn_backend.so.0", "libhipdnn_backend.so.1"]);
    assert!(tried.iter().all(|attempt| !attempt.reason.is_empty()));
    let text = error.to_string();
    assert!(
        text.contains("libhipdnn_backend.so.0, ") && text.contains("\n  help: "),
        "one reason is said once: {text}"
    );
}

#[test]
fn a_file_that_is_not_a_library_fails_with_the_loaders_message() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libhipdnn_backend.so"), "not a library\n").unwrap();
    let Err(LoadError::NotFound { tried }) = open(folder.path()) else { panic!("a text file is not a library") };
    assert!(tried[0].reason.contains("file too short") || tried[0].reason.contains("invalid ELF"), "{}", tried[0]);
}

#[test]
fn another_major_version_is_a_mismatch_that_says_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = build(folder.path(), &["VERSION=\"7.1.2.abc\""]);
    let Err(error) = open(&file) else { panic!("it claims to be 7.1.2") };
    let LoadError::VersionMismatch { found, wanted, .. } = &error else { panic!("{error}") };
    assert_eq!((found.as_str(), &wanted[..]), ("7.1.2.abc", hipdnn::KNOWN_MAJORS));
    assert!(error.to_string().contains("is hipDNN 7.1.2.abc, but this program supports major version 0"), "{error}");
    let search = Search { place: Some(file), further_majors: vec![7], ..Search::default() };
    assert_eq!(Loaded::open(&search).unwrap().version(), "7.1.2.abc", "a program may know more");
}

#[test]
fn a_library_that_lacks_a_core_function_is_incompatible_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let Err(error) = open(&build(folder.path(), &["NO_CORE"])) else { panic!("it cannot finalize") };
    let LoadError::Incompatible { missing, file } = &error else { panic!("{error}") };
    assert_eq!(missing, &["hipdnnBackendFinalize"]);
    assert!(file.ends_with("libhipdnn_backend.so"));
}

#[test]
fn an_unrelated_library_is_incompatible() {
    let libm = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"];
    let Some(libm) = libm.into_iter().map(Path::new).find(|file| file.exists()) else {
        println!("skipped: no libm in the usual places");
        return;
    };
    let Err(LoadError::Incompatible { missing, .. }) = open(libm) else { panic!("libm is not hipDNN") };
    assert!(missing.contains(&"hipdnnVersionString_ext"));
}

#[test]
fn functions_that_older_libraries_lack_are_absent_and_the_rest_works() {
    let folder = tempfile::tempdir().unwrap();
    let old: Arc<dyn Backend> = Arc::new(open(&build(folder.path(), &["ONLY_BASE"])).unwrap());
    assert!(old.has("hipdnnBackendExecute") && !old.has("hipdnnGetEngineCount_ext"));
    let handle = hipdnn::Handle::new(old.clone()).unwrap();
    let error = handle.engines().unwrap_err();
    assert!(matches!(&error, hipdnn::Error::Absent { function: "hipdnnGetEngineCount_ext", .. }), "{error}");
    assert!(error.is_not_supported());
    assert_eq!(handle.engine_id("FAST_ENGINE").unwrap(), hipdnn::engine_id_of("FAST_ENGINE"), "ids are hashes by rule");
    let graph = common::graph(&handle);
    assert_eq!(graph.plan().unwrap().workspace_bytes(), 1 << 20);
    assert!(graph.to_json().unwrap_err().is_not_supported());
    assert!(hipdnn::log::level(&*old).unwrap_err().is_not_supported());
    // There is no callback to receive it, and nothing breaks.
    hipdnn::log::write(&*old, hipdnn::sys::Severity::ERROR, "lost");
}

#[test]
fn a_library_reports_its_version_and_missing_functions() {
    let backend = common::backend();
    assert!(backend.describe().starts_with("hipDNN 0.4.0.standin ("), "{}", backend.describe());
    let missing = ["hipdnnGetErrorString", "hipdnnPeekLastErrorString_ext", "hipdnnGetVersion_ext"];
    let lacks: Vec<_> = SYMBOLS.iter().filter(|symbol| !backend.has(symbol)).collect();
    assert!(missing.iter().all(|symbol| lacks.contains(&symbol)) && lacks.len() == 5, "{lacks:?}");
}

/// The search reads the environment, which is shared by the whole process, so this test runs itself in a child process.
#[test]
fn the_process_has_one_backend_for_all_callers() {
    const CHILD: &str = "HIPDNN_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let asked: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| hipdnn::backend().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(asked.iter().all(|backend| Arc::ptr_eq(backend, &asked[0])));
        assert!(asked[0].describe().contains("0.4.0.standin"));
        return;
    }
    let run = |variable: &str, value: &Path| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_process_has_one_backend_for_all_callers"]).env(CHILD, "1");
        child.env_remove("AMDGPU_EP_HIPDNN_LIBRARY").env_remove("HIPDNN_BACKEND_LIBRARY_PATH").env(variable, value);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{variable}: {}", String::from_utf8_lossy(&output.stdout));
    };
    run("AMDGPU_EP_HIPDNN_LIBRARY", stand_in());
    run("HIPDNN_BACKEND_LIBRARY_PATH", stand_in().parent().unwrap());
}
