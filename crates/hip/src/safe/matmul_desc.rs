//! The description of a matrix product, in row-major terms.

use std::ffi::c_int;

use crate::HipError;
use crate::sys::twin::BlasNumbers;

/// Element types, numbered as in both libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum DataType {
    /// 32-bit float.
    F32 = 0,
    /// 64-bit float.
    F64 = 1,
    /// IEEE half.
    F16 = 2,
    /// Signed byte.
    I8 = 3,
    /// 32-bit integer.
    I32 = 10,
    /// bfloat16.
    Bf16 = 14,
    /// OCP float 8, e4m3.
    F8E4M3 = 28,
    /// OCP float 8, e5m2.
    F8E5M2 = 29,
}

/// The accumulation type; the factors alpha and beta have the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// 32-bit float.
    F32,
    /// 32-bit float, with inputs rounded to 19 bits if that is faster.
    F32FastTf32,
    /// 64-bit float.
    F64,
    /// 32-bit integer.
    I32,
}

impl Compute {
    pub(super) fn numbers(self, numbers: &BlasNumbers) -> (c_int, DataType) {
        match self {
            Compute::F32 => (numbers.compute_f32, DataType::F32),
            Compute::F32FastTf32 => (numbers.compute_tf32, DataType::F32),
            Compute::F64 => (numbers.compute_f64, DataType::F64),
            Compute::I32 => (numbers.compute_i32, DataType::I32),
        }
    }

    /// A factor in the library's format.
    pub(super) fn scale(self, value: f64) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self {
            Compute::F32 | Compute::F32FastTf32 => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
            Compute::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
            Compute::I32 => bytes[..4].copy_from_slice(&(value as i32).to_ne_bytes()),
        }
        bytes
    }
}

/// The operation applied to the product before it is stored, numbered as in both libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Epilogue {
    /// Nothing.
    #[default]
    None = 1,
    /// `max(x, 0)`.
    Relu = 2,
    /// Adds the bias.
    Bias = 4,
    /// Adds the bias, then `max(x, 0)`.
    BiasRelu = 6,
    /// GELU with the tanh approximation.
    Gelu = 32,
    /// Adds the bias, then GELU with the tanh approximation.
    BiasGelu = 36,
}

impl Epilogue {
    /// Whether a bias vector is read.
    pub const fn has_bias(self) -> bool {
        matches!(self, Epilogue::Bias | Epilogue::BiasRelu | Epilogue::BiasGelu)
    }
}

/// A row-major matrix, or a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DataType,
    /// Whether it is stored transposed: `a` as `k` rows of `m`, `b` as `n` rows of `k`.
    pub transposed: bool,
    /// Elements from one stored row to the next; `None` for contiguous rows.
    pub row_stride: Option<usize>,
    /// Elements from one matrix of the batch to the next; 0 uses the same one for all.
    pub batch_stride: usize,
}

impl Operand {
    /// A single matrix, not transposed, with contiguous rows.
    pub const fn new(dtype: DataType) -> Operand {
        Operand { dtype, transposed: false, row_stride: None, batch_stride: 0 }
    }

    /// The same, stored transposed.
    pub const fn transposed(self) -> Operand {
        Operand { transposed: true, ..self }
    }

    /// The same, as a batch.
    pub const fn batched(self, batch_stride: usize) -> Operand {
        Operand { batch_stride, ..self }
    }
}

/// `D = epilogue(alpha · A B + beta · C + bias)` with `A` of `m × k`, `B` of `k × n`, `C` and `D` of `m × n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatmulDesc {
    /// Rows of `D`.
    pub m: usize,
    /// Columns of `D`.
    pub n: usize,
    /// The dimension that is summed over.
    pub k: usize,
    /// Number of products in the batch, 1 for a single one.
    pub batch: usize,
    /// First operand.
    pub a: Operand,
    /// Second operand.
    pub b: Operand,
    /// `C` and `D`; `transposed` is not used.
    pub d: Operand,
    /// The accumulation type.
    pub compute: Compute,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of `C`; if it is 0, `C` is not read.
    pub beta: f64,
    /// The operation applied before the result is stored.
    pub epilogue: Epilogue,
    /// Element type of the bias, which has `n` values.
    pub bias_type: DataType,
    /// Size of the workspace that will be passed, in bytes.
    pub workspace_bytes: usize,
    /// Alignment that every address will have, in bytes; a power of two.
    pub alignment: u32,
}

