//! Low-bit numbers with one scale per block, and conversions between all types.

use hipdnn::sys::{DataType, PointwiseMode as M};
use hipdnn::{Graph, Tensor};

use crate::bench::{Answer, Bench, ExpectedOutput, Failure};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

const SMALL: [(Element, f64); 7] = [
    (Element::E4m3, 448.0),
    (Element::E5m2, 57344.0),
    (Element::E4m3Fnuz, 240.0),
    (Element::E5m2Fnuz, 57344.0),
    (Element::E2m1, 6.0),
    (Element::I8, 127.0),
    (Element::I4, 7.0),
];
const SCALES: [Element; 5] = [Element::F32, Element::F16, Element::Bf16, Element::E8m0, Element::E4m3];

fn blocks(draw: &mut Draw) -> (Vec<i64>, usize, i64) {
    let mut dims = draw.list(1..4, |draw| draw.int(1..5));
    let axis = draw.int(0..dims.len() as i64) as usize;
    let block = draw.choose(&[2, 4, 16, 32]);
    dims[axis] = block * draw.int(1..4);
    (dims, axis, block)
}

/// The position of an element's scale.
fn scale_of(index: &[i64], axis: usize, block: i64) -> Vec<i64> {
    let mut at = index.to_vec();
    at[axis] /= block;
    at
}

pub fn quantize(bench: &Bench, draw: &mut Draw) -> Answer {
    let ((small, largest), scaled_by) = (draw.choose(&SMALL), draw.choose(&SCALES));
    let (dims, axis, block) = blocks(draw);
    let element = draw.choose(&[Element::F32, Element::F16, Element::Bf16]);
    let reach = draw.choose(&[1.0, 100.0, 0.0]);
    let x = Data::random(element, &dims, draw).map(|value| value * reach).arranged(draw);
    let mut graph = Graph::new(element.code(), DataType::FLOAT);
    let xi = graph.tensor(x.tensor());
    let [y, scale] = graph.block_scale_quantize(xi, [small.code(), scaled_by.code()], block as i32, Some(axis as i64));
    let wants = [ExpectedOutput::arranged(y, small, draw), ExpectedOutput::arranged(scale, scaled_by, draw)];
    let found = bench.run_for(&mut graph, &[(xi, &x)], &wants)?;
    let mut counts = dims.clone();
    counts[axis] /= block;
    let most = |place: &Vec<i64>| {
        let own = indices(&dims).into_iter().filter(|index| &scale_of(index, axis, block) == place);
        own.map(|index| x.at(&index).abs()).fold(0.0, f64::max)
    };
    let least = f64::from(f32::MIN_POSITIVE);
    let scale = |place: &Vec<i64>| {
        let exact = f64::from(most(place) as f32 / largest as f32);
        // The smallest power of two that single precision divides by without loss.
        scaled_by.rounded(if scaled_by == Element::E8m0 { exact.max(least) } else { exact })
    };
    let scales: Vec<f64> = indices(&counts).iter().map(scale).collect();
    assert_close(&found[1], &scales, scaled_by)?;
    let scales = Data::new(Element::F64, &counts, scales);
    let quantized = |index: &Vec<i64>| {
        let scale = scales.at(&scale_of(index, axis, block));
        let scale = if scale == 0.0 { 1.0 } else { scale };
        small.rounded(f64::from(x.at(index) as f32 / scale as f32).clamp(-largest, largest))
    };
    let wanted: Vec<f64> = indices(&dims).iter().map(quantized).collect();
    assert_close(&found[0], &wanted, small)
}

pub fn dequantize(bench: &Bench, draw: &mut Draw) -> Answer {
    let ((small, _), scaled_by) = (draw.choose(&SMALL), draw.choose(&SCALES));
    let (dims, axis, block) = blocks(draw);
    let element = draw.choose(&[Element::F32, Element::F16, Element::Bf16]);
    let mut counts = dims.clone();
    counts[axis] /= block;
    let x = Data::random(small, &dims, draw).map(|value| value * 4.0).arranged(draw);
    let scale = Data::random(scaled_by, &counts, draw).map(|value| value.abs() + 0.125).arranged(draw);
    let mut graph = Graph::new(element.code(), DataType::FLOAT);
    let [xi, si] = [&x, &scale].map(|data| graph.tensor(data.tensor()));
    let y = graph.block_scale_dequantize(xi, si, &[block as i32]);
    let want = ExpectedOutput::arranged(y, element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (si, &scale)], &[want])?;
    let one = |index: &Vec<i64>| x.at(index) * scale.at(&scale_of(index, axis, block));
    let wanted: Vec<f64> = indices(&dims).iter().map(one).collect();
    assert_close(&found[0], &wanted, element)
}

