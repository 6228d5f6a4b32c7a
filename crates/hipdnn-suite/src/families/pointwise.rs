//! Every pointwise mode, with broadcast operands.

use hipdnn::sys::{DataType, PointwiseMode as M};
use hipdnn::{Graph, Pointwise};

use super::graph;
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

const ELEMENTS: [Element; 4] = [Element::F32, Element::F64, Element::F16, Element::Bf16];

/// Each mode once per type.
pub const CASES: u64 = (M::ALL.len() * ELEMENTS.len()) as u64;

/// Iterates over modes and types, so that each of [`CASES`] cases has its own.
pub fn mode(bench: &Bench, draw: &mut Draw) -> Answer {
    let turn = draw.case() as usize;
    let (mode, element) = (M::ALL[turn / ELEMENTS.len() % M::ALL.len()], ELEMENTS[turn % ELEMENTS.len()]);
    let dims = [2, 3, 4];
    let mut graph = graph(element);
    let what = Pointwise {
        relu_lower_clip: Some(-0.25),
        relu_upper_clip: Some(0.5),
        relu_lower_clip_slope: Some(0.125),
        elu_alpha: Some(0.5),
        softplus_beta: Some(2.0),
        swish_beta: Some(1.5),
        axis: Some(1),
        ..Pointwise::from(mode)
    };
    let positive = [M::LOG, M::SQRT, M::RSQRT].contains(&mode);
    let x = Data::random(element, &dims, draw).map(|value| if positive { value.abs() + 0.25 } else { value });
    // Avoids zero, because of division, and the kinks of RELU, which have no slope.
    let away =
        |value: f64| if value.abs() < 0.1 || (value.abs() - 0.25).abs() < 0.01 || value == 0.5 { 0.375 } else { value };
    let y = Data::random(element, &[2, 1, 4], draw).map(away);
    let z = Data::random(element, &dims, draw).map(|value| if value > 0.0 { 1.0 } else { 0.0 });
    let data = [&x, &y, &z];
    let ids: Vec<_> = data[..mode.inputs().unwrap_or(1)].iter().map(|data| graph.tensor(data.tensor())).collect();
    let made = graph.pointwise(what, &ids);
    let inputs: Vec<_> = ids.iter().copied().zip(data).collect();
    let found = bench.run(&mut graph, &inputs, &[made], element)?;
    let wanted = |index: &Vec<i64>| {
        let (x, y, z) = (x.at(index), y.at(&[index[0], 0, index[2]]), z.at(index));
        match mode {
            M::GEN_INDEX => index[1] as f64,
            M::BINARY_SELECT => {
                if z != 0.0 {
                    x
                } else {
                    y
                }
            }
            _ => unary(mode, x).unwrap_or_else(|| binary(mode, x, y)),
        }
    };
    let wanted: Vec<f64> = indices(&dims).iter().map(wanted).collect();
    // A slope from differences is not exact to the last digits of a double.
    let is_slope = element == Element::F64 && forward_of(mode).is_some();
    assert_close(&found[0], &wanted, if is_slope { Element::F32 } else { element })
}

/// Modes for integers.
const WHOLE: [M; 16] = [
    M::ABS,
    M::ADD,
    M::CMP_EQ,
    M::CMP_GE,
    M::CMP_GT,
    M::CMP_LE,
    M::CMP_LT,
    M::CMP_NEQ,
    M::IDENTITY,
    M::LOGICAL_AND,
    M::LOGICAL_NOT,
    M::LOGICAL_OR,
    M::MAX,
    M::MIN,
    M::MUL,
    M::SUB,
];

/// Shapes of any rank and layout with a broadcast second operand, in floats and integers.
pub fn shapes(bench: &Bench, draw: &mut Draw) -> Answer {
    let is_whole = draw.flag();
    let mode = if is_whole {
        draw.choose(&WHOLE)
    } else {
        draw.choose(&[M::ADD, M::SUB, M::MUL, M::MAX, M::SIGMOID_FWD, M::GELU_FWD])
    };
    let element = if is_whole { draw.choose(&[Element::I8, Element::U8, Element::I32]) } else { Element::draw(draw) };
    let dims = draw.list(1..6, |draw| draw.int(1..5));
    // Axes are matched from the left: trailing ones may be missing.
    let kept = draw.int(1..dims.len() as i64 + 1) as usize;
    let other: Vec<i64> = dims[..kept].iter().map(|&extent| if draw.flag() { extent } else { 1 }).collect();
    let of = |dims: &[i64], draw: &mut Draw| match element {
        Element::U8 => Data::whole(element, dims, 0..12, draw),
        _ if is_whole => Data::whole(element, dims, -11..12, draw),
        _ => Data::random(element, dims, draw),
    };
    let [x, y] = [&dims, &other].map(|dims| of(dims, draw).arranged(draw));
    let compute = if is_whole {
        DataType::INT32
    } else if element == Element::F64 {
        DataType::DOUBLE
    } else {
        DataType::FLOAT
    };
    let mut graph = Graph::new(element.code(), compute);
    let data = [&x, &y];
    let ids: Vec<_> = data[..mode.inputs().unwrap_or(1)].iter().map(|data| graph.tensor(data.tensor())).collect();
    let made = graph.pointwise(mode, &ids);
    let inputs: Vec<_> = ids.iter().copied().zip(data).collect();
    let want = ExpectedOutput::arranged(made, element, draw);
    let found = bench.run_for(&mut graph, &inputs, &[want])?;
    let wanted = |index: &Vec<i64>| {
        let at: Vec<i64> = index.iter().zip(&other).map(|(at, extent)| *at.min(&(extent - 1))).collect();
        let exact = unary(mode, x.at(index)).unwrap_or_else(|| binary(mode, x.at(index), y.at(&at)));
        if is_whole { element.rounded(exact) } else { exact }
    };
    let wanted: Vec<f64> = indices(&dims).iter().map(wanted).collect();
    assert_close(&found[0], &wanted, element)
}

