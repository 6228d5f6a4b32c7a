//! Sentence embeddings, compared with 64-bit float loops over a tiny encoder defined here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::llm::{TinyDecoder, VOCABULARY};
use testkit::onnx::{Attribute, Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};
use textgen::embed::{EmbedOptions, Embedder, Pooling};

const SIZE: usize = 6;
const BEGIN: u32 = 257;
const END: u32 = 258;

/// tanh((tokens + types) * matrix), token by token.
struct Encoder {
    folder: TempDir,
    tokens: Vec<f32>,
    types: Vec<f32>,
    matrix: Vec<f32>,
}

impl Encoder {
    /// With `pools`, the first output is the vector of the first token; otherwise it has one vector per token.
    fn new(integers: ElementType, pools: bool) -> Encoder {
        let values = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let folder = tempfile::tempdir().unwrap();
        let encoder = Encoder {
            tokens: values(VOCABULARY * SIZE, 0.7),
            types: values(2 * SIZE, 1.3),
            matrix: values(SIZE * SIZE, 2.1),
            folder,
        };
        // The decoder's tokenizer, with a special token before and after each sentence.
        TinyDecoder::new(1).write(encoder.path(), true).unwrap();
        let path = encoder.path().join("tokenizer.json");
        let mut tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
        let named = |name: &str, id: u32| json!({"id": name, "ids": [id], "tokens": [name]});
        let (begin, end) = ("<|im_start|>", "<|im_end|>");
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [special(begin), {"Sequence": {"id": "A", "type_id": 0}}, special(end)],
            "pair": [special(begin), {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {begin: named(begin, BEGIN), end: named(end, END)}
        });
        std::fs::write(path, tokenizer.to_string()).unwrap();
        std::fs::write(encoder.path().join("model.onnx"), encoder.model(integers, pools).to_bytes()).unwrap();
        encoder
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn model(&self, integers: ElementType, pools: bool) -> Model {
        let input = |name: &str| ValueInfo::tensor(name, integers, [Dim::from("batch"), Dim::from("tokens")]);
        let matrix = |name: &str, rows: usize, values: &[f32]| Tensor::floats(name, [rows as i64, SIZE as i64], values);
        let graph = Graph::new("encoder")
            .input(input("input_ids"))
            .input(input("attention_mask"))
            .input(input("token_type_ids"))
            .initializer(matrix("tokens_table", VOCABULARY, &self.tokens))
            .initializer(matrix("types_table", 2, &self.types))
            .initializer(matrix("matrix", SIZE, &self.matrix))
            .initializer(Tensor::int64s("first", [], &[0]))
            .node(Node::new("Gather", ["tokens_table", "input_ids"], ["embedded"]))
            .node(Node::new("Gather", ["types_table", "token_type_ids"], ["typed"]))
            .node(Node::new("Add", ["embedded", "typed"], ["sum"]))
            .node(Node::new("MatMul", ["sum", "matrix"], ["product"]))
            .node(Node::new("Tanh", ["product"], ["last_hidden_state"]));
        let size = Dim::Size(SIZE as i64);
        let graph = if pools {
            let node = Node::new("Gather", ["last_hidden_state", "first"], ["sentence_embedding"]);
            let output = ValueInfo::tensor("sentence_embedding", ElementType::Float, [Dim::from("batch"), size]);
            graph.node(node.attribute("axis", Attribute::Int(1))).output(output)
        } else {
            let dims = [Dim::from("batch"), Dim::from("tokens"), size];
            graph.output(ValueInfo::tensor("last_hidden_state", ElementType::Float, dims))
        };
        Model::new(graph).opset("", 21)
    }

    /// `None`, with a printed reason, if ONNX Runtime is not installed.
    fn load(&self, options: EmbedOptions) -> Option<Embedder> {
        if let Err(reason) = testkit::place::onnxruntime() {
            println!("skipped: {reason}");
            return None;
        }
        Some(Embedder::load(&common::runtime().unwrap(), self.path(), options).unwrap())
    }

    fn token(&self, token: u32) -> Vec<f64> {
        let sum = |row: usize| f64::from(self.tokens[token as usize * SIZE + row]) + f64::from(self.types[row]);
        let column = |column: usize| (0..SIZE).map(|row| sum(row) * f64::from(self.matrix[row * SIZE + column])).sum();
        (0..SIZE).map(|index| f64::tanh(column(index))).collect()
    }

    fn reference(&self, sentence: &[u8], pooling: Pooling, normalise: bool) -> Vec<f64> {
        let tokens: Vec<u32> =
            std::iter::once(BEGIN).chain(sentence.iter().map(|&byte| byte.into())).chain([END]).collect();
        let tokens = if pooling == Pooling::First { &tokens[..1] } else { &tokens[..] };
        let mut vector = vec![0.0; SIZE];
        for &token in tokens {
            vector.iter_mut().zip(self.token(token)).for_each(|(sum, value)| *sum += value / tokens.len() as f64);
        }
        let length = if normalise { vector.iter().map(|value| value * value).sum::<f64>().sqrt() } else { 1.0 };
        vector.into_iter().map(|value| value / length).collect()
    }
}

#[track_caller]
fn assert_close(found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (&found, wanted) in found.iter().zip(wanted) {
        assert!((f64::from(found) - wanted).abs() < 1e-5, "{found} for {wanted}");
    }
}

#[test]
fn sentences_of_a_batch_are_pooled_without_their_padding() {
    let sentences = ["a", "A much longer sentence, with more than one word in it.", "", "mid size"];
    for integers in [ElementType::Int64, ElementType::Int32] {
        let encoder = Encoder::new(integers, false);
        for pooling in [Pooling::Mean, Pooling::First] {
            for normalise in [true, false] {
                let options = EmbedOptions { pooling: Some(pooling), normalise, ..EmbedOptions::default() };
                let Some(mut embedder) = encoder.load(options) else { return };
                let vectors = embedder.embed(&sentences).unwrap();
                assert_eq!(vectors.len(), sentences.len());
                for (sentence, vector) in sentences.iter().zip(&vectors) {
                    assert_close(vector, &encoder.reference(sentence.as_bytes(), pooling, normalise));
                    let alone = embedder.embed(&[sentence]).unwrap();
                    assert!(alone[0].iter().zip(vector).all(|(alone, together)| (alone - together).abs() < 1e-6));
                }
            }
        }
    }
}

#[test]
fn the_example_prints_how_alike_sentences_are() {
    let Ok(onnxruntime) = testkit::place::onnxruntime().inspect_err(|reason| println!("skipped: {reason}")) else {
        return;
    };
    // Cargo runs tests from `<profile>/deps` and puts examples beside that folder.
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/04-embeddings");
    if !program.exists() {
        println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", program.display());
        return;
    }
    let (encoder, sentences) = (Encoder::new(ElementType::Int64, false), ["a cat", "A cat sits.", "rain"]);
    let mut command = std::process::Command::new(program);
    let output = command.arg(onnxruntime).arg(encoder.path()).args(sentences).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let vectors = sentences.map(|sentence| encoder.reference(sentence.as_bytes(), Pooling::Mean, true));
    let text = String::from_utf8(output.stdout).unwrap();
    for ((line, sentence), vector) in text.lines().zip(sentences).zip(&vectors) {
        let wanted: f64 = vector.iter().zip(&vectors[0]).map(|(a, b)| a * b).sum();
        let (found, name) = line.split_once(' ').unwrap();
        assert!(name == sentence && (found.parse::<f64>().unwrap() - wanted).abs() < 1e-3, "{line}, expected {wanted}");
    }
    assert_eq!(text.lines().count(), sentences.len());
}

#[test]
fn pooled_outputs_are_used_unchanged() {
    let encoder = Encoder::new(ElementType::Int64, true);
    let Some(mut embedder) = encoder.load(EmbedOptions::default()) else { return };
    for sentence in ["one", "another one"] {
        let vectors = embedder.embed(&[sentence]).unwrap();
        assert_close(&vectors[0], &encoder.reference(sentence.as_bytes(), Pooling::First, true));
    }
    assert!(embedder.embed(&[]).unwrap().is_empty());
}

#[test]
fn the_folder_says_how_to_pool() {
    let encoder = Encoder::new(ElementType::Int64, false);
    let folder = encoder.path().join("1_Pooling");
    std::fs::create_dir(&folder).unwrap();
    let write = |config: Value| std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    for (mode, pooling) in [("cls_token", Pooling::First), ("mean_tokens", Pooling::Mean)] {
        write(json!({"word_embedding_dimension": SIZE, format!("pooling_mode_{mode}"): true}));
        let Some(mut embedder) = encoder.load(EmbedOptions::default()) else { return };
        assert_close(&embedder.embed(&["text"]).unwrap()[0], &encoder.reference(b"text", pooling, true));
    }
    write(json!({"pooling_mode_max_tokens": true}));
    let refused = Embedder::load(&common::runtime().unwrap(), encoder.path(), EmbedOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("pooling_mode_cls_token"), "{refused}");
}

#[test]
fn long_sentences_are_cut_and_keep_their_ends() {
    let encoder = Encoder::new(ElementType::Int64, false);
    let Some(mut embedder) = encoder.load(EmbedOptions { max_tokens: 6, ..EmbedOptions::default() }) else { return };
    let vectors = embedder.embed(&["abcdefgh", "ab"]).unwrap();
    assert_close(&vectors[0], &encoder.reference(b"abcd", Pooling::Mean, true));
    assert_close(&vectors[1], &encoder.reference(b"ab", Pooling::Mean, true));
}

#[test]
fn folders_without_an_encoder_are_rejected_with_a_message() {
    let Ok(runtime) = common::runtime() else { return };
    let refused = |folder: &Path, options: EmbedOptions| {
        let error = Embedder::load(&runtime, folder, options).unwrap_err().to_string();
        assert!(error.contains("\n  help: "), "{error}");
        error
    };
    let empty = tempfile::tempdir().unwrap();
    assert!(refused(empty.path(), EmbedOptions::default()).contains("model.onnx"));
    let encoder = Encoder::new(ElementType::Int64, false);
    assert!(refused(encoder.path(), EmbedOptions { max_tokens: 1, ..EmbedOptions::default() }).contains("1 tokens"));
    TinyDecoder::new(1).write(empty.path(), true).unwrap();
    assert!(refused(empty.path(), EmbedOptions::default()).contains("past_key_values.0.key"));
    std::fs::write(encoder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(refused(encoder.path(), EmbedOptions::default()).contains("tokenizer.json"));
}
