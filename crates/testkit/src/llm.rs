//! A tiny model folder for ONNX Runtime GenAI: one attention layer with random weights, a vocabulary of bytes and a few
//! special tokens, a chat template. Its output is noise, but the same noise everywhere; [`TinyDecoder::scores`]
//! computes the expected scores in plain loops over 64-bit floats.

mod hybrid;
mod paged;

use std::f64::consts::PI;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::onnx::{Attribute, Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};

const HIDDEN: usize = 32;
const HEADS: usize = 2;
const HEAD: usize = 16;
const QUERY: usize = HEADS * HEAD;
const PACKED: usize = QUERY + 2 * HEAD;
const CONTEXT: usize = 256;
const SPECIALS: [&str; 4] = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|eos|>"];

/// Number of tokens: every byte, then the special ones.
pub const VOCABULARY: usize = 256 + SPECIALS.len();

/// The padding token.
pub const PAD: u32 = 256;

/// The tokens that end a sequence.
pub const END: [u32; 2] = [258, 259];

/// The weights.
pub struct TinyDecoder {
    vocabulary: usize,
    logits: ElementType,
    /// Sequences of more tokens are rotated by the table for long ones.
    threshold: Option<usize>,
    /// Whether it has states and rows of positions.
    is_hybrid: bool,
    /// Tokens in a block of the cache, if it is in blocks.
    block: Option<usize>,
    /// Whether it computes only the scores of given tokens; only with blocks.
    is_pruned: bool,
    embedding: Vec<f32>,
    packed: Vec<f32>,
    output: Vec<f32>,
    head: Vec<f32>,
}

impl TinyDecoder {
    /// Weights from a seed.
    pub fn new(seed: u64) -> TinyDecoder {
        TinyDecoder::with_vocabulary(seed, VOCABULARY, 1.0)
    }

    /// Weights from a seed, with additional tokens that have no text, and scores `spread` times as far apart.
    pub fn with_vocabulary(seed: u64, vocabulary: usize, spread: f32) -> TinyDecoder {
        let weights = |number: u64, count: usize, size: f32| -> Vec<f32> {
            let mut state = seed.wrapping_mul(31).wrapping_add(number);
            (0..count).map(|_| uniform(&mut state) * size).collect()
        };
        let scale = (3.0 / HIDDEN as f32).sqrt();
        TinyDecoder {
            vocabulary,
            logits: ElementType::Float,
            threshold: None,
            is_hybrid: false,
            block: None,
            is_pruned: false,
            embedding: weights(1, vocabulary * HIDDEN, 1.0),
            packed: weights(2, HIDDEN * PACKED, 2.0 * scale),
            output: weights(3, QUERY * HIDDEN, 2.0 * scale),
            head: weights(4, HIDDEN * vocabulary, 4.0 * scale * spread),
        }
    }

    /// The same, with scores in 16-bit floats.
    #[must_use]
    pub fn half_logits(self) -> TinyDecoder {
        TinyDecoder { logits: ElementType::Float16, ..self }
    }

    /// The same, without the embeddings of the last `count` tokens: a run with one of them fails on ONNX Runtime's CPU
    /// provider.
    #[must_use]
    pub fn without_embeddings(mut self, count: usize) -> TinyDecoder {
        self.embedding.truncate((self.vocabulary - count) * HIDDEN);
        self
    }

    /// The same with LongRoPE: by the width of the mask, an `If` chooses between a table for sequences of up to
    /// `threshold` tokens and one for longer sequences.
    #[must_use]
    pub fn long_rope(self, threshold: usize) -> TinyDecoder {
        TinyDecoder { threshold: Some(threshold), ..self }
    }

    /// The same with a convolution, a sum over all tokens, and three rows of positions: a decoder with states of fixed
    /// size.
    #[must_use]
    pub fn hybrid(self) -> TinyDecoder {
        TinyDecoder { is_hybrid: true, ..self }
    }

