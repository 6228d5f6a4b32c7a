//! Searches along an axis: ArgMax, ArgMin, TopK.
use crate::lower::{Lower, axis_back, axis_last};
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::TopK;
use crate::{DType, Declined, LowerError, Prim, Shape, Val, shape};

const fn number(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_int()
}

#[derive(Debug)]
struct ArgReduceOp {
    name: &'static str,
    largest: bool,
    axis: i64,
    keepdims: bool,
    select_last_index: bool,
}

impl Op for ArgReduceOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let axis = shape::axis(self.axis, value.rank())
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for rank {}", self.axis, value.rank())))?;
        Ok(vec![cx.arg_reduce(value, axis, self.keepdims, self.largest, self.select_last_index)?])
    }
}

fn parse_arg_reduce(node: &NodeInfo<'_>, name: &'static str, largest: bool) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, number)?;
    Ok(Box::new(ArgReduceOp {
        name,
        largest,
        axis: node.attributes.int("axis", 0)?,
        keepdims: node.attributes.flag_or("keepdims", true)?,
        select_last_index: node.attributes.flag("select_last_index")?,
    }))
}

#[derive(Debug)]
struct TopKOp {
    /// The attribute of opset 9 and older; later opsets have an input.
    k: Option<i64>,
    axis: i64,
    largest: bool,
    sorted: bool,
}

impl Op for TopKOp {
    fn name(&self) -> &'static str {
        "TopK"
    }

    fn host_inputs(&self) -> &[usize] {
        if self.k.is_none() { &[1] } else { &[] }
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let axis = shape::axis(self.axis, value.rank())
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for rank {}", self.axis, value.rank())))?;
        let k = match self.k {
            Some(k) => k,
            None => {
                let list = cx.known(inputs, 1)?.to_i64s();
                let [k] = list[..] else { return Err(cx.invalid(format!("k is {list:?}, expected one number"))) };
                k
            }
        };
        let extent = value.shape()[axis];
        let k = usize::try_from(k)
            .ok()
            .filter(|&k| k <= extent)
            .ok_or_else(|| cx.invalid(format!("k is {k}, but axis {axis} has {extent} elements")))?;
        let moved = axis_last(value, axis);
        let mut to: Shape = moved.shape().into();
        to[moved.rank() - 1] = k;
        let values = cx.fresh(value.dtype(), &to)?;
        let indices = cx.fresh(DType::I64, &to)?;
        if values.elems() > 0 {
            let prim = Prim::TopK(TopK { k, largest: self.largest, sorted: self.sorted });
            cx.emit(prim, &[&moved], &[&values, &indices]);
        }
        Ok(vec![axis_back(&values, axis), axis_back(&indices, axis)])
    }
}

fn parse_top_k(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, number)?;
    let k = match node.optional(1) {
        Some(_) => None,
        None if node.attributes.get("k").is_some() => Some(node.attributes.int("k", 0)?),
        None => return Err(Declined::new("attribute k is missing")),
    };
    Ok(Box::new(TopKOp {
        k,
        axis: node.attributes.int("axis", -1)?,
        largest: node.attributes.flag_or("largest", true)?,
        sorted: node.attributes.flag_or("sorted", true)?,
    }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "ArgMax", parse: |node| parse_arg_reduce(node, "ArgMax", true) },
    Entry { domain: "", op_type: "ArgMin", parse: |node| parse_arg_reduce(node, "ArgMin", false) },
    Entry { domain: "", op_type: "TopK", parse: parse_top_k },
];
