//! The answer as text for people.

use std::fmt::Write;

use super::{Node, Operator, Report};
use crate::table;

/// The whole answer. The summary comes last, where a terminal shows it.
pub fn text(report: &Report, all_nodes: bool) -> String {
    let mut out = format!("{}\n{}\n\n", report.place.model, report.place.text());
    if all_nodes {
        let rows = report.nodes.iter().map(|node| {
            let Node { name, provider, reason, .. } = node;
            [full_name(&node.domain, &node.op), name.clone(), provider.clone(), reason.clone().unwrap_or_default()]
        });
        out += &table::text(["operator", "node", "provider", "why not on the device"], rows.collect());
        out.push('\n');
    }
    let rows = report.operators.iter().map(|operator| {
        let Operator { device, elsewhere, .. } = operator;
        [full_name(&operator.domain, &operator.op), device.to_string(), elsewhere.to_string(), reasons(operator)]
    });
    out += &table::text(["operator", "device", "elsewhere", "why not on the device"], rows.collect());
    if !report.passes.is_empty() {
        let counts: Vec<String> = report.passes.iter().map(|(pass, count)| format!("{count} × {pass}")).collect();
        out += &format!("\nPasses: {}\n", counts.join(", "));
    }
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\nOn the device: {}", report.placed.text());
    out
}

fn full_name(domain: &str, op: &str) -> String {
    if domain.is_empty() { op.to_owned() } else { format!("{domain}.{op}") }
}

fn reasons(operator: &Operator) -> String {
    let texts = operator.reasons.iter().map(|(reason, &count)| {
        if count == operator.elsewhere { reason.clone() } else { format!("{count}× {reason}") }
    });
    texts.collect::<Vec<_>>().join("\n")
}