/// Operations that read each other's results, some of which are outputs too, and a scalar passed by value.
pub fn chain(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let dims = draw.list(1..5, |draw| draw.int(1..4));
    let mut graph = super::graph(element);
    let given: Vec<Data> = (0..draw.int(1..4)).map(|_| Data::random(element, &dims, draw).arranged(draw)).collect();
    let factor = Data::random(element, &[1], draw).by_value();
    let mut ids: Vec<_> = given.iter().map(|data| graph.tensor(data.tensor())).collect();
    let scalar = graph.tensor(factor.tensor());
    let inputs: Vec<_> = ids.iter().copied().zip(&given).chain([(scalar, &factor)]).collect();
    let mut values: Vec<Vec<f64>> = given.iter().map(|data| data.values.clone()).collect();
    let mut wants = Vec::new();
    let count = draw.int(1..7);
    for at in 0..count {
        let mode = draw.choose(&[M::ADD, M::SUB, M::MUL, M::MAX, M::TANH_FWD, M::ABS, M::SIGMOID_FWD, M::NEG]);
        // The last result is read first, so that the graph is connected.
        let (x, y) = (ids.len() - 1, draw.int(0..ids.len() as i64) as usize);
        let by_scalar = draw.flag();
        let other = if by_scalar { scalar } else { ids[y] };
        let read = [ids[x], other];
        let id = graph.pointwise(mode, &read[..mode.inputs().unwrap_or(1)]);
        let made = (0..values[x].len()).map(|place| {
            let (x, y) = (values[x][place], if by_scalar { factor.values[0] } else { values[y][place] });
            unary(mode, x).unwrap_or_else(|| binary(mode, x, y))
        });
        let made = made.collect();
        ids.push(id);
        values.push(made);
        if at + 1 == count || draw.flag() {
            wants.push((ExpectedOutput::arranged(id, element, draw), values.len() - 1));
        }
    }
    // Tensors that no operation reads are not part of the graph.
    let asked: Vec<ExpectedOutput> = wants.iter().map(|(want, _)| *want).collect();
    let found = bench.run_for(&mut graph, &inputs, &asked)?;
    wants.iter().zip(&found).try_for_each(|((_, at), found)| assert_close(found, &values[*at], element))
}

fn erf(x: f64) -> f64 {
    // Series and continued fraction, accurate to double precision for the range of these tests.
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn unary(mode: M, x: f64) -> Option<f64> {
    Some(match mode {
        M::ABS => x.abs(),
        M::CEIL => x.ceil(),
        M::ELU_FWD => {
            if x > 0.0 {
                x
            } else {
                0.5 * x.exp_m1()
            }
        }
        M::ERF => erf(x),
        M::EXP => x.exp(),
        M::FLOOR => x.floor(),
        M::GELU_APPROX_TANH_FWD => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        M::GELU_FWD => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        M::IDENTITY => x,
        M::LOG => x.ln(),
        M::LOGICAL_NOT => f64::from(u8::from(x == 0.0)),
        M::NEG => -x,
        M::RECIPROCAL => 1.0 / x,
        M::RELU_FWD => {
            if x < -0.25 {
                -0.25 + 0.125 * (x + 0.25)
            } else {
                x.min(0.5)
            }
        }
        M::RSQRT => 1.0 / x.sqrt(),
        M::SIGMOID_FWD => sigmoid(x),
        M::SIN => x.sin(),
        M::SOFTPLUS_FWD => (2.0 * x).exp().ln_1p() / 2.0,
        M::SQRT => x.sqrt(),
        M::SWISH_FWD => x * sigmoid(1.5 * x),
        M::TAN => x.tan(),
        M::TANH_FWD => x.tanh(),
        _ => return None,
    })
}

/// The forward mode whose slope a backward mode multiplies by.
fn forward_of(mode: M) -> Option<M> {
    Some(match mode {
        M::ELU_BWD => M::ELU_FWD,
        M::GELU_APPROX_TANH_BWD => M::GELU_APPROX_TANH_FWD,
        M::GELU_BWD => M::GELU_FWD,
        M::RELU_BWD => M::RELU_FWD,
        M::SIGMOID_BWD => M::SIGMOID_FWD,
        M::SOFTPLUS_BWD => M::SOFTPLUS_FWD,
        M::SWISH_BWD => M::SWISH_FWD,
        M::TANH_BWD => M::TANH_FWD,
        _ => return None,
    })
}

fn binary(mode: M, x: f64, y: f64) -> f64 {
    let truth = |value: bool| f64::from(u8::from(value));
    if let Some(forward) = forward_of(mode) {
        let slope = |at: f64| unary(forward, at).unwrap_or(f64::NAN);
        return x * (slope(y + 1e-6) - slope(y - 1e-6)) / 2e-6;
    }
    match mode {
        M::ADD => x + y,
        M::ADD_SQUARE => x + y * y,
        M::CMP_EQ => truth(x == y),
        M::CMP_GE => truth(x >= y),
        M::CMP_GT => truth(x > y),
        M::CMP_LE => truth(x <= y),
        M::CMP_LT => truth(x < y),
        M::CMP_NEQ => truth(x != y),
        M::DIV => x / y,
        M::LOGICAL_AND => truth(x != 0.0 && y != 0.0),
        M::LOGICAL_OR => truth(x != 0.0 || y != 0.0),
        M::MAX => x.max(y),
        M::MIN => x.min(y),
        M::MUL => x * y,
        _ => x - y,
    }
}
