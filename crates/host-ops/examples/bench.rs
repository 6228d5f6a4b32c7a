//! Memory throughput of maps, reductions and softmax on one thread.
//!
//! Prints gigabytes read and written per second: the best of several runs.
use std::time::{Duration, Instant};

use graph::expr::{Binary, Expr, Unary};
use graph::prim::{BufferId, Map, Norm, Reduce, ReduceKind, Softmax};
use graph::shape::{Strides, dense_strides};
use graph::{DType, Prim, Shape, Step, View};
use host_ops::{Context, Scratch, Serial};

fn main() {
    println!("{:<44} {:>12} {:>10}", "step", "bytes", "GB/s");
    for count in [1 << 10, 1 << 16, 1 << 22] {
        let shape = [count];
        report(&format!("add f32 [{count}]"), map(binary(DType::F32), &[DType::F32; 2], DType::F32, &shape));
        report(&format!("add f16 [{count}]"), map(binary(DType::F16), &[DType::F16; 2], DType::F16, &shape));
        report(&format!("relu f32 [{count}]"), map(relu(), &[DType::F32], DType::F32, &shape));
        report(&format!("gelu f32 [{count}]"), map(gelu(), &[DType::F32], DType::F32, &shape));
        for op in [Unary::Exp, Unary::Tanh, Unary::Erf, Unary::Log] {
            report(&format!("{op:?} f32 [{count}]"), map(unary(op), &[DType::F32], DType::F32, &shape));
        }
    }
    for shape in [[64, 56 * 56], [512, 49], [3136, 64]] {
        let mut bias = map(binary(DType::F32), &[DType::F32; 2], DType::F32, &shape);
        bias.inputs[1].strides = Strides::from_slice(&[1, 0]);
        report(&format!("add a bias per row {shape:?}"), bias);
        let mut bias = map(binary(DType::F32), &[DType::F32; 2], DType::F32, &shape);
        bias.inputs[1].strides = Strides::from_slice(&[0, 1]);
        report(&format!("add a bias per column {shape:?}"), bias);
    }
    for shape in [[1024, 1024], [64, 4096], [4096, 64], [3, 50176]] {
        for dtype in [DType::F32, DType::F16, DType::U8] {
            let mut copy = map(Expr::copy(dtype, dtype), &[dtype], dtype, &shape);
            copy.inputs[0].strides = Strides::from_slice(&[1, shape[0] as isize]);
            report(&format!("transpose {dtype} {shape:?}"), copy);
        }
    }
    for shape in [[1024, 1024], [8192, 49], [16, 65536]] {
        let sum = Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 });
        report(&format!("sum f32 rows {shape:?}"), rows(sum.clone(), &shape, &shape[..1]));
        let mut columns = rows(sum, &shape, &shape[..1]);
        columns.inputs[0].strides = Strides::from_slice(&[1, shape[0] as isize]);
        report(&format!("sum f32 columns {shape:?}"), columns);
        report(&format!("softmax f32 {shape:?}"), rows(Prim::Softmax(Softmax { log: false }), &shape, &shape));
        let norm = Norm { axes: 1, epsilon: 1e-5, centre: true, scale: false, bias: false, round_before_scale: false };
        report(&format!("norm f32 {shape:?}"), rows(Prim::Norm(norm), &shape, &shape));
    }
}

fn binary(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
    expr.binary(Binary::Add, a, b);
    expr
}

fn unary(op: Unary) -> Expr {
    let mut expr = Expr::new();
    let x = expr.input(0, DType::F32);
    expr.unary(op, x);
    expr
}

fn relu() -> Expr {
    let mut expr = Expr::new();
    let x = expr.input(0, DType::F32);
    let zero = expr.constant(graph::Scalar::Float(0.0), DType::F32);
    expr.binary(Binary::Max, x, zero);
    expr
}

fn gelu() -> Expr {
    let mut expr = Expr::new();
    let x = expr.input(0, DType::F32);
    let factor = expr.constant(graph::Scalar::Float(std::f64::consts::FRAC_1_SQRT_2), DType::F32);
    let scaled = expr.binary(Binary::Mul, x, factor);
    let erf = expr.unary(Unary::Erf, scaled);
    let one = expr.constant(graph::Scalar::Float(1.0), DType::F32);
    let sum = expr.binary(Binary::Add, erf, one);
    let half = expr.constant(graph::Scalar::Float(0.5), DType::F32);
    let halved = expr.binary(Binary::Mul, x, half);
    expr.binary(Binary::Mul, halved, sum);
    expr
}

fn view(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    View { buffer: BufferId(buffer), dtype, shape: Shape::from_slice(shape), strides: dense_strides(shape), offset: 0 }
}

fn map(expr: Expr, inputs: &[DType], output: DType, shape: &[usize]) -> Step {
    let inputs: Vec<View> = inputs.iter().enumerate().map(|(at, &dtype)| view(at as u32, dtype, shape)).collect();
    let outputs = vec![view(inputs.len() as u32, output, shape)];
    Step { node: 0, prim: Prim::Map(Map { expr }), inputs, outputs }
}

fn rows(prim: Prim, from: &[usize], to: &[usize]) -> Step {
    Step { node: 0, prim, inputs: vec![view(0, DType::F32, from)], outputs: vec![view(1, DType::F32, to)] }
}

fn report(name: &str, step: Step) {
    let bytes: usize = step.inputs.iter().chain(&step.outputs).map(|view| view.elems() * view.dtype.bytes()).sum();
    let mut buffers: Vec<Vec<f64>> =
        step.inputs.iter().chain(&step.outputs).map(|view| vec![0.0; view.elems().max(1)]).collect();
    let bases: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel: &Serial, scratch: &mut scratch };
    let mut once = || {
        // SAFETY: every view has its own buffer, with room for eight bytes per element.
        let result = unsafe { host_ops::run(&step, |id| bases[id.0 as usize], &mut cx) };
        if let Err(error) = result {
            eprintln!("{name}: {error}");
        }
    };
    let mut best = Duration::MAX;
    let mut times = 1u32;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(150) {
        let before = Instant::now();
        (0..times).for_each(|_| once());
        let took = before.elapsed();
        best = best.min(took / times);
        if took < Duration::from_millis(2) {
            times *= 2;
        }
    }
    println!("{name:<44} {bytes:>12} {:>10.2}  {best:?}", bytes as f64 / best.as_secs_f64() / 1e9);
}
