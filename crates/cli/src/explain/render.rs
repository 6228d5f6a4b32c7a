//! Renders the report as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use reports::Step;

use super::{Node, Operator, Report};
use crate::memory;
use crate::profile;
use crate::table;

/// Number of steps shown with their times, unless all are requested.
const SHOWN_STEPS: usize = 10;

/// Renders the report. The summary comes last, where a terminal shows it.
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
    if let Some(steps) = &report.steps {
        out += &step_text(steps, all_nodes);
    }
    if let Some(steps) = &report.profile {
        out += &format!("\n{}", profile::text(steps, if all_nodes { usize::MAX } else { SHOWN_STEPS }));
    }
    if let Some(memory) = &report.memory {
        out += &format!("\n{}", memory::text(memory, &[]));
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "\nOn the device: {}", report.placed.text());
    out
}

/// What runs the steps: a summary, and a table of all steps or only those that hipDNN declined.
fn step_text(steps: &[Step], all: bool) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    steps.iter().for_each(|step| *counts.entry(&step.run_by).or_default() += 1);
    let counts: Vec<String> = counts.into_iter().map(|(by, count)| format!("{count} × {by}")).collect();
    let rows: Vec<_> = steps
        .iter()
        .filter(|step| all || step.reason.is_some())
        .map(|Step { node, op, step, run_by, reason, tuned }| {
            let tuned =
                tuned.as_ref().map(|tuned| format!("{} ({:.2}×)", tuned.choice, tuned.usual_micros / tuned.micros));
            let reason = reason.clone().unwrap_or_default();
            [op.clone(), node.clone(), step.clone(), run_by.clone(), tuned.unwrap_or_default(), reason]
        })
        .collect();
    let table = if rows.is_empty() {
        String::new()
    } else {
        format!("\n{}", table::text(["operator", "node", "step", "run by", "measured", "why not hipDNN"], rows))
    };
    format!("{table}\nSteps: {}\n", counts.join(", "))
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
