//! Compile, load, launch.

use std::ffi::c_void;

use hip::{CaptureMode, Device, DeviceBuffer, DriverKind, HipError, Rtc, RtcError};

use crate::{Outcome, Row};

pub const ROWS: &[Row] = &[
    Row::new("a_kernel_compiles_loads_and_gives_the_right_numbers", a_kernel_gives_the_right_numbers)
        .skip_where(cannot_compile),
    Row::new("a_launch_is_captured_and_replayed", a_launch_is_captured_and_replayed).skip_where(cannot_compile),
    Row::new("a_source_that_does_not_compile_has_a_log", a_source_that_does_not_compile_has_a_log)
        .skip_where(cannot_compile),
    Row::new("a_missing_function_is_reported", a_missing_function_is_reported).skip_where(cannot_compile),
    Row::new("a_large_block_memory_is_opted_into", a_large_block_memory_is_opted_into).skip_where(has_no_opt_in),
    Row::new("bytes_that_are_no_code_object_are_refused", bytes_that_are_no_code_object_are_refused),
];

pub const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float factor, const float* x, float* y, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) y[index] = factor * x[index] + y[index];
}
"#;

const SUM: &str = r#"
extern "C" __global__ void sum(const float* x, float* out, unsigned count) {
    extern __shared__ float room[];
    for (unsigned index = threadIdx.x; index < count; index += blockDim.x) room[index] = x[index];
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (unsigned index = 0; index < count; index++) total += room[index];
        *out = total;
    }
}
"#;

fn cannot_compile(device: &Device) -> Option<&'static str> {
    match device.kind() {
        DriverKind::Host => Some("the host driver has no run-time compiler"),
        kind => Rtc::load(kind).err().map(|error| {
            eprintln!("{error}");
            "there is no run-time compiler"
        }),
    }
}

fn has_no_opt_in(device: &Device) -> Option<&'static str> {
    cannot_compile(device).or_else(|| {
        let is_twin = device.kind() == DriverKind::Nvidia;
        (!is_twin).then_some("only the CUDA twin has blocks of more than 64 KiB")
    })
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn upload(device: &Device, values: &[f32]) -> Result<DeviceBuffer, HipError> {
    let mut buffer = device.alloc(size_of_val(values))?;
    buffer.copy_to_device(0, &floats(values))?;
    Ok(buffer)
}

fn download(buffer: &DeviceBuffer) -> Result<Vec<f32>, HipError> {
    let mut bytes = vec![0; buffer.bytes()];
    buffer.copy_to_host(0, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect())
}

fn compile(device: &Device, source: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let rtc = Rtc::load(device.kind())?;
    let target = rtc.target_option(&device.info().arch);
    Ok(rtc.compile(source, "test.hip", &[&target])?)
}

const COUNT: usize = 10_000;

fn inputs() -> (Vec<f32>, Vec<f32>) {
    ((0..COUNT).map(|i| i as f32 * 0.5).collect(), (0..COUNT).map(|i| 100.0 - i as f32).collect())
}

/// Small halves and integers: every step is exact, so the results must be equal.
fn check(results: &[f32], factor: f32, times: f32) {
    let (x, y) = inputs();
    for (index, result) in results.iter().enumerate() {
        let wanted = f64::from(factor) * f64::from(times) * f64::from(x[index]) + f64::from(y[index]);
        assert_eq!(f64::from(*result), wanted, "at {index}");
    }
}

fn a_kernel_gives_the_right_numbers(device: &Device) -> Outcome {
    let module = device.module(&compile(device, SAXPY)?)?;
    let function = module.function("saxpy")?;
    drop(module);
    let (x, y) = inputs();
    let (x, y) = (upload(device, &x)?, upload(device, &y)?);
    let stream = device.stream()?;
    let (mut factor, mut count) = (2.0f32, COUNT as u32);
    let (mut x_at, mut y_at) = (x.address().as_ptr(), y.address().as_ptr());
    let mut arguments =
        [(&raw mut factor).cast::<c_void>(), (&raw mut x_at).cast(), (&raw mut y_at).cast(), (&raw mut count).cast()];
    let grid = [(COUNT as u32).div_ceil(256), 1, 1];
    // SAFETY: the arguments match the kernel's parameters; the buffers live until the stream is synchronised.
    unsafe { function.launch(grid, [256, 1, 1], 0, stream.raw(), &mut arguments)? };
    stream.synchronize()?;
    check(&download(&y)?, 2.0, 1.0);
    assert!(function.max_threads()? >= 256);
    assert_eq!((function.scratch_bytes()?, function.static_lds_bytes()?), (0, 0));
    assert!(function.registers()? > 0 && function.max_active_blocks(256, 0)? > 0);
    Ok(())
}