impl MatmulDesc {
    /// A plain product of one element type, accumulated in f32 (f64 for f64), with no workspace and 16-byte alignment.
    pub const fn new(m: usize, n: usize, k: usize, dtype: DataType) -> MatmulDesc {
        let operand = Operand::new(dtype);
        let compute = if matches!(dtype, DataType::F64) { Compute::F64 } else { Compute::F32 };
        MatmulDesc {
            m,
            n,
            k,
            batch: 1,
            a: operand,
            b: operand,
            d: operand,
            compute,
            alpha: 1.0,
            beta: 0.0,
            epilogue: Epilogue::None,
            bias_type: dtype,
            workspace_bytes: 0,
            alignment: 16,
        }
    }
}

/// A matrix as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub rows: u64,
    pub cols: u64,
    pub row_stride: i64,
}

/// The three stored shapes of a product.
pub(super) struct Shapes {
    pub a: Shape,
    pub b: Shape,
    pub d: Shape,
}

impl Shapes {
    /// The stored shape of each matrix, validated.
    pub(super) fn of(desc: &MatmulDesc) -> Result<Shapes, HipError> {
        let MatmulDesc { m, n, k, batch, .. } = *desc;
        if m == 0 || n == 0 || k == 0 || batch == 0 {
            return Err(invalid(format!("a product of {batch} x {m} x {n} x {k} has a zero extent")));
        }
        let stored = |operand: &Operand, rows: usize, cols: usize| {
            let (rows, cols) = if operand.transposed { (cols, rows) } else { (rows, cols) };
            let row_stride = operand.row_stride.unwrap_or(cols);
            if row_stride < cols {
                return Err(invalid(format!("a row stride of {row_stride} is too small for rows of {cols} elements")));
            }
            Ok(Shape { rows: rows as u64, cols: cols as u64, row_stride: signed("the row stride", row_stride)? })
        };
        if desc.d.transposed {
            return Err(invalid("the result cannot be stored transposed".to_owned()));
        }
        Ok(Shapes { a: stored(&desc.a, m, k)?, b: stored(&desc.b, k, n)?, d: stored(&desc.d, m, n)? })
    }
}

fn invalid(reason: String) -> HipError {
    HipError::Invalid { call: "hipblasLtMatmul", reason }
}

pub(super) fn too_large(what: &str, value: usize) -> HipError {
    invalid(format!("{what} of {value} is too large"))
}

pub(super) fn signed(what: &str, value: usize) -> Result<i64, HipError> {
    i64::try_from(value).map_err(|_| too_large(what, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_operands_are_stored_the_other_way_round() {
        let mut desc = MatmulDesc::new(2, 3, 5, DataType::F16);
        desc.b = desc.b.transposed();
        let shapes = Shapes::of(&desc).unwrap();
        assert_eq!((shapes.a.rows, shapes.a.cols, shapes.a.row_stride), (2, 5, 5));
        assert_eq!((shapes.b.rows, shapes.b.cols, shapes.b.row_stride), (3, 5, 5));
        assert_eq!((shapes.d.rows, shapes.d.cols, shapes.d.row_stride), (2, 3, 3));
    }

    #[test]
    fn invalid_sizes_are_rejected_with_their_values() {
        let empty = MatmulDesc::new(2, 0, 5, DataType::F32);
        assert!(Shapes::of(&empty).is_err_and(|error| error.to_string().contains("1 x 2 x 0 x 5")));
        let mut overlapping = MatmulDesc::new(2, 3, 5, DataType::F32);
        overlapping.a.row_stride = Some(4);
        assert!(Shapes::of(&overlapping).is_err_and(|error| error.to_string().contains("a row stride of 4")));
    }

    #[test]
    fn factors_have_the_bytes_of_their_type() {
        assert_eq!(Compute::F32.scale(1.5)[..4], 1.5f32.to_ne_bytes());
        assert_eq!(Compute::F64.scale(-2.0), (-2.0f64).to_ne_bytes());
        assert_eq!(Compute::I32.scale(3.0)[..4], 3i32.to_ne_bytes());
    }
}
