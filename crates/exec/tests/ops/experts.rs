//! Compares MoE and QMoE with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use testkit::ops::experts::float4;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers};

const TOKENS: usize = 5;
const EXPERTS: usize = 6;

/// A layer of experts.
#[derive(Clone, Debug)]
struct Mixture {
    dtype: DType,
    hidden: usize,
    inner: usize,
    k: usize,
    normalize: bool,
    activation: &'static str,
    fusion: i64,
    third: bool,
    bias: bool,
    /// Alpha, beta and limit of the gated activation.
    gate: Option<[f32; 3]>,
    /// Bits, block and zero points of packed weights; a block of 0 is a whole column.
    packed: Option<(usize, usize, bool)>,
    /// `quant_type` and the type of scales, for 4-bit floats.
    float4: Option<(&'static str, DType)>,
    router_weights: bool,
    /// Tokens have a batch axis.
    batched: bool,
}

impl Default for Mixture {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            hidden: 32,
            inner: 16,
            k: 2,
            normalize: false,
            activation: "relu",
            fusion: 0,
            third: false,
            bias: true,
            gate: None,
            packed: None,
            float4: None,
            router_weights: false,
            batched: false,
        }
    }
}

/// The weights of one layer: their values, and the operands that hold them.
struct Layer {
    values: Array,
    weights: Array,
    scales: Option<Array>,
    zeros: Option<Array>,
    bias: Option<Array>,
    /// A scale for each expert.
    of_expert: Option<Array>,
}

impl Mixture {
    fn layer(&self, columns: usize, depth: usize, seed: u64) -> Layer {
        let bias = self.bias.then(|| Array::random(self.dtype, &[EXPERTS, columns], seed + 1));
        let Some((bits, block, given_zeros)) = self.packed else {
            let weights = Array::random(self.dtype, &[EXPERTS, columns, depth], seed);
            return Layer { values: weights.clone(), weights, scales: None, zeros: None, bias, of_expert: None };
        };
        let (is_whole, block) = (block == 0, if block == 0 { depth } else { block });
        let (blocks, top) = (depth / block, (1u64 << bits) as f64);
        let number = |x: f64| ((x.abs() * 7919.0).floor() % top).abs();
        let q = Array::random(DType::F32, &[EXPERTS, columns, depth], seed);
        let zeros = Array::random(DType::F32, &[EXPERTS, columns, blocks], seed + 2);
        let exact = Array::of(&[EXPERTS, columns, blocks], |at| 0.02 + 0.01 * (at[1] % 3) as f64);
        let scales = Array::from(&exact.tensor(self.dtype));
        let zero = |at: &[usize]| if given_zeros { number(zeros.at(at)) } else { top / 2.0 };
        let values = Array::of(&[EXPERTS, columns, depth], |at| {
            let block = [at[0], at[1], at[2] / block];
            (number(q.at(at)) - zero(&block)) * scales.at(&block)
        });
        let packed = |shape: &[usize], count: usize, of: &dyn Fn(&[usize]) -> f64| {
            let each = 8 / bits;
            let last = shape.len() - 1;
            Array::of(shape, |at| {
                let mut from = at.to_vec();
                let fields = (0..each).filter(|part| at[last] * each + part < count);
                let byte = fields.map(|part| {
                    from[last] = at[last] * each + part;
                    of(&from) as u64 * (1 << (bits * part))
                });
                byte.sum::<u64>() as f64
            })
        };
        let weights = packed(&[EXPERTS, columns, depth * bits / 8], depth, &|at| number(q.at(at)));
        let zeros = given_zeros.then(|| match is_whole {
            true => packed(&[EXPERTS, (columns * bits).div_ceil(8)], columns, &|at| zero(&[at[0], at[1], 0])),
            false => packed(&[EXPERTS, columns, (blocks * bits).div_ceil(8)], blocks, &zero),
        });
        let scales = if is_whole { Array { shape: vec![EXPERTS, columns], ..scales } } else { scales };
        Layer { values, weights, scales: Some(scales), zeros, bias, of_expert: None }
    }

    fn layers(&self) -> [Layer; 3] {
        let wide = if self.fusion > 0 { 2 * self.inner } else { self.inner };
        [
            self.layer(wide, self.hidden, 10),
            self.layer(self.hidden, self.inner, 20),
            self.layer(self.inner, self.hidden, 30),
        ]
    }

