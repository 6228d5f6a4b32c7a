//! Measures how close memory-bound kernels come to the memory bandwidth: one primitive at a time on large tensors.
//!
//! `cargo run --release -p exec --example gpu_kernels -- --driver nvidia|amd|host [--kib 262144] [--rounds 30]`
//!
//! Times are medians between events on the device, or on the host's clock if events have no times. Bytes are the
//! minimum that the step has to read and write; the share is relative to a plain copy of the same number of bytes in
//! the same run. Host time is the time to queue one run of the plan. On the host driver, kernels run in the wave
//! simulator: that shows that everything works, but says nothing about speed.
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use exec::gpu::GpuDevice;
use exec::{Device as _, Ledger, Loaded, Order, Prepared, Run, RunBy, Serial};
use graph::expr::{Binary, Expr, Unary};
use graph::plan::{BufferPlace, OutputSpec};
use graph::prim::{BufferId, Cumulative, Map, Norm, Pool, PoolKind, Reduce, ReduceKind, Softmax};
use graph::{DType, Graph, Plan, Prim, Scalar, Step, View, shape};
use hip::{CopyKind, Device, DeviceBuffer, Driver, DriverKind};
use kernels::sim::Simulator;
use kernels::{Arch, RtcCompiler};

/// Below this, some tensors would have no elements.
const LEAST_KIB: usize = 64;

struct Options {
    driver: DriverKind,
    kib: usize,
    rounds: usize,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { driver: DriverKind::Amd, kib: 256 << 10, rounds: 30 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--driver" => options.driver = value.parse()?,
            "--kib" => options.kib = value.parse::<usize>()?.max(LEAST_KIB),
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

/// Tensors with fewer elements get smaller images.
const SMALL: usize = 1 << 20;

/// A step over whole tensors: the inputs have the first buffer ids, then the output.
fn step(prim: Prim, inputs: &[(DType, &[usize])], output: (DType, &[usize])) -> Step {
    let view = |at: usize, (dtype, extents): (DType, &[usize])| View {
        buffer: BufferId(at as u32),
        dtype,
        shape: extents.into(),
        strides: shape::dense_strides(extents),
        offset: 0,
    };
    let outputs = vec![view(inputs.len(), output)];
    Step { node: 0, prim, inputs: inputs.iter().enumerate().map(|(at, &facts)| view(at, facts)).collect(), outputs }
}

fn gelu(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let x = expr.input(0, dtype);
    let constant = |expr: &mut Expr, value| expr.constant(Scalar::Float(value), dtype);
    let scale = constant(&mut expr, std::f64::consts::FRAC_1_SQRT_2);
    let scaled = expr.binary(Binary::Mul, x, scale);
    let erf = expr.unary(Unary::Erf, scaled);
    let one = constant(&mut expr, 1.0);
    let sum = expr.binary(Binary::Add, erf, one);
    let half = constant(&mut expr, 0.5);
    let product = expr.binary(Binary::Mul, x, sum);
    let value = expr.binary(Binary::Mul, product, half);
    let stored = expr.cast(value, dtype);
    expr.finish(stored);
    expr
}

fn add(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
    let sum = expr.binary(Binary::Add, a, b);
    let stored = expr.cast(sum, dtype);
    expr.finish(stored);
    expr
}

fn steps(kib: usize) -> Vec<(String, Step)> {
    let mut steps = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        let elems = (kib << 10) / dtype.bytes();
        for columns in [1024, 4096] {
            let extents = [elems / columns, columns];
            let (x, by_column, by_row) = ((dtype, &extents[..]), (dtype, &extents[1..]), (dtype, &extents[..1]));
            let softmax = Prim::Softmax(Softmax { log: false });
            steps.push((format!("softmax {dtype} of {columns}"), step(softmax, &[x], x)));
            let norm = |centre| {
                let (axes, epsilon, round_before_scale) = (1, 1e-5, false);
                Prim::Norm(Norm { axes, epsilon, centre, scale: true, bias: centre, round_before_scale })
            };
            let label = format!("layer norm {dtype} of {columns}");
            steps.push((label, step(norm(true), &[x, by_column, by_column], x)));
            steps.push((format!("RMS norm {dtype} of {columns}"), step(norm(false), &[x, by_column], x)));
            let sum = Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 });
            steps.push((format!("sum {dtype} of {columns}"), step(sum, &[x], by_row)));
        }
        rows_and_windows(dtype, elems, &mut steps);
        let flat = [elems];
        let x = (dtype, &flat[..]);
        let map = |expr| Prim::Map(Map { expr });
        steps.push((format!("copy {dtype}"), step(map(Expr::copy(dtype, dtype)), &[x], x)));
        steps.push((format!("add {dtype}"), step(map(add(dtype)), &[x, x], x)));
        steps.push((format!("gelu {dtype}"), step(map(gelu(dtype)), &[x], x)));
        let square = [elems / 4096, 4096];
        let mut turned = step(map(Expr::copy(dtype, dtype)), &[(dtype, &square)], (dtype, &square));
        turned.inputs[0].strides = [1, square[0] as isize].into_iter().collect();
        steps.push((format!("transpose {dtype}"), turned));
        let side = if elems < SMALL { 8 } else { 64 };
        let image = [side, 64, side, elems / (64 * side * side)];
        let mut biased = step(map(add(dtype)), &[(dtype, &image), (dtype, &image[1..2])], (dtype, &image));
        let bias = &mut biased.inputs[1];
        (bias.shape, bias.strides) = (image.as_slice().into(), [0, 1, 0, 0].into_iter().collect());
        steps.push((format!("add by channel {dtype}"), biased));
        let small = [elems / (64 * 49), 64, 49];
        let mut biased = step(map(add(dtype)), &[(dtype, &small), (dtype, &small[1..2])], (dtype, &small));
        let bias = &mut biased.inputs[1];
        (bias.shape, bias.strides) = (small.as_slice().into(), [0, 1, 0].into_iter().collect());
        steps.push((format!("add by channel of 49 {dtype}"), biased));
        let lines = [elems / 4096, 4096, 1];
        let running = Prim::Cumulative(Cumulative { product: false, exclusive: false, reverse: false });
        steps.push((format!("running sum {dtype} of 4096"), step(running, &[(dtype, &lines)], (dtype, &lines))));
    }
    steps
}

