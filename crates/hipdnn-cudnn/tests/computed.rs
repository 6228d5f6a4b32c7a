//! The suite's cases on a stand-in for cuDNN that computes in RAM: a graph that reaches cuDNN must mean what hipDNN's
//! graph means, as a whole, in pieces, or by cuDNN's older interface.
//!
//! They show that the bridge translates graphs correctly, by cuDNN's documented meaning of each operation. They do not
//! show which graphs cuDNN's engines support, or what those engines compute.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::c_long;
use std::path::{Path, PathBuf};
use std::process::Command;

use hip::sys::Library;
use hipdnn_suite::{Bench, FAMILIES, Row};

/// The families that the stand-in computes, the number of cases, and how many of them pass at least: as a whole, and in
/// pieces. The bridge rejects the others with a reason, mostly for what cuDNN is known to compute wrongly.
const COMPUTED: &[(&str, u64, [usize; 2])] = &[
    ("convolution_bias_relu", 100, [59, 51]),
    ("convolution_residual_swish", 60, [51, 51]),
    ("convolution_bias_residual_relu", 60, [36, 34]),
    ("convolution_to_data", 100, [85, 85]),
    ("convolution_to_filter", 100, [85, 85]),
    ("matmul", 100, [78, 78]),
    ("matmul_bias_sigmoid", 100, [65, 4]),
    ("pointwise", 400, [192, 184]),
    ("pointwise_shapes", 200, [97, 86]),
    ("pointwise_chain", 100, [85, 85]),
    ("conversion", 200, [38, 34]),
    ("reduction", 200, [182, 182]),
    ("pooling", 200, [125, 125]),
    ("pooling_backward", 200, [120, 120]),
    ("attention_wide", 48, [48, 0]),
    ("attention_chain", 100, [4, 2]),
    ("layer_norm", 300, [15, 15]),
    ("rms_norm", 300, [15, 15]),
    ("layer_norm_backward", 200, [12, 12]),
    ("rms_norm_backward", 200, [12, 12]),
    ("batch_norm_training", 100, [45, 45]),
    ("batch_norm_inference", 100, [15, 0]),
    ("batch_norm_backward", 100, [17, 17]),
];

/// The families that the bridge rejects as a whole, the number of cases, and the reason.
const REJECTED: &[(&str, u64, &str)] = &[
    ("convolution_of_bytes", 40, "cuDNN's integer convolutions scale their results"),
    ("pooling_places", 20, "cuDNN numbers the positions of maxima differently"),
    ("attention_padded", 40, "does not support attention with HIPDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC"),
    ("attention_backward", 40, "the cuDNN bridge runs gradients of attention only in pieces"),
    ("experts", 4, "does not support HIPDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR"),
    ("block_scale_quantize", 4, "does not support HIPDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR"),
];

/// The library built with these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].map(|folder| folder.join("libhipdnn_cudnn.so"));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} exists")).clone()
}

#[test]
#[ignore = "started as a child process by the tests below"]
fn runs_the_suite() {
    let bench = Bench::on_host(library()).unwrap();
    let computed = COMPUTED.iter().map(|(name, cases, _)| (*name, *cases));
    for (name, cases) in computed.chain(REJECTED.iter().map(|(name, cases, _)| (*name, *cases))) {
        let family = FAMILIES.iter().find(|family| family.name == name).unwrap();
        let row = Row::of(family, &bench, 0..cases);
        print!("{row}");
        println!("\n{name}: passed {}, wrong {}", row.passed, row.wrong.len());
    }
    let cudnn = Library::open(std::env::var_os("AMDGPU_EP_CUDNN_LIBRARY").unwrap()).unwrap();
    // SAFETY: the stand-in declares it with this signature.
    let older: unsafe extern "C" fn() -> c_long = unsafe { cudnn.symbol("standin_older") }.unwrap();
    // SAFETY: takes nothing.
    println!("older calls: {}", unsafe { older() });
}

/// Runs the test above with the stand-in, and returns its output.
fn suite(variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let compile = |source: &Path, to: &str| {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        command.arg(folder.path().join(to)).args(["-x", "c"]).arg(source).arg("-lm");
        assert!(command.status().unwrap().success());
    };
    compile(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/computing.c")), "libcudnn.so.9");
    compile(Path::new("/dev/null"), "libcublasLt.so.99");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "runs_the_suite", "--ignored", "--nocapture"]).env_remove("AMDGPU_EP_CUDNN_DEVICE_FILE");
    command.env("AMDGPU_EP_CUDNN_LIBRARY", folder.path().join("libcudnn.so.9"));
    command.env("AMDGPU_EP_CUDA_LIBRARY_PATH", folder.path()).env("AMDGPU_EP_CACHE_DIR", folder.path());
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The number after a text.
fn number(said: &str, after: &str) -> usize {
    let rest = said.split_once(after).unwrap_or_else(|| panic!("{after:?} is missing in {said}")).1;
    rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Checks that no case is wrong, with the column of `COMPUTED` for the passed ones and the reasons in `REJECTED`.
fn check(said: &str, column: usize) {
    let counts = |name: &str| {
        let passed = number(said, &format!("\n{name}: passed "));
        (passed, number(said, &format!("\n{name}: passed {passed}, wrong ")))
    };
    for (name, cases, wanted) in COMPUTED {
        let (passed, wrong) = counts(name);
        assert_eq!(wrong, 0, "{name}\n{said}");
        assert!(passed >= wanted[column], "{name}: {passed} of {cases} passed\n{said}");
    }
    for (name, cases, reason) in REJECTED {
        let reasons: Vec<_> = said.lines().filter(|line| line.starts_with(&format!("{name}: "))).collect();
        let (last, reasons) = reasons.split_last().unwrap();
        assert_eq!(*last, format!("{name}: passed 0, wrong 0"), "{cases} cases");
        assert!(!reasons.is_empty() && reasons.iter().all(|line| line.contains(reason)), "{reasons:#?}");
    }
    // Reductions that cuDNN's graphs lack, and copies into other layouts.
    assert!(number(said, "older calls: ") > 0, "{said}");
}

#[test]
fn graphs_mean_the_same_in_cudnns_terms() {
    check(&suite(&[]), 0);
}

#[test]
fn pieces_of_a_graph_mean_the_same_as_the_whole() {
    check(&suite(&[("CUDNN_STANDIN_MOST", "1")]), 1);
}
