//! `If`, `Loop` and `Scan` whose bodies run on the device.
//!
//! ONNX Runtime offers bodies before the graph that holds their node. If all nodes of the bodies were claimed, the node is
//! claimed too, for ONNX Runtime's kernel: values that go into a body, from one iteration to the next, and out of it stay
//! in device memory. Otherwise the node stays with the CPU provider, where those of its nodes run that we declined.
use graph::Declined;
use ort_ep::view::{Node, ValueType};
use ort_ep::{Claims, ElementType, Result};

use crate::claim::Placement;

/// Attributes of Scan that name axes.
const AXES: [&str; 2] = ["scan_input_axes", "scan_output_axes"];

/// Moves nodes with bodies on the device from the declined ones to [`Placement::alone`]. `name` is this provider's.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn take<'a>(placement: &mut Placement<'a>, claims: &mut Claims<'_>, name: &str) -> Result<()> {
    for (node, reason) in std::mem::take(&mut placement.declined) {
        match answer(node, name)? {
            Answer::Takes if claims.has_kernel(node)? => placement.alone.push(node),
            Answer::Declines(instead) => placement.declined.push((node, instead)),
            Answer::Takes | Answer::HasNoBodies => placement.declined.push((node, reason)),
        }
    }
    Ok(())
}

enum Answer {
    Takes,
    Declines(Declined),
    /// It is another operator, another provider has it, or its bodies have no nodes.
    HasNoBodies,
}

fn answer(node: Node<'_>, name: &str) -> Result<Answer> {
    let op_type = node.op_type()?;
    if !node.domain()?.is_empty() || !["If", "Loop", "Scan"].contains(&op_type) || node.ep_name()?.is_some() {
        return Ok(Answer::HasNoBodies);
    }
    let (mut total, mut elsewhere) = (0, 0);
    for (_, body) in node.subgraphs()? {
        for inner in body.nodes()? {
            total += 1;
            elsewhere += usize::from(inner.ep_name()? != Some(name));
        }
    }
    if elsewhere > 0 {
        return Ok(Answer::Declines(Declined::new(format!("nodes of its bodies are not on the device: {elsewhere}"))));
    }
    // ONNX Runtime compares only the first value with the types of a kernel.
    for value in node.inputs()?.into_iter().chain(node.outputs()?).flatten() {
        if !matches!(value.value_type()?, ValueType::Tensor(tensor) if tensor.element != ElementType::String) {
            return Ok(Answer::Declines(Declined::new("one of its values is not a tensor of numbers")));
        }
    }
    for axes in AXES {
        if op_type == "Scan" && node.ints(axes)?.is_some_and(|axes| axes.iter().any(|&axis| axis != 0)) {
            return Ok(Answer::Declines(Declined::new(format!("{axes} other than 0 are not supported"))));
        }
    }
    Ok(if total > 0 { Answer::Takes } else { Answer::HasNoBodies })
}