/// Short rows, columns, and windows of images in both layouts.
fn rows_and_windows(dtype: DType, elems: usize, steps: &mut Vec<(String, Step)>) {
    for columns in [128, 197] {
        let extents = [elems / columns, columns];
        let x = (dtype, &extents[..]);
        steps.push((format!("softmax {dtype} of {columns}"), step(Prim::Softmax(Softmax { log: false }), &[x], x)));
    }
    let sum = |axes| Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes });
    let pools = [elems / 49, 49];
    steps.push((format!("sum {dtype} of 49"), step(sum(1), &[(dtype, &pools)], (dtype, &pools[..1]))));
    for columns in [512, elems / 64] {
        let extents = [columns, elems / columns];
        let mut turned = step(sum(1), &[(dtype, &extents)], (dtype, &extents[..1]));
        turned.inputs[0].strides = [1, columns as isize].into_iter().collect();
        steps.push((format!("sum {dtype} of {} by column", extents[1]), turned));
    }
    let (channels, side) = if elems < SMALL { (16, 28) } else { (64, 112) };
    let images = elems / (channels * side * side);
    let (from, to) = ([images, channels, side, side], [images, channels, side / 2, side / 2]);
    let all = |value: isize| [value; 2].into_iter().collect::<graph::shape::Strides>();
    let extents = |value: usize| [value; 2].into_iter().collect::<graph::Shape>();
    let prim = Prim::Pool(Pool {
        kind: PoolKind::Max { column_major: false },
        kernel: extents(3),
        strides: extents(2),
        pads: all(1),
        pads_end: all(1),
        dilations: extents(1),
    });
    let pool = step(prim, &[(dtype, &from)], (dtype, &to));
    steps.push((format!("max pool {dtype}"), pool.clone()));
    let mut last = pool;
    for view in last.inputs.iter_mut().chain(&mut last.outputs) {
        let [c, h, w] = [1, 2, 3].map(|axis| view.shape[axis] as isize);
        view.strides = [c * h * w, 1, w * c, c].into_iter().collect();
    }
    steps.push((format!("max pool {dtype} channels last"), last));
}

