//! Reductions over any axes.

use hipdnn::sys::ReduceOp;

use super::graph;
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

pub fn reduction(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let what = draw.choose(ReduceOp::ALL);
    let mut axes = draw.list(1..4, |draw| (draw.int(2..5), draw.flag()));
    if axes.iter().all(|axis| !axis.1) {
        axes[0].1 = true;
    }
    let dims: Vec<i64> = axes.iter().map(|axis| axis.0).collect();
    let to: Vec<i64> = axes.iter().map(|&(extent, is_reduced)| if is_reduced { 1 } else { extent }).collect();
    let x = Data::random(element, &dims, draw).map(|value| if value.abs() < 0.1 { 0.0 } else { value }).arranged(draw);
    let mut graph = graph(element);
    let xi = graph.tensor(x.tensor());
    let y = graph.reduction(what, xi, &to);
    let want = ExpectedOutput::arranged(y, element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x)], &[want])?;
    let reduced = |place: &Vec<i64>| {
        let belongs = |index: &&Vec<i64>| {
            index.iter().zip(place).zip(&to).all(|((at, place), extent)| *extent == 1 || at == place)
        };
        let all: Vec<f64> = indices(&dims).iter().filter(belongs).map(|index| x.at(index)).collect();
        match what {
            ReduceOp::ADD => all.iter().sum(),
            ReduceOp::MUL => all.iter().product(),
            ReduceOp::MIN => all.iter().copied().fold(f64::INFINITY, f64::min),
            ReduceOp::MAX => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::AMAX => all.iter().map(|value| value.abs()).fold(0.0, f64::max),
            ReduceOp::AVG => all.iter().sum::<f64>() / all.len() as f64,
            ReduceOp::NORM1 => all.iter().map(|value| value.abs()).sum(),
            ReduceOp::NORM2 => all.iter().map(|value| value * value).sum::<f64>().sqrt(),
            _ => all.iter().filter(|value| **value != 0.0).product(),
        }
    };
    let wanted: Vec<f64> = indices(&to).iter().map(reduced).collect();
    assert_close(&found[0], &wanted, element)
}
