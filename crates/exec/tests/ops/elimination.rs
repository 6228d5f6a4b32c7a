//! Compares determinants and inverses with elimination in double precision, and with the definition.
use graph::DType;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

/// The determinant, by its expansion along the first row.
fn determinant(matrix: &[Vec<f64>]) -> f64 {
    if matrix.is_empty() {
        return 1.0;
    }
    let minor = |column: usize| -> Vec<Vec<f64>> {
        let row = |row: &Vec<f64>| (0..row.len()).filter(|&at| at != column).map(|at| row[at]).collect();
        matrix[1..].iter().map(row).collect()
    };
    let sign = |column: usize| if column.is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..matrix.len()).map(|column| sign(column) * matrix[0][column] * determinant(&minor(column))).sum()
}

fn matrix_of(array: &Array, batch: usize, n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|row| (0..n).map(|column| array.values[(batch * n + row) * n + column]).collect()).collect()
}

fn run(op_type: &'static str, domain: &'static str, x: &Array, dtype: DType) -> Vec<f64> {
    let mut case = Case::new(op_type, 11, vec![x.tensor(dtype)], &[dtype]);
    case.domain = domain;
    numbers(&case.run().unwrap()[0])
}

#[test]
fn determinants_of_stacks_of_matrices() {
    for (n, dtype, relative) in [
        (1, DType::F32, 1e-6),
        (2, DType::F32, 1e-5),
        (3, DType::F64, 1e-12),
        (5, DType::F32, 1e-4),
        (4, DType::F16, 2e-2),
    ] {
        let x = Array::random(dtype, &[2, 3, n, n], 1 + n as u64);
        let wanted: Vec<f64> = (0..6).map(|batch| determinant(&matrix_of(&x, batch, n))).collect();
        let largest = wanted.iter().fold(1.0, |largest: f64, value| largest.max(value.abs()));
        let scaled = |values: &[f64]| values.iter().map(|value| value / largest).collect::<Vec<_>>();
        assert_close(&scaled(&run("Det", "", &x, dtype)), &scaled(&wanted), relative);
    }
}

#[test]
fn singular_matrices_and_zero_pivots() {
    let x = tensor(DType::F32, &[3, 2, 2], &[0.0, 2.0, 3.0, 4.0, 1.0, 2.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(run("Det", "", &Array::from(&x), DType::F32), [-6.0, 0.0, 0.0]);
}

#[test]
fn a_matrix_times_its_inverse_is_the_unit_matrix() {
    for (n, dtype, allowed) in
        [(1, DType::F32, 1e-6), (4, DType::F32, 2e-4), (6, DType::F64, 1e-10), (3, DType::F16, 3e-2)]
    {
        // Some distance from singular matrices; the largest element of a column is not on the diagonal.
        let noise = Array::random(dtype, &[3, n, n], 7);
        let x = Array::of(&[3, n, n], |at| noise.at(at) + if (at[1] + 1) % n == at[2] { 4.0 } else { 0.0 });
        let x = Array::from(&x.tensor(dtype));
        let inverse = run("Inverse", "com.microsoft", &x, dtype);
        let product = Array::of(&[3, n, n], |at| {
            (0..n).map(|k| x.at(&[at[0], at[1], k]) * inverse[(at[0] * n + k) * n + at[2]]).sum()
        });
        let unit = Array::of(&[3, n, n], |at| f64::from(u8::from(at[1] == at[2])));
        assert_close(&product.values, &unit.values, allowed);
    }
}

#[test]
fn a_matrix_that_is_not_square_is_an_error() {
    let case = Case::new("Det", 11, vec![Array::random(DType::F32, &[2, 3], 1).tensor(DType::F32)], &[DType::F32]);
    assert!(case.run().unwrap_err().contains("not a square matrix"));
}
