//! Matrix products.
use crate::lower::{Lower, Val};
use crate::{LowerError, Prim, Scalar, Shape, shape};

impl Lower<'_> {
    /// A matrix product by NumPy's rules: a vector is a row on the left and a column on the right, and leading axes are
    /// broadcast.
    ///
    /// # Errors
    /// Types or shapes do not match.
    pub fn matmul(&mut self, a: &Val, b: &Val) -> Result<Val, LowerError> {
        self.matmul_scaled(a, b, 1.0)
    }

    /// Like [`matmul`](Self::matmul), times a factor. Integer products are never scaled.
    ///
    /// # Errors
    /// Types or shapes do not match.
    pub fn matmul_scaled(&mut self, a: &Val, b: &Val, alpha: f32) -> Result<Val, LowerError> {
        if a.dtype() != b.dtype() {
            return Err(self.invalid(format!("operands have different types {} and {}", a.dtype(), b.dtype())));
        }
        let left = if a.rank() == 1 { a.unsqueezed(0) } else { a.clone() };
        let right = if b.rank() == 1 { b.unsqueezed(1) } else { b.clone() };
        let misfit = || format!("shapes {:?} and {:?} cannot be multiplied", a.shape(), b.shape());
        let ([batch_a @ .., m, k], [batch_b @ .., rows, n]) = (left.shape(), right.shape()) else {
            return Err(self.invalid(misfit()));
        };
        let (m, k, n) = (*m, *k, *n);
        let batch = shape::broadcast(batch_a, batch_b).filter(|_| *rows == k).ok_or_else(|| self.invalid(misfit()))?;
        let mut to = batch.clone();
        to.extend([m, n]);
        let mut result = if k == 0 {
            self.full(a.dtype(), &to, Scalar::zero(a.dtype()))?
        } else {
            let flat = self.matmul_batched(&left, &right, &batch, alpha)?;
            self.reshape(&flat, &to)?
        };
        if b.rank() == 1 {
            result = result.squeezed(result.rank() - 1);
        }
        if a.rank() == 1 {
            let row = result.rank() - if b.rank() == 1 { 1 } else { 2 };
            result = result.squeezed(row);
        }
        Ok(result)
    }

    /// Emits the product of `[…, m, k]` and `[…, k, n]` whose leading axes are broadcast to `batch`; the result is
    /// dense.
    fn matmul_batched(&mut self, a: &Val, b: &Val, batch: &[usize], alpha: f32) -> Result<Val, LowerError> {
        let (m, k, n) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1], b.shape()[b.rank() - 1]);
        let count =
            shape::elems(batch).ok_or_else(|| self.invalid(format!("a batch of {batch:?} products is too large")))?;
        let prim = Prim::matmul(alpha);
        let leading = |value: &Val| shape::elems(&value.shape()[..value.rank() - 2]).unwrap_or(usize::MAX);
        // One matrix on the right: all rows on the left go into one product.
        if leading(b) == 1 && leading(a) == count {
            let rows = count.checked_mul(m).and_then(|rows| a.reshaped_in_place(&[1, rows, k]));
            if let Some(tall) = rows {
                let wide = self.reshape(b, &[1, k, n])?;
                let rows = tall.shape()[1];
                return self.apply(prim, &[&tall, &wide], a.dtype(), &[1, rows, n]);
            }
        }
        let a = self.batched(a, batch, count)?;
        let b = self.batched(b, batch, count)?;
        self.apply(prim, &[&a, &b], a.dtype(), &[count, m, n])
    }

    /// A value `[…, rows, columns]` as `[count, rows, columns]`.
    fn batched(&mut self, value: &Val, batch: &[usize], count: usize) -> Result<Val, LowerError> {
        let matrix = &value.shape()[value.rank() - 2..];
        let mut to: Shape = batch.into();
        to.extend_from_slice(matrix);
        let flat = [count, matrix[0], matrix[1]];
        let all = self.expand(value, &to)?;
        self.reshape(&all, &flat)
    }
}
