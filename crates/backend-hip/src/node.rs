//! One node, read from ONNX Runtime.
use graph::{
    DType, Declined, Op, Tensor,
    ops::{self, Attributes, InputInfo, NodeInfo},
};
use ort_ep::{
    Result,
    view::{Node, ValueInfo},
};

use crate::convert;

/// Constants up to this size are looked at while nodes are offered; larger ones are read when they are compiled.
const SMALL_CONSTANT_BYTES: usize = 4096;

/// Reads a node into an operator, or says why it stays with other providers.
///
/// # Errors
/// ONNX Runtime refused to describe it.
pub(crate) fn parse(node: Node<'_>) -> Result<Result<Box<dyn Op>, Declined>> {
    if !node.subgraphs()?.is_empty() {
        return Ok(Err(Declined::new("it has subgraphs")));
    }
    let mut attributes = Attributes::default();
    for attribute in node.attributes()? {
        attributes.0.insert(attribute.name()?.to_owned(), convert::attribute(attribute.value()?)?);
    }
    let mut inputs = Vec::new();
    for value in node.inputs()? {
        inputs.push(match value {
            None => None,
            Some(value) => match convert::value_dtype(value)? {
                Ok(dtype) => Some((dtype, convert::value_rank(value)?, small_constant(value)?)),
                Err(declined) => return Ok(Err(declined)),
            },
        });
    }
    let mut outputs: Vec<Option<DType>> = Vec::new();
    for value in node.outputs()? {
        outputs.push(match value {
            None => None,
            Some(value) => match convert::value_dtype(value)? {
                Ok(dtype) => Some(dtype),
                Err(declined) => return Ok(Err(declined)),
            },
        });
    }
    let infos: Vec<Option<InputInfo<'_>>> = inputs
        .iter()
        .map(|input| {
            input.as_ref().map(|(dtype, rank, constant)| InputInfo {
                dtype: *dtype,
                rank: *rank,
                constant: constant.as_ref(),
            })
        })
        .collect();
    let info = NodeInfo {
        domain: node.domain()?,
        op_type: node.op_type()?,
        since_version: node.since_version()?,
        attributes: &attributes,
        inputs: &infos,
        outputs: &outputs,
    };
    Ok(ops::parse(&info))
}

/// The value of a small constant.
fn small_constant(value: ValueInfo<'_>) -> Result<Option<Tensor>> {
    if !value.is_constant_initializer()? {
        return Ok(None);
    }
    let Some(view) = value.initializer()? else { return Ok(None) };
    if view.size_bytes()? > SMALL_CONSTANT_BYTES { Ok(None) } else { convert::tensor(view).map(Some) }
}