    fn case(&self, x: &Array, scores: &Array, router: &Array, layers: &[Layer; 3]) -> Case {
        let own = |array: &Array| Some(array.tensor(self.dtype));
        let mut case = Case::new(if self.packed.is_some() { "QMoE" } else { "MoE" }, 1, Vec::new(), &[self.dtype]);
        case.domain = "com.microsoft";
        let shape = if self.batched { vec![1, TOKENS, self.hidden] } else { vec![TOKENS, self.hidden] };
        case.inputs = vec![own(&Array { shape, ..x.clone() }), own(scores)];
        for (number, layer) in layers.iter().enumerate() {
            let given = number < 2 || self.third;
            let kind = if self.packed.is_some() { DType::U8 } else { self.dtype };
            case.inputs.push(given.then(|| layer.weights.tensor(kind)));
            if self.packed.is_some() {
                let kind = self.float4.map_or(self.dtype, |(_, kind)| kind);
                case.inputs.push(layer.scales.as_ref().filter(|_| given).map(|scales| scales.tensor(kind)));
            }
            case.inputs.push(layer.bias.as_ref().filter(|_| given).and_then(own));
        }
        if self.packed.is_some() {
            let zeros = layers.iter().enumerate().map(|(number, layer)| {
                layer.zeros.as_ref().filter(|_| number < 2 || self.third).map(|zeros| zeros.tensor(DType::U8))
            });
            case.inputs.extend(zeros);
            case.inputs.push(self.router_weights.then(|| router.tensor(self.dtype)));
        }
        if let Some((name, _)) = self.float4 {
            let of_experts = layers[..2].iter().map(|layer| layer.of_expert.as_ref().map(|it| it.tensor(DType::F32)));
            case.inputs.extend(of_experts);
            case = case.attribute("quant_type", Attribute::Text(name.to_owned()));
        }
        let number = |value: usize| Attribute::Int(value as i64);
        let mut case = case
            .attribute("k", number(self.k))
            .attribute("normalize_routing_weights", number(usize::from(self.normalize)))
            .attribute("activation_type", Attribute::Text(self.activation.to_owned()))
            .attribute("swiglu_fusion", Attribute::Int(self.fusion));
        if let Some([alpha, beta, limit]) = self.gate {
            case = case
                .attribute("activation_alpha", Attribute::Float(alpha))
                .attribute("activation_beta", Attribute::Float(beta))
                .attribute("swiglu_limit", Attribute::Float(limit));
        }
        if let Some((bits, block, _)) = self.packed {
            case = case.attribute("expert_weight_bits", number(bits));
            if block > 0 {
                case = case.attribute("block_size", number(block));
            }
        }
        case
    }

    /// The activation of the first half, and of the second.
    fn activated(&self, gate: f64, up: Option<f64>) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let [alpha, beta, limit] = self.gate.unwrap_or([1.0, 0.0, f32::INFINITY]).map(f64::from);
        let gelu =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
        let made = match self.activation {
            "relu" => gate.max(0.0),
            "silu" => gate * sigmoid(gate),
            "gelu" | "geglu" => gelu(gate),
            "swiglu" => gate.min(limit) * sigmoid(alpha * gate.min(limit)),
            _ => gate,
        };
        let up = up.map(|up| if self.activation == "swiglu" { up.clamp(-limit, limit) + beta } else { up });
        made * up.unwrap_or(1.0)
    }

    fn wanted(&self, x: &Array, scores: &Array, router: &Array, layers: &[Layer; 3]) -> Vec<f64> {
        let dense = |layer: &Layer, expert: usize, input: &[f64]| -> Vec<f64> {
            let row = |column: usize| {
                let terms = input.iter().enumerate().map(|(k, x)| x * layer.values.at(&[expert, column, k]));
                terms.sum::<f64>() + layer.bias.as_ref().map_or(0.0, |bias| bias.at(&[expert, column]))
            };
            (0..layer.values.shape[1]).map(row).collect()
        };
        let token = |t: usize| {
            let score = |expert: usize| scores.at(&[t, expert]);
            let mut order: Vec<usize> = (0..EXPERTS).collect();
            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            let all: f64 = (0..EXPERTS).map(|expert| score(expert).exp()).sum();
            let weight = |expert: usize| {
                if self.router_weights { router.at(&[t, expert]) } else { score(expert).exp() / all }
            };
            let sum: f64 = order[..self.k].iter().map(|&expert| weight(expert)).sum();
            let input: Vec<f64> = (0..self.hidden).map(|k| x.at(&[t, k])).collect();
            let mut result = vec![0.0; self.hidden];
            for &expert in &order[..self.k] {
                let first = dense(&layers[0], expert, &input);
                let third = self.third.then(|| dense(&layers[2], expert, &input));
                let middle = (0..self.inner).map(|at| match (self.fusion, &third) {
                    (1, _) => self.activated(first[2 * at], Some(first[2 * at + 1])),
                    (2, _) => self.activated(first[at], Some(first[at + self.inner])),
                    (_, third) => self.activated(first[at], third.as_ref().map(|third| third[at])),
                });
                let made = dense(&layers[1], expert, &middle.collect::<Vec<f64>>());
                let share = weight(expert) / if self.normalize && sum != 0.0 { sum } else { 1.0 };
                result.iter_mut().zip(made).for_each(|(to, value)| *to += share * value);
            }
            result
        };
        (0..TOKENS).flat_map(token).collect()
    }

    fn check(&self) {
        self.check_with(&self.layers());
    }

    fn check_with(&self, layers: &[Layer; 3]) {
        let x = Array::random(self.dtype, &[TOKENS, self.hidden], 1);
        let scores = Array::random(self.dtype, &[TOKENS, EXPERTS], 2);
        // The weights of the first token are all 0, and stay so if they are normalised.
        let weight = |at: &[usize]| if at[0] == 0 { 0.0 } else { 0.125 + ((at[0] + 3 * at[1]) % 7) as f64 / 8.0 };
        let router = Array::of(&[TOKENS, EXPERTS], weight);
        let found = self.case(&x, &scores, &router, layers).run().unwrap();
        let wanted = self.wanted(&x, &scores, &router, layers);
        assert_eq!(found[0].elems(), wanted.len());
        let size = wanted.iter().fold(1.0, |size: f64, value| size.max(value.abs()));
        let scaled: Vec<f64> = numbers(&found[0]).iter().map(|value| value / size).collect();
        let tolerance = match self.dtype {
            DType::F16 => 4e-3,
            DType::Bf16 => 3e-2,
            _ => 1e-5,
        };
        assert_close(&scaled, &wanted.iter().map(|value| value / size).collect::<Vec<_>>(), tolerance);
    }
}

