//! Choices by length in sessions whose application pads attention masks to a fixed width.
//!
//! The width of such a mask says nothing about the length of a sequence. The pass `true-lengths` corrects an `If` that
//! chooses the rotary tables of attention nodes, provided that it sees all of these nodes. Every other `If` is left to
//! ONNX Runtime.
use graph::Declined;
use ort_ep::Result;
use ort_ep::view::{Node, ValueInfo};

/// GroupQueryAttention's inputs.
const TOTAL: usize = 6;
const TABLES: [usize; 2] = [7, 8];

/// The `If` nodes of partitions whose conditions may depend on the width of a padded mask, and that the engine does not
/// correct.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn unclear_choices<'a>(partitions: &[Vec<Node<'a>>]) -> Result<Vec<(Node<'a>, Declined)>> {
    let mut unclear = Vec::new();
    for partition in partitions {
        for &node in partition {
            if node.op_type()? == "If" && !chooses_tables(node, partition)? {
                let reason = "the mask is padded, and the condition may depend on its width";
                unclear.push((node, Declined::new(reason)));
            }
        }
    }
    Ok(unclear)
}

/// Whether an `If` chooses only tables of attention nodes in the same partition, by comparing their total length with a
/// constant.
fn chooses_tables(node: Node<'_>, partition: &[Node<'_>]) -> Result<bool> {
    let Some(compared) = compared(node)? else { return Ok(false) };
    let outputs = node.outputs()?;
    if outputs.len() != TABLES.len() {
        return Ok(false);
    }
    for (output, table) in outputs.into_iter().zip(TABLES) {
        let Some(output) = output else { return Ok(false) };
        if output.is_graph_output()? {
            return Ok(false);
        }
        for reader in output.consumers()? {
            let Some(attention) = reader.node else { return Ok(false) };
            let is_attention = attention.op_type()? == "GroupQueryAttention" && reader.input == Some(table);
            let total = attention.inputs()?.get(TOTAL).copied().flatten();
            let agrees = total.map(uncast).transpose()?.is_some_and(|total| total == compared);
            let id = attention.id()?;
            let is_inside = partition.iter().any(|inside| inside.id().is_ok_and(|inside| inside == id));
            if !is_attention || !agrees || !is_inside {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The name of the value that an `If` compares with a constant.
fn compared(node: Node<'_>) -> Result<Option<String>> {
    let Some(condition) = node.inputs()?.into_iter().next().flatten() else { return Ok(None) };
    let Some((greater, _)) = condition.producer()? else { return Ok(None) };
    if greater.op_type()? != "Greater" {
        return Ok(None);
    }
    match greater.inputs()?[..] {
        [Some(value), Some(threshold)] if threshold.is_constant_initializer()? => uncast(value).map(Some),
        _ => Ok(None),
    }
}

/// The name of a value before conversions.
fn uncast(mut value: ValueInfo<'_>) -> Result<String> {
    while let Some((cast, _)) = value.producer()? {
        match (cast.op_type()?, &cast.inputs()?[..]) {
            ("Cast", &[Some(from)]) => value = from,
            _ => break,
        }
    }
    Ok(value.name()?.to_owned())
}
