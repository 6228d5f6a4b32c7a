//! A convolution on a device, from loading the driver to verifying the result.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hip::{Device, DeviceBuffer, Driver, DriverKind};
use hipdnn::sys::{Backend, DataType};
use hipdnn::{Convolution, Graph, Handle, Tensor};

/// Batch, channels, rows, columns of the data.
const X: [usize; 4] = [2, 6, 16, 16];
/// Filters, channels per group, rows, columns of the filter: two groups.
const W: [usize; 4] = [8, 3, 3, 3];
/// The resulting extents with a padding of 1 and strides of 2.
const Y: [usize; 4] = [2, 8, 8, 8];

/// Reports an error and returns the exit code.
pub fn ended(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// The driver that `AMDGPU_EP_DRIVER` selects: `amd` if unset; `host` works without a GPU.
pub fn driver() -> Result<Driver, Box<dyn Error>> {
    let kind: DriverKind = std::env::var("AMDGPU_EP_DRIVER").as_deref().unwrap_or("amd").parse()?;
    Ok(Driver::load(kind)?)
}

/// Convolves on the driver's first device, and compares the result with nested loops.
pub fn run(driver: &Driver, backend: Arc<dyn Backend>) -> Result<(), Box<dyn Error>> {
    println!("driver: {} ({})", driver.kind(), driver.library().display());
    println!("backend: {}", backend.describe());
    let device = driver.devices()?.into_iter().next().ok_or("the driver found no device")?;
    let stream = device.stream()?;
    let handle = Handle::new(backend)?;
    // SAFETY: the stream outlives the handle's last work, which is waited for below.
    unsafe { handle.set_stream(stream.raw())? };

    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("conv_fprop");
    let x = graph.tensor(Tensor::new(&X.map(|extent| extent as i64)).named("x").uid(1));
    let w = graph.tensor(Tensor::new(&W.map(|extent| extent as i64)).named("w").uid(2));
    let y = graph.convolution(x, w, Convolution::new(2).padding(&[1, 1]).strides(&[2, 2]));
    graph.output(y, Tensor::default().named("y").uid(3));
    let built = graph.build(&handle)?;
    assert_eq!(graph.extents(y).0, Y.map(|extent| extent as i64));

    let plan = built.plan()?;
    println!("engine: {}", handle.engine_name(plan.engine()).unwrap_or_else(|_| format!("{:#x}", plan.engine())));
    println!("workspace: {} bytes", plan.workspace_bytes());

    let (data, filter) = (numbers(&X, 1), numbers(&W, 2));
    let (data_there, filter_there) = (upload(&device, &data)?, upload(&device, &filter)?);
    let result = device.alloc(Y.iter().product::<usize>() * size_of::<f32>())?;
    let workspace = device.alloc(plan.workspace_bytes().max(1))?;
    let tensors = [(1, &data_there), (2, &filter_there), (3, &result)];
    // SAFETY: the buffers are as large as their tensors, on the device of the handle's stream, and outlive the wait.
    unsafe {
        let tensors = tensors.map(|(uid, buffer)| (uid, buffer.address().as_ptr().cast()));
        plan.execute(&handle, tensors, workspace.address().as_ptr().cast())?;
    }
    stream.synchronize()?;

    let mut bytes = vec![0; result.bytes()];
    result.copy_to_host(0, &mut bytes)?;
    let found = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
    let wanted = reference(&data, &filter);
    let worst = found.zip(&wanted).map(|(found, wanted)| (f64::from(found) - wanted).abs()).fold(0.0, f64::max);
    // Each element is a sum of 27 products of numbers below 1.
    if worst.is_nan() || worst > 1e-5 {
        return Err(format!("the largest error is {worst:e}").into());
    }
    println!("verified: {} elements, the largest error is {worst:.1e}", wanted.len());
    Ok(())
}

/// Numbers between -1 and 1, the same in every run.
fn numbers(dims: &[usize], seed: u64) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..dims.iter().product::<usize>()).map(next).collect()
}

fn upload(device: &Device, numbers: &[f32]) -> Result<DeviceBuffer, Box<dyn Error>> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut buffer = device.alloc(bytes.len())?;
    buffer.copy_to_device(0, &bytes)?;
    Ok(buffer)
}

/// The convolution by its definition, in double precision.
fn reference(data: &[f32], filter: &[f32]) -> Vec<f64> {
    let at = |dims: [usize; 4], [a, b, c, d]: [usize; 4]| ((a * dims[1] + b) * dims[2] + c) * dims[3] + d;
    let split =
        |place: usize, [_, b, c, d]: [usize; 4]| [place / (b * c * d), place / (c * d) % b, place / d % c, place % d];
    let element = |place: usize| {
        let [n, k, row, column] = split(place, Y);
        let first_channel = k / (W[0] / (X[1] / W[1])) * W[1];
        let product = |tap: usize| {
            let [_, channel, down, right] = split(tap, W);
            // The padding is one element: the first row and column are before the data.
            let (from_row, from_column) = ((row * 2 + down).checked_sub(1)?, (column * 2 + right).checked_sub(1)?);
            if from_row >= X[2] || from_column >= X[3] {
                return None;
            }
            let x = data[at(X, [n, first_channel + channel, from_row, from_column])];
            Some(f64::from(x) * f64::from(filter[at(W, [k, channel, down, right])]))
        };
        (0..W[1] * W[2] * W[3]).filter_map(product).sum()
    };
    (0..Y.iter().product()).map(element).collect()
}