#[test]
fn every_activation_and_routing() {
    let plain = Mixture::default();
    let swiglu = Mixture { activation: "swiglu", normalize: true, ..plain.clone() };
    let cases = [
        plain.clone(),
        Mixture { activation: "gelu", normalize: true, ..plain.clone() },
        Mixture { activation: "silu", k: 1, batched: true, ..plain.clone() },
        Mixture { activation: "identity", k: EXPERTS, bias: false, ..plain.clone() },
        Mixture { activation: "silu", third: true, normalize: true, ..plain.clone() },
        Mixture { third: true, gate: Some([1.5, 0.5, 0.7]), ..swiglu.clone() },
        Mixture { fusion: 1, ..swiglu.clone() },
        Mixture { fusion: 1, gate: Some([1.702, 1.0, 0.7]), ..swiglu.clone() },
        Mixture { fusion: 2, gate: Some([1.702, 1.0, 0.7]), ..swiglu.clone() },
        Mixture { activation: "geglu", fusion: 1, ..swiglu.clone() },
        Mixture { dtype: DType::F16, fusion: 1, ..swiglu.clone() },
        Mixture { dtype: DType::Bf16, fusion: 1, ..swiglu },
    ];
    cases.iter().for_each(Mixture::check);
}

#[test]
fn packed_weights_of_every_width_and_block() {
    let plain = Mixture { activation: "silu", normalize: true, hidden: 64, inner: 32, ..Mixture::default() };
    for bits in [2, 4, 8] {
        for (block, zeros) in [(0, false), (0, true), (16, false), (16, true), (32, true)] {
            Mixture { packed: Some((bits, block, zeros)), ..plain.clone() }.check();
        }
    }
    let packed = Some((4, 16, false));
    let cases = [
        Mixture { packed, activation: "swiglu", fusion: 1, gate: Some([1.702, 1.0, 7.0]), ..plain.clone() },
        Mixture { packed, third: true, ..plain.clone() },
        Mixture { packed, router_weights: true, ..plain.clone() },
        Mixture { packed, router_weights: true, normalize: false, ..plain.clone() },
        Mixture { packed, dtype: DType::F16, ..plain },
    ];
    cases.iter().for_each(Mixture::check);
}

impl Layer {
    /// Moves the weights where CUDA's kernels expect them: groups of columns, tiles of 64 rows, and in a tile every eighth
    /// row of 32 or 16 side by side.
    fn laid_out_for_cuda(mut self, bits: usize) -> Self {
        let (columns, depth, each) = (self.weights.shape[1], self.weights.shape[2] * 8 / bits, 8 / bits);
        let (group, run) = (16 / bits, 128 / bits);
        let bytes = &self.weights.values;
        let number = |expert: usize, column: usize, row: usize| {
            let byte = bytes[((expert * columns + column) * depth + row) / each] as usize;
            byte >> (bits * (row % each)) & ((1 << bits) - 1)
        };
        let mut moved = vec![0.0; bytes.len()];
        for expert in 0..EXPERTS {
            for place in 0..columns * depth {
                let column = place / (group * depth) * group + place / 64 % group;
                let (tile, at) = (place % (group * depth) / (group * 64), place % 64);
                let row = 64 * tile + at / run * run + 8 * (at % (run / 8)) + at % run / (run / 8);
                let field = (number(expert, column, row) << (bits * (place % each))) as f64;
                moved[(expert * columns * depth + place) / each] += field;
            }
        }
        self.weights = Array { shape: vec![EXPERTS, depth, columns / each], values: moved };
        self
    }
}

