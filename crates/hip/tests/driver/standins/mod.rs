//! Products and kernels without a GPU: AMD's rows on our host driver, with stand-ins in place of hipBLASLt and hiprtc.
//!
//! They show that descriptors, searches, compilations and launches reach the libraries as the libraries declare them,
//! and that the results come back unchanged. They say nothing about the results of AMD's own libraries, or about a GPU.
#![allow(clippy::unwrap_used)]

use std::ffi::{c_long, c_void};
use std::path::Path;
use std::process::Command;

use hip::sys::{Library, Role};
use hip::{
    CaptureMode, Compute, DataType, Device, Driver, DriverKind, Epilogue, HipError, MatmulAddresses, MatmulDesc,
    Operand, Rtc, RtcError, probe,
};
use libtest_mimic::Trial;

use crate::{Outcome, Row, blas, rows_on, skipped};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/driver/standins");

/// Set in the process that has the stand-ins.
const VARIABLE: &str = "AMDGPU_EP_TEST_STAND_INS";

const ROWS: &[Row] = &[
    Row::new("unusable_algorithms_are_left_out", unusable_algorithms_are_left_out),
    Row::new("a_product_without_a_kernel_is_refused_when_run", a_product_without_a_kernel_is_refused_when_run),
    Row::new("bytes_are_summed_as_integers", bytes_are_summed_as_integers),
    Row::new("missing_memory_is_refused", missing_memory_is_refused),
    Row::new("a_failure_has_the_status_of_the_library", a_failure_has_the_status_of_the_library),
    Row::new("every_object_is_destroyed", every_object_is_destroyed),
    Row::new("kernels_compile_load_and_run", kernels_compile_load_and_run),
    Row::new("a_captured_launch_is_replayed", a_captured_launch_is_replayed),
    Row::new("compiler_errors_have_a_log", compiler_errors_have_a_log),
    Row::new("the_probe_names_each_library", the_probe_names_each_library),
];

/// The rows of this process, if it is the one with the stand-ins.
pub fn own_rows(trials: &mut Vec<Trial>) -> bool {
    let is_child = std::env::var_os(VARIABLE).is_some();
    if is_child {
        rows_on(DriverKind::Amd, &[blas::ROWS, ROWS], trials);
    }
    is_child
}

/// One row that runs the others in a process with the stand-ins.
pub fn row(trials: &mut Vec<Trial>) {
    let name = "stand_ins::rows_pass";
    if ["AMDGPU_EP_TEST_REAL_HIP", "AMDGPU_EP_TEST_REAL_CUDA"].iter().any(|name| std::env::var_os(name).is_some()) {
        // The vendor's libraries may need another loader, and a process that it starts names the loader as its program.
        return trials.push(skipped(name.to_owned(), "this run is for the vendor's libraries"));
    }
    if !Path::new(SOURCES).exists() {
        return trials.push(skipped(name.to_owned(), "this program was built on another machine"));
    }
    let host = match Driver::load(DriverKind::Host) {
        Ok(driver) => driver.library().to_owned(),
        Err(error) => return trials.push(skipped(name.to_owned(), &error.to_string())),
    };
    trials.push(Trial::test(name, move || rows_pass(&host)));
}

fn rows_pass(host: &Path) -> Outcome {
    let folder = tempfile::tempdir()?;
    let runtime = folder.path().join("libamdhip64.so.7");
    std::fs::copy(host, &runtime)?;
    for (source, to) in [("hipblaslt.c", "libhipblaslt.so.1"), ("hiprtc.c", "libhiprtc.so.7")] {
        let source = Path::new(SOURCES).join(source);
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        assert!(compile.arg(folder.path().join(to)).arg(&source).arg("-lm").status()?.success(), "{source:?}");
    }
    let mut rows = Command::new(std::env::current_exe()?);
    let output = rows.env(VARIABLE, "1").env("AMDGPU_EP_HIP_LIBRARY", &runtime).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let wanted = format!("test result: ok. {} passed; 0 failed; 0 ignored", blas::ROWS.len() + ROWS.len());
    assert!(said.contains(&wanted), "{wanted}\n{said}");
    Ok(())
}

fn nowhere() -> MatmulAddresses {
    let (null, to) = (std::ptr::null(), std::ptr::null_mut());
    MatmulAddresses { a: null, b: null, c: null, d: to, bias: null, workspace: to, workspace_bytes: 0 }
}

