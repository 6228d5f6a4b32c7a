//! Rotary position embeddings: ONNX's `RotaryEmbedding` and com.microsoft's.
use crate::expr::{Binary, Expr};
use crate::lower::Lower;
use crate::ops::grouped_heads::rotate_into;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{Map, Positions, Rotary};
use crate::{DType, Declined, LowerError, Prim, Val};

/// `RotaryEmbedding`.
#[derive(Debug)]
pub(super) struct RotaryEmbedding {
    interleaved: bool,
    /// How many elements of a head are rotated; 0 for all.
    size: usize,
    /// The number of heads in an input of rank 3; 0 to derive their size from the caches.
    heads: usize,
    /// Input indices.
    positions: usize,
    cosines: usize,
    sines: usize,
}

impl Op for RotaryEmbedding {
    fn name(&self) -> &'static str {
        "RotaryEmbedding"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let (cosines, sines) = (cx.required(inputs, self.cosines)?, cx.required(inputs, self.sines)?);
        let half = cosines.shape().last().copied().unwrap_or(0);
        // As [batch, sequence, heads, size].
        let split = match *x.shape() {
            [_, _, _, _] => x.permuted(&[0, 2, 1, 3]),
            [batch, sequence, width] => {
                let heads = match (self.heads, half) {
                    // The caches tell the head size only if the whole head is rotated.
                    (0, half) if half > 0 && self.size == 0 => width / (2 * half),
                    (heads, _) => heads,
                };
                if heads == 0 || width % heads != 0 {
                    return Err(cx.invalid(format!("{:?} cannot be split into {heads} heads", x.shape())));
                }
                cx.reshape(x, &[batch, sequence, heads, width / heads])?
            }
            ref other => return Err(cx.invalid(format!("{other:?} has neither three nor four axes"))),
        };
        let (batch, sequence, heads, size) = (split.shape()[0], split.shape()[1], split.shape()[2], split.shape()[3]);
        let turning = if self.size == 0 { size } else { self.size };
        if turning > size || turning != 2 * half {
            return Err(
                cx.invalid(format!("caches {:?} do not match {turning} rotated of {size} elements", cosines.shape()))
            );
        }
        let output = cx.fresh(x.dtype(), x.shape())?;
        if output.elems() == 0 {
            return Ok(vec![output]);
        }
        let target = match x.rank() {
            4 => output.permuted(&[0, 2, 1, 3]),
            _ => cx.reshape(&output, &[batch, sequence, heads, size])?,
        };
        if let Some(positions) = inputs.get(self.positions).and_then(Option::as_ref) {
            if cosines.rank() != 2 || cosines.shape() != sines.shape() {
                return Err(cx.invalid(format!("caches {:?} and {:?} do not match", cosines.shape(), sines.shape())));
            }
            let positions = self.places(cx, positions, batch, sequence)?;
            let rotary = Rotary { interleaved: self.interleaved, positions: Positions::Given };
            rotate_into(cx, rotary, &split, [cosines, sines, &positions], &target);
            return Ok(vec![output]);
        }
        let table = |cx: &mut Lower<'_>, rows: &Val| {
            if rows.rank() != 3 {
                return Err(cx.invalid(format!("a cache of shape {:?} needs positions", rows.shape())));
            }
            cx.expand(&rows.unsqueezed(2), &[batch, sequence, heads, half])
        };
        let (cosines, sines) = (table(cx, cosines)?, table(cx, sines)?);
        let (step, second) = if self.interleaved { (2, 1) } else { (1, half) };
        let part = |value: &Val, start: usize| value.sliced(3, start, step, half);
        let (a, b) = (part(&split, 0), part(&split, second));
        turn(cx, [&a, &b, &cosines, &sines], Binary::Sub, &part(&target, 0));
        turn(cx, [&b, &a, &cosines, &sines], Binary::Add, &part(&target, second));
        let rest = size - turning;
        cx.copy_into(&split.sliced(3, turning, 1, rest), &target.sliced(3, turning, 1, rest))?;
        Ok(vec![output])
    }
}

impl RotaryEmbedding {
    /// The positions of all tokens; a single number is the position of the first token.
    fn places(&self, cx: &mut Lower<'_>, positions: &Val, batch: usize, sequence: usize) -> Result<Val, LowerError> {
        if positions.rank() != 1 || positions.elems() != 1 {
            return cx.expand(positions, &[batch, sequence]);
        }
        cx.map_to(&[positions], DType::I64, &[batch, sequence], |expr, arguments| {
            let token = expr.index(1);
            let first = expr.cast(arguments[0], DType::I64);
            expr.binary(Binary::Add, first, token)
        })
    }
}

/// Writes `a · cos ∓ b · sin` into a part of the output.
fn turn(cx: &mut Lower<'_>, inputs: [&Val; 4], sign: Binary, target: &Val) {
    if target.elems() == 0 {
        return;
    }
    let mut expr = Expr::new();
    let [a, b, cosine, sine] = [0, 1, 2, 3].map(|at| expr.input(at, inputs[usize::from(at)].dtype()));
    let along = expr.binary(Binary::Mul, a, cosine);
    let across = expr.binary(Binary::Mul, b, sine);
    let result = expr.binary(sign, along, across);
    expr.finish(result);
    cx.emit(Prim::Map(Map { expr }), &inputs, &[target]);
}

fn parse_onnx(node: &NodeInfo<'_>) -> Result<RotaryEmbedding, Declined> {
    parse(node, [3, 1, 2])
}

/// Reads com.microsoft's operator.
pub(super) fn parse_contrib(node: &NodeInfo<'_>) -> Result<RotaryEmbedding, Declined> {
    if node.attributes.flag("is_packed_batching")? {
        return Err(Declined::new("is_packed_batching is not supported"));
    }
    if node.attributes.float("scale", 1.0)? != 1.0 {
        return Err(Declined::new("a scale other than 1 is not supported"));
    }
    parse(node, [1, 2, 3])
}

fn parse(node: &NodeInfo<'_>, [positions, cosines, sines]: [usize; 3]) -> Result<RotaryEmbedding, Declined> {
    let dtype = node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))?;
    for index in [cosines, sines] {
        if node.input(index)?.dtype != dtype {
            return Err(Declined::new(format!("input {index} has another type than input 0")));
        }
    }
    let count = |name: &str| -> Result<usize, Declined> {
        usize::try_from(node.attributes.int(name, 0)?).map_err(|_| Declined::new(format!("{name} below 0")))
    };
    Ok(RotaryEmbedding {
        interleaved: node.attributes.flag("interleaved")?,
        size: count("rotary_embedding_dim")?,
        heads: count("num_heads")?,
        positions,
        cosines,
        sines,
    })
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "RotaryEmbedding", parse: |node| Ok(Box::new(parse_onnx(node)?)) },
    Entry { domain: "com.microsoft", op_type: "RotaryEmbedding", parse: |node| Ok(Box::new(parse_contrib(node)?)) },
];