fn a_launch_is_captured_and_replayed(device: &Device) -> Outcome {
    let function = device.module(&compile(device, SAXPY)?)?.function("saxpy")?;
    let (x, y) = inputs();
    let (x, y) = (upload(device, &x)?, upload(device, &y)?);
    let stream = device.stream()?;
    let (mut factor, mut count) = (0.5f32, COUNT as u32);
    let (mut x_at, mut y_at) = (x.address().as_ptr(), y.address().as_ptr());
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let mut arguments =
        [(&raw mut factor).cast::<c_void>(), (&raw mut x_at).cast(), (&raw mut y_at).cast(), (&raw mut count).cast()];
    // SAFETY: the arguments match the kernel's parameters and are copied now; the buffers and the function live until
    // the last launch is done.
    unsafe { function.launch([COUNT as u32, 1, 1], [1, 1, 1], 0, stream.raw(), &mut arguments)? };
    let exec = stream.end_capture()?.instantiate()?;
    for _ in 0..4 {
        exec.launch(stream.raw())?;
    }
    stream.synchronize()?;
    check(&download(&y)?, 0.5, 4.0);
    Ok(())
}

fn a_source_that_does_not_compile_has_a_log(device: &Device) -> Outcome {
    let rtc = Rtc::load(device.kind())?;
    let target = rtc.target_option(&device.info().arch);
    let source = "extern \"C\" __global__ void f() { undeclared_name = 1; }";
    match rtc.compile(source, "broken.hip", &[&target]) {
        Err(RtcError::Compile { log, name, .. }) => {
            assert!(log.contains("undeclared_name") && name == "broken.hip", "{log}");
        }
        other => return Err(format!("{other:?}").into()),
    }
    let empty = rtc.compile("", "empty.hip", &[&target]);
    assert!(matches!(empty, Err(RtcError::BadText { .. })), "{empty:?}");
    Ok(())
}

fn a_missing_function_is_reported(device: &Device) -> Outcome {
    let module = device.module(&compile(device, SAXPY)?)?;
    let error = module.function("no_such_kernel").map(|_| ()).err().ok_or("a missing function was found")?;
    assert_eq!(error.code(), Some(500), "{error}");
    assert!(matches!(module.function("a\0b"), Err(HipError::Invalid { .. })));
    Ok(())
}

fn a_large_block_memory_is_opted_into(device: &Device) -> Outcome {
    let function = device.module(&compile(device, SUM)?)?.function("sum")?;
    let count = 20_000usize;
    let (x, out) = (upload(device, &vec![1.0; count])?, upload(device, &[0.0])?);
    let (mut x_at, mut out_at, mut count_argument) = (x.address().as_ptr(), out.address().as_ptr(), count as u32);
    let mut arguments = [(&raw mut x_at).cast::<c_void>(), (&raw mut out_at).cast(), (&raw mut count_argument).cast()];
    let stream = device.stream()?;
    let lds_bytes = (count * 4) as u32;
    // SAFETY: the arguments match the kernel's parameters; the buffers live until the stream is synchronised.
    unsafe { function.launch([1, 1, 1], [256, 1, 1], lds_bytes, stream.raw(), &mut arguments)? };
    stream.synchronize()?;
    assert_eq!(download(&out)?, [count as f32]);
    Ok(())
}

fn bytes_that_are_no_code_object_are_refused(device: &Device) -> Outcome {
    for image in [&b""[..], b"hello", b"\x7fELF\x02\x01 cut short"] {
        let refused = device.module(image);
        assert!(matches!(refused, Err(HipError::Invalid { .. })), "{refused:?}");
    }
    Ok(())
}
