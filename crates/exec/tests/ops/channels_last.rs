//! Compares operators on images with the channels last with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

fn case(op_type: &'static str, inputs: Vec<Option<Tensor>>, dtype: DType) -> Case {
    let mut case = Case::new(op_type, 1, Vec::new(), &[dtype]);
    case.domain = "com.microsoft";
    case.inputs = inputs;
    case
}

/// The sum of products for one place of a convolution with strides of 2 and a padding of 1 at the start.
fn convolved(x: &dyn Fn(&[usize]) -> f64, extents: [usize; 2], w: &Array, at: &[usize]) -> f64 {
    let [_, channels, height, width] = w.shape[..] else { panic!("weights have four axes") };
    let mut sum = 0.0;
    for c in 0..channels {
        for i in 0..height {
            for j in 0..width {
                let (row, column) = (2 * at[1] + i, 2 * at[2] + j);
                let inside = (1..=extents[0]).contains(&row) && (1..=extents[1]).contains(&column);
                if inside {
                    sum += x(&[at[0], row - 1, column - 1, c]) * w.at(&[at[3], c, i, j]);
                }
            }
        }
    }
    sum
}

fn window(case: Case) -> Case {
    case.attribute("strides", Attribute::Ints(vec![2, 2])).attribute("pads", Attribute::Ints(vec![1, 1, 0, 0]))
}

#[test]
fn convolutions_read_and_write_the_channels_last() {
    for dtype in [DType::F32, DType::F16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let (x, w, bias) = (random(&[2, 5, 7, 3], 1), random(&[4, 3, 3, 3], 2), random(&[4], 3));
        let other = random(&[2, 2, 3, 4], 4);
        let plain = Array::of(&[2, 2, 3, 4], |at| convolved(&|at| x.at(at), [5, 7], &w, at) + bias.at(&at[3..]));
        let tolerance = if dtype == DType::F32 { 1e-5 } else { 5e-3 };
        let inputs = |list: &[&Array]| list.iter().map(|array| Some(array.tensor(dtype))).collect::<Vec<_>>();
        let found = window(case("NhwcConv", inputs(&[&x, &w, &bias]), dtype)).run().unwrap();
        assert_eq!(found[0].shape(), [2, 2, 3, 4]);
        assert_close(&numbers(&found[0]), &plain.values, tolerance);
        let fused = window(case("NhwcFusedConv", inputs(&[&x, &w, &bias, &other]), dtype));
        let found = fused.attribute("activation", Attribute::Text("Relu".to_owned())).run().unwrap();
        let wanted = Array::of(&[2, 2, 3, 4], |at| (plain.at(at) + other.at(at)).max(0.0));
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    }
}

/// Integers of a type.
fn integers(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
    let numbers = Array::random(DType::F32, shape, seed);
    Array::of(shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low)
}

/// Fails unless all integers are those of the exact numbers, rounded to either side at a tie.
fn assert_rounded(found: &Tensor, exact: &Array) {
    let (low, high) = if found.dtype() == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
    assert_eq!(found.shape(), exact.shape);
    for (found, exact) in numbers(found).iter().zip(&exact.values) {
        assert!((found - exact.clamp(low, high)).abs() <= 0.501, "{found} instead of {exact}");
    }
}

#[test]
fn integers_are_convolved_and_pooled_in_both_layouts() {
    for dtype in [DType::U8, DType::I8] {
        let (x, w) = (integers(dtype, &[2, 5, 7, 3], 1), integers(DType::I8, &[4, 3, 3, 3], 2));
        let number = |dtype, value| Some(tensor(dtype, &[], &[value]));
        let zero = 3.0;
        let sums = Array::of(&[2, 2, 3, 4], |at| convolved(&|at| x.at(at) - zero, [5, 7], &w, at));
        let exact = Array::of(&[2, 2, 3, 4], |at| sums.at(at) * 0.25 * 0.125 / 64.0 + 9.0);
        let inputs = vec![
            Some(x.tensor(dtype)),
            number(DType::F32, 0.25),
            number(dtype, zero),
            Some(w.tensor(DType::I8)),
            number(DType::F32, 0.125),
            number(DType::I8, 0.0),
            number(DType::F32, 64.0),
            number(dtype, 9.0),
        ];
        let last = window(case("QLinearConv", inputs, dtype)).attribute("channels_last", Attribute::Int(1));
        assert_rounded(&last.run().unwrap()[0], &exact);

        // Windows of 2 by 2 without padding.
        let mean = |n: usize, c: usize, i: usize, j: usize| {
            (0..4).map(|k| x.at(&[n, 2 * i + k / 2, 2 * j + k % 2, c]) - zero).sum::<f64>() / 4.0 * 0.25 / 0.5 + 9.0
        };
        for channels_last in [0, 1] {
            let (given, exact) = if channels_last == 1 {
                (x.clone(), Array::of(&[2, 2, 3, 3], |at| mean(at[0], at[3], at[1], at[2])))
            } else {
                let moved = Array::of(&[2, 3, 5, 7], |at| x.at(&[at[0], at[2], at[3], at[1]]));
                (moved, Array::of(&[2, 3, 2, 3], |at| mean(at[0], at[1], at[2], at[3])))
            };
            let inputs = vec![
                Some(given.tensor(dtype)),
                number(DType::F32, 0.25),
                number(dtype, zero),
                number(DType::F32, 0.5),
                number(dtype, 9.0),
            ];
            let pool = case("QLinearAveragePool", inputs, dtype)
                .attribute("kernel_shape", Attribute::Ints(vec![2, 2]))
                .attribute("strides", Attribute::Ints(vec![2, 2]))
                .attribute("channels_last", Attribute::Int(channels_last));
            assert_rounded(&pool.run().unwrap()[0], &exact);
        }
        let largest = Array::of(&[2, 4, 6, 3], |at| {
            let of = |k: usize| x.at(&[at[0], at[1] + k / 2, at[2] + k % 2, at[3]]);
            (0..4).map(of).fold(f64::NEG_INFINITY, f64::max)
        });
        let pool = case("NhwcMaxPool", vec![Some(x.tensor(dtype))], dtype)
            .attribute("kernel_shape", Attribute::Ints(vec![2, 2]));
        assert_eq!(numbers(&pool.run().unwrap()[0]), largest.values);
    }
}
