//! Writes `docs/reports.md` from the types, with examples that are lines of reports.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::fields::Described;
use crate::*;

const INTRODUCTION: &str = include_str!("page.md");

/// An object of a report: its example, and what it is called on the page.
struct Object {
    title: &'static str,
    example: Value,
    table: String,
}

fn object<T: Described + serde::Serialize>(title: &'static str, example: &T) -> Object {
    let example = serde_json::from_slice(&line::written(example).unwrap()).unwrap();
    let written: BTreeSet<&str> = Value::as_object(&example).unwrap().keys().map(String::as_str).collect();
    let declared: BTreeSet<&str> = T::FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(written, declared, "{title}: the JSON has other fields than the type");
    let rows = T::FIELDS.iter().map(|field| {
        let meaning: Vec<&str> = field.meaning.split_whitespace().collect();
        format!("| `{}` | {} | {} |\n", field.name, type_text(field.type_name), meaning.join(" "))
    });
    Object { title, example, table: format!("| field | type | meaning |\n|---|---|---|\n{}", rows.collect::<String>()) }
}

/// The JSON type of a Rust type.
fn type_text(rust: &str) -> String {
    let inner = |outer: &str| rust.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(inner) = inner("Option") {
        return format!("{} or `null`", type_text(inner));
    }
    match rust {
        _ if inner("Vec").is_some() => "list of objects".to_owned(),
        "String" => "text".to_owned(),
        "bool" => "`true` or `false`".to_owned(),
        "usize" | "u64" | "i32" => "integer".to_owned(),
        "f64" => "number".to_owned(),
        "Counts" => "object of integers".to_owned(),
        "Activity" => "`\"kernels\"` or `\"steps\"`".to_owned(),
        _ => "object".to_owned(),
    }
}

/// A section: when lines are written, examples of lines, and the objects in them.
fn section<R: Report>(about: &str, lines: &[R], objects: &[Object]) -> String {
    let (name, entry) = (R::KIND.name(), R::KIND.key());
    let place = match R::KIND.file_name() {
        Some(file) => format!("`{file}` in the folder, or the file that `{entry}` names."),
        None => format!("The file that `{entry}` names."),
    };
    let mut text = format!("\n## {name}\n\n{place} {about}\n\n```json\n");
    for line in lines {
        let line = String::from_utf8(line::written(line).unwrap()).unwrap();
        assert_eq!(parse::<R>(&line).unwrap().len(), 1);
        text += &line;
    }
    text += "```\n";
    for Object { title, example, table } in objects {
        let is_shown = lines.iter().any(|line| contains(&serde_json::to_value(line).unwrap(), example));
        assert!(is_shown, "{title}: no example line has it");
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{title}:\n\n{table}");
    }
    text
}

fn contains(value: &Value, wanted: &Value) -> bool {
    value == wanted
        || match value {
            Value::Array(items) => items.iter().any(|item| contains(item, wanted)),
            Value::Object(fields) => fields.values().any(|field| contains(field, wanted)),
            _ => false,
        }
}

fn explain() -> String {
    let node = OfferedNode {
        name: "/Loop".into(),
        op: "Loop".into(),
        domain: String::new(),
        since_version: 13,
        placed: false,
        reason: Some("the operator is not supported".into()),
    };
    let tuned = Tuned { choice: "blaslt-3".into(), micros: 41.5, usual_micros: 58.25, tried: 6 };
    let step = Step {
        node: "/fc/Gemm".into(),
        op: "Gemm".into(),
        step: "matmul".into(),
        run_by: "BLASLt: matmul".into(),
        reason: None,
        tuned: Some(tuned.clone()),
    };
    let graph = OfferedGraph { graph: "main".into(), partitions: 1, nodes: vec![node.clone()] };
    let passes = PartitionPasses { partition: "main_0".into(), passes: Counts(vec![("gelu".into(), 2)]) };
    let steps = PlanSteps { partition: "main_0".into(), steps: vec![step.clone()] };
    let objects = [
        object("One line for each graph that ONNX Runtime offers", &graph),
        object("Fields of each entry of `nodes`", &node),
        object("One line for each compiled partition", &passes),
        object("One line for each plan of a partition", &steps),
        object("Fields of each entry of `steps`", &step),
        object("Fields of `tuned`", &tuned),
    ];
    let lines = [Explain::Graph(graph), Explain::Passes(passes), Explain::Steps(steps)];
    section("There are three kinds of lines, which differ in their fields.", &lines, &objects)
}

fn profile() -> String {
    let step = TimedStep {
        node: "/fc/Gemm".into(),
        op: "Gemm".into(),
        step: "matmul".into(),
        run_by: "own: matmul".into(),
        micros: 12.5,
        bytes: 4_198_400,
        flops: 2_097_152,
        share_of_peak: Some(0.4167),
    };
    let run = Profile { partition: "main_0".into(), times: vec![step.clone()] };
    let objects =
        [object("One line for each run of a partition", &run), object("Fields of each entry of `times`", &step)];
    let about = "Steps are timed one by one, so a run takes longer and is not replayed as a captured graph. The first \
                 run of a plan includes initialisation.";
    section(about, &[run], &objects)
}

fn memory() -> String {
    let usage = Usage { now: 0, peak: 2_500_000 };
    let none = Usage::default();
    let memory = Purposes {
        constants: usage.clone(),
        mapped: none.clone(),
        weights: none.clone(),
        arena: Usage { now: 0, peak: 400_000 },
        working: none.clone(),
        staging: none,
    };
    let line = Memory { device: "host".into(), memory: memory.clone() };
    let objects = [
        object("One line when a session ends", &line),
        object("Fields of `memory`; [cli.md](cli.md#memory) describes each purpose", &memory),
        object("Fields for each purpose", &usage),
    ];
    section("The counters are global to the library and include other sessions.", &[line], &objects)
}

fn progress() -> String {
    let line = Progress { work: Activity::Kernels, done: 3, of: 9 };
    let objects = [object("On a GPU, one line for each kernel that is compiled and each step that is measured", &line)];
    section("The count restarts for each plan.", &[line], &objects)
}

#[test]
fn documented_reports() {
    let page = [INTRODUCTION.to_owned(), explain(), profile(), memory(), progress()].concat();
    for kind in Kind::ALL {
        assert!(page.contains(&format!("\n## {}\n", kind.name())), "{} has no section", kind.name());
    }
    testkit::generated::check("docs/reports.md", &page).unwrap();
}
