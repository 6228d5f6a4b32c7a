//! Powers, remainders and arithmetic of many operands on the host device.
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, numbers, random, tensor};

#[test]
fn many_operands_are_combined_and_rounded_once() {
    for (dtype, relative) in [(DType::F32, 1e-6), (DType::F64, 1e-14), (DType::F16, 1e-3), (DType::Bf16, 8e-3)] {
        for count in [1, 2, 3, 8, 9, 20] {
            let operands: Vec<_> = (0..count).map(|seed| tensor(dtype, &[3, 11], &random(33, seed + 1))).collect();
            let column = |at: usize| operands.iter().map(|operand| numbers(operand)[at]).collect::<Vec<_>>();
            for (op_type, join) in [
                ("Sum", (|list| list.iter().sum()) as fn(&[f64]) -> f64),
                ("Mean", |list| list.iter().sum::<f64>() / list.len() as f64),
                ("Max", |list| list.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
                ("Min", |list| list.iter().copied().fold(f64::INFINITY, f64::min)),
            ] {
                let wanted: Vec<f64> = (0..33).map(|at| join(&column(at))).collect();
                let found = Case::new(op_type, 13, operands.clone(), &[dtype]).run().unwrap();
                assert_close(&numbers(&found[0]), &wanted, relative);
            }
        }
    }
}

#[test]
fn powers_mix_types() {
    let floats = |values: Vec<f64>| values.into_iter().map(|x| x.abs() + 0.25).collect::<Vec<_>>();
    for (base, exponent, relative) in [
        (DType::F32, DType::F32, 4e-6),
        (DType::F32, DType::I64, 4e-6),
        (DType::F64, DType::F32, 1e-12),
        (DType::F16, DType::F16, 2e-3),
        (DType::F32, DType::F64, 4e-6),
    ] {
        let x = tensor(base, &[7, 5], &floats(random(35, 8)));
        let y = tensor(exponent, &[5], &[-2.0, 0.0, 0.5, 3.0, 4.0]);
        let powers = numbers(&x).into_iter().enumerate().map(|(at, x)| x.powf(numbers(&y)[at % 5]));
        let wanted: Vec<f64> = powers.collect();
        let found = Case::new("Pow", 15, vec![x, y], &[base]).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, relative);
    }
    let found = Case::new(
        "Pow",
        15,
        vec![tensor(DType::I32, &[4], &[2.0, -3.0, 9.0, 5.0]), tensor(DType::F32, &[4], &[3.0, 3.0, 0.5, -1.0])],
        &[DType::I32],
    );
    assert_eq!(numbers(&found.run().unwrap()[0]), [8.0, -27.0, 3.0, 0.0]);
}

#[test]
fn fmod_selects_the_sign_of_remainders_in_every_type() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let signs: &[f64] = if dtype.is_signed() { &[1.0, -1.0] } else { &[1.0] };
        for fmod in if dtype.is_float() { 1..=1 } else { 0..=1 } {
            for (&sign, &divisor_sign) in signs.iter().flat_map(|a| signs.iter().map(move |b| (a, b))) {
                let x = tensor(dtype, &[20], &(0..20).map(|at| sign * f64::from(at)).collect::<Vec<_>>());
                let y = tensor(dtype, &[], &[7.0 * divisor_sign]);
                let divisor = 7.0 * divisor_sign;
                let remainders = numbers(&x).into_iter().map(|x| {
                    if fmod == 1 { x - divisor * (x / divisor).trunc() } else { x - divisor * (x / divisor).floor() }
                });
                let wanted: Vec<f64> = remainders.collect();
                let node = Case::new("Mod", 13, vec![x, y], &[dtype]).attribute("fmod", Attribute::Int(fmod));
                assert_eq!(numbers(&node.run().unwrap()[0]), wanted, "{dtype} fmod {fmod}");
            }
        }
    }
}

#[test]
fn integer_division_by_zero_and_overflow_do_not_fail() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let x = tensor(dtype, &[3], &[0.0, 7.0, 100.0]);
        let zero = tensor(dtype, &[3], &[0.0; 3]);
        for (op_type, fmod) in [("Div", None), ("Mod", Some(0)), ("Mod", Some(1))] {
            let node = Case::new(op_type, 14, vec![x.clone(), zero.clone()], &[dtype]);
            let node = fmod.into_iter().fold(node, |node, flag| node.attribute("fmod", Attribute::Int(flag)));
            assert_eq!(numbers(&node.run().unwrap()[0]), [0.0; 3], "{op_type} {dtype}");
        }
        if dtype.is_signed() {
            let lowest = -(2f64.powi(8 * dtype.bytes() as i32 - 1));
            let inputs = vec![tensor(dtype, &[1], &[lowest]), tensor(dtype, &[1], &[-1.0])];
            let quotient = Case::new("Div", 14, inputs.clone(), &[dtype]).run().unwrap();
            assert_eq!(numbers(&quotient[0]), [lowest], "{dtype}");
            assert_eq!(numbers(&Case::new("Mod", 13, inputs, &[dtype]).run().unwrap()[0]), [0.0], "{dtype}");
        }
    }
}
