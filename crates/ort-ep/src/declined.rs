//! A summary of the nodes that stay with other providers.
use std::collections::BTreeMap;
use std::fmt::Display;

use crate::Result;
use crate::view::Node;

/// The reasons why nodes were declined, each preceded by `; `, with its operator and its count.
///
/// # Errors
/// ONNX Runtime could not describe a node.
pub fn reasons(declined: &[(Node<'_>, impl Display)]) -> Result<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (node, reason) in declined {
        *counts.entry(format!("{}: {reason}", node.op_type()?)).or_default() += 1;
    }
    Ok(counts.iter().map(|(reason, count)| format!("; {count}× {reason}")).collect())
}