/// The size of a view's buffer in bytes, which is also how much has to be moved for it.
fn buffer_bytes(view: &View) -> usize {
    let reach = |(extent, stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
    (view.shape.iter().zip(&view.strides).map(reach).sum::<usize>() + 1) * view.dtype.bytes()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    match options().and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let driver = Driver::load(options.driver)?;
    let device = driver.devices()?.into_iter().next().ok_or("the driver has no device")?;
    let gpu = open(&device)?;
    let stream = device.stream()?;
    let (start, end) = (device.timing_event()?, device.timing_event()?);
    let timed = |work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>| -> Result<f64, Box<dyn Error>> {
        let (mut found, warm_ups) = (Vec::new(), options.rounds.min(4) - 1);
        for round in 0..options.rounds + warm_ups {
            let began = Instant::now();
            start.record(stream.raw())?;
            work()?;
            end.record(stream.raw())?;
            end.synchronize()?;
            if round >= warm_ups {
                let on_device = end.elapsed_ms(&start).ok().filter(|&ms| ms > 0.0).map(|ms| f64::from(ms) / 1e3);
                found.push(on_device.unwrap_or_else(|| began.elapsed().as_secs_f64()));
            }
        }
        Ok(median(found))
    };
    println!("{} with {} KiB a tensor", device.info().name, options.kib);
    println!("{:<36}{:>10}{:>10}{:>16}{:>14}{:>12}", "step", "ms", "GB/s", "share of copy", "host us", "threads");
    for (label, step) in steps(options.kib) {
        let views: Vec<&View> = step.inputs.iter().chain(&step.outputs).collect();
        let memory: Vec<DeviceBuffer> =
            views.iter().map(|view| device.alloc(buffer_bytes(view))).collect::<Result<_, _>>()?;
        let moved: usize = memory.iter().map(DeviceBuffer::bytes).sum();
        let halves = [device.alloc(moved / 2)?, device.alloc(moved / 2)?];
        let copied = timed(&mut || {
            let (to, from) = (halves[0].address().as_ptr(), halves[1].address().as_ptr());
            // SAFETY: both buffers have this many bytes and live until the events around the copy have passed.
            unsafe { device.copy_raw_async(to, from, moved / 2, CopyKind::DeviceToDevice, stream.raw())? };
            Ok(())
        })?;
        let prepared = prepare(&gpu, step.clone())?;
        if let RunBy::Host { why } = prepared.run_by(0) {
            println!("{label:<36}no kernel: {why}");
            continue;
        }
        let (outputs, inputs) = memory.split_last().ok_or("a step without views")?;
        let inputs: Vec<*const u8> = inputs.iter().map(|buffer| buffer.address().as_ptr().cast_const()).collect();
        let outputs = [outputs.address().as_ptr()];
        let ledger = Arc::new(Ledger::default());
        let mut host = Vec::new();
        let seconds = timed(&mut || {
            let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
            let order = Order::Stream { device: &device, stream: stream.raw(), ledger: &ledger };
            let began = Instant::now();
            // SAFETY: there is one buffer for each of the plan's tensors, as large as its view and alive until the
            // events have passed.
            unsafe { Arc::clone(&prepared).run(run, order)? };
            host.push(began.elapsed().as_secs_f64() * 1e6);
            Ok(())
        })?;
        let rate = moved as f64 / seconds / 1e9;
        let (share, host) = (copied / seconds * 100.0, median(host));
        let threads = kernels::work(&step, gpu.arch()).map_or(0, |work| work.threads());
        println!("{label:<36}{:>10.3}{rate:>10.1}{share:>15.0}%{host:>14.1}{threads:>12}", seconds * 1e3);
    }
    Ok(())
}

/// The device with its compiler; for the host driver, with the simulator.
fn open(device: &Device) -> Result<GpuDevice, Box<dyn Error>> {
    if device.kind() != DriverKind::Host {
        let compiler = RtcCompiler(hip::Rtc::load(device.kind())?);
        return Ok(GpuDevice::new(device.clone(), Arch::of(device.info())?, Arc::new(compiler)));
    }
    let (arch, simulator) = (Arch::new("gfx1100", 4), Simulator::new(&std::env::temp_dir().join("amdgpu-ep-sim"))?);
    simulator.set_wave(arch.wave)?;
    Ok(GpuDevice::new(device.clone(), arch, Arc::new(simulator)))
}

/// A plan of one step whose tensors are all inputs or outputs.
fn prepare(gpu: &GpuDevice, step: Step) -> Result<Arc<dyn Prepared>, Box<dyn Error>> {
    let mut graph = Graph::new();
    let values = step.inputs.iter().enumerate();
    let inputs = values.map(|(at, view)| graph.add_value(format!("x{at}"), view.dtype, None)).collect();
    graph.set_inputs(inputs);
    let places = (0..step.inputs.len()).map(BufferPlace::Input).chain([BufferPlace::Output(0)]).collect();
    let output = &step.outputs[0];
    let outputs = vec![OutputSpec { dtype: output.dtype, shape: output.shape.clone(), shown: None }];
    let plan = Plan { steps: vec![step], places, constants: Vec::new(), outputs, arena_bytes: 0, live_bytes: 0 };
    let loaded: Box<dyn Loaded> = gpu.load(Arc::new(graph))?;
    Ok(loaded.prepare(plan)?)
}
