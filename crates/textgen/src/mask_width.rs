//! What a decoder's graph does with the width of the attention mask.
//!
//! Wide masks let a provider reuse its work, because their shape never changes. But some graphs read the width as the
//! length of the sequence: decoders with LongRoPE compare it with the original context, and choose between the rotary
//! tables for short and for long sequences.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::path::Path;

use crate::files;
use crate::onnx_file::{self, Visitor};

/// How wide the mask of a sequence may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MaskWidth {
    /// Any width means the same.
    Any,
    /// Widths on the same side of each of these lengths mean the same. They are sorted.
    Steps(Vec<usize>),
    /// Only the length of the sequence is right, as far as is known.
    Exact,
    /// The graph is compiled, and does not show what it does.
    Hidden,
}

impl MaskWidth {
    /// Reads the decoder's file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(path: &Path, mask: &str) -> io::Result<MaskWidth> {
        let mut reader = BufReader::new(files::open_regular(path)?);
        let mut found = Found::default();
        let read = onnx_file::visit(&mut reader, &mut found);
        // ONNX Runtime has other file formats, too.
        Ok(if read.is_err() || found.is_full { MaskWidth::Exact } else { found.width(mask) })
    }

    /// The largest width for a sequence of `total` tokens that means the same as its length.
    pub fn widest(&self, total: usize, max_length: usize) -> usize {
        match self {
            MaskWidth::Any | MaskWidth::Hidden => max_length,
            MaskWidth::Steps(steps) => {
                steps.iter().copied().find(|&step| total <= step).unwrap_or(max_length).min(max_length)
            }
            MaskWidth::Exact => total,
        }
    }

    /// The maximum length of sequences that run in one batch, with one mask. `None` if the width must be exact, or may
    /// have to be.
    pub fn batched(&self, max_length: usize) -> Option<usize> {
        match self {
            MaskWidth::Exact | MaskWidth::Hidden => None,
            _ => Some(self.widest(1, max_length)),
        }
    }

    /// Whether two lengths of a sequence mean different things to the graph, so that keys cached at one length are wrong
    /// at the other.
    pub fn differs(&self, length: usize, other: usize) -> bool {
        let MaskWidth::Steps(steps) = self else { return false };
        steps.iter().any(|&step| (length <= step) != (other <= step))
    }
}

/// More nodes than any real decoder has of the kinds that are kept.
const MAX_KEPT: usize = 1 << 20;

/// The nodes and constants that can lead from the mask to a condition.
#[derive(Default)]
struct Found {
    /// By the first output.
    nodes: HashMap<String, Node>,
    conditions: Vec<String>,
    numbers: HashMap<String, i64>,
    is_compiled: bool,
    is_full: bool,
}

struct Node {
    op: String,
    inputs: Vec<String>,
}

impl Visitor for Found {
    fn node(&mut self, op: String, inputs: Vec<String>, outputs: Vec<String>) {
        self.is_full |= self.nodes.len().max(self.conditions.len()) >= MAX_KEPT;
        if self.is_full {
            return;
        }
        match op.as_str() {
            "EPContext" => self.is_compiled = true,
            "If" => self.conditions.extend(inputs.into_iter().next()),
            "Greater" | "Gather" | "Shape" | "Cast" => {
                if let Some(output) = outputs.into_iter().next() {
                    self.nodes.insert(output, Node { op, inputs });
                }
            }
            _ => {}
        }
    }

    fn integer(&mut self, name: String, value: i64) {
        self.is_full |= self.numbers.len() >= MAX_KEPT;
        if !self.is_full {
            self.numbers.insert(name, value);
        }
    }
}

impl Found {
    fn width(&self, mask: &str) -> MaskWidth {
        let steps: Option<Vec<usize>> = self.conditions.iter().map(|condition| self.step(condition, mask)).collect();
        match steps {
            None => MaskWidth::Exact,
            // Compiled parts may depend on the width too.
            Some(steps) if self.is_compiled && !steps.is_empty() => MaskWidth::Exact,
            Some(_) if self.is_compiled => MaskWidth::Hidden,
            Some(steps) if steps.is_empty() => MaskWidth::Any,
            Some(mut steps) => {
                steps.sort_unstable();
                steps.dedup();
                MaskWidth::Steps(steps)
            }
        }
    }

