//! Nodes that stay with other providers, in words.
use std::{collections::BTreeMap, fmt::Display};

use crate::{Result, view::Node};

/// The reasons for which nodes were declined, each after a `; ` with its operator and how often it came up.
///
/// # Errors
/// ONNX Runtime refused to describe a node.
pub fn reasons(declined: &[(Node<'_>, impl Display)]) -> Result<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (node, reason) in declined {
        *counts.entry(format!("{}: {reason}", node.op_type()?)).or_default() += 1;
    }
    Ok(counts.iter().map(|(reason, count)| format!("; {count}× {reason}")).collect())
}
