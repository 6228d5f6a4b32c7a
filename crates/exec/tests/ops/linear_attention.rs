//! Compares LinearAttention, CausalConvWithState and the operators around them with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers};

fn contrib(op_type: &'static str, dtype: DType, inputs: &[Option<&Array>], outputs: usize) -> Case {
    let mut case = Case::new(op_type, 1, Vec::new(), &vec![dtype; outputs]);
    case.domain = "com.microsoft";
    case.inputs = inputs.iter().map(|input| input.map(|input| input.tensor(dtype))).collect();
    case
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

fn compare(case: &Case, wanted: &[Array], dtype: DType) {
    let found = case.run().unwrap();
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.shape(), wanted.shape);
        assert_close(&numbers(found), &wanted.values, tolerance(dtype));
    }
}

/// A layer of linear attention.
#[derive(Clone, Copy)]
struct Layer {
    dtype: DType,
    rule: &'static str,
    /// Heads of queries, keys and states.
    heads: [usize; 3],
    past: bool,
    /// A decay for each row of the state instead of each head.
    by_row: bool,
    /// One rate for all heads.
    one_rate: bool,
}

const BATCH: usize = 2;
const LENGTH: usize = 4;
const SIZE: usize = 8;
const WIDTH: usize = 12;

impl Layer {
    fn check(&self) {
        let [queries, keys, heads] = self.heads;
        let random = |shape: &[usize], seed: u64, factor: f64| {
            let numbers = Array::random(self.dtype, shape, seed);
            let scaled = Array::of(shape, |at| numbers.at(at) * factor);
            Array::from(&scaled.tensor(self.dtype))
        };
        let q = random(&[BATCH, LENGTH, queries * SIZE], 1, 1.0);
        let k = random(&[BATCH, LENGTH, keys * SIZE], 2, 0.25);
        let v = random(&[BATCH, LENGTH, heads * WIDTH], 3, 1.0);
        let past = random(&[BATCH, heads, SIZE, WIDTH], 4, 1.0);
        let decay = random(&[BATCH, LENGTH, if self.by_row { heads * SIZE } else { heads }], 5, 0.5);
        let rate = random(&[BATCH, LENGTH, if self.one_rate { 1 } else { heads }], 6, 0.5);
        let (decays, delta) = (self.rule.contains("gated"), self.rule.contains("delta"));
        let shown = queries.max(heads);
        let mut state = if self.past { past.clone() } else { Array::of(&past.shape, |_| 0.0) };
        let mut y = Array::of(&[BATCH, LENGTH, shown * WIDTH], |_| 0.0);
        for (b, h) in (0..BATCH * heads).map(|at| (at / heads, at % heads)) {
            for t in 0..LENGTH {
                let key = |row: usize| k.at(&[b, t, h * keys / heads * SIZE + row]);
                let log = |row: usize| decay.at(&[b, t, if self.by_row { h * SIZE + row } else { h }]);
                let factor = |row: usize| if decays { log(row).exp() } else { 1.0 };
                let held = Array::of(&[SIZE, WIDTH], |at| factor(at[0]) * state.at(&[b, h, at[0], at[1]]));
                let update = |column: usize| {
                    let value = v.at(&[b, t, h * WIDTH + column]);
                    let known: f64 = (0..SIZE).map(|row| key(row) * held.at(&[row, column])).sum();
                    let rate = rate.at(&[b, t, if self.one_rate { 0 } else { h }]);
                    if delta { rate * (value - known) } else { value }
                };
                let first = (b * heads + h) * SIZE * WIDTH;
                for (row, column) in (0..SIZE * WIDTH).map(|at| (at / WIDTH, at % WIDTH)) {
                    state.values[first + row * WIDTH + column] = held.at(&[row, column]) + key(row) * update(column);
                }
                for (head, column) in (0..shown * WIDTH).map(|at| (at / WIDTH, at % WIDTH)) {
                    if head * heads / shown != h {
                        continue;
                    }
                    let query = |row: usize| q.at(&[b, t, head * queries / shown * SIZE + row]);
                    let sum: f64 = (0..SIZE).map(|row| query(row) * state.at(&[b, h, row, column])).sum();
                    y.values[((b * LENGTH + t) * shown + head) * WIDTH + column] = sum / (SIZE as f64).sqrt();
                }
            }
        }
        let inputs = [
            Some(&q),
            Some(&k),
            Some(&v),
            self.past.then_some(&past),
            decays.then_some(&decay),
            delta.then_some(&rate),
        ];
        let case = contrib("LinearAttention", self.dtype, &inputs, 2)
            .attribute("q_num_heads", Attribute::Int(queries as i64))
            .attribute("kv_num_heads", Attribute::Int(heads as i64))
            .attribute("update_rule", Attribute::Text(self.rule.to_owned()));
        compare(&case, &[y, state], self.dtype);
    }
}

