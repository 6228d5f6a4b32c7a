//! Computes y = relu(a · b) with hipDNN. This code does not depend on how the library was found: each program in
//! `src/bin` decides that.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hip::{Device, DeviceBuffer, Driver, DriverKind};
use hipdnn::sys::{Backend, DataType, PointwiseMode};
use hipdnn::{Graph, Handle, Tensor};

const ROWS: usize = 4;
const INNER: usize = 8;
const COLUMNS: usize = 3;

/// Reports an error and returns the exit code.
pub fn ended(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Computes with a library on the first device of the driver that `AMDGPU_EP_DRIVER` selects (AMD's if unset), and
/// compares the result with nested loops.
pub fn run(library: Arc<dyn Backend>) -> Result<(), Box<dyn Error>> {
    println!("{}", library.describe());
    let driver = Driver::load(DriverKind::wanted(std::env::var("AMDGPU_EP_DRIVER").ok().as_deref())?)?;
    let device = driver.devices()?.into_iter().next().ok_or("the driver found no device")?;
    let stream = device.stream()?;
    let handle = Handle::new(library)?;
    // SAFETY: the stream outlives the handle's last work, which is waited for below.
    unsafe { handle.set_stream(stream.raw())? };

    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("relu of a product");
    let a = graph.tensor(Tensor::new(&[1, ROWS as i64, INNER as i64]).uid(1));
    let b = graph.tensor(Tensor::new(&[1, INNER as i64, COLUMNS as i64]).uid(2));
    let product = graph.matmul(a, b);
    let y = graph.pointwise(PointwiseMode::RELU_FWD, &[product]);
    graph.output(y, Tensor::default().uid(3));
    let plan = graph.build(&handle)?.plan()?;

    let (left, right) = (numbers(ROWS * INNER, 3.0), numbers(INNER * COLUMNS, 5.0));
    let (there_left, there_right) = (upload(&device, &left)?, upload(&device, &right)?);
    let result = device.alloc(ROWS * COLUMNS * size_of::<f32>())?;
    let workspace = device.alloc(plan.workspace_bytes().max(1))?;
    let tensors = [(1, &there_left), (2, &there_right), (3, &result)];
    // SAFETY: the buffers are as large as their tensors, on the device of the handle's stream, and outlive the wait.
    unsafe {
        let tensors = tensors.map(|(uid, buffer)| (uid, buffer.address().as_ptr().cast()));
        plan.execute(&handle, tensors, workspace.address().as_ptr().cast())?;
    }
    stream.synchronize()?;

    let mut bytes = vec![0; result.bytes()];
    result.copy_to_host(0, &mut bytes)?;
    let found = bytes.as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes)));
    let wanted = reference(&left, &right);
    let worst = found.zip(&wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f64::max);
    // Each element is a sum of 8 products of numbers below 1.
    if worst.is_nan() || worst > 1e-5 || wanted.iter().all(|&number| number == 0.0) {
        return Err(format!("the largest error is {worst:e}").into());
    }
    println!("verified: {} elements, the largest error is {worst:.1e}", wanted.len());
    Ok(())
}

/// Numbers between -1 and 1.
fn numbers(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|place| (place as f32 * step).sin()).collect()
}

fn upload(device: &Device, numbers: &[f32]) -> Result<DeviceBuffer, Box<dyn Error>> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut buffer = device.alloc(bytes.len())?;
    buffer.copy_to_device(0, &bytes)?;
    Ok(buffer)
}

fn reference(left: &[f32], right: &[f32]) -> Vec<f64> {
    let product = |row: usize, column: usize, at: usize| {
        f64::from(left[row * INNER + at]) * f64::from(right[at * COLUMNS + column])
    };
    let element = |place: usize| (0..INNER).map(|at| product(place / COLUMNS, place % COLUMNS, at)).sum::<f64>();
    (0..ROWS * COLUMNS).map(|place| element(place).max(0.0)).collect()
}
