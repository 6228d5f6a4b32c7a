//! Attention as products around a softmax.

use graph::ops::Attribute;
use graph::{Scalar, Tensor};
use hipdnn::sys::{AttributeName as A, DiagonalAlignment};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering, Made};

impl Lowering {
    pub(super) fn attention(&mut self, operation: &Descriptor) -> Answer {
        for unknown in [A::SDPA_FWD_ALIBI_MASK_EXT, A::SDPA_FWD_PADDING_MASK_EXT] {
            if operation.flag(unknown) {
                return Err(format!("attention with {unknown}"));
            }
        }
        if operation.f32(A::SDPA_FWD_DROPOUT_PROBABILITY_EXT).is_some_and(|probability| probability != 0.0) {
            return Err("attention with dropout".into());
        }
        let q = self.read(operation, A::OPERATION_SDPA_FWD_QDESC)?;
        let k = self.read(operation, A::OPERATION_SDPA_FWD_KDESC)?;
        let v = self.read(operation, A::OPERATION_SDPA_FWD_VDESC)?;
        let shapes = [&q, &k, &v].map(|made| <[i64; 4]>::try_from(&made.dims[..]));
        let [Ok([batch, heads, rows, depth]), Ok([_, key_heads, columns, _]), Ok([.., width])] = shapes else {
            return Err("attention over other than four axes".into());
        };
        if heads % key_heads != 0 {
            return Err(format!("{heads} query heads for {key_heads} key heads"));
        }
        // Query heads that share a key head become an axis of their own.
        let shared = heads / key_heads;
        let q = self.reshape(&q, &[batch, key_heads, shared, rows, depth])?;
        let k = self.reshape(&k, &[batch, key_heads, 1, columns, depth])?;
        let v = self.reshape(&v, &[batch, key_heads, 1, columns, width])?;
        let k = self.transpose(&k, &[0, 1, 2, 4, 3])?;
        let scores = self.product(&q, &k)?;
        let scale = match operation.f32(A::SDPA_FWD_ATTN_SCALE_VALUE_EXT) {
            Some(scale) => self.scalar(f64::from(scale)),
            None => match self.read_optional(operation, A::OPERATION_SDPA_FWD_SCALEDESC)? {
                Some(scale) => self.reshape(&scale, &[1])?,
                None => self.scalar(1.0),
            },
        };
        let mut scores = self.elementwise("Mul", &[&scores, &scale])?;
        if let Some(mask) = self.read_optional(operation, A::OPERATION_SDPA_FWD_ATTN_MASK_EXT)? {
            let mask = self.split_heads(&mask, [batch, heads, rows, columns], shared)?;
            scores = self.elementwise("Add", &[&scores, &mask])?;
        }
        if let Some(mask) = self.diagonal_mask(operation, rows, columns)? {
            scores = self.elementwise("Add", &[&scores, &mask])?;
        }
        let weights = self.compute_node("Softmax", &[("axis", Attribute::Int(-1))], &[&scores], &scores.dims)?;
        let made = self.product(&weights, &v)?;
        let o = self.reshape(&made, &[batch, heads, rows, width])?;
        self.write(operation, A::OPERATION_SDPA_FWD_ODESC, &o)?;
        if operation.descriptor(A::OPERATION_SDPA_FWD_STATSDESC).is_some() {
            let sums = self.reduce("ReduceLogSumExp", &scores, &[4])?;
            let sums = self.reshape(&sums, &[batch, heads, rows, 1])?;
            self.write(operation, A::OPERATION_SDPA_FWD_STATSDESC, &sums)?;
        }
        Ok(())
    }

    /// A mask over `[batch, heads, rows, columns]`, or part of it, for scores with heads in two axes.
    fn split_heads(&mut self, mask: &Made, scores: [i64; 4], shared: i64) -> Answer<Made> {
        let missing = 4usize.checked_sub(mask.dims.len()).ok_or("a mask of more than four axes")?;
        let mut dims = vec![1; missing];
        dims.extend(&mask.dims);
        if dims.iter().zip(scores).any(|(&extent, wanted)| extent != 1 && extent != wanted) {
            return Err(format!("a mask of {:?} for scores of {scores:?}", mask.dims));
        }
        let heads = if dims[1] == 1 { [1, 1] } else { [dims[1] / shared, shared] };
        self.reshape(mask, &[dims[0], heads[0], heads[1], dims[2], dims[3]])
    }

    /// Minus infinity where a query must not see a key, by the diagonal and its bounds.
    fn diagonal_mask(&mut self, operation: &Descriptor, rows: i64, columns: i64) -> Answer<Option<Made>> {
        let alignment = operation.number(A::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT).unwrap_or(0);
        let from_the_end = operation.flag(A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT)
            || alignment == DiagonalAlignment::BOTTOM_RIGHT_EXT.0;
        let is_causal =
            operation.flag(A::SDPA_FWD_CAUSAL_MASK_EXT) || operation.flag(A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT);
        let bound = |name| operation.i64s(name).first().copied();
        let left = bound(A::SDPA_FWD_LEFT_BOUND_EXT);
        let right = if is_causal { Some(0) } else { bound(A::SDPA_FWD_RIGHT_BOUND_EXT) };
        if left.is_none() && right.is_none() {
            return Ok(None);
        }
        let shift = if from_the_end { columns - rows } else { 0 };
        let sees = |row: i64, column: i64| {
            let diagonal = row + shift;
            left.is_none_or(|left| column > diagonal - left) && right.is_none_or(|right| column <= diagonal + right)
        };
        let values = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let values = values.map(|(row, column)| Scalar::Float(if sees(row, column) { 0.0 } else { f64::NEG_INFINITY }));
        let shape = [1, 1, 1, rows as usize, columns as usize];
        let mask = Tensor::from_scalars(self.compute(), &shape, values).ok_or("scores are too many")?;
        Ok(Some(self.constant(mask)))
    }
}
