//! Matrix products, also with packed weights.
use graph::expr::{Binary, Expr, Unary};
use graph::prim::{Epilogue, Gate, MatMul, Norm, Product, ProductKind, QuantMatMul, WeightLayout, Zeros};
use graph::{DType, Prim};

use crate::{Sample, expression, sample};

pub(crate) fn products(dtype: DType, samples: &mut Vec<Sample>) {
    for (name, m) in [("", 256usize), ("one row ", 1)] {
        let (a, b, y): (&[usize], &[usize], &[usize]) = (&[2, m, 256], &[2, 256, 256], &[2, m, 256]);
        let inputs = [(dtype, a), (dtype, b)];
        samples.push(sample(format!("matmul {name}{dtype}"), matmul().into(), &inputs, &[(dtype, y)]));
        let inputs = [(dtype, a), (dtype, b), (dtype, y)];
        samples.push(sample(
            format!("matmul {name}add relu {dtype}"),
            fused(matmul(), 2, dtype),
            &inputs,
            &[(dtype, y)],
        ));
    }
    let prim = Prim::matmul(1.0);
    let large: (DType, &[usize]) = (dtype, &[4, 2048, 2048]);
    samples.push(sample(format!("matmul large {dtype}"), prim.clone(), &[large, large], &[large]));
    let deep: [(DType, &[usize]); 2] = [(dtype, &[1, 64, 4096]), (dtype, &[1, 4096, 64])];
    samples.push(sample(format!("matmul deep {dtype}"), prim.clone(), &deep, &[(dtype, &[1, 64, 64])]));
    let tiny: (DType, &[usize]) = (dtype, &[4096, 8, 8]);
    samples.push(sample(format!("matmul tiny {dtype}"), prim.clone(), &[tiny, tiny], &[tiny]));
    for (name, m) in [("", 256usize), ("one row ", 1)] {
        let inputs: [(DType, &[usize]); 2] = [(dtype, &[1, m, 256]), (dtype, &[1, 256, 256])];
        let label = format!("matmul {name}by columns {dtype}");
        let mut by_columns = sample(label, prim.clone(), &inputs, &[(dtype, &[1, m, 256])]);
        by_columns.step.inputs[1].strides = [0isize, 1, 256].into_iter().collect();
        samples.push(by_columns);
    }
    // As wide as real layers, which decides how a row is split.
    for rows in [1usize, 2] {
        let (k, n) = (2048usize, 3072usize);
        let (a, b, scale, y): ([usize; 3], [usize; 3], [usize; 1], [usize; 3]) =
            ([1, rows, k], [1, k, n], [k], [1, rows, n]);
        let inputs = [(dtype, &a[..]), (dtype, &b[..])];
        samples.push(sample(format!("matmul wide {rows} rows {dtype}"), prim.clone(), &inputs, &[(dtype, &y)]));
        let normed = Product::from(matmul()).with_prologue(rms_norm());
        let inputs = [(dtype, &a[..]), (dtype, &b[..]), (dtype, &scale[..])];
        let (gated, half) = (normed.clone().with_gate(Gate { dtype, expr: silu(dtype) }), [1, rows, n / 2]);
        let label = format!("gated_normed_matmul {rows} rows {dtype}");
        samples.push(sample(label, gated.into(), &inputs, &[(dtype, &half)]));
        samples.push(sample(format!("normed_matmul {rows} rows {dtype}"), normed.into(), &inputs, &[(dtype, &y)]));
    }
}

/// Products with packed weights, with all their kernels.
pub(crate) fn packed(dtype: DType, samples: &mut Vec<Sample>) {
    let (k, n) = (2048usize, 2048usize);
    for (bits, block, zeros, rows, add) in [
        (4usize, 32usize, Zeros::Middle, 1usize, false),
        (4, 32, Zeros::Middle, 1, true),
        (4, 32, Zeros::Packed, 1, false),
        (8, 32, Zeros::Packed, 1, false),
        (2, 64, Zeros::Middle, 1, false),
        (4, 32, Zeros::Packed, 4, false),
        (4, 32, Zeros::Middle, 8, true),
        (8, 128, Zeros::Packed, 16, false),
        (4, 128, Zeros::Middle, 16, true),
        (4, 32, Zeros::Packed, 512, false),
        (8, 32, Zeros::Middle, 512, false),
        (2, 64, Zeros::Middle, 512, false),
    ] {
        let prim = QuantMatMul { bits, block, zeros, rounds_activations: false, layout: WeightLayout::Onnx };
        let weights = [n, k / block, prim.block_bytes()];
        let (scales, points) = ([n, k / block], [n, prim.zero_bytes(k)]);
        let (a, y): ([usize; 3], [usize; 3]) = ([1, rows, k], [1, rows, n]);
        let mut inputs = vec![(dtype, &a[..]), (DType::U8, &weights[..]), (dtype, &scales[..])];
        let word = if zeros == Zeros::Packed { " zeros" } else { "" };
        if zeros == Zeros::Packed {
            inputs.push((DType::U8, &points[..]));
        }
        let own = inputs.len();
        // The row counts for which `graph` fuses the norm into the product.
        if rows <= 8 && !add {
            let normed = Product::from(ProductKind::QuantMatMul(prim.clone())).with_prologue(rms_norm());
            let (label, scale) = (format!("normed_quant_matmul {bits} bits{word} {rows} rows {dtype}"), [k]);
            let inputs = [&inputs[..], &[(dtype, &scale[..])]].concat();
            let half: [usize; 3] = [1, rows, n / 2];
            let gated = normed.clone().with_gate(Gate { dtype, expr: silu(dtype) });
            samples.push(sample(format!("gated_{label}"), gated.into(), &inputs, &[(dtype, &half)]));
            samples.push(sample(label, normed.into(), &inputs, &[(dtype, &y)]));
        }
        let kind = ProductKind::QuantMatMul(prim);
        let made = if add {
            inputs.push((dtype, &y[..]));
            fused(kind, own, dtype)
        } else {
            kind.into()
        };
        let end = if add { " add relu" } else { "" };
        let label = format!("quant_matmul {bits} bits{word} {rows} rows{end} {dtype}");
        samples.push(sample(label, made, &inputs, &[(dtype, &y)]));
    }
}

pub(crate) fn fused(kind: ProductKind, operands: usize, dtype: DType) -> Prim {
    Product::from(kind).with_epilogue(Epilogue { operands, dtype, expr: expression(dtype, 2) }).into()
}

fn matmul() -> ProductKind {
    ProductKind::MatMul(MatMul { alpha: 1.0 })
}

/// The norm that can be fused into products.
pub(crate) fn rms_norm() -> Norm {
    Norm { axes: 1, epsilon: 1e-5, centre: false, scale: true, bias: false, round_before_scale: false }
}

/// `in0 * sigmoid(in0) * in1`, each rounded to the type.
fn silu(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let parts = [0, 1].map(|number| {
        let part = expr.input(number, dtype);
        expr.cast(part, dtype)
    });
    let mut value = expr.unary(Unary::Sigmoid, parts[0]);
    for part in parts {
        value = expr.cast(value, dtype);
        value = expr.binary(Binary::Mul, part, value);
    }
    let value = expr.cast(value, dtype);
    expr.finish(value);
    expr
}