#[test]
fn every_update_rule_and_grouping_of_heads() {
    let plain =
        Layer { dtype: DType::F32, rule: "gated_delta", heads: [2, 2, 2], past: true, by_row: false, one_rate: false };
    for rule in ["linear", "gated", "delta", "gated_delta"] {
        Layer { rule, ..plain }.check();
        Layer { rule, past: false, by_row: true, one_rate: true, ..plain }.check();
    }
    [[4, 2, 2], [2, 4, 4], [2, 2, 4]].into_iter().for_each(|heads| Layer { heads, ..plain }.check());
    [DType::F16, DType::Bf16].into_iter().for_each(|dtype| Layer { dtype, ..plain }.check());
}

#[test]
fn convolutions_in_both_layouts() {
    let (batch, channels, length, taps) = (2, 6, 5, 4);
    for dtype in [DType::F32, DType::F16] {
        for (last, dilation, silu) in [(false, 1, true), (false, 2, false), (true, 1, true), (true, 2, true)] {
            let reach = (taps - 1) * dilation;
            let layout = |extent: usize| if last { [batch, extent, channels] } else { [batch, channels, extent] };
            let x = Array::random(dtype, &layout(length), 1);
            let weights = Array::random(dtype, &[channels, 1, taps], 2);
            let bias = Array::random(dtype, &[channels], 3);
            let past = Array::random(dtype, &layout(reach), 4);
            let place = |b: usize, c: usize, t: usize| if last { [b, t, c] } else { [b, c, t] };
            let seen = |b: usize, c: usize, t: usize| match t.checked_sub(reach) {
                Some(t) => x.at(&place(b, c, t)),
                None => past.at(&place(b, c, t)),
            };
            let split = |at: &[usize]| if last { (at[0], at[2], at[1]) } else { (at[0], at[1], at[2]) };
            let y = Array::of(&layout(length), |at| {
                let (b, c, t) = split(at);
                let terms = (0..taps).map(|tap| weights.at(&[c, 0, tap]) * seen(b, c, t + tap * dilation));
                let sum = bias.at(&[c]) + terms.sum::<f64>();
                if silu { sum / (1.0 + (-sum).exp()) } else { sum }
            });
            let state = Array::of(&layout(reach), |at| {
                let (b, c, t) = split(at);
                seen(b, c, length + t)
            });
            let inputs = [Some(&x), Some(&weights), Some(&bias), Some(&past)];
            let case = contrib("CausalConvWithState", dtype, &inputs, 2)
                .attribute("activation", Attribute::Text(if silu { "silu" } else { "none" }.to_owned()))
                .attribute("dilation", Attribute::Int(dilation as i64))
                .attribute("channels_last", Attribute::Int(i64::from(last)));
            compare(&case, &[y, state], dtype);
        }
    }
}

#[test]
fn gates_and_norms_are_computed_in_single_precision() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let (x, gate, scale) = (random(&[2, 3, 12], 1), random(&[2, 3, 12], 2), random(&[4], 3));
        let mean = |x: &Array, at: &[usize], size: usize| {
            let first = at[2] / size * size;
            (first..first + size).map(|k| x.at(&[at[0], at[1], k]).powi(2)).sum::<f64>() / size as f64
        };
        for (name, silu) in [("silu", true), ("sigmoid", false)] {
            let y = Array::of(&x.shape, |at| {
                let normed = x.at(at) / (mean(&x, at, 4) + 1e-5).sqrt() * scale.at(&[at[2] % 4]);
                normed * sigmoid(gate.at(at)) * if silu { gate.at(at) } else { 1.0 }
            });
            let case = contrib("GatedRMSNorm", dtype, &[Some(&x), Some(&scale), Some(&gate)], 1)
                .attribute("activation", Attribute::Text(name.to_owned()));
            compare(&case, &[y], dtype);
        }
        let branches = random(&[3, 4], 4);
        let y =
            Array::of(&x.shape, |at| x.at(at) / (mean(&x, at, 4) + 1e-5).sqrt() * branches.at(&[at[2] / 4, at[2] % 4]));
        let case = contrib("BranchwiseRMSNorm", dtype, &[Some(&x), Some(&branches)], 1)
            .attribute("num_branches", Attribute::Int(3));
        compare(&case, &[y], dtype);
        let (one, other, open) = (random(&[2, 3, 12], 5), random(&[2, 3, 12], 6), random(&[2, 3, 1], 7));
        let sum = Array::of(&one.shape, |at| one.at(at) + other.at(at) * open.at(at));
        compare(&contrib("GatedAdd", dtype, &[Some(&one), Some(&other), Some(&open)], 1), &[sum], dtype);
        let (bias, factor) = (Array::random(DType::F32, &[12], 8), Array::random(DType::F32, &[12], 9));
        let decay = Array::of(&x.shape, |at| factor.at(&at[2..]) * (x.at(at) + bias.at(&at[2..])).exp().ln_1p());
        let beta = Array::of(&gate.shape, |at| sigmoid(gate.at(at)));
        let mut case = contrib("LinearAttentionGate", dtype, &[Some(&x), None, None, Some(&gate)], 2);
        (case.inputs[1], case.inputs[2]) = (Some(bias.tensor(DType::F32)), Some(factor.tensor(DType::F32)));
        compare(&case, &[decay, beta], dtype);
    }
}

