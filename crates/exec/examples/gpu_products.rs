//! Measures the kernels of products and attention, and checks them against the host.
//!
//! `cargo run --release -p exec --example gpu_products -- --driver nvidia|amd [--rounds 30]`
//!
//! Small cases are compared with the host's primitives: the largest difference, relative to the largest magnitude.
//! Large ones are timed: medians between events on the device, the operations of the product, and the minimum number of
//! bytes to move.
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use exec::gpu::GpuDevice;
use exec::{Device as _, Ledger, Loaded, Order, Prepared, Run, RunBy, Serial};
use graph::expr::Expr;
use graph::plan::{BufferPlace, OutputSpec};
use graph::prim::{Attention, BufferId, Conv, ProductKind};
use graph::{DType, Graph, Plan, Prim, Scalar, Step, Tensor, View, shape};
use hip::{Device, DeviceBuffer, Driver, DriverKind, Event, Stream};
use kernels::{Arch, RtcCompiler};

const NO_TENSOR: &str = "the bytes do not match the tensor";

struct Case {
    label: String,
    step: Step,
    /// The number of multiplications and additions.
    operations: f64,
}

fn view(buffer: usize, dtype: DType, extents: &[usize]) -> View {
    let strides = shape::dense_strides(extents);
    View { buffer: BufferId(buffer as u32), dtype, shape: extents.into(), strides, offset: 0 }
}

/// The same view with its axes in another order in memory, the last of `order` innermost.
fn laid_out(view: View, order: &[usize]) -> View {
    let extents: Vec<usize> = order.iter().map(|&axis| view.shape[axis]).collect();
    let mut strides = view.strides.clone();
    for (&axis, &stride) in order.iter().zip(&shape::dense_strides(&extents)) {
        strides[axis] = stride;
    }
    View { strides, ..view }
}

fn matmul(dtype: DType, [batch, m, k, n]: [usize; 4], by_columns: bool) -> Case {
    let bytes = dtype.bytes() == 1;
    let prim = if bytes { ProductKind::IntegerMatMul { zeros: [3, 0] }.into() } else { Prim::matmul(1.0) };
    let b = view(1, dtype, &[batch, k, n]);
    let b = if by_columns { laid_out(b, &[0, 2, 1]) } else { b };
    let inputs = vec![view(0, dtype, &[batch, m, k]), b];
    let out = view(2, if bytes { DType::I32 } else { dtype }, &[batch, m, n]);
    let label = format!("matmul {dtype} {batch} x {m} x {k} x {n}{}", if by_columns { " by columns" } else { "" });
    Case {
        label,
        step: Step { node: 0, prim, inputs, outputs: vec![out] },
        operations: 2.0 * (batch * m * k * n) as f64,
    }
}

fn conv(dtype: DType, [images, from, to, extent]: [usize; 4], kernel: usize, stride: usize, turned: bool) -> Case {
    let pad = kernel / 2;
    let out = (extent + 2 * pad - kernel) / stride + 1;
    let prim = ProductKind::Conv(Conv {
        strides: [stride, stride].into_iter().collect(),
        pads: [pad as isize, pad as isize].into_iter().collect(),
        dilations: [1usize, 1].into_iter().collect(),
        groups: 1,
        bias: true,
    });
    let image = |buffer, channels, extent| {
        let view = view(buffer, dtype, &[images, channels, extent, extent]);
        if turned { laid_out(view, &[0, 2, 3, 1]) } else { view }
    };
    let weights = view(1, dtype, &[to, from, kernel, kernel]);
    let weights = if turned { laid_out(weights, &[0, 2, 3, 1]) } else { weights };
    let inputs = vec![image(0, from, extent), weights, view(2, dtype, &[to])];
    let layout = if turned { " channels last" } else { "" };
    let label = format!("conv {dtype} {images} x {from} > {to}, {extent}, kernel {kernel}/{stride}{layout}");
    let operations = 2.0 * (images * to * out * out * from * kernel * kernel) as f64;
    Case { label, step: Step { node: 0, prim: prim.into(), inputs, outputs: vec![image(3, to, out)] }, operations }
}

