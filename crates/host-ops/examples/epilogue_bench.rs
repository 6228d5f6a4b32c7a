//! The cost of an epilogue compared with the product alone and with a separate map, on one thread: the best of many
//! runs.
use std::time::{Duration, Instant};

use graph::expr::{Binary, Expr};
use graph::prim::{BufferId, Conv, Epilogue, Map, MatMul, Product, ProductKind};
use graph::shape::{Strides, dense_strides};
use graph::{DType, Prim, Scalar, Shape, Step, View};
use host_ops::{Context, Scratch, Serial};

fn main() {
    println!("{:<36} {:>10} {:>10} {:>10}", "product, relu(x + bias)", "alone", "+ map", "fused");
    for (channels, maps, side, kernel) in
        [(64, 256, 56, 1), (256, 64, 56, 1), (64, 64, 56, 3), (512, 512, 7, 3), (24, 144, 28, 1), (3, 64, 112, 3)]
    {
        let conv = Conv {
            strides: Shape::from_slice(&[1, 1]),
            pads: Strides::from_slice(&[kernel as isize / 2; 2]),
            dilations: Shape::from_slice(&[1, 1]),
            groups: 1,
            bias: false,
        };
        let inputs = [view(&[1, channels, side, side]), view(&[maps, channels, kernel, kernel])];
        let bias = View { strides: Strides::from_slice(&[0, 1, 0, 0]), ..view(&[1, maps, side, side]) };
        let name = format!("conv {channels} to {maps} {side}x{side} k{kernel}");
        report(&name, ProductKind::Conv(conv), inputs.to_vec(), bias, view(&[1, maps, side, side]));
    }
    for (m, k, n) in [(128, 768, 768), (128, 64, 3072), (1, 768, 3072), (16, 64, 64)] {
        let inputs = vec![view(&[1, m, k]), view(&[1, k, n])];
        let bias = View { strides: Strides::from_slice(&[0, 0, 1]), ..view(&[1, m, n]) };
        report(
            &format!("matmul {m}x{k}x{n}"),
            ProductKind::MatMul(MatMul { alpha: 1.0 }),
            inputs,
            bias,
            view(&[1, m, n]),
        );
    }
}

fn view(shape: &[usize]) -> View {
    let strides = dense_strides(shape);
    View { buffer: BufferId(0), dtype: DType::F32, shape: Shape::from_slice(shape), strides, offset: 0 }
}

fn relu_of_sum() -> Expr {
    let mut expr = Expr::new();
    let (x, bias) = (expr.input(0, DType::F32), expr.input(1, DType::F32));
    let sum = expr.binary(Binary::Add, x, bias);
    let zero = expr.constant(Scalar::Float(0.0), DType::F32);
    expr.binary(Binary::Max, sum, zero);
    expr
}

fn report(name: &str, product: ProductKind, inputs: Vec<View>, bias: View, out: View) {
    let number = |mut views: Vec<View>, first: u32| {
        views.iter_mut().zip(first..).for_each(|(view, at)| view.buffer = BufferId(at));
        views
    };
    let step = |prim: Prim, inputs: Vec<View>| {
        let outputs = number(vec![out.clone()], 9);
        Step { node: 0, prim, inputs, outputs }
    };
    let own = number(inputs, 0);
    let alone = step(product.clone().into(), own.clone());
    let map = step(Prim::Map(Map { expr: relu_of_sum() }), vec![alone.outputs[0].clone(), bias.clone()]);
    let epilogue = Epilogue { operands: own.len(), dtype: DType::F32, expr: relu_of_sum() };
    let fused = step(Product::from(product).with_epilogue(epilogue).into(), [own, number(vec![bias], 3)].concat());
    let mut buffers: Vec<Vec<f32>> = (0..10).map(|_| vec![1.0; 1 << 22]).collect();
    let bases: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel: &Serial, scratch: &mut scratch };
    let mut best = [Duration::MAX; 3];
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1000) {
        for (best, steps) in best.iter_mut().zip([&[&alone][..], &[&alone, &map], &[&fused]]) {
            let before = Instant::now();
            for step in steps {
                // SAFETY: every buffer is larger than any view here.
                if let Err(error) = unsafe { host_ops::run(step, |id| bases[id.0 as usize], &mut cx) } {
                    eprintln!("{name}: {error}");
                }
            }
            *best = (*best).min(before.elapsed());
        }
    }
    let [alone, apart, fused] = best.map(|time| time.as_secs_f64() * 1e6);
    println!("{name:<36} {alone:>8.1}us {apart:>8.1}us {fused:>8.1}us");
}