#[test]
fn unsupported_forms_are_declined_with_a_reason() {
    let x = Array::random(DType::F32, &[1, 2, 8], 1);
    let attention = |name: &'static str, value: Attribute| {
        let case = contrib("LinearAttention", DType::F32, &[Some(&x), Some(&x), Some(&x)], 2)
            .attribute("q_num_heads", Attribute::Int(2))
            .attribute("kv_num_heads", Attribute::Int(2))
            .attribute("update_rule", Attribute::Text("linear".to_owned()));
        case.attribute(name, value).run().unwrap_err()
    };
    assert!(attention("state_window", Attribute::Int(2)).contains("a window of states"));
    assert!(attention("update_rule", Attribute::Text("gated".to_owned())).contains("the update rule needs decay"));
    assert!(attention("update_rule", Attribute::Text("other".to_owned())).contains("\"other\""));
    assert!(attention("kv_num_heads", Attribute::Int(3)).contains("cannot share 3 states"));
    let weights = Array::random(DType::F32, &[2, 1, 3], 2);
    let conv = |name: &'static str, value: Attribute| {
        let case = contrib("CausalConvWithState", DType::F32, &[Some(&x), Some(&weights)], 2);
        case.attribute(name, value).run().unwrap_err()
    };
    assert!(conv("ndim", Attribute::Int(2)).contains("along 2 axes"));
    assert!(conv("state_window", Attribute::Int(1)).contains("a window of states"));
    assert!(conv("activation", Attribute::Text("tanh".to_owned())).contains("\"tanh\""));
}

/// How a `GatedDeltaNet` node is written.
#[derive(Clone, Copy)]
struct DeltaNet {
    dtype: DType,
    rule: &'static str,
    /// Gates and norms are part of the operator.
    fused: bool,
    /// Queries, keys and values are one input.
    packed: bool,
    /// All tokens are along one axis.
    flat: bool,
}

