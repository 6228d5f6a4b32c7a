//! Computes only the logits that are read: the nodes after a decoder's last attention work on each sequence's last
//! token only.
use std::sync::Arc;

use crate::ops::{LastRows, Meaning, PlacedRows, RowWise};
use crate::pass::links::Links;
use crate::{DType, Graph, Node, NodeId, Tensor, Unread, ValueId};

/// The first input of a product with quantised weights that does not belong to the weights.
const BIAS: usize = 5;

pub(super) fn run(graph: &mut Graph) -> usize {
    let links = Links::new(graph);
    let Some(tokens) = Tokens::of(graph) else { return 0 };
    let mut found = graph.last_rows().filter_map(|output| Tail::before(output, graph, &links));
    // With several such outputs, it is unclear which one holds the logits.
    let (Some(tail), None) = (found.next(), found.next()) else { return 0 };
    drop(found);
    tail.rewrite(graph, tokens);
    1
}

/// The new tokens of a decoder, as its attention sees them.
struct Tokens {
    /// The index of each sequence's last token.
    lengths: ValueId,
    /// The attention's input: it has a row per token.
    read: ValueId,
}

impl Tokens {
    /// The tokens that all attention nodes with a cache agree on.
    fn of(graph: &Graph) -> Option<Self> {
        let mut found: Option<Self> = None;
        for node in graph.nodes() {
            let Meaning::CachedAttention { lengths, .. } = node.op.meaning() else { continue };
            let input = |at: usize| node.inputs.get(at).copied().flatten();
            let tokens = Self { lengths: input(lengths)?, read: input(0)? };
            if found.is_some_and(|found| found.lengths != tokens.lengths) {
                return None;
            }
            found = Some(tokens);
        }
        found
    }
}

/// Row-wise nodes that lead to one output only.
struct Tail {
    output: ValueId,
    nodes: Vec<bool>,
    /// The inputs of these nodes from other nodes, with a row per token.
    given: Vec<ValueId>,
}

impl Tail {
    /// The longest tail that contains a product and ends in an output with no other reader.
    fn before(output: ValueId, graph: &Graph, links: &Links) -> Option<Self> {
        let last = links.maker(output).filter(|_| links.readers(output).is_empty())?;
        let mut nodes = vec![false; graph.nodes().len()];
        let mut has_product = false;
        for at in (0..=last.0 as usize).rev() {
            let id = NodeId(at as u32);
            let node = graph.node(id);
            let inside = |value: &ValueId| {
                let mut readers = links.readers(*value).iter();
                *value == output || !links.is_wanted(*value) && readers.all(|reader| nodes[reader.0 as usize])
            };
            if (id == last || node.outputs.iter().flatten().any(|value| !links.readers(*value).is_empty()))
                && node.outputs.iter().flatten().all(inside)
                && rows_of(graph, node).is_some()
            {
                nodes[at] = true;
                has_product |= node.op.row_wise() == RowWise::Product;
            }
        }
        if !has_product {
            return None;
        }
        let mut given = Vec::new();
        for (node, _) in graph.nodes().iter().zip(&nodes).filter(|(_, inside)| **inside) {
            for value in rows_of(graph, node)? {
                let made_inside = links.maker(value).is_some_and(|maker| nodes[maker.0 as usize]);
                if !made_inside && !given.contains(&value) {
                    given.push(value);
                }
            }
        }
        Some(Self { output, nodes, given })
    }