    /// The same with PagedAttention, over a cache in blocks of so many tokens. Attention computes with 16-bit floats.
    #[must_use]
    pub fn paged(self, block: usize) -> TinyDecoder {
        TinyDecoder { block: Some(block), ..self }
    }

    /// The same, with an input that says for which tokens of a run scores are computed. Only for [`TinyDecoder::paged`].
    #[must_use]
    pub fn pruned(self) -> TinyDecoder {
        TinyDecoder { is_pruned: true, ..self }
    }

    /// Writes the folder's files. With `shared`, keys and values stay in one buffer.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path, shared: bool) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.join(name), bytes).with_context(|| format!("cannot write {name}"))
        };
        let model = self.block.map_or_else(|| self.model(), |block| paged::model(self, block));
        write("model.onnx", &model.to_bytes())?;
        let mut config = config(shared, self.vocabulary);
        if let Some(block) = self.block {
            paged::configure(&mut config, block, self.is_pruned);
        }
        write("genai_config.json", config.to_string().as_bytes())?;
        write("tokenizer.json", tokenizer().to_string().as_bytes())?;
        write("tokenizer_config.json", tokenizer_config().to_string().as_bytes())
    }

    fn model(&self) -> Model {
        let matrix = |name: &str, rows: usize, columns: usize, values: &[f32]| {
            Tensor::floats(name, [rows as i64, columns as i64], values)
        };
        let table = |name: &str, factors: Factors, rows: usize, function: fn(f64) -> f64| {
            let angles = (0..rows).flat_map(|position| (0..HEAD / 2).map(move |index| factors.angle(position, index)));
            let angles: Vec<f32> = angles.map(|angle| function(angle) as f32).collect();
            matrix(name, rows, HEAD / 2, &angles)
        };
        let int = |value: usize| Attribute::Int(value as i64);
        let kv = |length: &'static str| ["batch".into(), Dim::Size(1), length.into(), Dim::Size(HEAD as i64)];
        let float = |name: &str, dims: [Dim; 4]| ValueInfo::tensor(name, ElementType::Float, dims);
        let ints = |name: &str, length: &'static str| {
            ValueInfo::tensor(name, ElementType::Int64, ["batch".into(), Dim::from(length)])
        };
        let attention = Node::new(
            "GroupQueryAttention",
            ["packed", "", "", "past_key_values.0.key", "past_key_values.0.value", "lengths", "total", "cos", "sin"],
            ["attended", "present.0.key", "present.0.value"],
        );
        let attention = attention
            .domain("com.microsoft")
            .attribute("num_heads", int(HEADS))
            .attribute("kv_num_heads", int(1))
            .attribute("do_rotary", int(1))
            .attribute("scale", Attribute::Float(1.0 / (HEAD as f32).sqrt()));
        let cast = |from: &str, to: &str, element: ElementType| {
            Node::new("Cast", [from], [to]).attribute("to", Attribute::Int(element as i64))
        };
        let logits = ["batch".into(), "sequence".into(), Dim::Size(self.vocabulary as i64)];
        let graph = Graph::new("tiny")
            .node(Node::new("Gather", ["embedding", "input_ids"], ["embedded"]))
            .node(Node::new("Shape", ["attention_mask"], ["shape"]))
            .node(Node::new("Gather", ["shape", "index"], ["width"]).attribute("axis", int(0)));
        let graph = match self.threshold {
            None => graph.initializer(table("cos", Factors::Plain, CONTEXT, f64::cos)).initializer(table(
                "sin",
                Factors::Plain,
                CONTEXT,
                f64::sin,
            )),
            Some(threshold) => {
                let tables = |factors: Factors, rows: usize| {
                    let part = |name: &str, function| {
                        let value = Attribute::Tensor(table(name, factors, rows, function));
                        Node::new("Constant", [], [name]).attribute("value", value)
                    };
                    let dims = || [Dim::Size(rows as i64), Dim::Size(HEAD as i64 / 2)];
                    let output = |name: &str| ValueInfo::tensor(name, ElementType::Float, dims());
                    let graph = Graph::new("tables").node(part("cosines", f64::cos)).node(part("sines", f64::sin));
                    Attribute::Graph(graph.output(output("cosines")).output(output("sines")))
                };
                let choice = Node::new("If", ["is_long"], ["cos", "sin"])
                    .attribute("then_branch", tables(Factors::Long, CONTEXT))
                    .attribute("else_branch", tables(Factors::Short, threshold));
                graph
                    .initializer(Tensor::int64s("threshold", [], &[threshold as i64]))
                    .node(Node::new("Greater", ["width", "threshold"], ["is_long"]))
                    .node(choice)
            }
        };
        let mixed = if self.is_hybrid { "mixed" } else { "embedded" };
        let graph = if self.is_hybrid { hybrid::add(graph) } else { graph };
        let graph = graph
            .input(ints("input_ids", "sequence"))
            .input(ints("attention_mask", "total"))
            .input(float("past_key_values.0.key", kv("past")))
            .input(float("past_key_values.0.value", kv("past")))
            .initializer(matrix("embedding", self.embedding.len() / HIDDEN, HIDDEN, &self.embedding))
            .initializer(matrix("packed_weight", HIDDEN, PACKED, &self.packed))
            .initializer(matrix("output_weight", QUERY, HIDDEN, &self.output))
            .initializer(matrix("head_weight", HIDDEN, self.vocabulary, &self.head))
            .initializer(Tensor::int64s("axis", [1], &[1]))
            .initializer(Tensor::int64s("one", [1], &[1]))
            .initializer(Tensor::int64s("index", [], &[1]))
            .node(Node::new("ReduceSum", ["attention_mask", "axis"], ["sums"]).attribute("keepdims", int(0)))
            .node(Node::new("Sub", ["sums", "one"], ["last"]))
            .node(cast("last", "lengths", ElementType::Int32))
            .node(cast("width", "total", ElementType::Int32))
            .node(Node::new("MatMul", [mixed, "packed_weight"], ["packed"]))
            .node(attention)
            .node(Node::new("MatMul", ["attended", "output_weight"], ["projected"]))
            .node(Node::new("Add", [mixed, "projected"], ["sum"]))
            .node(Node::new("MatMul", ["sum", "head_weight"], ["scores"]))
            .node(cast("scores", "logits", self.logits))
            .output(ValueInfo::tensor("logits", self.logits, logits))
            .output(float("present.0.key", kv("total")))
            .output(float("present.0.value", kv("total")));
        Model::new(graph).opset("", 21).opset("com.microsoft", 1)
    }

    /// The scores of every token after a sequence.
    ///
    /// # Panics
    /// When the sequence is empty or has a token outside the vocabulary.
    pub fn scores(&self, tokens: &[u32]) -> Vec<f64> {
        let row = |token: u32| self.embedding[token as usize * HIDDEN..][..HIDDEN].iter().map(|&x| x.into()).collect();
        let mut embedded: Vec<Vec<f64>> = tokens.iter().map(|&token| row(token)).collect();
        if self.is_hybrid {
            embedded = hybrid::mixed(&embedded);
        }
        let packed: Vec<Vec<f64>> =
            embedded.iter().map(|row| product(row.iter().copied(), &self.packed, PACKED)).collect();
        let part = |position: usize, from: usize| &packed[position][from..from + HEAD];
        let factors = match self.threshold {
            None => Factors::Plain,
            Some(threshold) if tokens.len() > threshold => Factors::Long,
            Some(_) => Factors::Short,
        };
        let keys: Vec<Vec<f64>> =
            (0..tokens.len()).map(|position| rotated(part(position, QUERY), position, factors)).collect();
        let last = tokens.len() - 1;
        let mut attended = Vec::with_capacity(QUERY);
        for head in 0..HEADS {
            let query = rotated(part(last, head * HEAD), last, factors);
            let weights: Vec<f64> = keys
                .iter()
                .map(|key| (query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (HEAD as f64).sqrt()).exp())
                .collect();
            let total: f64 = weights.iter().sum();
            attended.extend((0..HEAD).map(|index| {
                let values = weights.iter().enumerate();
                values.map(|(position, weight)| weight * part(position, QUERY + HEAD)[index]).sum::<f64>() / total
            }));
        }
        let projected = product(attended.into_iter(), &self.output, HIDDEN);
        let sum = projected.into_iter().zip(&embedded[last]).map(|(x, y)| x + y);
        product(sum, &self.head, self.vocabulary)
    }
}

