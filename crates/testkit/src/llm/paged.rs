//! The decoder with PagedAttention, with the inputs and outputs of GenAI's model builder.

use std::f64::consts::PI;

use serde_json::{Value, json};

use super::{CONTEXT, HEAD, HEADS, HIDDEN, PACKED, QUERY, TinyDecoder};
use crate::onnx::{Attribute, Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};

/// The inputs that describe the blocks, with their extents.
const NUMBERS: [(&str, &[&str]); 3] = [
    ("cumulative_sequence_lengths", &["ends"]),
    ("past_sequence_lengths", &["sequences"]),
    ("block_table", &["sequences", "most"]),
];

/// Bounds of lengths, which no result depends on.
const METADATA: &str = "attention_metadata";

/// The tokens whose scores are computed.
const SCORED: &str = "logits_indices";

pub(super) fn model(decoder: &TinyDecoder, block: usize) -> Model {
    let matrix = |name: &str, rows: usize, columns: usize, values: &[f32]| {
        Tensor::floats(name, [rows as i64, columns as i64], values)
    };
    let table = |name: &str, function: fn(f64) -> f64| {
        let angle = |position: usize, index: usize| {
            position as f64 * 10_000f64.powf(-2.0 * index as f64 / HEAD as f64) % (2.0 * PI)
        };
        let angles = (0..CONTEXT).flat_map(|position| (0..HEAD / 2).map(move |index| angle(position, index)));
        matrix(name, CONTEXT, HEAD / 2, &angles.map(|angle| function(angle) as f32).collect::<Vec<_>>())
    };
    let cast = |from: &str, to: &str, element: ElementType| {
        Node::new("Cast", [from], [to]).attribute("to", Attribute::Int(element as i64))
    };
    let cache = |name: &str| {
        let dims = ["blocks".into(), Dim::Size(block as i64), Dim::Size(1), Dim::Size(HEAD as i64)];
        ValueInfo::tensor(name, ElementType::Float16, dims)
    };
    let attention = Node::new(
        "PagedAttention",
        [
            "packed",
            "",
            "",
            "past_key_values.0.key",
            "past_key_values.0.value",
            NUMBERS[0].0,
            NUMBERS[1].0,
            NUMBERS[2].0,
            "cos",
            "sin",
            "",
            "",
            "",
            "",
            "",
            "",
            METADATA,
        ],
        ["attended", "present.0.key", "present.0.value"],
    );
    let attention = attention
        .domain("com.microsoft")
        .attribute("num_heads", Attribute::Int(HEADS as i64))
        .attribute("kv_num_heads", Attribute::Int(1))
        .attribute("do_rotary", Attribute::Int(1))
        .attribute("scale", Attribute::Float(1.0 / (HEAD as f32).sqrt()));
    let mut graph = Graph::new("tiny")
        .input(ValueInfo::tensor("input_ids", ElementType::Int64, [Dim::from("tokens")]))
        .input(cache("past_key_values.0.key"))
        .input(cache("past_key_values.0.value"));
    for (name, extents) in NUMBERS {
        graph =
            graph.input(ValueInfo::tensor(name, ElementType::Int32, extents.iter().map(|&extent| Dim::from(extent))));
    }
    graph = graph.input(ValueInfo::tensor(METADATA, ElementType::Int32, [Dim::Size(3)]));
    let (states, rows) = if decoder.is_pruned { ("scored", "scores") } else { ("sum", "tokens") };
    if decoder.is_pruned {
        graph = graph.input(ValueInfo::tensor(SCORED, ElementType::Int64, [Dim::from(rows)]));
    }
    graph = graph
        .initializer(matrix("embedding", decoder.embedding.len() / HIDDEN, HIDDEN, &decoder.embedding))
        .initializer(matrix("packed_weight", HIDDEN, PACKED, &decoder.packed))
        .initializer(matrix("output_weight", QUERY, HIDDEN, &decoder.output))
        .initializer(matrix("head_weight", HIDDEN, decoder.vocabulary, &decoder.head))
        .initializer(table("cosines", f64::cos))
        .initializer(table("sines", f64::sin))
        .node(Node::new("Gather", ["embedding", "input_ids"], ["embedded"]))
        .node(Node::new("MatMul", ["embedded", "packed_weight"], ["wide"]))
        .node(cast("wide", "packed", ElementType::Float16))
        .node(cast("cosines", "cos", ElementType::Float16))
        .node(cast("sines", "sin", ElementType::Float16))
        .node(attention)
        .node(cast("attended", "attended_wide", ElementType::Float))
        .node(Node::new("MatMul", ["attended_wide", "output_weight"], ["projected"]))
        .node(Node::new("Add", ["embedded", "projected"], ["sum"]));
    if decoder.is_pruned {
        graph = graph.node(Node::new("Gather", ["sum", SCORED], [states]));
    }
    let graph = graph
        .node(Node::new("MatMul", [states, "head_weight"], ["all_scores"]))
        .node(cast("all_scores", "logits", decoder.logits))
        .output(ValueInfo::tensor("logits", decoder.logits, [rows.into(), Dim::Size(decoder.vocabulary as i64)]))
        .output(cache("present.0.key"))
        .output(cache("present.0.value"));
    Model::new(graph).opset("", 21).opset("com.microsoft", 1)
}

/// Adds what GenAI's model builder writes for such a folder.
pub(super) fn configure(config: &mut Value, block: usize, is_pruned: bool) {
    config["search"]["past_present_share_buffer"] = json!(true);
    config["engine"] = json!({"dynamic_batching": {"block_size": block, "max_batch_size": 8}});
    let inputs = &mut config["model"]["decoder"]["inputs"];
    *inputs = json!({
        "input_ids": "input_ids", "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value"
    });
    let scored = is_pruned.then_some(SCORED);
    for name in NUMBERS.iter().map(|&(name, _)| name).chain([METADATA]).chain(scored) {
        inputs[name] = json!(name);
    }
}