#[test]
fn weights_that_were_packed_for_cuda() {
    let plain = Mixture { activation: "swiglu", fusion: 1, normalize: true, ..Mixture::default() };
    for (bits, block, hidden, inner) in [(4, 32, 128, 64), (4, 0, 64, 128), (8, 64, 64, 64)] {
        let mixture = Mixture { packed: Some((bits, block, false)), hidden, inner, ..plain.clone() };
        mixture.check_with(&mixture.layers().map(|layer| layer.laid_out_for_cuda(bits)));
    }
}

impl Layer {
    /// Weights as 4-bit floats, two columns of a row in a byte, with a scale for each block and for each expert.
    fn of_float4(mut self, kind: DType, block: usize) -> Self {
        let [count, columns, depth] = *self.values.shape else { panic!("weights of {:?}", self.values.shape) };
        let code = |at: &[usize]| (at[0] * 5 + at[1] * 7 + at[2] * 11 + at[1] * at[2]) % 16;
        let scale = |at: &[usize]| match kind {
            DType::F8E8M0 => 122 + (at[0] + at[1] + at[2]) % 5,
            _ => 0x20 + (3 * at[0] + at[1] + 5 * at[2]) % 24,
        };
        let number = |code: usize| match kind {
            DType::F8E8M0 => 2f64.powi(code as i32 - 127),
            _ => (1.0 + (code % 8) as f64 / 8.0) * 2f64.powi((code / 8) as i32 - 7),
        };
        let of_expert = |expert: usize| 0.5 + 0.25 * expert as f64;
        self.values = Array::of(&[count, columns, depth], |at| {
            let scale = number(scale(&[at[0], at[1], at[2] / block]));
            float4(code(at) as u32) * scale * of_expert(at[0])
        });
        self.weights = Array::of(&[count, depth, columns / 2], |at| {
            let [low, high] = [0, 1].map(|parity| code(&[at[0], 2 * at[2] + parity, at[1]]));
            (low + 16 * high) as f64
        });
        self.scales = Some(Array::of(&[count, columns, depth / block], |at| scale(at) as f64));
        self.of_expert = Some(Array::of(&[count], |at| of_expert(at[0])));
        self
    }
}

#[test]
fn four_bit_floats_with_scales_of_blocks() {
    let plain =
        Mixture { activation: "swiglu", fusion: 1, normalize: true, hidden: 64, inner: 96, ..Mixture::default() };
    for (name, kind, block) in [("fp4", DType::F8E8M0, 32), ("nvfp4", DType::F8E4M3Fn, 16)] {
        for dtype in [DType::F32, DType::F16] {
            let packed = Some((4, block, false));
            let mixture = Mixture { packed, float4: Some((name, kind)), dtype, ..plain.clone() };
            mixture.check_with(&mixture.layers().map(|layer| layer.of_float4(kind, block)));
        }
    }
}

#[test]
fn unsupported_forms_are_declined_with_a_reason() {
    let reason = |mixture: Mixture, name: &'static str, value: Attribute| {
        let x = Array::random(mixture.dtype, &[TOKENS, mixture.hidden], 1);
        let scores = Array::random(mixture.dtype, &[TOKENS, EXPERTS], 2);
        mixture.case(&x, &scores, &scores, &mixture.layers()).attribute(name, value).run().unwrap_err()
    };
    let packed = || Mixture { packed: Some((4, 16, false)), ..Mixture::default() };
    assert!(reason(Mixture::default(), "use_sparse_mixer", Attribute::Int(1)).contains("sparse mixer"));
    assert!(reason(Mixture::default(), "activation_type", Attribute::Text("tanh".into())).contains("\"tanh\""));
    assert!(reason(Mixture::default(), "k", Attribute::Int(9)).contains("the best 9 experts"));
    let kind = |name: &str| Attribute::Text(name.to_owned());
    assert!(reason(packed(), "quant_type", kind("wfp4afp8")).contains("weights of type wfp4afp8"));
    assert!(
        reason(packed(), "quant_type", kind("fp4")).contains("input 15"),
        "{}",
        reason(packed(), "quant_type", kind("fp4"))
    );
    assert!(reason(packed(), "weights_prepacked", Attribute::Int(1)).contains("in CUDA's layout for a depth of 32"));
    assert!(reason(packed(), "expert_weight_bits", Attribute::Int(3)).contains("3 bits"));
    assert!(reason(packed(), "block_size", Attribute::Int(24)).contains("blocks of 24"));
}
