//! Softmax and its relatives.
//!
//! Before opset 13 all axes from `axis` to the last count as one; since then only `axis` itself does.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::{Declined, LowerError, Shape, Val, shape};

/// What is computed along an axis.
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
    /// Treats all axes from `axis` to the last as one.
    flattens: bool,
}

impl Op for SoftmaxOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn meaning(&self) -> Meaning<'_> {
        if self.kind == Kind::Softmax { Meaning::Softmax { axis: self.axis } } else { Meaning::Opaque }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let rank = value.rank();
        let axis = shape::axis(self.axis, rank)
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for rank {rank}", self.axis)))?;
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
            Kind::Hardmax if value.elems() == 0 => Ok(value.clone()),
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

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    fn steps(op_type: &str, version: i32, axis: i64, shape: &[usize]) -> Result<Vec<&'static str>, String> {
        Trial::new(op_type, version).int("axis", axis).input(Given::Device(DType::F32, shape)).steps()
    }

    #[test]
    fn any_axis_is_one_step_and_no_copy() {
        for axis in -3..3 {
            assert_eq!(steps("Softmax", 13, axis, &[2, 3, 4]).unwrap(), ["softmax"]);
            assert_eq!(steps("LogSoftmax", 11, axis, &[2, 3, 4]).unwrap(), ["softmax"]);
            assert_eq!(steps("Hardmax", 13, axis, &[2, 3, 4]).unwrap(), ["arg_reduce", "map"]);
        }
    }

    #[test]
    fn an_empty_softmax_needs_no_step() {
        for op_type in ["Softmax", "LogSoftmax", "Hardmax"] {
            for version in [11, 13] {
                assert_eq!(steps(op_type, version, 1, &[2, 0]).unwrap(), [""; 0]);
            }
        }
    }

    #[test]
    fn integers_are_declined() {
        let trial = Trial::new("Softmax", 13).input(Given::Device(DType::I32, &[2]));
        assert_eq!(trial.steps().unwrap_err(), "input 0 has unsupported type i32");
    }
}