/// The stand-in offers four: a plain one, an unusable one, one with a workspace of 1 MiB, and one whose workspace is
/// too large.
fn unusable_algorithms_are_left_out(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    let offered = |workspace_bytes, want| {
        let desc = MatmulDesc { workspace_bytes, ..MatmulDesc::new(4, 4, 4, DataType::F32) };
        let matmul = blas.prepare(&desc, want)?;
        assert_eq!(*matmul.desc(), desc);
        Ok::<_, HipError>(matmul.algorithms().iter().map(hip::Algorithm::workspace_bytes).collect::<Vec<_>>())
    };
    assert_eq!(offered(2 << 20, 8)?, [0, 1 << 20]);
    assert_eq!(offered(1 << 10, 8)?, [0]);
    assert_eq!(offered(2 << 20, 1)?, [0]);
    Ok(())
}

fn a_product_without_a_kernel_is_refused_when_run(device: &Device) -> Outcome {
    let matmul = device.blas_lt()?.prepare(&MatmulDesc::new(2, 3, 4, DataType::F8E4M3), 4)?;
    assert!(matmul.algorithms().is_empty());
    assert!(format!("{matmul:?}").ends_with(", 0 algorithms)"), "{matmul:?}");
    let stream = device.stream()?;
    // SAFETY: it is refused before any address is used.
    let error = unsafe { matmul.run(nowhere(), stream.raw()) }.unwrap_err().to_string();
    assert!(error.contains("the library has no kernel for MatmulDesc { m: 2, n: 3, k: 4"), "{error}");
    Ok(())
}

fn bytes_are_summed_as_integers(device: &Device) -> Outcome {
    let (m, n, k) = (3, 5, 7);
    let desc = MatmulDesc {
        d: Operand::new(DataType::I32),
        b: Operand::new(DataType::I8).transposed(),
        compute: Compute::I32,
        alpha: 2.0,
        ..MatmulDesc::new(m, n, k, DataType::I8)
    };
    let bytes = |count: usize, step: usize| -> Vec<i8> { (0..count).map(|at| (at * step % 255) as i8).collect() };
    let (a, b) = (bytes(m * k, 37), bytes(n * k, 91));
    let upload = |values: &[i8]| {
        let mut buffer = device.alloc(values.len())?;
        buffer.copy_to_device(0, &values.iter().map(|&value| value as u8).collect::<Vec<_>>())?;
        Ok::<_, HipError>(buffer)
    };
    let (a_on, b_on, d_on) = (upload(&a)?, upload(&b)?, device.alloc(m * n * 4)?);
    let stream = device.stream()?;
    let addresses = MatmulAddresses {
        a: a_on.address().as_ptr(),
        b: b_on.address().as_ptr(),
        d: d_on.address().as_ptr(),
        ..nowhere()
    };
    // SAFETY: the buffers have the sizes of the description and live until the stream is synchronised.
    unsafe { device.blas_lt()?.prepare(&desc, 1)?.run(addresses, stream.raw())? };
    stream.synchronize()?;
    let mut found = vec![0; m * n * 4];
    d_on.copy_to_host(0, &mut found)?;
    for (at, four) in found.chunks_exact(4).enumerate() {
        let (row, col) = (at / n, at % n);
        let sum: i32 = (0..k).map(|k_at| i32::from(a[row * k + k_at]) * i32::from(b[col * k + k_at])).sum();
        assert_eq!(i32::from_ne_bytes([four[0], four[1], four[2], four[3]]), 2 * sum, "{row}, {col}");
    }
    Ok(())
}

fn missing_memory_is_refused(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    let stream = device.stream()?;
    let roomy = MatmulDesc { workspace_bytes: 2 << 20, ..MatmulDesc::new(4, 4, 4, DataType::F32) };
    let matmul = blas.prepare(&roomy, 4)?;
    let most = matmul.algorithms().last().ok_or("no algorithm")?;
    // SAFETY: it is refused before any address is used.
    let error = unsafe { matmul.run_with(most, nowhere(), stream.raw()) }.unwrap_err().to_string();
    assert!(error.contains("the workspace is smaller than the algorithm needs"), "{error}");
    let biased = MatmulDesc { epilogue: Epilogue::Bias, ..MatmulDesc::new(4, 4, 4, DataType::F32) };
    // SAFETY: as above.
    let error = unsafe { blas.prepare(&biased, 1)?.run(nowhere(), stream.raw()) }.unwrap_err().to_string();
    assert!(error.contains("the epilogue needs a bias"), "{error}");
    Ok(())
}

