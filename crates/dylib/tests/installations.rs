//! Tests the search with the real system loader: small libraries in temporary installations.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dylib::rocm::{HIP, HIPBLASLT, HIPRTC, Library, MIGRAPHX};
use dylib::{Failed, Loaded, SearchContext, load};
use tempfile::TempDir;

/// A simulated machine without ROCm, on which tests install some libraries.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    /// Installs a library whose function returns `number`. Without a C compiler, prints a message and returns `false`.
    fn install(&self, file: &str, library: &Library, number: u32) -> bool {
        let file = self.path(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let source = self.path("source.c");
        fs::write(&source, format!("int {}(void) {{ return {number}; }}", library.anchor)).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", &format!("-Wl,-soname,{name}"), "-o"]).args([&file, &source]);
        match compiler.output() {
            Ok(done) => {
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
                true
            }
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                false
            }
        }
    }

    /// Only what is installed on this simulated machine: the system loader would search the real one.
    fn context(&self) -> SearchContext {
        SearchContext {
            opt: Some(self.path("opt")),
            own_folder: Some(self.path("venv/site-packages/amdgpu_ep/lib")),
            ..SearchContext::default()
        }
    }
}

/// Loads a library and calls its function.
fn number(context: &SearchContext, library: &Library, hip: Option<&Path>) -> Result<Loaded<u32>, Failed> {
    load(context.candidates(library, hip), library.anchor, |opened| {
        // SAFETY: the test defines the function with this signature.
        let function = unsafe { opened.symbol::<unsafe extern "C" fn() -> u32>(library.anchor) };
        // SAFETY: as above.
        function.map(|function| unsafe { function() }).ok_or(vec![library.anchor])
    })
}

#[test]
fn the_first_installation_of_the_order_is_taken() {
    let machine = Machine::new();
    let files = [
        "venv/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7",
        "opt/rocm-7.9.0/lib/libamdhip64.so.7",
        "opt/rocm-7.10.0/lib/libamdhip64.so.7",
        "opt/rocm/lib/libamdhip64.so.7",
        "hip/lib/libamdhip64.so.6",
        "mine/lib/libamdhip64.so.7",
        "therock/lib/libamdhip64.so.7",
    ];
    let mut context = machine.context();
    let failed = number(&context, &HIP, None).unwrap_err();
    let want = format!("{}: no such folder", machine.path("opt/rocm/lib").display());
    assert_eq!(dylib::listed(&failed.attempts), want, "each place is named once");
    for (count, file) in (1..).zip(files) {
        if !machine.install(file, &HIP, count) {
            return;
        }
        match file.split('/').next().unwrap() {
            "hip" => drop(context.variables.insert("HIP_PATH", machine.path("hip"))),
            "mine" => drop(context.variables.insert("ROCM_PATH", machine.path("mine"))),
            "therock" => drop(context.variables.insert("THEROCK_DIST", machine.path("therock"))),
            _ => {}
        }
        let found = number(&context, &HIP, None).unwrap_or_else(|failed| panic!("{file}: {failed:?}"));
        assert_eq!((found.table, found.file), (count, machine.path(file)));
    }
    context.variables.insert("AMDGPU_EP_HIP_LIBRARY", machine.path(files[0]));
    assert_eq!(number(&context, &HIP, None).unwrap().table, 1, "only the named file is tried");
    context.variables.insert("AMDGPU_EP_HIP_LIBRARY", machine.path("missing.so"));
    assert_eq!(number(&context, &HIP, None).unwrap_err().attempts.len(), 1);
}

#[test]
fn the_other_libraries_come_from_the_installation_of_the_hip_runtime() {
    let machine = Machine::new();
    let wheel = "venv/site-packages/_rocm_sdk_libraries_gfx110X_all/lib/libhipblaslt.so.1";
    let installed = machine.install("venv/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7", &HIP, 1)
        && machine.install(wheel, &HIPBLASLT, 2)
        && machine.install("opt/rocm/lib/libhipblaslt.so.1", &HIPBLASLT, 3)
        && machine.install("opt/rocm/lib/libhiprtc.so.7", &HIPRTC, 4);
    if !installed {
        return;
    }
    let context = machine.context();
    let hip = number(&context, &HIP, None).unwrap().file;
    let blas = number(&context, &HIPBLASLT, Some(&hip)).unwrap();
    assert_eq!((blas.table, blas.file), (2, machine.path(wheel)), "/opt/rocm comes before Python packages otherwise");
    assert_eq!(number(&context, &HIPBLASLT, None).unwrap().table, 3);
    assert_eq!(number(&context, &HIPRTC, Some(&hip)).unwrap().table, 4, "elsewhere, where its own has none");
}

#[test]
fn a_broken_library_is_passed_over_and_reported() {
    let machine = Machine::new();
    if !machine.install("opt/rocm-7.9.0/lib/libamdhip64.so.7", &HIP, 5) {
        return;
    }
    fs::create_dir_all(machine.path("opt/rocm-7.10.0/lib")).unwrap();
    fs::write(machine.path("opt/rocm-7.10.0/lib/libamdhip64.so.7"), "not a library").unwrap();
    assert!(machine.install("opt/rocm/lib/libamdhip64.so", &MIGRAPHX, 6));
    let found = number(&machine.context(), &HIP, None).unwrap();
    assert_eq!(found.table, 5);
    let reasons = dylib::listed(&found.attempts);
    assert!(reasons.contains("opt/rocm/lib/libamdhip64.so: lacks hipGetDeviceCount"), "{reasons}");
    assert!(reasons.contains("opt/rocm-7.10.0/lib/libamdhip64.so.7: file too short"), "{reasons}");
}

#[test]
fn a_copy_in_the_process_comes_before_every_installation() {
    let machine = Machine::new();
    let installed = machine.install("opt/rocm/lib/libmigraphx_c.so.3", &MIGRAPHX, 7)
        && machine.install("torch/lib/libmigraphx_c.so.3", &MIGRAPHX, 8);
    if !installed {
        return;
    }
    let context = SearchContext { plain_names: true, ..machine.context() };
    let first = dylib::Library::open(machine.path("torch/lib/libmigraphx_c.so.3")).unwrap();
    assert!(first.has(MIGRAPHX.anchor));
    let found = number(&context, &MIGRAPHX, None).unwrap();
    assert_eq!((found.table, found.file), (8, machine.path("torch/lib/libmigraphx_c.so.3")));
}