    /// Makes the nodes read only the rows of last tokens, and puts the results back in their rows if the caller expects
    /// that.
    fn rewrite(self, graph: &mut Graph, Tokens { lengths, read }: Tokens) {
        let named = |graph: &mut Graph, what: &str, id: ValueId, dtype: DType| {
            let name = graph.unused_name(&format!("{} {what}", graph.value(id).name));
            graph.add_value(name, dtype, None)
        };
        let rows_of = |graph: &mut Graph, id: ValueId| named(graph, "of last tokens", id, graph.value(id).dtype);
        let places = named(graph, "places", self.output, DType::I32);
        let taken: Vec<ValueId> = self.given.iter().map(|&id| rows_of(graph, id)).collect();
        let name = graph.value(self.output).name.clone();
        let some = |ids: &[ValueId]| ids.iter().map(|&id| Some(id)).collect::<Vec<_>>();
        let first = Node {
            name: format!("{name} rows"),
            op: Arc::new(LastRows),
            inputs: some(&[&[lengths, read], &self.given[..]].concat()),
            outputs: some(&[&[places], &taken[..]].concat()),
        };
        let placed = (graph.unread() == Unread::Zeros).then(|| rows_of(graph, self.output));
        let last = placed.map(|made| Node {
            name: format!("{name} in place"),
            op: Arc::new(PlacedRows),
            inputs: some(&[&[lengths, read, made, places], &self.given[..]].concat()),
            outputs: some(&[self.output]),
        });
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for (node, &inside) in graph.nodes().iter().zip(&self.nodes) {
            let mut node = node.clone();
            if !inside {
                before.push(node);
                continue;
            }
            for input in node.inputs.iter_mut().flatten() {
                if let Some(at) = self.given.iter().position(|given| given == input) {
                    *input = taken[at];
                }
            }
            for output in node.outputs.iter_mut().flatten().filter(|output| **output == self.output) {
                *output = placed.unwrap_or(self.output);
            }
            behind.push(node);
        }
        // Nothing outside the tail reads its results, so all other nodes can come first.
        before.push(first);
        before.append(&mut behind);
        before.extend(last);
        graph.set_nodes(before);
    }
}