    /// The length up to which a condition is false, if it compares the mask's width with a number.
    fn step(&self, condition: &str, mask: &str) -> Option<usize> {
        let [value, number] = self.inputs(condition, "Greater")? else { return None };
        let [shape, index] = self.inputs(self.uncast(value), "Gather")? else { return None };
        let [shaped] = self.inputs(shape, "Shape")? else { return None };
        let is_width = shaped == mask && self.numbers.get(index) == Some(&1);
        usize::try_from(*self.numbers.get(number)?).ok().filter(|_| is_width)
    }

    fn inputs(&self, output: &str, op: &str) -> Option<&[String]> {
        self.nodes.get(output).filter(|node| node.op == op).map(|node| &node.inputs[..])
    }

    /// The value before a conversion.
    fn uncast<'a>(&'a self, value: &'a str) -> &'a str {
        match self.inputs(value, "Cast") {
            Some([from]) => from,
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::llm::TinyDecoder;
    use testkit::onnx::{ElementType, Graph, Model, Node, Tensor, ValueInfo};

    use super::*;

    fn width_of(bytes: &[u8]) -> MaskWidth {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        MaskWidth::of(file.path(), "attention_mask").unwrap()
    }

    fn decoder(decoder: &TinyDecoder) -> MaskWidth {
        let folder = tempfile::tempdir().unwrap();
        decoder.write(folder.path(), true).unwrap();
        MaskWidth::of(&folder.path().join("model.onnx"), "attention_mask").unwrap()
    }

    #[test]
    fn only_conditions_on_the_width_limit_it() {
        assert_eq!(decoder(&TinyDecoder::new(1)), MaskWidth::Any);
        assert_eq!(decoder(&TinyDecoder::new(1).long_rope(12)), MaskWidth::Steps(vec![12]));
    }

    #[test]
    fn a_graph_that_is_not_understood_gets_exact_masks() {
        let flag = ValueInfo::tensor("flag", ElementType::Bool, []);
        let branch = Graph::new("branch").initializer(Tensor::int64s("y", [], &[1]));
        let node = Node::new("If", ["flag"], ["x"]).attribute("then_branch", testkit::onnx::Attribute::Graph(branch));
        let graph = Graph::new("odd").input(flag).node(node);
        assert_eq!(width_of(&Model::new(graph).opset("", 21).to_bytes()), MaskWidth::Exact);
        for bytes in [&b"not a model"[..], &[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x08], &[0; 64]] {
            assert_eq!(width_of(bytes), MaskWidth::Exact, "{bytes:?}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // It is sparse, and takes no space. Reading it would take minutes.
        file.as_file().set_len(64 << 30).unwrap();
        assert_eq!(MaskWidth::of(file.path(), "attention_mask").unwrap(), MaskWidth::Exact);
    }

    #[test]
    fn compiled_graphs_hide_what_they_do() {
        let graph = Graph::new("compiled").node(Node::new("EPContext", ["x"], ["y"]).domain("com.microsoft"));
        assert_eq!(width_of(&Model::new(graph).opset("", 21).to_bytes()), MaskWidth::Hidden);
    }

    #[test]
    fn masks_are_as_wide_as_their_meaning_allows() {
        let steps = MaskWidth::Steps(vec![8, 32]);
        let widths = [1, 8, 9, 32, 33].map(|total| steps.widest(total, 40));
        assert_eq!(widths, [8, 8, 32, 32, 40]);
        assert_eq!(steps.widest(3, 6), 6, "no wider than the longest sequence");
        assert_eq!((MaskWidth::Any.widest(3, 40), MaskWidth::Exact.widest(3, 40)), (40, 3));
        assert_eq!([&steps, &MaskWidth::Any].map(|width| width.batched(40)), [Some(8), Some(40)]);
        assert_eq!([MaskWidth::Exact, MaskWidth::Hidden].map(|width| width.batched(40)), [None, None]);
        assert!(steps.differs(8, 9) && steps.differs(40, 1) && !steps.differs(9, 32) && !MaskWidth::Any.differs(1, 9));
    }
}
