//! Softmax and its relatives.
//!
//! Before opset 13 all axes from `axis` on count as one; since then only `axis` itself does.
use crate::{
    Declined, LowerError, Shape, Val,
    expr::Binary,
    lower::Lower,
    ops::{Entry, NodeInfo, Op},
    shape,
};

/// What is made of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Softmax,
    LogSoftmax,
    Hardmax,
}

#[derive(Debug)]
struct SoftmaxOp {
    name: &'static str,
    kind: Kind,
    axis: i64,
    /// All axes from `axis` on are one.
    flattens: bool,
}

impl Op for SoftmaxOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let rank = value.rank();
        let axis = shape::axis(self.axis, rank)
            .ok_or_else(|| cx.invalid(format!("axis {} does not fit rank {rank}", self.axis)))?;
        if !self.flattens || axis + 1 == rank {
            return Ok(vec![self.along(cx, value, axis)?]);
        }
        let full: Shape = value.shape().into();
        let count = |extents: &[usize]| shape::elems(extents).unwrap_or(0);
        let flat = cx.reshape(value, &[count(&full[..axis]), count(&full[axis..])])?;
        let result = self.along(cx, &flat, 1)?;
        Ok(vec![cx.reshape(&result, &full)?])
    }
}

impl SoftmaxOp {
    fn along(&self, cx: &mut Lower<'_>, value: &Val, axis: usize) -> Result<Val, LowerError> {
        match self.kind {
            Kind::Softmax => cx.softmax(value, axis, false),
            Kind::LogSoftmax => cx.softmax(value, axis, true),
            Kind::Hardmax => {
                let best = cx.arg_reduce(value, axis, true, true, false)?;
                cx.map_to(&[&best], value.dtype(), value.shape(), |expr, arguments| {
                    let here = expr.index(axis as u16);
                    expr.binary(Binary::Eq, here, arguments[0])
                })
            }
        }
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, kind: Kind) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    let flattens = node.since_version < 13;
    let axis = node.attributes.int("axis", if flattens { 1 } else { -1 })?;
    Ok(Box::new(SoftmaxOp { name, kind, axis, flattens }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Softmax", parse: |node| parse(node, "Softmax", Kind::Softmax) },
    Entry { domain: "", op_type: "LogSoftmax", parse: |node| parse(node, "LogSoftmax", Kind::LogSoftmax) },
    Entry { domain: "", op_type: "Hardmax", parse: |node| parse(node, "Hardmax", Kind::Hardmax) },
];
