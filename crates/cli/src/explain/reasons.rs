//! What the backend's report `explain` says: why it declined nodes, and what runs the steps of the others.

use std::collections::{BTreeMap, VecDeque};

use reports::{Explain, Step};

type Key = (String, String, String);

/// The reasons by domain, operator and name.
#[derive(Clone, Debug, Default)]
pub struct Reasons {
    declined: BTreeMap<Key, VecDeque<String>>,
    is_empty: bool,
    /// How often each pass changed a partition.
    pub passes: BTreeMap<String, usize>,
    /// The steps of all plans.
    pub steps: Vec<Step>,
}

/// The short form of a domain: ONNX's own is the empty string.
pub fn domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn key(of_domain: &str, op: &str, name: &str) -> Key {
    (domain(of_domain).to_owned(), op.to_owned(), name.to_owned())
}

impl Reasons {
    /// Collects the lines of the report.
    pub fn new(report: Vec<Explain>) -> Reasons {
        let mut reasons = Reasons { is_empty: report.is_empty(), ..Reasons::default() };
        for line in report {
            match line {
                Explain::Graph(graph) => {
                    for node in graph.nodes {
                        let Some(reason) = node.reason else { continue };
                        reasons.declined.entry(key(&node.domain, &node.op, &node.name)).or_default().push_back(reason);
                    }
                }
                Explain::Passes(partition) => {
                    for (pass, count) in partition.passes.0 {
                        *reasons.passes.entry(pass).or_default() += count;
                    }
                }
                Explain::Steps(plan) => reasons.steps.extend(plan.steps),
            }
        }
        reasons
    }

    /// The reason for one node. Nodes may share a name, often the empty one: each takes the next reason, and the last
    /// reason is reused.
    pub fn take(&mut self, domain: &str, op: &str, name: &str) -> Option<String> {
        let left = self.declined.get_mut(&key(domain, op, name))?;
        if left.len() > 1 { left.pop_front() } else { left.front().cloned() }
    }

    /// The text for a node without a reason.
    pub fn none(&self, driver: &str) -> String {
        if self.is_empty {
            format!("no backend evaluated it: there may be none for the {driver} driver; AMDGPU_EP_LOG=info shows more")
        } else {
            "the backend did not evaluate it".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str) -> Reasons {
        Reasons::new(reports::parse(lines).unwrap())
    }

    fn line(nodes: &[(&str, &str)]) -> String {
        let node = |(name, reason): &(&str, &str)| {
            format!(
                r#"{{"name":"{name}","op":"Loop","domain":"ai.onnx","since_version":1,"placed":false,"reason":"{reason}"}}"#
            )
        };
        let nodes: Vec<String> = nodes.iter().map(node).collect();
        format!("{{\"graph\":\"\",\"partitions\":0,\"nodes\":[{}]}}\n", nodes.join(","))
    }

    #[test]
    fn nodes_without_names_take_one_reason_each() {
        let mut reasons = parse(&line(&[("", "one"), ("", "two")]));
        let mut take = || reasons.take("", "Loop", "");
        assert_eq!([take(), take(), take()], [Some("one".into()), Some("two".into()), Some("two".into())]);
    }

    #[test]
    fn every_graph_counts() {
        let mut reasons = parse(&(line(&[("a", "one")]) + "\n" + &line(&[("b", "two")])));
        assert_eq!(reasons.take("", "Loop", "b").as_deref(), Some("two"));
        assert_eq!(reasons.take("", "Loop", "c"), None);
        assert_eq!(reasons.none("host"), "the backend did not evaluate it");
    }

    #[test]
    fn passes_of_all_partitions_are_added_up() {
        let lines =
            "{\"partition\":\"a\",\"passes\":{\"gelu\":2}}\n{\"partition\":\"b\",\"passes\":{\"gelu\":1,\"no-ops\":4}}";
        let passes = parse(lines).passes;
        assert_eq!(passes, BTreeMap::from([("gelu".to_owned(), 3), ("no-ops".to_owned(), 4)]));
    }

    #[test]
    fn steps_of_all_plans_are_one_list() {
        let step = r#"{"node":"c","op":"Conv","step":"conv","run_by":"own: conv","reason":"too small"}"#;
        let line = format!("{{\"partition\":\"a\",\"steps\":[{step}]}}\n");
        let steps = parse(&line.repeat(2)).steps;
        assert_eq!(steps.len(), 2);
        assert_eq!((steps[0].op.as_str(), steps[0].reason.as_deref()), ("Conv", Some("too small")));
    }

    #[test]
    fn no_record_means_no_backend() {
        let reasons = parse("");
        assert!(reasons.none("nvidia").contains("nvidia driver"));
        assert!(reports::parse::<Explain>("nonsense").is_err());
    }
}