/// The inputs of a node that have a row per token, if each row of its results depends only on the same rows of these
/// and on constants that are the same for all rows.
fn rows_of(graph: &Graph, node: &Node) -> Option<Vec<ValueId>> {
    let constant = |id: ValueId| graph.value(id).constant.as_ref().filter(|_| !graph.inputs().contains(&id));
    let kind = node.op.row_wise();
    let mut rows = Vec::new();
    for (at, &id) in node.inputs.iter().enumerate().filter_map(|(at, id)| Some((at, id.as_ref()?))) {
        let may_have_rows = match kind {
            RowWise::No => return None,
            RowWise::Elements => true,
            RowWise::Norm(count) => at < count,
            RowWise::Product => at == 0,
        };
        let is_same_for_all = |tensor: &Tensor| match kind {
            RowWise::Product if matches!(node.op.meaning(), Meaning::MatMul | Meaning::Opaque) => {
                tensor.shape().len() == 2
            }
            RowWise::Product if at < BIAS => true,
            _ => tensor.shape().len() <= 3 && tensor.shape().iter().rev().skip(1).all(|&extent| extent == 1),
        };
        match constant(id) {
            Some(tensor) => is_same_for_all(tensor).then_some(())?,
            None => may_have_rows.then(|| rows.push(id))?,
        }
    }
    (!rows.is_empty()).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names, row};

    /// A decoder under construction: tokens, and their attention.
    struct Decoder {
        build: Build,
        x: ValueId,
        attended: ValueId,
    }

    fn attention(build: &mut Build, x: ValueId, lengths: ValueId) -> ValueId {
        let caches = ["keys", "values"].map(|name| build.input(&format!("{name} of {x:?}"), DType::F32));
        let total = build.input(&format!("total of {x:?}"), DType::I32);
        let heads = [("num_heads", Attribute::Int(1)), ("kv_num_heads", Attribute::Int(1))];
        let inputs = [x, x, x, caches[0], caches[1], lengths, total];
        build.of(("com.microsoft", "GroupQueryAttention", 1), &inputs, &[DType::F32; 3], &heads)[0]
    }

    fn decoder() -> Decoder {
        let mut build = Build::new();
        let (x, lengths) = (build.input("x", DType::F32), build.input("lengths", DType::I32));
        let attended = attention(&mut build, x, lengths);
        Decoder { build, x, attended }
    }

    impl Decoder {
        fn constant(&mut self, shape: &[usize]) -> ValueId {
            let elems: usize = shape.iter().product();
            let name = format!("c{elems} {:?}", self.build.outputs(&[]).values().len());
            self.build.constant(&name, row(&vec![1.0; elems]).reshaped(shape).unwrap())
        }

        fn product(&mut self, x: ValueId) -> ValueId {
            let weights = self.constant(&[4, 4]);
            self.build.node("MatMul", &[x, weights])
        }

        /// The graph with all outputs marked, after the pass, and how often it fired.
        fn run(&self, outputs: &[ValueId]) -> (Graph, usize) {
            let mut graph = self.build.outputs(outputs);
            graph.set_last_rows((0..outputs.len()).collect(), Unread::Zeros);
            let count = run(&mut graph);
            graph.verify().unwrap();
            (graph, count)
        }
    }

    #[test]
    fn nodes_that_only_produce_logits_work_on_last_rows() {
        let mut decoder = decoder();
        let out = decoder.product(decoder.attended);
        let sum = decoder.build.node("Add", &[decoder.x, out]);
        let scale = decoder.constant(&[4]);
        let normed = decoder.build.with("SimplifiedLayerNormalization", &[sum, scale], &[]);
        let logits = decoder.product(normed);
        let bias = decoder.constant(&[1, 1, 4]);
        let biased = decoder.build.node("Add", &[logits, bias]);
        let (graph, count) = decoder.run(&[biased]);
        let tail = ["MatMul", "Add", "SimplifiedLayerNormalization", "MatMul", "Add", "PlacedRows"];
        assert_eq!((count, names(&graph)), (1, [&["GroupQueryAttention", "LastRows"], &tail[..]].concat()));
        let name = |id: Option<ValueId>| graph.value(id.unwrap()).name.as_str();
        let rows: Vec<&str> = graph.nodes()[1].inputs.iter().map(|&id| name(id)).collect();
        assert_eq!(rows, ["lengths", "x", "groupqueryattention0", "x"]);
        assert_eq!(name(graph.nodes().last().unwrap().outputs[0]), name(Some(biased)), "the output keeps its name");
    }

    #[test]
    fn values_with_other_readers_keep_all_rows() {
        let mut decoder = decoder();
        let scale = decoder.constant(&[4]);
        let hidden = decoder.build.with("SimplifiedLayerNormalization", &[decoder.attended, scale], &[]);
        let logits = decoder.product(hidden);
        let (graph, count) = decoder.run(&[hidden, logits]);
        let wanted = ["GroupQueryAttention", "SimplifiedLayerNormalization", "LastRows", "MatMul", "PlacedRows"];
        assert_eq!((count, names(&graph)), (1, wanted.to_vec()));
    }

    #[test]
    fn omitted_rows_are_not_written() {
        let mut decoder = decoder();
        let logits = decoder.product(decoder.attended);
        let mut graph = decoder.build.outputs(&[logits]);
        graph.set_last_rows(vec![0], Unread::LeftOut);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["GroupQueryAttention", "LastRows", "MatMul"]);
    }

    #[test]
    fn rows_are_kept_if_omitting_them_may_be_wrong() {
        let mut two = decoder();
        let outputs = [two.product(two.attended), two.product(two.attended)];
        assert_eq!(two.run(&outputs).1, 0, "one of two outputs may not be logits");
        assert_eq!(two.run(&outputs[..1]).1, 1);

        let mut other = decoder();
        let lengths = other.build.input("others", DType::I32);
        let attended = attention(&mut other.build, other.attended, lengths);
        let logits = other.product(attended);
        assert_eq!(other.run(&[logits]).1, 0, "attention disagrees about lengths");

        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let weights = build.constant("w", row(&[1.0; 16]).reshaped(&[4, 4]).unwrap());
        let logits = build.node("MatMul", &[x, weights]);
        let mut graph = build.outputs(&[logits]);
        graph.set_last_rows(vec![0], Unread::Zeros);
        assert_eq!(run(&mut graph), 0, "there is no attention");

        let mut mixed = decoder();
        let logits = mixed.product(mixed.attended);
        let turned = mixed.build.node("Transpose", &[logits]);
        assert_eq!(mixed.run(&[turned]).1, 0, "the rows are no longer rows");
        let by_token = mixed.constant(&[3, 4]);
        let sum = mixed.build.node("Add", &[logits, by_token]);
        assert_eq!(mixed.run(&[sum]).1, 0, "each token has its own constant");
        let stack = mixed.constant(&[2, 4, 4]);
        let many = mixed.build.node("MatMul", &[mixed.attended, stack]);
        assert_eq!(mixed.run(&[many]).1, 0, "each sequence has its own matrix");

        let mut unmarked = decoder();
        let logits = unmarked.product(unmarked.attended);
        assert_eq!(run(&mut unmarked.build.outputs(&[logits])), 0, "the caller has not promised anything");
    }
}
