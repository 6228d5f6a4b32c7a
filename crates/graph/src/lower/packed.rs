//! Packed integers: several share a byte in the memory of callers; on a device, each has its own byte.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::{DType, LowerError, Scalar, Shape, Val, shape};

/// The bytes that hold the elements of a shape.
pub(super) fn bytes(dtype: DType, extents: &[usize]) -> Option<usize> {
    shape::elems(extents).map(|elems| elems.div_ceil(8 / dtype.bits()))
}

impl Lower<'_> {
    /// The integers in `[bytes]`, the first of each byte in its lowest bits.
    pub(super) fn unpacked(&mut self, packed: &Val, dtype: DType, to: &[usize]) -> Result<Val, LowerError> {
        let (bits, elems) = (dtype.bits(), shape::elems(to).unwrap_or(0));
        let split = [packed.elems(), 8 / bits];
        let each = self.map_to(&[&packed.unsqueezed(1)], dtype.stored(), &split, |expr, operands| {
            let int = |expr: &mut crate::expr::Expr, value: i64| expr.constant(Scalar::Int(value), DType::I32);
            let (index, wide) = (expr.index(1), expr.cast(operands[0], DType::I32));
            let (place, width) = (expr.cast(index, DType::I32), int(expr, bits as i64));
            let shift = expr.binary(Binary::Mul, place, width);
            let mask = int(expr, (1 << bits) - 1);
            let moved = expr.binary(Binary::Shr, wide, shift);
            let number = expr.binary(Binary::And, moved, mask);
            if !dtype.unpacked().is_signed() {
                return number;
            }
            let half = int(expr, 1 << (bits - 1));
            let flipped = expr.binary(Binary::Xor, number, half);
            expr.binary(Binary::Sub, flipped, half)
        })?;
        let flat = self.reshape(&each, &[split[0] * split[1]])?;
        self.reshape(&flat.sliced(0, 0, 1, elems), to)
    }

    /// The integers as bytes: undoes [`unpacked`](Self::unpacked). Bits after the last integer are zero.
    pub(super) fn packed(&mut self, value: &Val, dtype: DType) -> Result<Val, LowerError> {
        let bits = dtype.bits();
        let each = 8 / bits;
        let bytes = bytes(dtype, value.shape()).unwrap_or(0);
        let mut flat = self.reshape(value, &[value.elems()])?;
        let missing = bytes * each - value.elems();
        if missing > 0 {
            let rest = self.full(value.dtype(), &[missing], Scalar::zero(value.dtype()))?;
            flat = self.concat(&[&flat, &rest], 0)?;
        }
        let parts: Vec<Val> = (0..each).map(|at| flat.sliced(0, at, each as isize, bytes)).collect();
        let operands: Vec<&Val> = parts.iter().collect();
        self.map_to(&operands, DType::U8, &Shape::from_slice(&[bytes]), |expr, arguments| {
            let mut sum = expr.constant(Scalar::Int(0), DType::I32);
            for (at, &argument) in arguments.iter().enumerate() {
                let [mask, factor] =
                    [(1 << bits) - 1, 1 << (bits * at)].map(|value: i64| expr.constant(Scalar::Int(value), DType::I32));
                let wide = expr.cast(argument, DType::I32);
                let number = expr.binary(Binary::And, wide, mask);
                let placed = expr.binary(Binary::Mul, number, factor);
                sum = expr.binary(Binary::Add, sum, placed);
            }
            sum
        })
    }
}