/// What the angles of positions are divided by.
#[derive(Clone, Copy)]
enum Factors {
    Plain,
    Short,
    Long,
}

impl Factors {
    fn angle(self, position: usize, index: usize) -> f64 {
        let growth = match self {
            Factors::Plain => 0.0,
            Factors::Short => 0.02,
            Factors::Long => 0.5,
        };
        let factor = 1.0 + growth * index as f64;
        position as f64 / factor * 10_000f64.powf(-2.0 * index as f64 / HEAD as f64) % (2.0 * PI)
    }
}

fn rotated(row: &[f64], position: usize, factors: Factors) -> Vec<f64> {
    let half = HEAD / 2;
    let turn = |index: usize, sign: f64| {
        let (sin, cos) = factors.angle(position, index % half).sin_cos();
        row[index] * cos + sign * row[(index + half) % HEAD] * sin
    };
    (0..HEAD).map(|index| turn(index, if index < half { -1.0 } else { 1.0 })).collect()
}

fn product(row: impl Iterator<Item = f64>, matrix: &[f32], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for (x, weights) in row.zip(matrix.chunks(columns)) {
        sums.iter_mut().zip(weights).for_each(|(sum, &weight)| *sum += x * f64::from(weight));
    }
    sums
}

/// From -1 to 1, by splitmix64.
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn config(shared: bool, vocabulary: usize) -> Value {
    json!({
        "model": {
            "type": "llama", "context_length": CONTEXT, "vocab_size": vocabulary,
            "pad_token_id": PAD, "bos_token_id": 257, "eos_token_id": END,
            "decoder": {
                "filename": "model.onnx", "num_hidden_layers": 1, "num_key_value_heads": 1, "head_size": HEAD,
                "num_attention_heads": HEADS, "hidden_size": HIDDEN,
                "session_options": {"log_id": "tiny", "provider_options": []},
                "inputs": {
                    "input_ids": "input_ids", "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"
                }
            }
        },
        "search": {"max_length": CONTEXT, "past_present_share_buffer": shared}
    })
}

