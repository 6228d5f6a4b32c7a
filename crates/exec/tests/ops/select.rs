//! Tests selection by condition and bounds on the host device.
use graph::DType;

use crate::common::{Case, numbers, tensor};

#[test]
fn selection_keeps_every_type_unchanged() {
    for dtype in DType::ALL {
        let condition = tensor(DType::Bool, &[3, 1], &[1.0, 0.0, 1.0]);
        let x = tensor(dtype, &[1, 5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
        let y = tensor(dtype, &[3, 5], &(20..35).map(f64::from).collect::<Vec<_>>());
        let wanted: Vec<f64> =
            (0..15).map(|at| if at / 5 == 1 { numbers(&y)[at] } else { numbers(&x)[at % 5] }).collect();
        let found = Case::new("Where", 16, vec![condition, x, y], &[dtype]).run().unwrap();
        assert_eq!(numbers(&found[0]), wanted, "{dtype}");
    }
}

#[test]
fn bounds_apply_in_every_type() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let x = tensor(dtype, &[101], &(0..101).map(f64::from).collect::<Vec<_>>());
        let bounds = [tensor(dtype, &[], &[10.0]), tensor(dtype, &[], &[90.0])];
        let wanted: Vec<f64> = numbers(&x).into_iter().map(|x| x.clamp(10.0, 90.0)).collect();
        let [low, high] = bounds;
        let found = Case::new("Clip", 13, vec![x, low, high], &[dtype]).run().unwrap();
        assert_eq!(numbers(&found[0]), wanted, "{dtype}");
    }
}
