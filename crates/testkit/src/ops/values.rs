//! Numbers from seeds, and their comparison.

use graph::{DType, Scalar, Tensor};
use half::{bf16, f16};

/// Pseudo-random words, the same for the same seed.
pub fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A list of these numbers, rounded to the type.
pub fn tensor(dtype: DType, values: impl IntoIterator<Item = f64>) -> Tensor {
    let values = values.into_iter();
    // Large operands have these types, and this crate is optimised in builds for tests, which `graph` is not.
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.flat_map(|value| (value as f32).to_ne_bytes()).collect(),
        DType::F64 => values.flat_map(f64::to_ne_bytes).collect(),
        DType::F16 => values.flat_map(|value| f16::from_f64(value).to_ne_bytes()).collect(),
        DType::Bf16 => values.flat_map(|value| bf16::from_f64(value).to_ne_bytes()).collect(),
        _ => return elements(dtype, values.map(Scalar::Float)),
    };
    Tensor::from_bytes(dtype, &[bytes.len() / dtype.bytes()], &bytes).unwrap_or_else(|| unreachable!("whole elements"))
}

fn elements(dtype: DType, values: impl Iterator<Item = Scalar>) -> Tensor {
    let values: Vec<Scalar> = values.collect();
    Tensor::from_scalars(dtype, &[values.len()], values).unwrap_or_else(|| unreachable!("as many values as elements"))
}

/// A list of these integers.
pub fn ints(dtype: DType, values: impl IntoIterator<Item = i64>) -> Tensor {
    elements(dtype, values.into_iter().map(Scalar::Int))
}

/// The elements of a tensor.
pub fn list(tensor: &Tensor) -> Vec<f64> {
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DType::F32 => bytes.as_chunks().0.iter().map(|&value| f32::from_ne_bytes(value).into()).collect(),
        DType::F64 => bytes.as_chunks().0.iter().map(|&value| f64::from_ne_bytes(value)).collect(),
        DType::F16 => bytes.as_chunks().0.iter().map(|&value| f16::from_ne_bytes(value).to_f64()).collect(),
        DType::Bf16 => bytes.as_chunks().0.iter().map(|&value| bf16::from_ne_bytes(value).to_f64()).collect(),
        _ => tensor.scalars().map(Scalar::as_f64).collect(),
    }
}

/// Numbers between -2 and 2.
pub fn random(dtype: DType, count: usize, seed: u64) -> Tensor {
    let mut next = noise(seed);
    tensor(dtype, (0..count).map(|_| (next() >> 11) as f64 / (1u64 << 53) as f64 * 4.0 - 2.0))
}

/// Integers from zero to `below`, exclusive.
pub fn random_ints(dtype: DType, count: usize, below: i64, seed: u64) -> Tensor {
    let shares = list(&random(DType::F64, count, seed)).into_iter().map(|value| (value + 2.0) / 4.0);
    ints(dtype, shares.map(|share| ((share * below as f64) as i64).min(below - 1)))
}

/// Indices from `-extent` to `extent - 1`.
pub fn random_indices(dtype: DType, count: usize, extent: i64, seed: u64) -> Tensor {
    ints(dtype, random_ints(DType::I64, count, 2 * extent, seed).scalars().map(|value| value.as_i64() - extent))
}

/// Numbers whose sums are exact or nearly so: multiples of 1/64 in ±2, or integers in ±9 or below 10.
pub fn round_numbers(dtype: DType, count: usize, seed: u64) -> Tensor {
    let mut next = noise(seed);
    let value = |word: u64| match (dtype.is_float(), dtype.is_signed()) {
        (true, _) => (word % 257) as f64 / 64.0 - 2.0,
        (_, true) => (word % 19) as f64 - 9.0,
        _ => (word % 10) as f64,
    };
    tensor(dtype, (0..count).map(|_| value(next())))
}

/// Whether two numbers agree to within `relative` of the expected one or of 1. NaN equals NaN.
pub fn is_close(found: f64, expected: f64, relative: f64) -> bool {
    (found - expected).abs() <= relative * expected.abs().max(1.0)
        || found == expected
        || found.is_nan() && expected.is_nan()
}

/// Compares lists of numbers with [`is_close`].
///
/// # Errors
/// The first pair that differs, or different lengths.
pub fn compare(found: &[f64], expected: &[f64], relative: f64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} elements instead of {}", found.len(), expected.len()));
    }
    let pairs = found.iter().zip(expected);
    match pairs.enumerate().find(|(_, (found, expected))| !is_close(**found, **expected, relative)) {
        Some((at, (found, expected))) => Err(format!("element {at} is {found} instead of {expected}")),
        None => Ok(()),
    }
}
