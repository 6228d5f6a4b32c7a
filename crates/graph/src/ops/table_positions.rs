//! The operator that the pass `true-lengths` puts before attention that rotates by one of two tables.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::Op;
use crate::prim::ReduceKind;
use crate::{DType, LowerError, Scalar, Val};

/// The rows of new tokens in a table that holds the rows for long sequences, then the rows for short ones.
///
/// The inputs are the index of each sequence's last token `[batch]`, the total length, the attention's input
/// `[batch, tokens, …]`, then optionally the positions of the tokens. The output has a row for each token. Lengths stay
/// on the device, so one plan serves short and long sequences.
#[derive(Debug)]
pub(crate) struct TablePositions {
    /// Sequences of more tokens are long.
    pub threshold: i64,
    /// Rows for long sequences.
    pub long: usize,
    /// Rows for short sequences; at least `threshold`.
    pub short: usize,
}

impl Op for TablePositions {
    fn name(&self) -> &'static str {
        "TablePositions"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (lengths, read) = (cx.required(inputs, 0)?, cx.required(inputs, 2)?);
        let total = cx.known(inputs, 1)?.to_i64s();
        let (&[batch, tokens, _], &[total]) = (read.shape(), &total[..]) else {
            return Err(cx.invalid(format!("tokens have shape {:?}, and the total length {total:?}", read.shape())));
        };
        if lengths.elems() != batch {
            return Err(cx.invalid(format!("lengths of shape {:?} for a batch of {batch}", lengths.shape())));
        }
        let lengths = cx.reshape(lengths, &[batch, 1])?;
        let lengths = cx.cast(&lengths, DType::I64)?;
        let longest = cx.reduce(&lengths, &[0], true, ReduceKind::Max)?;
        let mut operands = vec![longest, lengths];
        if let Some(positions) = inputs.get(3).and_then(Option::as_ref) {
            let positions = cx.expand(positions, &[batch, tokens])?;
            operands.push(cx.cast(&positions, DType::I64)?);
        }
        let is_first = total == tokens as i64;
        let operands: Vec<&Val> = operands.iter().collect();
        let rows = cx.map_to(&operands, DType::I64, &[batch, tokens], |expr, arguments| {
            let mut number = |value: i64| expr.constant(Scalar::Int(value), DType::I64);
            let [zero, before] = [0, 1 - tokens as i64].map(&mut number);
            let [threshold, long, last_short, outside] =
                [self.threshold, self.long as i64, self.short as i64 - 1, self.long as i64 + self.short as i64]
                    .map(number);
            let position = match arguments.get(2) {
                Some(&given) => given,
                None if is_first => expr.index(1),
                None => {
                    let past = expr.binary(Binary::Add, arguments[1], before);
                    let past = expr.binary(Binary::Max, past, zero);
                    let token = expr.index(1);
                    expr.binary(Binary::Add, past, token)
                }
            };
            // Rows for short sequences follow, so a position after the last row for long ones must stay an error.
            let exists = expr.binary(Binary::Lt, position, long);
            let in_long = expr.select(exists, position, outside);
            // Only padding has positions after the last row for short sequences.
            let in_short = expr.binary(Binary::Min, position, last_short);
            let in_short = expr.binary(Binary::Add, in_short, long);
            // A length is one more than the index of the last token.
            let is_long = expr.binary(Binary::Ge, arguments[0], threshold);
            expr.select(is_long, in_long, in_short)
        })?;
        Ok(vec![rows])
    }
}
