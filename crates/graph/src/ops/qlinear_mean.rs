//! Means of 8-bit integers: com.microsoft's `QLinearAveragePool` and `QLinearReduceMean`.
//!
//! Each is the operator without the prefix, between a DequantizeLinear of its input and a QuantizeLinear of its result.
use crate::lower::Lower;
use crate::ops::pool::{Pool, average_pool};
use crate::ops::qlinear::{Parameters, number};
use crate::ops::quantized::byte;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Val};

/// What a mean is over.
#[derive(Debug)]
enum Over {
    Windows(Pool),
    Axes { axes: Vec<i64>, keepdims: bool },
}

/// A mean: inputs data, its scale and zero point, and the scale and zero point of the result.
#[derive(Debug)]
struct Mean {
    name: &'static str,
    over: Over,
    dtype: DType,
}

impl Op for Mean {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = number(cx, inputs, 0)?;
        let mean = match &self.over {
            Over::Windows(pool) => {
                let [mean] = &pool.emit(cx, &x)?[..] else { return Err(cx.invalid("a mean has one result")) };
                mean.clone()
            }
            Over::Axes { axes, keepdims } => {
                let mut found = Vec::new();
                for &axis in axes {
                    let axis = cx.axis(axis, x.rank())?;
                    if found.contains(&axis) {
                        return Err(cx.invalid(format!("axes {axes:?} name an axis twice")));
                    }
                    found.push(axis);
                }
                cx.reduce(&x, &found, *keepdims, ReduceKind::Mean)?
            }
        };
        let to = Parameters::read(cx, inputs, 3)?;
        Ok(vec![to.quantized(cx, &mean, self.dtype)?])
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, over: Over) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, byte)?;
    for (at, wanted) in [(1, DType::F32), (2, dtype), (3, DType::F32), (4, dtype)] {
        if let Some(input) = node.optional(at).filter(|input| input.dtype != wanted) {
            return Err(Declined::new(format!("input {at} has type {}, expected {wanted}", input.dtype)));
        }
    }
    Ok(Box::new(Mean { name, over, dtype }))
}

pub(super) fn parse_average_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    // ONNX Runtime divides by the whole window there, and ONNX by what is not behind the padding.
    if node.attributes.flag("ceil_mode")? && node.attributes.flag("count_include_pad")? {
        return Err(Declined::new("ceil_mode with count_include_pad has another divisor than in ONNX"));
    }
    let pool = average_pool("QLinearAveragePool", node, byte)?;
    parse(node, "QLinearAveragePool", Over::Windows(pool))
}

fn parse_reduce_mean(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let axes = node.attributes.ints("axes")?.filter(|axes| !axes.is_empty());
    let axes = axes.ok_or_else(|| Declined::new("axes is missing or empty"))?.to_vec();
    let keepdims = node.attributes.flag_or("keepdims", true)?;
    parse(node, "QLinearReduceMean", Over::Axes { axes, keepdims })
}

// QLinearAveragePool is in the table of operators that may have the channels last.
pub(super) const OPS: &[Entry] =
    &[Entry { domain: "com.microsoft", op_type: "QLinearReduceMean", parse: parse_reduce_mean }];
