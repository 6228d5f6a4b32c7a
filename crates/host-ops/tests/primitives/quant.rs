//! Products with packed weights against loops in double precision.
use graph::prim::{Product, ProductKind, Zeros};
use graph::{DType, Prim};
use testkit::ops::quant::{self, Packed};
use testkit::ops::{Sample, dense, random};

use crate::common::run;

fn check(case: &Packed, dtype: DType, scales: DType) {
    let Packed { rows, depth, columns, .. } = *case;
    let a = (dense(0, dtype, &[1, rows, depth]), random(dtype, rows * depth, 3));
    let inputs = [a].into_iter().chain(case.weights(scales)).collect();
    let prim = Prim::from(Product::from(ProductKind::QuantMatMul(case.prim())));
    let sample = Sample::new(prim, inputs, vec![dense(4, dtype, &[1, rows, columns])]);
    let expected = case.expected(&sample.values());
    let relative = match dtype {
        DType::F16 => 1e-3,
        DType::Bf16 => 8e-3,
        _ => 1e-6,
    };
    for threads in [1, 3] {
        let found = testkit::ops::list(&run(&sample.step, &sample.inputs, threads).unwrap()[0]);
        assert_eq!(found.len(), expected.len());
        for (at, (found, (sum, size))) in found.into_iter().zip(&expected).enumerate() {
            let is_close = (found - sum).abs() <= relative * size.max(1.0);
            assert!(is_close, "{case:?} on {threads} threads: element {at} is {found} instead of {sum}");
        }
    }
}

#[test]
fn every_width_block_and_kind_of_zero() {
    quant::forms(1, 19).iter().for_each(|case| check(case, DType::F32, DType::F32));
    quant::forms(3, 7).iter().for_each(|case| check(case, DType::F16, DType::F16));
}

#[test]
fn every_type_and_number_of_rows() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for scales in [dtype, DType::F32] {
            for rows in [1, 3, 16, 70] {
                for bits in [4, 8] {
                    let case = Packed { rows, depth: 192, columns: 37, bits, block: 32, zeros: Zeros::Packed };
                    check(&case, dtype, scales);
                }
            }
        }
    }
}

#[test]
fn deep_and_wide_products() {
    for (rows, depth, columns) in [(1, 4096, 3), (5, 3000, 200), (66, 2048, 20), (1, 256, 780)] {
        let case = Packed { rows, depth, columns, bits: 4, block: 32, zeros: Zeros::Middle };
        check(&case, DType::F32, DType::F32);
    }
}