/// Byte-level, without merges: a token is a byte.
fn tokenizer() -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        (0..=255u8).map(|byte| (printable(byte).to_string(), json!(byte))).collect();
    let specials = SPECIALS.iter().enumerate().map(|(index, text)| {
        json!({
            "id": 256 + index, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": specials.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    })
}

/// The character that byte-level vocabularies use for a byte.
pub fn printable(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if is_printable(byte) {
        return byte.into();
    }
    let before = (0..byte).filter(|&byte| !is_printable(byte)).count() as u32;
    char::from_u32(256 + before).unwrap_or('?')
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|eos|>", "pad_token": "<|pad|>",
        "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_unique_character() {
        let letters: std::collections::BTreeSet<char> = (0..=255).map(printable).collect();
        assert_eq!(letters.len(), 256);
        assert_eq!((printable(b' '), printable(b'\n'), printable(b'a')), ('Ġ', 'Ċ', 'a'));
    }

    #[test]
    fn scores_depend_on_the_order_of_tokens() {
        let decoder = TinyDecoder::new(1);
        assert_eq!(decoder.scores(&[1, 2, 3]), decoder.scores(&[1, 2, 3]));
        assert_ne!(decoder.scores(&[1, 2, 3]), decoder.scores(&[2, 1, 3]));
    }
}
