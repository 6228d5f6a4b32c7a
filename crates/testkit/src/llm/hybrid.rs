//! What a hybrid decoder does before its attention: a convolution and a sum over all earlier tokens, each with a state of
//! fixed size, and positions in three rows. It is written in ONNX's own operators.

use crate::onnx::{Attribute, Dim, ElementType, Graph, Node, Tensor, ValueInfo};

use super::HIDDEN;

/// The weights of the token, of the one before it, and of the one before that.
const TAPS: [f32; 3] = [1.0, 0.5, 0.25];

/// The weight of the sum over all tokens so far.
const SUM: f32 = 0.1;

/// The weights of the rows of positions.
const ROWS: [f32; 3] = [0.004, 0.01, 0.02];

/// Adds the nodes between `embedded` and `mixed`, with their states and positions.
pub(super) fn add(graph: Graph) -> Graph {
    let (hidden, taps) = (HIDDEN as i64, TAPS.len() as i64 - 1);
    let int = Attribute::Int;
    let state = |name: &str, extents: [i64; 2]| {
        let dims = ["batch".into(), Dim::Size(extents[0]), Dim::Size(extents[1])];
        ValueInfo::tensor(name, ElementType::Float, dims)
    };
    let positions = [Dim::Size(3), "batch".into(), "sequence".into()];
    let slice =
        |from: &str, start: &str, end: &str, to: &str| Node::new("Slice", [from, start, end, "hybrid.tokens"], [to]);
    let swap =
        |from: &str, to: &str| Node::new("Transpose", [from], [to]).attribute("perm", Attribute::Ints(vec![0, 2, 1]));
    let scalar = |name: &str, value: f32| Tensor::floats(name, [], &[value]);
    let mul = |a: &str, b: &str, to: &str| Node::new("Mul", [a, b], [to]);
    let add = |a: &str, b: &str, to: &str| Node::new("Add", [a, b], [to]);
    let number = |name: &str, value: i64| Tensor::int64s(name, [1], &[value]);
    let mut graph = graph
        .input(state("past.0.conv", [hidden, taps]))
        .input(state("past.0.recurrent", [1, hidden]))
        .input(ValueInfo::tensor("position_ids", ElementType::Int64, positions))
        .initializer(number("hybrid.tokens", 2))
        .initializer(number("hybrid.all", i64::MAX))
        .initializer(Tensor::int64s("hybrid.axis", [], &[1]))
        .initializer(number("hybrid.axes", 1))
        .initializer(number("hybrid.first", 0))
        .initializer(number("hybrid.last", -1))
        .initializer(Tensor::floats("hybrid.rows", [3, 1, 1], &ROWS))
        .initializer(scalar("hybrid.sum", SUM))
        // The convolution reads the state before its tokens.
        .node(swap("embedded", "hybrid.columns"))
        .node(Node::new("Concat", ["past.0.conv", "hybrid.columns"], ["hybrid.seen"]).attribute("axis", int(2)));
    let mut total = String::new();
    for (ago, weight) in TAPS.into_iter().enumerate() {
        let [start, end, weights] = ["start", "end", "weight"].map(|part| format!("hybrid.{ago}.{part}"));
        let [part, scaled, sum] = ["part", "scaled", "sum"].map(|part| format!("hybrid.{ago}.{part}"));
        // Without an end, a slice goes up to the last token.
        let to = if ago == 0 { i64::MAX } else { -(ago as i64) };
        graph = graph
            .initializer(number(&start, taps - ago as i64))
            .initializer(number(&end, to))
            .initializer(scalar(&weights, weight))
            .node(slice("hybrid.seen", &start, &end, &part))
            .node(mul(&part, &weights, &scaled));
        if ago == 0 {
            total = scaled;
        } else {
            graph = graph.node(add(&total, &scaled, &sum));
            total = sum;
        }
    }
    graph
        .initializer(number("hybrid.kept", -taps))
        .node(slice("hybrid.seen", "hybrid.kept", "hybrid.all", "present.0.conv"))
        .node(swap(&total, "hybrid.convolved"))
        // The sum continues from its state.
        .node(Node::new("CumSum", ["embedded", "hybrid.axis"], ["hybrid.running"]))
        .node(add("hybrid.running", "past.0.recurrent", "hybrid.summed"))
        .node(Node::new(
            "Slice",
            ["hybrid.summed", "hybrid.last", "hybrid.all", "hybrid.axes"],
            ["present.0.recurrent"],
        ))
        .node(mul("hybrid.summed", "hybrid.sum", "hybrid.share"))
        .node(add("hybrid.convolved", "hybrid.share", "hybrid.both"))
        .node(Node::new("Cast", ["position_ids"], ["hybrid.positions"]).attribute("to", int(ElementType::Float as i64)))
        .node(mul("hybrid.positions", "hybrid.rows", "hybrid.weighted"))
        .node(
            Node::new("ReduceSum", ["hybrid.weighted", "hybrid.first"], ["hybrid.place"]).attribute("keepdims", int(0)),
        )
        .node(Node::new("Unsqueeze", ["hybrid.place", "hybrid.last"], ["hybrid.placed"]))
        .node(add("hybrid.both", "hybrid.placed", "mixed"))
        .output(state("present.0.conv", [hidden, taps]))
        .output(state("present.0.recurrent", [1, hidden]))
}

/// The same for a whole sequence, in plain loops.
pub(super) fn mixed(embedded: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut sums = vec![0.0; HIDDEN];
    let mut rows = Vec::with_capacity(embedded.len());
    for (position, row) in embedded.iter().enumerate() {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        let place: f64 = ROWS.iter().map(|&weight| f64::from(weight) * position as f64).sum();
        let value = |index: usize| {
            let taps = TAPS.iter().enumerate().filter(|(ago, _)| *ago <= position);
            let convolved: f64 = taps.map(|(ago, &weight)| f64::from(weight) * embedded[position - ago][index]).sum();
            convolved + f64::from(SUM) * sums[index] + place
        };
        rows.push((0..HIDDEN).map(value).collect());
    }
    rows
}
