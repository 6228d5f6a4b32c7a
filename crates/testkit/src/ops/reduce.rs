//! Reductions and searches of lists.

use graph::prim::{ArgReduce, ReduceKind};
use graph::{DType, Scalar};

/// Every kind of reduction.
pub const KINDS: [ReduceKind; 10] = [
    ReduceKind::Sum,
    ReduceKind::Mean,
    ReduceKind::Prod,
    ReduceKind::Max,
    ReduceKind::Min,
    ReduceKind::SumSquare,
    ReduceKind::L1,
    ReduceKind::L2,
    ReduceKind::LogSum,
    ReduceKind::LogSumExp,
];

/// The reduction of a list, stored as `dtype`.
pub fn reduced(kind: ReduceKind, dtype: DType, list: &[Scalar]) -> Scalar {
    let numbers: Vec<f64> = list.iter().map(|value| value.as_f64()).collect();
    let count = numbers.len() as f64;
    let sum: f64 = numbers.iter().sum();
    let square: f64 = numbers.iter().map(|x| x * x).sum();
    let largest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let result = match kind {
        ReduceKind::Sum => sum,
        ReduceKind::Mean => sum / count,
        // Integer products wrap, so they are computed in integers.
        ReduceKind::Prod if !dtype.is_float() => {
            let product = list.iter().fold(1i64, |product, value| product.wrapping_mul(value.as_i64()));
            return Scalar::Int(product).cast(dtype);
        }
        ReduceKind::Prod => numbers.iter().product(),
        ReduceKind::Max => largest,
        ReduceKind::Min => numbers.iter().copied().fold(f64::INFINITY, f64::min),
        ReduceKind::SumSquare => square,
        ReduceKind::L1 => numbers.iter().map(|x| x.abs()).sum(),
        ReduceKind::L2 => square.sqrt(),
        ReduceKind::LogSum => sum.ln(),
        ReduceKind::LogSumExp => numbers.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest,
    };
    Scalar::Float(result).cast(dtype)
}

/// The place of the best element of a list without NaN.
pub fn found(search: &ArgReduce, list: &[Scalar]) -> usize {
    let mut best = 0;
    for at in 1..list.len() {
        let (value, record) = (list[at].as_f64(), list[best].as_f64());
        let is_better = if search.largest { value > record } else { value < record };
        if is_better || (search.last && value == record) {
            best = at;
        }
    }
    best
}

/// The elements of each result, if the last `axes` axes of a shape are reduced.
pub fn groups(shape: &[usize], axes: usize, elements: &[Scalar]) -> Vec<Vec<Scalar>> {
    let length: usize = shape[shape.len() - axes..].iter().product();
    if length == 0 {
        return vec![Vec::new(); shape[..shape.len() - axes].iter().product()];
    }
    elements.chunks(length).map(<[Scalar]>::to_vec).collect()
}
