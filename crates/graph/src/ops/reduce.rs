//! Reductions.
use crate::{
    DType, Declined, LowerError, Val,
    lower::{Lower, needs_floats},
    ops::{Entry, NodeInfo, Op},
    prim::ReduceKind,
    shape,
};

/// A reduction over axes that an attribute (older opsets) or an input names.
#[derive(Debug)]
struct ReduceOp {
    name: &'static str,
    kind: ReduceKind,
    axes: Vec<i64>,
    axes_input: bool,
    keepdims: bool,
    /// No axes mean none instead of all.
    noop_with_empty_axes: bool,
}

impl Op for ReduceOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        if self.axes_input { &[1] } else { &[] }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let list = cx.known_i64s(inputs, 1)?.unwrap_or_else(|| self.axes.clone());
        let axes = if list.is_empty() && !self.noop_with_empty_axes {
            (0..value.rank()).collect()
        } else {
            shape::axes(&list, value.rank())
                .ok_or_else(|| cx.invalid(format!("axes {list:?} do not fit rank {}", value.rank())))?
        };
        Ok(vec![cx.reduce(value, &axes, self.keepdims, self.kind)?])
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, kind: ReduceKind) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.input(0)?.dtype;
    let accepted = match dtype {
        DType::Bool => matches!(kind, ReduceKind::Max | ReduceKind::Min),
        _ => dtype.is_float() || !needs_floats(kind),
    };
    if !accepted {
        return Err(Declined::new(format!("input 0 of type {dtype}")));
    }
    Ok(Box::new(ReduceOp {
        name,
        kind,
        axes: node.attributes.ints("axes")?.unwrap_or_default().to_vec(),
        axes_input: node.optional(1).is_some(),
        keepdims: node.attributes.int("keepdims", 1)? != 0,
        noop_with_empty_axes: node.attributes.flag("noop_with_empty_axes")?,
    }))
}

macro_rules! reductions {
    ($($op_type:literal => $kind:ident;)*) => {
        &[$(Entry { domain: "", op_type: $op_type, parse: |node| parse(node, $op_type, ReduceKind::$kind) }),*]
    };
}

pub(super) const OPS: &[Entry] = reductions! {
    "ReduceSum" => Sum;
    "ReduceMean" => Mean;
    "ReduceProd" => Prod;
    "ReduceMax" => Max;
    "ReduceMin" => Min;
    "ReduceSumSquare" => SumSquare;
    "ReduceL1" => L1;
    "ReduceL2" => L2;
    "ReduceLogSum" => LogSum;
    "ReduceLogSumExp" => LogSumExp;
};
