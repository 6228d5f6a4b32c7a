//! Maps, and copies of bytes.
use graph::expr::{Binary, Expr, Unary};
use graph::prim::{Conv, Map, ProductKind};
use graph::{DType, Prim};

use crate::images::conv;
use crate::{Sample, expression, sample};

pub(crate) fn elementwise(dtype: DType, samples: &mut Vec<Sample>) {
    let flat: &[usize] = &[64, 1024];
    let map = |inputs| Prim::Map(Map { expr: expression(dtype, inputs) });
    samples.push(sample(format!("map add relu {dtype}"), map(2), &[(dtype, flat), (dtype, flat)], &[(dtype, flat)]));
    samples.push(sample(format!("map tanh {dtype}"), map(1), &[(dtype, flat)], &[(dtype, flat)]));
    let mut broadcast = sample(
        format!("map add relu broadcast {dtype}"),
        map(2),
        &[(dtype, &[8, 32, 7, 7]), (dtype, &[8, 32, 7, 7])],
        &[(dtype, &[8, 32, 7, 7])],
    );
    broadcast.step.inputs[1].strides = [0isize, 1, 0, 0].into_iter().collect();
    samples.push(broadcast);
    let mut transpose = sample(
        format!("map transpose {dtype}"),
        Prim::Map(Map { expr: Expr::copy(dtype, dtype) }),
        &[(dtype, &[4, 96, 80])],
        &[(dtype, &[4, 96, 80])],
    );
    transpose.step.inputs[0].strides = [96 * 80isize, 1, 96].into_iter().collect();
    samples.push(transpose);
    let image: (DType, &[usize]) = (dtype, &[4, 96, 80]);
    let mut joined = sample(format!("map transpose add relu {dtype}"), map(2), &[image, image], &[image]);
    joined.step.inputs[0].strides = [96 * 80isize, 1, 96].into_iter().collect();
    samples.push(joined);
}

/// Maps with all operations on floats and on integers, and all conversions, so that everything in the map headers is
/// compiled.
pub(crate) fn operations(samples: &mut Vec<Sample>) {
    use Binary::{Atan2, Fmod, Max, Min, Mod, Pow, Shl, Shr};
    let functions: &[Unary] = &[
        Unary::Sign,
        Unary::Recip,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Exp,
        Unary::Log,
        Unary::Log1p,
        Unary::Expm1,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Atan,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Tanh,
        Unary::Asinh,
        Unary::Acosh,
        Unary::Atanh,
        Unary::Sigmoid,
        Unary::Round,
    ];
    let integers: &[Unary] = &[Unary::Neg, Unary::Abs, Unary::Sign, Unary::Not];
    let of_two = [Max, Min, Pow, Mod, Fmod];
    for (dtype, unary, more) in [(DType::F32, functions, [Atan2, Max]), (DType::I64, integers, [Shl, Shr])] {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
        let mut sum = b;
        for &op in unary {
            let value = expr.unary(op, a);
            sum = expr.binary(Binary::Add, sum, value);
        }
        for op in of_two.into_iter().chain(more) {
            let value = expr.binary(op, a, b);
            sum = expr.binary(Binary::Add, sum, value);
        }
        for to in DType::ALL.into_iter().filter(|&to| to != dtype) {
            let there = expr.cast(a, to);
            let back = expr.cast(there, dtype);
            sum = expr.binary(Binary::Add, sum, back);
        }
        expr.finish(sum);
        let extents: &[usize] = &[64, 1023];
        let operands = [(dtype, extents); 2];
        let prim = Prim::Map(Map { expr });
        let mut all = sample(format!("map all operations {dtype}"), prim, &operands, &operands[..1]);
        // Rows that are not a multiple of a pack: one copy of the code is enough.
        all.step.inputs[1].strides = [0isize, 1].into_iter().collect();
        samples.push(all);
    }
}

/// Products of bytes, of a type of activations and one of weights.
pub(crate) fn bytes(samples: &mut Vec<Sample>) {
    let zeros = [128, 0];
    for (name, m) in [("", 1024usize), ("one row ", 1)] {
        let inputs: [(DType, &[usize]); 2] = [(DType::U8, &[1, m, 1024]), (DType::I8, &[1, 1024, 1024])];
        let y: (DType, &[usize]) = (DType::I32, &[1, m, 1024]);
        let prim = ProductKind::IntegerMatMul { zeros }.into();
        samples.push(sample(format!("integer matmul {name}u8 i8"), prim, &inputs, &[y]));
    }
    for (name, groups) in [("", 1usize), ("depthwise ", 64)] {
        let prim = ProductKind::IntegerConv { conv: Conv { bias: false, ..conv(groups) }, zeros }.into();
        let weights = [64, 64 / groups, 3, 3];
        let inputs: [(DType, &[usize]); 2] = [(DType::U8, &[2, 64, 28, 28]), (DType::I8, &weights)];
        let y: (DType, &[usize]) = (DType::I32, &[2, 64, 28, 28]);
        samples.push(sample(format!("integer conv {name}u8 i8"), prim, &inputs, &[y]));
    }
}
