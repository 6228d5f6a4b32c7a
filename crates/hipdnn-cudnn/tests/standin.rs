//! What the bridge asks of cuDNN, checked with a stand-in that counts calls and fails on demand: nothing is computed
//! here.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::{c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use hip::RawStream;
use hip::sys::Library;
use hipdnn::sys::{Backend, DataType, PointwiseMode};
use hipdnn::{Attention, Convolution, Error, Graph, Handle, Loaded, Search, Tensor};

/// The library built with these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].map(|folder| folder.join("libhipdnn_cudnn.so"));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} exists")).clone()
}

/// A folder with the stand-in, and with an empty library in place of cublasLt unless that is left out.
fn stand_in(name: &str, with_blas: bool) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("standin-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let compile = |source: &str, to: &str| {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        assert!(command.arg(folder.join(to)).args(["-x", "c", source]).status().unwrap().success());
    };
    compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/standin.c"), "libcudnn.so.9");
    if with_blas {
        compile("/dev/null", "libcublasLt.so.99");
    }
    folder
}

/// Runs one of the tests below in a separate process, with the stand-in for cuDNN.
fn run(test: &str, with_blas: bool, variables: &[(&str, &str)]) -> Output {
    let name = format!("{test}{}", variables.iter().map(|(name, _)| *name).collect::<String>());
    let folder = stand_in(&name, with_blas);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env_remove("AMDGPU_EP_CUDNN_DEVICE_FILE");
    command.env("AMDGPU_EP_CUDNN_LIBRARY", folder.join("libcudnn.so.9"));
    command.env("AMDGPU_EP_CUDA_LIBRARY_PATH", &folder).env("AMDGPU_EP_CACHE_DIR", &folder);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn backend() -> Arc<dyn Backend> {
    Arc::new(Loaded::open(&Search { place: Some(library()), ..Search::default() }).unwrap())
}

/// A counter of the stand-in.
fn count(name: &str) -> c_long {
    let library = Library::open(std::env::var_os("AMDGPU_EP_CUDNN_LIBRARY").unwrap()).unwrap();
    // SAFETY: the stand-in declares it with this signature.
    let function: unsafe extern "C" fn() -> c_long = unsafe { library.symbol(name) }.unwrap();
    // SAFETY: takes nothing.
    unsafe { function() }
}

/// A convolution with an activation, and the uids of its tensors.
fn graph(handle: &Handle) -> hipdnn::Result<(hipdnn::OperationGraph, [i64; 3])> {
    let mut graph = Graph::new(DataType::HALF, DataType::FLOAT);
    let x = graph.tensor(Tensor::new(&[2, 8, 6, 6]));
    let w = graph.tensor(Tensor::new(&[16, 8, 3, 3]));
    let y = graph.convolution(x, w, Convolution::new(2));
    let relu = graph.pointwise(PointwiseMode::RELU_FWD, &[y]);
    graph.output(relu, Tensor::default());
    let built = graph.build(handle)?;
    Ok((built, [x, w, relu].map(|id| graph.uid(id).unwrap())))
}

fn address(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

#[test]
#[ignore = "started as a child process by the test below"]
fn executes() {
    {
        let handle = Handle::new(backend()).unwrap();
        let (built, uids) = graph(&handle).unwrap();
        let engines: Vec<_> =
            built.candidates().unwrap().iter().map(|candidate| candidate.engine_name().unwrap()).collect();
        println!("engines {engines:?}");
        let plan = built.plan().unwrap();
        assert_eq!(plan.workspace_bytes(), 64);
        let mut sorted = plan.tensor_uids().unwrap();
        sorted.sort_unstable();
        assert_eq!(sorted, { uids });
        // SAFETY: the stand-in touches neither stream nor memory.
        unsafe { handle.set_stream(RawStream::from_ptr(address(0x7000))) }.unwrap();
        let execute = |last: usize| {
            let tensors = uids.into_iter().zip([0x1000, 0x2000, last].map(address));
            // SAFETY: as above.
            unsafe { plan.execute(&handle, tensors, address(0x4000)) }.unwrap();
        };
        execute(0x3000);
        let made = count("standin_made");
        execute(0x3000);
        assert_eq!(count("standin_made"), made, "no address has changed: the variant pack is reused");
        let alive = count("standin_alive");
        execute(0x5000);
        assert_eq!(count("standin_made"), made + 1, "an address has changed: one variant pack");
        assert_eq!(count("standin_alive"), alive);
        assert_eq!(count("standin_executed"), 3);
        assert_eq!(count("standin_stream"), 0x7000);
        let started = Instant::now();
        let rounds = 100_000;
        (0..rounds).for_each(|_| execute(0x3000));
        println!(
            "{:.0} ns per execution, of which cuDNN's share is zero",
            started.elapsed().as_nanos() as f64 / f64::from(rounds)
        );
    }
    assert_eq!(count("standin_alive"), 0, "every descriptor is destroyed");
}

#[test]
fn a_plan_keeps_its_variant_pack_until_an_address_changes() {
    let output = run("executes", true, &[]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let choices: Vec<String> = (0..6).map(|rank| format!("\"CUDNN_CHOICE_{rank:02}\"")).collect();
    let wanted = format!("engines [{}, \"CUDNN_PIECES\"]", choices.join(", "));
    assert!(said.contains(&wanted), "{wanted}\n{said}");
}

#[test]
#[ignore = "started as a child process by the tests below"]
fn says_what_went_wrong() {
    let outcome = Handle::new(backend()).and_then(|handle| {
        let (built, uids) = graph(&handle)?;
        let plan = built.plan()?;
        // SAFETY: the stand-in touches no memory.
        unsafe { plan.execute(&handle, uids.into_iter().map(|uid| (uid, address(0x1000))), address(0x4000)) }
    });
    match outcome.unwrap_err() {
        Error::Backend { status, text, .. } => println!("status {status:?}: {text}"),
        other => println!("refused: {other}"),
    }
}

#[test]
fn failures_carry_cudnns_message() {
    for (variables, wanted) in [
        // A graph whose operations no engine supports, as a whole or in pieces.
        (("CUDNN_STANDIN_FINALIZE", "15:3001"), "finalizing CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR"),
        // Engines that are offered but build no plan.
        (("CUDNN_STANDIN_FINALIZE", "5:4001"), "finalizing CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR"),
        (("CUDNN_STANDIN_EXECUTE", "5001"), "status EXECUTION_FAILED: executing a plan"),
    ] {
        let output = run("says_what_went_wrong", true, &[variables]);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(wanted), "{wanted}\n{said}");
        assert!(said.contains("CUDNN_STATUS_STANDIN (injected failure)"), "{said}");
    }
}

#[test]
fn without_cublas_a_handle_is_rejected_before_cudnn_aborts() {
    let output = run("says_what_went_wrong", false, &[]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("status NOT_INITIALIZED: cuDNN 90900 needs libcublasLt.so.99"), "{said}");
}

#[test]
fn another_major_version_is_refused() {
    for version in ["80905", "100000"] {
        let said = said(&run("says_what_went_wrong", true, &[("CUDNN_STANDIN_VERSION", version)]));
        assert!(said.contains("status NOT_INITIALIZED: "), "{said}");
        assert!(said.contains(&format!("libcudnn.so.9 is cuDNN {version}, but 9 is needed")), "{said}");
    }
}

#[test]
fn a_described_device_gets_plans_but_executes_none() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/devices/h200.json");
    let said_with = |file| said(&run("says_what_went_wrong", true, &[("AMDGPU_EP_CUDNN_DEVICE_FILE", file)]));
    let described = said_with(file);
    let wanted = "status NOT_INITIALIZED: AMDGPU_EP_CUDNN_DEVICE_FILE describes a device that is not present";
    assert!(described.contains(wanted), "{described}");
    let absent = said_with("/nowhere/device.json");
    assert!(absent.contains("status NOT_INITIALIZED: /nowhere/device.json: No such file"), "{absent}");
}

#[test]
#[ignore = "started as a child process by the test below"]
fn prints_each_candidate() {
    let handle = Handle::new(backend()).unwrap();
    let (built, _) = graph(&handle).unwrap();
    for candidate in built.candidates().unwrap() {
        let plan = candidate.plan().unwrap();
        let (name, before, after) = (candidate.engine_name(), candidate.workspace_bytes(), plan.workspace_bytes());
        println!("{}: {} then {after}", name.unwrap(), before.unwrap());
    }
}

#[test]
fn a_candidate_reports_its_workspace_before_it_is_built() {
    let said = said(&run("prints_each_candidate", true, &[]));
    for choice in 0..6 {
        // What the stand-in answers for a configuration, and for a plan.
        assert!(said.contains(&format!("CUDNN_CHOICE_{choice:02}: 48 then 64")), "{said}");
    }
    // The convolution's result between the two steps, 2 x 16 x 4 x 4 floats, and a plan's own workspace.
    assert!(said.contains("CUDNN_PIECES: 2112 then 2112"), "{said}");
}

#[test]
#[ignore = "started as a child process by the test below"]
fn plans() {
    let handle = Handle::new(backend()).unwrap();
    let (built, uids) = graph(&handle).unwrap();
    let plan = built.plan().unwrap();
    // SAFETY: the stand-in touches no memory.
    unsafe { plan.execute(&handle, uids.into_iter().map(|uid| (uid, address(0x1000))), address(0x4000)) }.unwrap();
    let counts = ["standin_asked", "standin_restored", "standin_executed"].map(count);
    println!("counts {counts:?}, {} engines, {} bytes", built.candidates().unwrap().len(), plan.workspace_bytes());
    // A plan that is not cached is requested.
    built.plan_at(1).unwrap();
    println!("then asked {}", count("standin_asked"));
}

#[test]
fn a_cached_plan_is_restored_without_querying_engines() {
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = ("AMDGPU_EP_CACHE_DIR", cache.path().to_str().unwrap());
    let again = |variables: &[(&str, &str)]| said(&run("plans", true, &[&[cache_dir], variables].concat()));
    let first = again(&[]);
    assert!(first.contains("counts [2, 0, 1], 7 engines, 64 bytes") && first.contains("then asked 2"), "{first}");
    let second = again(&[]);
    assert!(second.contains("counts [0, 1, 1], 7 engines, 64 bytes") && second.contains("then asked 2"), "{second}");
    // A plan that cuDNN no longer accepts is rebuilt.
    let refused = again(&[("CUDNN_STANDIN_RESTORE", "3000")]);
    assert!(refused.contains("counts [2, 0, 1], 7 engines, 64 bytes"), "{refused}");
}

#[test]
#[ignore = "started as a child process by the test below"]
fn asks_for_attention() {
    let handle = Handle::new(backend()).unwrap();
    let mut graph = Graph::new(DataType::HALF, DataType::FLOAT);
    let q = graph.tensor(Tensor::new(&[1, 4, 64, 64]));
    // Keys and values with room for twice as many tokens.
    let [k, v] = [(); 2].map(|()| graph.tensor(Tensor::new(&[1, 2, 64, 64]).strides(&[16384, 8192, 64, 1])));
    let what = Attention { scale: Some(0.125), is_causal: true, ..Attention::default() };
    let o = graph.attention(what, [q, k, v]);
    graph.output(o, Tensor::default());
    match graph.build(&handle).and_then(|built| built.plan()) {
        Ok(plan) => println!("taken, {} bytes", plan.workspace_bytes()),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn attention_is_the_pattern_that_cudnns_fused_engines_know() {
    let trace = ("CUDNN_STANDIN_TRACE", "1");
    let taken = said(&run("asks_for_attention", true, &[trace, ("CUDNN_STANDIN_VERSION", "91900")]));
    let modes: Vec<i32> = taken.lines().filter_map(|line| line.strip_prefix("mode ")?.parse().ok()).collect();
    // A product, its scale, indices of queries and keys, the comparison of the two, minus infinity for hidden keys;
    // minus the maximum, exponentials; the statistics, which were not requested; the division by the sum, and a
    // product.
    assert_eq!(modes, [1, 501, 501, 303, 601, 9, 13, 15, 0, 6], "{taken}");
    assert!(taken.contains("graph of 14\n") && taken.contains("taken, 64 bytes"), "{taken}");
    let refused = said(&run("asks_for_attention", true, &[trace]));
    assert!(refused.contains("refused: ") && refused.contains("correctly only since 9.10.2"), "{refused}");
    assert!(!refused.contains("graph of"), "{refused}");
}
