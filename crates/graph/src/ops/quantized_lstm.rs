//! com.microsoft's `DynamicQuantizeLSTM`: an LSTM whose weights are 8-bit integers.
//!
//! The weights are converted to floats, which is done once, since those of a model are constants. ONNX Runtime's CPU
//! provider also rounds the inputs and the hidden state to 8 bits; they stay as they are here, so results are closer to
//! those of the LSTM that was quantised.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::quantized::byte;
use crate::ops::{Entry, NodeInfo, Op, recurrent};
use crate::{DType, Declined, LowerError, Val};

/// The inputs with the scales of W and R; a zero point follows each.
const SCALES: [usize; 2] = [8, 10];

#[derive(Debug)]
struct QuantizedLstm {
    lstm: Box<dyn Op>,
}

impl Op for QuantizedLstm {
    fn name(&self) -> &'static str {
        "DynamicQuantizeLSTM"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let mut plain = inputs.get(..8).unwrap_or(inputs).to_vec();
        for (at, scale) in [1, 2].into_iter().zip(SCALES) {
            let zero = cx.required(inputs, scale + 1)?;
            plain[at] = Some(weights(cx, cx.required(inputs, at)?, cx.required(inputs, scale)?, zero)?);
        }
        self.lstm.lower(cx, &plain)
    }
}

/// Weights `[directions, depth, gates]` as floats `[directions, gates, depth]`, as an LSTM has them.
fn weights(cx: &mut Lower<'_>, weights: &Val, scale: &Val, zero: &Val) -> Result<Val, LowerError> {
    let &[directions, _, gates] = weights.shape() else {
        return Err(cx.invalid(format!("weights of shape {:?}, expected three axes", weights.shape())));
    };
    let mut by_gate = |value: &Val| match *value.shape() {
        [count] if count == directions => cx.reshape(value, &[directions, 1, 1]),
        [count, columns] if (count, columns) == (directions, gates) => Ok(value.unsqueezed(1)),
        ref other => {
            Err(cx.invalid(format!("a scale or zero point of shape {other:?} for {directions} times {gates} columns")))
        }
    };
    let (scale, zero) = (by_gate(scale)?, by_gate(zero)?);
    let floats = cx.map_to(&[weights, &zero, &scale], DType::F32, weights.shape(), |expr, operands| {
        let weight = expr.cast(operands[0], DType::F32);
        let zero = expr.cast(operands[1], DType::F32);
        let centred = expr.binary(Binary::Sub, weight, zero);
        expr.binary(Binary::Mul, centred, operands[2])
    })?;
    cx.dense(&floats.permuted(&[0, 2, 1]))
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype == DType::F32)?;
    for (at, scale) in [1, 2].into_iter().zip(SCALES) {
        let dtype = node.accept(at, byte)?;
        node.accept(scale, |dtype| dtype == DType::F32)?;
        if node.input(scale + 1)?.dtype != dtype {
            return Err(Declined::new(format!("input {} is not {dtype}", scale + 1)));
        }
    }
    Ok(Box::new(QuantizedLstm { lstm: recurrent::parse_lstm(node)? }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "DynamicQuantizeLSTM", parse }];
