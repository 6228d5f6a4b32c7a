//! Products of matrices in batches.

use super::graph;
use crate::bench::{Answer, Bench};
use crate::data::{Data, Element, assert_close, indices};
use crate::draw::Draw;

pub fn product(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let batch = draw.list(0..3, |draw| (draw.int(1..4), draw.int(0..3)));
    let (m, k, n) = (draw.int(1..9), draw.int(1..9), draw.int(1..9));
    let side = |which: i64| batch.iter().map(move |&(extent, one)| if one == which { 1 } else { extent });
    let a = Data::random(element, &side(1).chain([m, k]).collect::<Vec<_>>(), draw);
    let mut b = Data::random(element, &side(2).chain([k, n]).collect::<Vec<_>>(), draw);
    if draw.flag() {
        let rank = b.dims.len();
        (b.strides[rank - 2], b.strides[rank - 1]) = (1, k);
    }
    let mut graph = graph(element);
    let [ai, bi] = [&a, &b].map(|data| graph.tensor(data.tensor()));
    let c = graph.matmul(ai, bi);
    let found = bench.run(&mut graph, &[(ai, &a), (bi, &b)], &[c], element)?;
    let extents = a.dims.iter().zip(&b.dims).take(batch.len()).map(|(a, b)| *a.max(b));
    let dims: Vec<i64> = extents.chain([m, n]).collect();
    let product = |index: &Vec<i64>| -> f64 {
        let (batches, place) = index.split_at(batch.len());
        let of = |data: &Data, row: i64, column: i64| {
            let at: Vec<i64> = batches.iter().zip(&data.dims).map(|(at, extent)| *at.min(&(extent - 1))).collect();
            data.at(&[&at[..], &[row, column]].concat())
        };
        (0..k).map(|inner| of(&a, place[0], inner) * of(&b, inner, place[1])).sum()
    };
    let wanted: Vec<f64> = indices(&dims).iter().map(product).collect();
    assert_close(&found[0], &wanted, element)
}