fn attention(dtype: DType, [batch, heads, rows, total, size]: [usize; 5]) -> Case {
    let all = batch * heads;
    let prim = Prim::Attention(Attention {
        alpha: 1.0 / (size as f32).sqrt(),
        shape: [batch, heads, rows, total].into_iter().collect(),
        scores: Expr::copy(dtype, dtype.compute()),
        zero_if_hidden: false,
    });
    let keys = laid_out(view(1, dtype, &[all, size, total]), &[0, 2, 1]);
    let inputs = vec![view(0, dtype, &[all, rows, size]), keys, view(2, dtype, &[all, total, size])];
    let out = laid_out(view(3, dtype, &[batch, heads, rows, size]), &[0, 2, 1, 3]);
    let label = format!("attention {dtype} {batch} x {heads} x {rows} x {total} x {size}");
    let operations = 4.0 * (all * rows * total * size) as f64;
    Case { label, step: Step { node: 0, prim, inputs, outputs: vec![out] }, operations }
}

/// Cases that are fast on the host and together cover all kernels.
fn small() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for extents in [[1, 300, 200, 260], [3, 70, 64, 72], [1, 5, 2000, 400], [1, 24, 3000, 40], [50, 4, 5, 6]] {
            cases.push(matmul(dtype, extents, false));
            cases.push(matmul(dtype, extents, true));
        }
        for turned in [false, true] {
            cases.push(conv(dtype, [2, 24, 40, 19], 3, 1, turned));
            cases.push(conv(dtype, [2, 3, 40, 30], 7, 2, turned));
            cases.push(conv(dtype, [2, 64, 48, 14], 1, 1, turned));
            cases.push(conv(dtype, [1, 16, 4, 20], 3, 1, turned));
        }
        for extents in [[2, 3, 70, 130, 64], [1, 2, 100, 200, 128], [1, 1, 40, 77, 40], [2, 4, 1, 5000, 64]] {
            cases.push(attention(dtype, extents));
        }
    }
    cases.push(matmul(DType::I8, [1, 300, 200, 260], false));
    cases.push(matmul(DType::I8, [1, 130, 256, 100], true));
    cases
}

fn large() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, size) in
        [(DType::F32, 4096), (DType::F16, 4096), (DType::F16, 8192), (DType::Bf16, 4096), (DType::I8, 4096)]
    {
        cases.push(matmul(dtype, [1, size, size, size], false));
        cases.push(matmul(dtype, [1, size, size, size], true));
    }
    for by_columns in [false, true] {
        cases.push(matmul(DType::F16, [1, 128, 768, 768], by_columns));
        cases.push(matmul(DType::F16, [1, 1, 4096, 14336], by_columns));
        cases.push(matmul(DType::F16, [1, 4, 4096, 14336], by_columns));
        cases.push(matmul(DType::F32, [1, 1, 4096, 14336], by_columns));
    }
    for turned in [false, true] {
        cases.push(conv(DType::F16, [64, 64, 64, 56], 3, 1, turned));
        cases.push(conv(DType::F16, [64, 256, 256, 14], 3, 1, turned));
        cases.push(conv(DType::F16, [64, 256, 64, 56], 1, 1, turned));
        cases.push(conv(DType::F16, [1, 256, 256, 14], 3, 1, turned));
        cases.push(conv(DType::F32, [16, 64, 64, 56], 3, 1, turned));
    }
    for (dtype, extents) in [
        (DType::F16, [4, 16, 2048, 2048, 64]),
        (DType::F16, [4, 16, 2048, 2048, 128]),
        (DType::Bf16, [4, 16, 2048, 2048, 64]),
        (DType::F16, [32, 12, 128, 128, 64]),
        (DType::F16, [1, 12, 128, 128, 64]),
        (DType::F16, [1, 32, 1, 8192, 128]),
        (DType::F16, [8, 8, 4, 4096, 128]),
    ] {
        cases.push(attention(dtype, extents));
    }
    cases
}

fn buffer_elems(view: &View) -> usize {
    let reach = |(extent, stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
    view.shape.iter().zip(&view.strides).map(reach).sum::<usize>() + 1
}

/// Numbers between -1 and 1, or small integers.
fn random(dtype: DType, count: usize, seed: u64) -> Result<Tensor, Box<dyn Error>> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let values = (0..count).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let share = (state >> 40) as f64 / (1u64 << 24) as f64;
        if dtype.is_float() { Scalar::Float(share * 2.0 - 1.0) } else { Scalar::Int((share * 100.0) as i64 - 50) }
    });
    Tensor::from_scalars(dtype, &[count], values).ok_or_else(|| NO_TENSOR.into())
}

