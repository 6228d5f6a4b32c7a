//! Summarises which code runs each step of a plan.
use std::collections::BTreeMap;

use exec::{Prepared, RunBy, TunedStep};
use graph::{Graph, Step};
use reports::{Explain, PlanSteps, Tuned};

/// For the log: how many steps each runner has, and why hipDNN or the device does not run the others.
pub(crate) fn summary(prepared: &dyn Prepared) -> String {
    let mut runners: BTreeMap<String, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let count = prepared.plan().steps.len();
    let by: Vec<RunBy<'_>> = (0..count).map(|at| prepared.run_by(at)).collect();
    for by in &by {
        let runner = match by {
            RunBy::Own { .. } => "our own kernels".to_owned(),
            RunBy::HipDnn { engine, operations: 1 } => format!("hipDNN ({engine})"),
            RunBy::HipDnn { engine, operations } => format!("hipDNN ({engine}, {operations} operations)"),
            RunBy::BlasLt { .. } => "BLASLt".to_owned(),
            RunBy::Host { .. } => "the host".to_owned(),
        };
        *runners.entry(runner).or_default() += 1;
        if let Some(why) = by.why() {
            let absent = if matches!(by, RunBy::Host { .. }) { "the device" } else { "a library" };
            *reasons.entry((absent, why)).or_default() += 1;
        }
    }
    let runners: Vec<String> = runners.iter().map(|(runner, count)| format!("{count} by {runner}")).collect();
    let reasons = reasons.iter().map(|((absent, why), count)| format!("; {count}× not by {absent}: {why}"));
    let reasons: Vec<String> = reasons.collect();
    format!("{count} steps, {}{}", runners.join(", "), reasons.concat())
}

/// For `explain`: what runs each step, why hipDNN declined it if it was offered the step, and the measurements if they
/// decided.
pub(crate) fn report(partition: &str, graph: &Graph, prepared: &dyn Prepared) -> Explain {
    let steps = prepared.plan().steps.iter().enumerate().map(|(at, step)| {
        let by = prepared.run_by(at);
        let (node, op) = origin(graph, step);
        reports::Step {
            node,
            op,
            step: step.prim.name().to_owned(),
            run_by: by.label(step),
            reason: by.why().map(str::to_owned),
            tuned: prepared.tuned(at).map(measured),
        }
    });
    Explain::Steps(PlanSteps { partition: partition.to_owned(), steps: steps.collect() })
}

/// The name and the operator of the node that a step came from; empty if there is none.
pub(crate) fn origin(graph: &Graph, step: &Step) -> (String, String) {
    let node = graph.nodes().get(step.node as usize);
    node.map(|node| (node.name.clone(), node.op.name().to_owned())).unwrap_or_default()
}

fn measured(tuned: TunedStep) -> Tuned {
    let TunedStep { choice, micros, usual_micros, tried } = tuned;
    let [micros, usual_micros] = [micros, usual_micros].map(|micros| rounded(f64::from(micros), 3));
    Tuned { choice, micros, usual_micros, tried }
}

/// A number for a report, with this many decimal places at most.
pub(crate) fn rounded(number: f64, places: i32) -> f64 {
    let scale = 10f64.powi(places);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use exec::dnn::{Libraries, Mode};
    use exec::host::HostDevice;
    use exec::{CompiledPartition, Input};
    use graph::ops::{self, Attributes, InputInfo, NodeInfo};
    use graph::{DType, Node};

    use super::*;

    /// The line in the file.
    fn line(partition: &str, graph: &Graph, prepared: &dyn Prepared) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("explain");
        reports::ReportFile::new(&file).append(&report(partition, graph, prepared));
        std::fs::read_to_string(file).unwrap()
    }

    /// A Conv or a Softmax.
    fn compiled(op_type: &str, ranks: &[usize], device: &HostDevice) -> CompiledPartition {
        let info = |&rank: &usize| Some(InputInfo { dtype: DType::F32, rank: Some(rank), constant: None });
        let infos: Vec<_> = ranks.iter().map(info).collect();
        let node = NodeInfo {
            domain: "",
            op_type,
            since_version: 13,
            attributes: &Attributes::default(),
            inputs: &infos,
            outputs: &[Some(DType::F32)],
        };
        let op = ops::parse(&node).unwrap().into();
        let mut graph = Graph::new();
        let inputs: Vec<_> = ranks.iter().map(|_| graph.add_value("in", DType::F32, None)).collect();
        let out = graph.add_value("out", DType::F32, None);
        let given = inputs.iter().map(|&id| Some(id)).collect();
        graph.add_node(Node { name: "a \"node\"".into(), op, inputs: given, outputs: vec![Some(out)] });
        graph.set_inputs(inputs);
        graph.set_outputs(vec![out]);
        CompiledPartition::new(graph, device).unwrap()
    }

    #[test]
    fn a_step_of_hipdnn_names_the_engine() {
        let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
        let offering = Libraries::default().offering(&driver, Mode::On).unwrap();
        let compiled = compiled("Conv", &[3, 3], &HostDevice::new().with_dnn(offering));
        let shapes: [&[usize]; 2] = [&[1, 1, 4], &[2, 1, 1]];
        let prepared = compiled.plan(&shapes.map(|shape| Input { shape, value: None })).unwrap();
        assert_eq!(
            line("p", &compiled.graph(), &*prepared),
            "{\"partition\":\"p\",\"steps\":[{\"node\":\"a \\\"node\\\"\",\"op\":\"Conv\",\"step\":\"conv\",\"run_by\":\"hipDNN: HOST_CPU_ENGINE\",\"reason\":null,\"tuned\":null}]}\n"
        );
        assert_eq!(summary(&*prepared), "1 steps, 1 by hipDNN (HOST_CPU_ENGINE)");
    }

    #[test]
    fn a_graph_of_several_operations_says_how_many() {
        let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
        let offering = Libraries::default().offering(&driver, Mode::On).unwrap();
        let compiled = compiled("Conv", &[3, 3, 1], &HostDevice::new().with_dnn(offering));
        let shapes: [&[usize]; 3] = [&[1, 1, 4], &[2, 1, 1], &[2]];
        let prepared = compiled.plan(&shapes.map(|shape| Input { shape, value: None })).unwrap();
        let line = line("p", &compiled.graph(), &*prepared);
        assert!(line.contains("\"run_by\":\"hipDNN: HOST_CPU_ENGINE, 2 operations\",\"reason\":null"), "{line}");
        assert_eq!(summary(&*prepared), "1 steps, 1 by hipDNN (HOST_CPU_ENGINE, 2 operations)");
    }

    #[test]
    fn without_hipdnn_our_code_runs_every_step() {
        let compiled = compiled("Softmax", &[2], &HostDevice::new());
        let prepared = compiled.plan(&[Input { shape: &[2, 3], value: None }]).unwrap();
        assert_eq!(summary(&*prepared), "1 steps, 1 by our own kernels");
        assert!(line("p", &compiled.graph(), &*prepared).contains("\"run_by\":\"own: softmax\",\"reason\":null"));
    }
}