fn a_failure_has_the_status_of_the_library(device: &Device) -> Outcome {
    let refused = device.blas_lt()?.prepare(&MatmulDesc::new(4, 4, 4, DataType::I8), 1);
    let error = refused.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Some(3), "{error}");
    let text = error.to_string();
    assert!(text.contains("hipblasLtMatmulAlgoGetHeuristic") && text.contains("invalid value"), "{text}");
    let mut apart = MatmulDesc::new(4, 4, 4, DataType::F32);
    apart.batch = usize::MAX;
    let error = device.blas_lt()?.prepare(&apart, 1).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the batch of 18446744073709551615 is too large"), "{error}");
    Ok(())
}

fn every_object_is_destroyed(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    assert_eq!(blas.device().ordinal(), device.ordinal());
    assert!(format!("{blas:?}").contains("libhipblaslt.so.1"), "{blas:?}");
    let library = Library::open(blas.library())?;
    // SAFETY: the stand-in declares it with this signature.
    let alive: unsafe extern "C" fn() -> c_long = unsafe { library.symbol("standin_alive") }.ok_or("no counter")?;
    // SAFETY: it takes nothing.
    let alive = || unsafe { alive() };
    let before = alive();
    let tf32 = MatmulDesc { compute: Compute::F32FastTf32, ..MatmulDesc::new(4, 4, 4, DataType::F32) };
    let matmul = blas.prepare(&tf32, 1)?;
    assert_eq!(alive(), before + 4, "a descriptor and three layouts; the preference is destroyed after the search");
    drop((blas, matmul));
    assert_eq!(alive(), before - 1, "the handle too");
    Ok(())
}

/// A kernel for the host driver: a C function that takes a launch with one structure of arguments.
const SAXPY: &str = "
typedef struct { unsigned grid[3], block[3], lds_bytes, reserved; const void *args; } launch;
typedef struct { const float *x; float *y; float factor; unsigned count; } arguments;
unsigned saxpy_args_bytes = sizeof(arguments);
void saxpy(const launch *launch) {
    const arguments *given = launch->args;
    for (unsigned index = 0; index < launch->grid[0] * launch->block[0]; index++)
        if (index < given->count) given->y[index] = given->factor * given->x[index] + given->y[index];
}
";

#[repr(C)]
struct Arguments {
    x: *const u8,
    y: *mut u8,
    factor: f32,
    count: u32,
}

const COUNT: usize = 1000;

fn compiled(device: &Device) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let rtc = Rtc::load(device.kind())?;
    Ok(rtc.compile(SAXPY, "saxpy.c", &[&rtc.target_option(&device.info().arch)])?)
}

/// `y` after `times` launches on a stream; `launches` queues them.
fn check_saxpy(
    device: &Device,
    times: f32,
    launches: impl FnOnce(&hip::Function, &hip::Stream, &mut [*mut c_void]) -> Outcome,
) -> Outcome {
    let module = device.module(&compiled(device)?)?;
    assert_eq!(module.device().ordinal(), device.ordinal());
    let function = module.function("saxpy")?;
    assert!(format!("{function:?}").contains("Module("), "{function:?}");
    let bytes = |value: fn(usize) -> f32| (0..COUNT).flat_map(|at| value(at).to_ne_bytes()).collect::<Vec<u8>>();
    let (mut x, mut y) = (device.alloc(COUNT * 4)?, device.alloc(COUNT * 4)?);
    x.copy_to_device(0, &bytes(|at| at as f32 * 0.5))?;
    y.copy_to_device(0, &bytes(|at| 100.0 - at as f32))?;
    let mut given = Arguments { x: x.address().as_ptr(), y: y.address().as_ptr(), factor: 2.0, count: COUNT as u32 };
    let stream = device.stream()?;
    launches(&function, &stream, &mut [(&raw mut given).cast()])?;
    stream.synchronize()?;
    let mut found = vec![0; COUNT * 4];
    y.copy_to_host(0, &mut found)?;
    for (at, four) in found.chunks_exact(4).enumerate() {
        let wanted = times * at as f32 + (100.0 - at as f32);
        assert_eq!(f32::from_ne_bytes([four[0], four[1], four[2], four[3]]), wanted, "at {at}");
    }
    Ok(())
}