impl DeltaNet {
    fn check(&self) {
        let (queries, heads) = (2, 4);
        let random = |shape: &[usize], seed: u64| Array::random(self.dtype, shape, seed);
        let single = |shape: &[usize], seed: u64| Array::random(DType::F32, shape, seed);
        let (q, k) = (random(&[BATCH, LENGTH, queries, SIZE], 1), random(&[BATCH, LENGTH, queries, SIZE], 2));
        let v = random(&[BATCH, LENGTH, heads, WIDTH], 3);
        let decay = single(&[BATCH, LENGTH, heads], 4);
        let decay = if self.fused { decay } else { Array::of(&decay.shape, |at| -decay.at(at).abs()) };
        let decay = Array::from(&decay.tensor(DType::F32));
        let beta = single(&[BATCH, LENGTH, heads], 5);
        let past = single(&[BATCH, heads, WIDTH, SIZE], 6);
        let (a_log, dt_bias) = (single(&[heads], 7), single(&[heads], 8));
        let (has_decay, has_delta) = (self.rule.contains("gated"), self.rule.contains("delta"));
        let unit = |array: &Array, b: usize, t: usize, h: usize| -> Vec<f64> {
            let vector: Vec<f64> = (0..SIZE).map(|d| array.at(&[b, t, h, d])).collect();
            let norm = (vector.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            vector.into_iter().map(|x| if self.fused { x / norm } else { x }).collect()
        };
        let mut state = past.clone();
        let mut out = Array::of(&v.shape, |_| 0.0);
        let place = |b: usize, h: usize, w: usize, d: usize| ((b * heads + h) * WIDTH + w) * SIZE + d;
        for (b, t, h) in (0..BATCH * LENGTH * heads).map(|at| (at / heads / LENGTH, at / heads % LENGTH, at % heads)) {
            let (query, key) = (unit(&q, b, t, h / 2), unit(&k, b, t, h / 2));
            let gate = match (has_decay, self.fused) {
                (false, _) => 0.0,
                (true, false) => decay.at(&[b, t, h]),
                (true, true) => -a_log.at(&[h]).exp() * (1.0 + (decay.at(&[b, t, h]) + dt_bias.at(&[h])).exp()).ln(),
            };
            let rate = if self.fused { 1.0 / (1.0 + (-beta.at(&[b, t, h])).exp()) } else { beta.at(&[b, t, h]) };
            for w in 0..WIDTH {
                let row: Vec<f64> = (0..SIZE).map(|d| gate.exp() * state.values[place(b, h, w, d)]).collect();
                let predicted: f64 = row.iter().zip(&key).map(|(s, k)| s * k).sum();
                let value = v.at(&[b, t, h, w]);
                let update = if has_delta { rate * (value - predicted) } else { value };
                let row: Vec<f64> = row.iter().zip(&key).map(|(s, k)| s + k * update).collect();
                let shown: f64 = row.iter().zip(&query).map(|(s, q)| s * q).sum();
                out.values[((b * LENGTH + t) * heads + h) * WIDTH + w] = shown / (SIZE as f64).sqrt();
                (0..SIZE).for_each(|d| state.values[place(b, h, w, d)] = row[d]);
            }
        }
        let leading = if self.flat { vec![BATCH * LENGTH] } else { vec![BATCH, LENGTH] };
        let shaped = |array: &Array, trailing: &[usize], dtype: DType| {
            Some(Array { shape: [&leading, trailing].concat(), values: array.values.clone() }.tensor(dtype))
        };
        let mut case = Case::new("GatedDeltaNet", 1, Vec::new(), &[self.dtype, DType::F32]);
        case.domain = "com.microsoft";
        case.inputs = if self.packed {
            let tokens: Vec<f64> = (0..BATCH * LENGTH)
                .flat_map(|t| [&q, &k, &v].map(|part| part.values.chunks(part.values.len() / BATCH / LENGTH).nth(t)))
                .flat_map(|part| part.unwrap().to_vec())
                .collect();
            let width = 2 * queries * SIZE + heads * WIDTH;
            vec![shaped(&Array { shape: Vec::new(), values: tokens }, &[width], self.dtype), None, None]
        } else {
            let keys = [&q, &k].map(|array| shaped(array, &[queries, SIZE], self.dtype));
            [keys.to_vec(), vec![shaped(&v, &[heads, WIDTH], self.dtype)]].concat()
        };
        let given = |is_given: bool, array: &Array| is_given.then(|| array.tensor(DType::F32));
        case.inputs.push(None);
        case.inputs.extend([shaped(&decay, &[heads], DType::F32), shaped(&beta, &[heads], DType::F32)]);
        case.inputs.extend([given(true, &past), given(self.fused, &a_log), given(self.fused, &dt_bias)]);
        let text = |fused: &str| Attribute::Text(if self.fused { fused } else { "none" }.to_owned());
        let case = case
            .attribute("update_rule", Attribute::Text(self.rule.to_owned()))
            .attribute("gate_activation", text("qwen"))
            .attribute("beta_activation", text("sigmoid"))
            .attribute("qk_l2_norm", Attribute::Int(i64::from(self.fused)));
        out.shape = [&leading[..], &[heads, WIDTH]].concat();
        compare(&case, &[out, state], self.dtype);
    }
}

#[test]
fn gated_delta_nets_follow_their_recurrence() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for rule in ["linear", "gated", "delta", "gated_delta"] {
            DeltaNet { dtype, rule, fused: true, packed: false, flat: false }.check();
        }
    }
    let plain = DeltaNet { dtype: DType::F32, rule: "gated_delta", fused: false, packed: false, flat: false };
    DeltaNet { rule: "gated", ..plain }.check();
    DeltaNet { fused: true, flat: true, ..plain }.check();
    DeltaNet { fused: true, packed: true, ..plain }.check();
    DeltaNet { fused: true, packed: true, flat: true, ..plain }.check();
}