/// A product of matrices whose rows and columns are quantised in blocks.
pub fn matmul(bench: &Bench, draw: &mut Draw) -> Answer {
    let (small, _) = draw.choose(&SMALL[..5]);
    let (m, n, block) = (draw.int(1..6), draw.int(1..6), 32);
    let count = draw.int(1..4);
    let of = |dims: [i64; 2], element, draw: &mut Draw| Data::random(element, &dims, draw);
    let (a, b) = (of([m, count * block], small, draw), of([count * block, n], small, draw).arranged(draw));
    let power = |value: f64| value.abs() + 0.25;
    let a_scale = of([m, count], Element::E8m0, draw).map(power);
    let b_scale = of([count, n], Element::E8m0, draw).map(power);
    let mut graph = Graph::new(small.code(), DataType::FLOAT);
    let data = [&a, &a_scale, &b, &b_scale];
    let ids = data.map(|data| graph.tensor(data.tensor()));
    let left = graph.block_scale_dequantize(ids[0], ids[1], &[block as i32]);
    let right = graph.block_scale_dequantize(ids[2], ids[3], &[block as i32]);
    let c = graph.matmul(left, right);
    let inputs: Vec<_> = ids.into_iter().zip(data).collect();
    let found = bench.run(&mut graph, &inputs, &[c], Element::F32)?;
    let one = |index: &Vec<i64>| -> f64 {
        let (row, column) = (index[0], index[1]);
        let part = |at: i64| {
            let own = at / block;
            a.at(&[row, at]) * a_scale.at(&[row, own]) * b.at(&[at, column]) * b_scale.at(&[own, column])
        };
        (0..count * block).map(part).sum()
    };
    let wanted: Vec<f64> = indices(&[m, n]).iter().map(one).collect();
    assert_close(&found[0], &wanted, Element::F32)
}

/// Every type to every other, in turn.
pub const CONVERSIONS: u64 = (Element::ALL.len() * Element::ALL.len()) as u64;

pub fn conversion(bench: &Bench, draw: &mut Draw) -> Answer {
    let (turn, count) = (draw.case() as usize, Element::ALL.len());
    let (from, to) = (Element::ALL[turn / count % count], Element::ALL[turn % count]);
    let positive = from == Element::E8m0 || to == Element::E8m0;
    let dims = draw.list(1..4, |draw| draw.int(1..6));
    let spread = draw.choose(&[1.0, 20.0, 1000.0]);
    let value = |value: f64| {
        // Single precision, so that a conversion through it rounds once.
        let value = Element::F32.rounded(value * spread);
        if positive { value.abs().max(0.5) } else { value }
    };
    let drawn = Data::random(Element::F64, &dims, draw).map(value);
    let x = Data::new(from, &dims, drawn.values.iter().map(|&value| from.rounded(value)).collect()).arranged(draw);
    let compute = if from == Element::F64 || to == Element::F64 { DataType::DOUBLE } else { DataType::FLOAT };
    let mut graph = Graph::new(from.code(), compute);
    let xi = graph.tensor(x.tensor());
    let y = graph.pointwise(M::IDENTITY, &[xi]);
    let want = ExpectedOutput::arranged(y, to, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x)], &[want])?;
    let least = f64::from(f32::MIN_POSITIVE);
    let wanted: Vec<f64> =
        x.values.iter().map(|&value| to.rounded(if to == Element::E8m0 { value.max(least) } else { value })).collect();
    assert_close(&found[0], &wanted, to)
}

/// Operations that only a plugin knows are rejected without one.
pub fn custom(bench: &Bench, draw: &mut Draw) -> Answer {
    let x = Data::random(Element::F32, &[2, 3], draw);
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
    let xi = graph.tensor(x.tensor());
    let made = graph.custom("nobody.knows", &[1, 2, 3], &[xi], vec![Tensor::new(&[2, 3])]);
    match bench.run(&mut graph, &[(xi, &x)], &made, Element::F32) {
        Err(Failure::NotSupported(_)) => Ok(()),
        other => Err(Failure::Wrong(format!("unknown operation: {other:?}"))),
    }
}