fn kernels_compile_load_and_run(device: &Device) -> Outcome {
    check_saxpy(device, 2.0, |function, stream, arguments| {
        // SAFETY: the structure is the kernel's; the buffers live until the stream is synchronised.
        unsafe {
            function.launch([4, 1, 1], [256, 1, 1], 0, stream.raw(), arguments)?;
            function.launch_early([4, 1, 1], [256, 1, 1], 60 * 1024, stream.raw(), arguments)?;
        }
        // What the host driver reports for every kernel.
        assert_eq!((function.max_threads()?, function.registers()?), (1024, 32));
        assert_eq!((function.scratch_bytes()?, function.static_lds_bytes()?), (0, 0));
        assert_eq!((function.max_active_blocks(256, 0)?, function.max_active_blocks(128, 32 << 10)?), (4, 2));
        // SAFETY: every device rejects such a block, so nothing runs.
        let error = unsafe { function.launch([1, 1, 1], [2048, 1, 1], 0, stream.raw(), arguments) }.unwrap_err();
        assert_eq!(error.code(), Some(9), "{error}");
        Ok(())
    })?;
    let module = device.module(&compiled(device)?)?;
    let error = module.function("no_such_kernel").map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Some(500), "{error}");
    let error = module.function("a\0b").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("contains a NUL byte"), "{error}");
    Ok(())
}

fn a_captured_launch_is_replayed(device: &Device) -> Outcome {
    check_saxpy(device, 3.0, |function, stream, arguments| {
        stream.begin_capture(CaptureMode::ThreadLocal)?;
        // SAFETY: the structure is the kernel's and is copied now; buffers and function live until the stream is
        // synchronised.
        unsafe { function.launch([1000, 1, 1], [1, 1, 1], 0, stream.raw(), arguments)? };
        let exec = stream.end_capture()?.instantiate()?;
        for _ in 0..3 {
            exec.launch(stream.raw())?;
        }
        stream.synchronize()?;
        Ok(())
    })
}

fn compiler_errors_have_a_log(device: &Device) -> Outcome {
    let rtc = Rtc::load(device.kind())?;
    assert_eq!(rtc.kind(), DriverKind::Amd);
    let target = rtc.target_option("gfx942");
    assert_eq!(target, "--offload-arch=gfx942");
    match rtc.compile("int f(void) { return undeclared_name; }", "broken.c", &[&target]) {
        Err(RtcError::Compile { log, name, call, code, text }) => {
            assert!(log.contains("undeclared_name") && !log.ends_with(['\0', '\n']), "{log:?}");
            assert_eq!((name.as_str(), call, code), ("broken.c", "hiprtcCompileProgram", 6));
            assert_eq!(text, "HIPRTC_ERROR_COMPILATION");
        }
        other => return Err(format!("{other:?}").into()),
    }
    let error = rtc.compile(SAXPY, "saxpy.c", &[]).unwrap_err();
    assert!(error.log().is_empty() && error.to_string().contains("INVALID_OPTION"), "{error}");
    for (source, reason) in [("", "it is empty"), ("int a;\0", "it contains a NUL byte")] {
        let refused = rtc.compile(source, "bad.c", &[&target]);
        assert!(matches!(&refused, Err(RtcError::BadText { reason: found, .. }) if *found == reason), "{refused:?}");
    }
    Ok(())
}

fn the_probe_names_each_library(device: &Device) -> Outcome {
    let report = probe::driver(device.kind());
    assert!(report.is_loaded() && !report.devices.is_empty(), "{report:?}");
    let file = |role: Role| {
        let found = report.libraries.iter().find(|library| library.role == role)?;
        found.path.as_ref()?.file_name()?.to_str()
    };
    let files = [Role::Runtime, Role::Rtc, Role::BlasLt].map(file);
    assert_eq!(files, ["libamdhip64.so.7", "libhiprtc.so.7", "libhipblaslt.so.1"].map(Some));
    let rtc = Rtc::load(device.kind())?;
    assert!(rtc.attempts().is_empty() && rtc.library().ends_with("libhiprtc.so.7"), "{rtc:?}");
    Ok(())
}