struct Bench {
    device: Device,
    gpu: GpuDevice,
    stream: Stream,
    events: [Event; 2],
    rounds: usize,
}

impl Bench {
    /// The step, ready to run on memory filled with `inputs`.
    fn prepare(&self, step: &Step, inputs: &[Tensor]) -> Result<Result<Ready, String>, Box<dyn Error>> {
        let mut graph = Graph::new();
        let values = step.inputs.iter().enumerate();
        let ids = values.map(|(at, view)| graph.add_value(format!("x{at}"), view.dtype, None)).collect();
        graph.set_inputs(ids);
        let places = (0..step.inputs.len()).map(BufferPlace::Input).chain([BufferPlace::Output(0)]).collect();
        let output = &step.outputs[0];
        let outputs = vec![OutputSpec { dtype: output.dtype, shape: output.shape.clone(), shown: None }];
        let steps = vec![step.clone()];
        let plan = Plan { steps, places, constants: Vec::new(), outputs, arena_bytes: 0, live_bytes: 0 };
        let loaded: Box<dyn Loaded> = self.gpu.load(Arc::new(graph))?;
        let prepared = loaded.prepare(plan)?;
        if let RunBy::Host { why } = prepared.run_by(0) {
            return Ok(Err(why.to_string()));
        }
        let mut memory = Vec::new();
        for tensor in inputs {
            let mut buffer = self.device.alloc(tensor.bytes().len())?;
            buffer.copy_to_device(0, tensor.bytes())?;
            memory.push(buffer);
        }
        memory.push(self.device.alloc(buffer_elems(output) * output.dtype.bytes())?);
        Ok(Ok(Ready { prepared, memory }))
    }

    fn run(&self, ready: &Ready) -> Result<(), Box<dyn Error>> {
        let Some((output, inputs)) = ready.memory.split_last() else { return Ok(()) };
        let inputs: Vec<*const u8> = inputs.iter().map(|buffer| buffer.address().as_ptr().cast_const()).collect();
        let outputs = [output.address().as_ptr()];
        let ledger = Arc::new(Ledger::default());
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        let order = Order::Stream { device: &self.device, stream: self.stream.raw(), ledger: &ledger };
        // SAFETY: there is one buffer for each of the plan's tensors, as large as its view; callers wait before they
        // drop them.
        unsafe { Arc::clone(&ready.prepared).run(run, order)? };
        Ok(())
    }

    /// The largest difference from the host's result, relative to the largest magnitude.
    fn difference(&self, step: &Step) -> Result<Result<f64, String>, Box<dyn Error>> {
        let inputs: Vec<Tensor> = step
            .inputs
            .iter()
            .zip(1..)
            .map(|(view, seed)| random(view.dtype, buffer_elems(view), seed))
            .collect::<Result<_, _>>()?;
        let ready = match self.prepare(step, &inputs)? {
            Ok(ready) => ready,
            Err(why) => return Ok(Err(why)),
        };
        self.run(&ready)?;
        self.stream.synchronize()?;
        let output = &step.outputs[0];
        let bytes = buffer_elems(output) * output.dtype.bytes();
        let mut found = vec![0u8; bytes];
        if let Some(memory) = ready.memory.last() {
            memory.copy_to_host(0, &mut found)?;
        }
        let mut wanted = vec![0u64; bytes.div_ceil(8)];
        let target = wanted.as_mut_ptr().cast::<u8>();
        let address = |buffer: BufferId| {
            inputs.get(buffer.0 as usize).map_or(target, |tensor| tensor.bytes().as_ptr().cast_mut())
        };
        let mut scratch = host_ops::Scratch::default();
        let mut cx = host_ops::Context { parallel: &host_ops::Serial, scratch: &mut scratch };
        // SAFETY: every buffer is a complete tensor, or fresh memory as large as the view's.
        unsafe { host_ops::run(step, address, &mut cx)? };
        let wanted: Vec<u8> = wanted.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).collect();
        let elems = buffer_elems(output);
        let [found, wanted] = [found, wanted].map(|bytes| Tensor::from_bytes(output.dtype, &[elems], &bytes));
        let (found, wanted) = (found.ok_or(NO_TENSOR)?, wanted.ok_or(NO_TENSOR)?);
        let (mut worst, mut largest) = (0.0f64, 0.0f64);
        for (found, wanted) in found.scalars().zip(wanted.scalars()) {
            let (found, wanted) = (found.as_f64(), wanted.as_f64());
            largest = largest.max(wanted.abs());
            let apart = (found - wanted).abs();
            worst = if apart.is_nan() { f64::INFINITY } else { worst.max(apart) };
        }
        Ok(Ok(worst / largest))
    }

    /// The median time of a run in seconds.
    fn seconds(&self, step: &Step) -> Result<Result<f64, String>, Box<dyn Error>> {
        // Repeats a short piece: the values only have to be ordinary numbers.
        let piece = 1 << 16;
        let inputs: Vec<Tensor> = step
            .inputs
            .iter()
            .map(|view| {
                let elems = buffer_elems(view);
                let piece = random(view.dtype, piece.min(elems), 7)?;
                let bytes: Vec<u8> = piece.bytes().iter().copied().cycle().take(elems * view.dtype.bytes()).collect();
                Tensor::from_bytes(view.dtype, &[elems], &bytes).ok_or_else(|| NO_TENSOR.into())
            })
            .collect::<Result<_, Box<dyn Error>>>()?;
        let ready = match self.prepare(step, &inputs)? {
            Ok(ready) => ready,
            Err(why) => return Ok(Err(why)),
        };
        let mut found = Vec::new();
        let [start, end] = &self.events;
        for round in 0..self.rounds + 3 {
            start.record(self.stream.raw())?;
            self.run(&ready)?;
            end.record(self.stream.raw())?;
            end.synchronize()?;
            if round >= 3 {
                found.push(f64::from(end.elapsed_ms(start)?) / 1e3);
            }
        }
        found.sort_by(f64::total_cmp);
        Ok(Ok(found[found.len() / 2]))
    }
}

/// A plan of one step and its memory, the output last.
struct Ready {
    prepared: Arc<dyn Prepared>,
    memory: Vec<DeviceBuffer>,
}

fn main() -> ExitCode {
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The tolerance for a case's results.
const fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 0.0,
    }
}

fn measure() -> Result<bool, Box<dyn Error>> {
    let (mut driver, mut rounds) = (DriverKind::Amd, 30);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--driver" => driver = value.parse()?,
            "--rounds" => rounds = value.parse::<usize>()?.max(3),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let loaded = Driver::load(driver)?;
    let device = loaded.devices()?.into_iter().next().ok_or("the driver has no device")?;
    let arch = Arch::of(device.info())?;
    let gpu = GpuDevice::new(device.clone(), arch, Arc::new(RtcCompiler(hip::Rtc::load(driver)?)));
    let (stream, events) = (device.stream()?, [device.timing_event()?, device.timing_event()?]);
    println!("{}", device.info().name);
    let bench = Bench { device, gpu, stream, events, rounds };
    let mut all_right = true;
    for case in small() {
        let allowed = tolerance(case.step.outputs[0].dtype);
        match bench.difference(&case.step)? {
            Ok(found) if found <= allowed => {}
            Ok(found) => {
                all_right = false;
                println!("{}: differs by {found:.2e} of the largest, {allowed:.0e} is allowed", case.label);
            }
            Err(why) => println!("{}: no kernel: {why}", case.label),
        }
    }
    println!("{} small cases, {}", small().len(), if all_right { "all right" } else { "some wrong" });
    println!("{:<58}{:>10}{:>10}{:>10}", "step", "ms", "TFLOP/s", "GB/s");
    for case in large() {
        let views = case.step.inputs.iter().chain(&case.step.outputs);
        let bytes: usize = views.map(|view| buffer_elems(view) * view.dtype.bytes()).sum();
        match bench.seconds(&case.step)? {
            Ok(seconds) => {
                let (tera, giga) = (case.operations / seconds / 1e12, bytes as f64 / seconds / 1e9);
                println!("{:<58}{:>10.4}{tera:>10.1}{giga:>10.0}", case.label, seconds * 1e3);
            }
            Err(why) => println!("{:<58}no kernel: {why}", case.label),
        }
    }
    Ok(all_right)
}
