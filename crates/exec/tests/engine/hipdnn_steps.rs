//! Compares steps that hipDNN runs on the host driver with the device's own code.

use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::build::Build;
use crate::common::{Case, assert_close, numbers, random, tensor};
use crate::dnn::both;

const TAKEN: &str = "hipDNN: HOST_CPU_ENGINE";

/// The label of a graph with this many operations.
fn taken(operations: usize) -> String {
    if operations == 1 { TAKEN.to_owned() } else { format!("{TAKEN}, {operations} operations") }
}

/// The tolerance for results: hipDNN's epilogues do not round intermediate values.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-4,
        DType::F16 => 1e-2,
        _ => 6e-2,
    }
}

fn assert_agree(with: &[Tensor], without: &[Tensor]) {
    for (with, without) in with.iter().zip(without) {
        assert_eq!((with.dtype(), with.shape()), (without.dtype(), without.shape()));
        let largest = numbers(without).iter().fold(1.0f64, |most, value| most.max(value.abs()));
        let scaled = |tensor: &Tensor| numbers(tensor).iter().map(|value| value / largest).collect::<Vec<_>>();
        assert_close(&scaled(with), &scaled(without), tolerance(with.dtype()));
    }
}

/// Runs one node with and without hipDNN and returns the backends of its steps.
fn check(case: &Case) -> Vec<String> {
    let (graph, given) = case.graph().unwrap();
    let (with, without, by) = both(&graph, &given);
    assert_agree(&with, &without);
    by
}

fn filled(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    tensor(dtype, shape, &random(shape.iter().product(), seed))
}

fn ints(values: &[usize]) -> Attribute {
    Attribute::Ints(values.iter().map(|&value| value as i64).collect())
}

fn float_type() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F64, DType::F16, DType::Bf16])
}

/// A window over one or two spatial axes: kernel, stride, dilation, padding before, padding after.
fn windows() -> impl Strategy<Value = Vec<[usize; 5]>> {
    prop::collection::vec((1usize..4, 1usize..3, 1usize..3, 0usize..2, 0usize..2), 1..3).prop_map(|axes| {
        axes.into_iter().map(|(k, s, d, pre, post)| [k, s, d, pre.min(k - 1), post.min(k - 1)]).collect()
    })
}

fn columns(window: &[[usize; 5]], column: usize) -> Vec<usize> {
    window.iter().map(|axis| axis[column]).collect()
}

fn pads(window: &[[usize; 5]]) -> Attribute {
    ints(&[columns(window, 3), columns(window, 4)].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions_agree(
        dtype in float_type(), window in windows(), batch in 1usize..3, groups in 1usize..3, inputs in 1usize..4,
        outputs in 1usize..4, extent in 6usize..9, bias: bool, seed in 0u64..1000,
    ) {
        let spatial = vec![extent; window.len()];
        let x = filled(dtype, &[&[batch, groups * inputs], &spatial[..]].concat(), seed);
        let w = filled(dtype, &[&[groups * outputs, inputs], &columns(&window, 0)[..]].concat(), seed + 1);
        let mut given = vec![x, w];
        given.extend(bias.then(|| filled(dtype, &[groups * outputs], seed + 2)));
        let mut case = Case::new("Conv", 11, given, &[dtype])
            .attribute("strides", ints(&columns(&window, 1)))
            .attribute("dilations", ints(&columns(&window, 2)))
            .attribute("pads", pads(&window))
            .attribute("group", Attribute::Int(groups as i64));
        case.constants = vec![1];
        prop_assert_eq!(check(&case), [taken(1 + usize::from(bias))]);
    }

    #[test]
    fn transposed_convolutions_agree(
        dtype in float_type(), window in windows(), groups in 1usize..3, channels in 1usize..3, bias: bool,
        further in 0usize..2, seed in 0u64..1000,
    ) {
        let spatial = vec![5; window.len()];
        let x = filled(dtype, &[&[2, groups * channels], &spatial[..]].concat(), seed);
        let w = filled(dtype, &[&[groups * channels, 2], &columns(&window, 0)[..]].concat(), seed + 1);
        let mut given = vec![x, w];
        given.extend(bias.then(|| filled(dtype, &[groups * 2], seed + 2)));
        let further: Vec<usize> = columns(&window, 1).iter().map(|&stride| further.min(stride - 1)).collect();
        let case = Case::new("ConvTranspose", 11, given, &[dtype])
            .attribute("strides", ints(&columns(&window, 1)))
            .attribute("dilations", ints(&columns(&window, 2)))
            .attribute("pads", pads(&window))
            .attribute("output_padding", ints(&further))
            .attribute("group", Attribute::Int(groups as i64));
        prop_assert!(check(&case).iter().any(|by| by.starts_with(TAKEN)));
    }

    #[test]
    fn products_agree(
        dtype in float_type(), m in 1usize..6, k in 1usize..6, n in 1usize..6, batch in prop::option::of(1usize..4),
        shared: bool, flips: (bool, bool), alpha in prop::sample::select(vec![1.0f32, 0.5]), seed in 0u64..1000,
    ) {
        let case = match batch {
            Some(batch) => {
                let a = filled(dtype, &[batch, m, k], seed);
                let b = filled(dtype, &[if shared { 1 } else { batch }, k, n], seed + 1);
                Case::new("MatMul", 13, vec![a, b], &[dtype])
            }
            None => {
                let a = filled(dtype, &if flips.0 { [k, m] } else { [m, k] }, seed);
                let b = filled(dtype, &if flips.1 { [n, k] } else { [k, n] }, seed + 1);
                let c = filled(dtype, &[n], seed + 2);
                Case::new("Gemm", 13, vec![a, b, c], &[dtype])
                    .attribute("alpha", Attribute::Float(alpha))
                    .attribute("transA", Attribute::Int(flips.0.into()))
                    .attribute("transB", Attribute::Int(flips.1.into()))
            }
        };
        let by = check(&case);
        prop_assert!(by.iter().any(|by| by.starts_with(TAKEN)), "{:?}", by);
    }

    #[test]
    fn pools_agree(
        dtype in float_type(), window in windows(), maximum: bool, count_pad: bool, ceil: bool, seed in 0u64..1000,
    ) {
        let x = filled(dtype, &[&[2, 3], &vec![7; window.len()][..]].concat(), seed);
        let (op, version) = if maximum { ("MaxPool", 12) } else { ("AveragePool", 19) };
        let mut case = Case::new(op, version, vec![x], &[dtype])
            .attribute("kernel_shape", ints(&columns(&window, 0)))
            .attribute("strides", ints(&columns(&window, 1)))
            .attribute("pads", pads(&window))
            .attribute("ceil_mode", Attribute::Int(ceil.into()));
        if !maximum {
            case = case.attribute("count_include_pad", Attribute::Int(count_pad.into()));
        }
        let by = check(&case);
        // A window that reaches beyond counted padding is the only thing that hipDNN cannot express.
        prop_assert!(by == [TAKEN] || (ceil && count_pad && !maximum), "{:?}", by);
    }

    #[test]
    fn norms_agree(
        dtype in float_type(), shape in prop::collection::vec(1usize..5, 1..4), axes in 1usize..3, rms: bool,
        bias: bool, seed in 0u64..1000,
    ) {
        let axes = axes.min(shape.len());
        let layer = shape[shape.len() - axes..].to_vec();
        let mut given = vec![filled(dtype, &shape, seed), filled(dtype, &layer, seed + 1)];
        let (op, version) = if rms { ("RMSNormalization", 23) } else { ("LayerNormalization", 17) };
        given.extend((bias && !rms).then(|| filled(dtype, &layer, seed + 2)));
        let case = Case::new(op, version, given, &[dtype]).attribute("axis", Attribute::Int(-(axes as i64)));
        let by = check(&case);
        let rounds = rms && matches!(dtype, DType::F16 | DType::Bf16);
        let wants_bias = !rms && !bias;
        prop_assert_eq!(by.contains(&TAKEN.to_owned()), !rounds && !wants_bias, "{:?}", by);
    }

    #[test]
    fn attention_agrees(
        dtype in prop::sample::select(vec![DType::F32, DType::F16]), batch in 1usize..3, shared in 1usize..3,
        group in 1usize..3, rows in 1usize..5, further in 0usize..3, causal: bool, masked: bool, softcap: bool,
        seed in 0u64..1000,
    ) {
        let (heads, total) = (shared * group, rows + further);
        let mut given = vec![
            filled(dtype, &[batch, heads, rows, 8], seed),
            filled(dtype, &[batch, shared, total, 8], seed + 1),
            filled(dtype, &[batch, shared, total, 6], seed + 2),
        ];
        given.extend(masked.then(|| filled(dtype, &[rows, total], seed + 3)));
        let case = Case::new("Attention", 23, given, &[dtype])
            .attribute("is_causal", Attribute::Int(causal.into()))
            .attribute("softcap", Attribute::Float(if softcap { 3.0 } else { 0.0 }));
        let by = check(&case);
        // ONNX requires rows hidden by a mask to be zero; hipDNN's attention cannot express that, nor a limit on
        // scores.
        let is_plain = !softcap && !masked;
        let attends = |by: &String| if is_plain { by == TAKEN } else { by.starts_with(TAKEN) && by != TAKEN };
        // A chain's softmax needs at least two keys.
        prop_assert!(by.iter().any(attends) || !is_plain && total == 1, "{:?}", by);
        prop_assert!(!by.iter().any(|by| by.contains("softmax")) || total == 1, "{:?}", by);
    }

    #[test]
    fn prompts_over_an_empty_cache_agree(
        dtype in prop::sample::select(vec![DType::F32, DType::F16]), batch in 1usize..3, shared in 1usize..3,
        group in 1usize..3, rows in 1usize..6, room in 0usize..4, window in prop::option::of(1usize..7), softcap: bool,
        seed in 0u64..1000,
    ) {
        let (heads, size) = (shared * group, 8);
        let mut build = Build::default();
        let tokens = [heads, shared, shared].map(|_| Some(build.input_of(dtype)));
        let caches = [(); 2].map(|()| Some(build.input_of(dtype)));
        let lengths = build.input_of(DType::I32);
        let total = build.constant(tensor(DType::I32, &[], &[rows as f64]));
        let inputs = [&tokens[..], &caches, &[Some(lengths), Some(total)]].concat();
        let attributes = [
            ("num_heads", Attribute::Int(heads as i64)),
            ("kv_num_heads", Attribute::Int(shared as i64)),
            ("local_window_size", Attribute::Int(window.map_or(-1, |window| window as i64))),
            ("softcap", Attribute::Float(if softcap { 2.0 } else { 0.0 })),
        ];
        let made = build.outputs_of("com.microsoft", "GroupQueryAttention", &inputs, &attributes, &[Some(dtype); 3]);
        let cache = [batch, shared, rows + room, size];
        let mut given: Vec<Tensor> = (seed..)
            .zip([heads, shared, shared])
            .map(|(seed, heads)| filled(dtype, &[batch, rows, heads * size], seed))
            .collect();
        // The previous contents of a cache do not matter to a first prompt.
        given.extend([3, 4].map(|further| filled(dtype, &cache, seed + further)));
        given.push(tensor(DType::I32, &[batch], &vec![rows as f64 - 1.0; batch]));
        let (with, without, by) = both(&build.outputs(&made), &given);
        assert_agree(&with, &without);
        prop_assert_eq!(by.last().is_some_and(|by| by == TAKEN), !softcap, "{:?}", by);
    }

    #[test]
    fn written_out_attention_agrees(
        heads in 1usize..4, rows in 1usize..5, total in 1usize..6, divides: bool, joins: bool,
        mask in prop::sample::select(vec!["none", "keys", "all"]), seed in 0u64..1000,
    ) {
        let mut build = Build::default();
        let (q, k, v) = (build.input(), build.input(), build.input());
        let turned = build.with("Transpose", &[k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = build.node("MatMul", &[q, turned]);
        let factor = build.number(0.5);
        let mut scores = build.node(if divides { "Div" } else { "Mul" }, &[scores, factor]);
        let mut given = [[rows, 4], [total, 4], [total, 6]].map(|[s, d]| vec![2, heads, s, d]).to_vec();
        if mask != "none" {
            let added = build.input();
            scores = build.node("Add", &[scores, added]);
            given.push(if mask == "keys" { vec![2, 1, 1, total] } else { vec![2, heads, rows, total] });
        }
        let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
        let mut made = build.node("MatMul", &[weights, v]);
        if joins {
            let turned = build.with("Transpose", &[made], &[("perm", ints(&[0, 2, 1, 3]))]);
            let to = build.constant(Tensor::from_i64s(&[0, 0, -1]));
            made = build.node("Reshape", &[turned, to]);
        }
        let given: Vec<Tensor> = (seed..).zip(given).map(|(seed, shape)| filled(DType::F32, &shape, seed)).collect();
        let (with, without, by) = both(&build.outputs(&[made]), &given);
        assert_agree(&with, &without);
        prop_assert_eq!(by, [TAKEN]);
    }

    #[test]
    fn epilogues_agree(
        product in prop::sample::select(vec!["Conv", "MatMul"]),
        chain in prop::collection::vec(prop::sample::select(vec![
            "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Erf", "Abs", "bias", "residual", "Clip", "Swish", "number",
        ]), 1..4),
        seed in 0u64..1000,
    ) {
        let mut build = Build::default();
        let x = build.input();
        let (shape, w) = match product {
            "Conv" => (vec![1usize, 4, 5, 5], build.constant(filled(DType::F32, &[4, 4, 1, 1], seed))),
            _ => (vec![3, 4], build.constant(filled(DType::F32, &[4, 4], seed))),
        };
        let bias = if product == "Conv" { vec![4, 1, 1] } else { vec![4] };
        let mut value = build.node(product, &[x, w]);
        for op in chain {
            value = match op {
                "bias" => {
                    let bias = build.constant(filled(DType::F32, &bias, seed + 1));
                    build.node("Add", &[bias, value])
                }
                "residual" => build.node("Add", &[value, x]),
                "Clip" => {
                    let (low, high) = (build.number(-0.5), build.number(0.75));
                    build.node("Clip", &[value, low, high])
                }
                "Swish" => {
                    let gate = build.node("Sigmoid", &[value]);
                    build.node("Mul", &[value, gate])
                }
                "number" => {
                    let number = build.number(1.5);
                    build.node("Sub", &[number, value])
                }
                "Gelu" => {
                    let root = build.number(std::f64::consts::SQRT_2);
                    let (one, half) = (build.number(1.0), build.number(0.5));
                    let inner = build.node("Div", &[value, root]);
                    let inner = build.node("Erf", &[inner]);
                    let inner = build.node("Add", &[inner, one]);
                    let inner = build.node("Mul", &[value, inner]);
                    build.node("Mul", &[inner, half])
                }
                plain => build.node(plain, &[value]),
            };
        }
        let graph = build.outputs(&[value]);
        let (with, without, by) = both(&graph, &[filled(DType::F32, &shape, seed + 2)]);
        assert_agree(&with, &without);
        prop_assert!(by.len() == 1 && by[0].starts_with(TAKEN), "{:?}", by);
    }
}

#[test]
fn an_epilogue_that_hipdnn_lacks_runs_after_the_convolution() {
    for dtype in [DType::F32, DType::F16] {
        let mut build = Build::default();
        let x = build.input_of(dtype);
        let w = build.constant(filled(dtype, &[4, 3, 3, 3], 1));
        let again = build.constant(filled(dtype, &[2, 4, 1, 1], 2));
        let y = build.node("Conv", &[x, w]);
        let y = build.node("Mish", &[y]);
        let y = build.node("Conv", &[y, again]);
        let y = build.node("Softplus", &[y]);
        let (with, without, by) = both(&build.outputs(&[y]), &[filled(dtype, &[2, 3, 6, 6], 3)]);
        assert_agree(&with, &without);
        assert_eq!(by, [TAKEN, "own: map", TAKEN, "own: map"]);
    }
}

#[test]
fn other_steps_stay_with_our_code_and_may_have_a_reason() {
    let bytes = Tensor::from_scalars(DType::I8, &[1, 1, 4, 4], (0..16).map(graph::Scalar::Int)).unwrap();
    let case = Case::new("MaxPool", 12, vec![bytes], &[DType::I8]).attribute("kernel_shape", ints(&[2, 2]));
    assert_eq!(check(&case), ["own: pool, hipDNN cannot compute in i8"]);
    let case = Case::new("Softmax", 13, vec![filled(DType::F32, &[2, 3], 1)], &[DType::F32]);
    assert_eq!(check(&case), ["own: softmax"]);
    let x = filled(DType::F32, &[1, 2, 9], 1);
    let case = Case::new("MaxPool", 12, vec![x], &[DType::F32])
        .attribute("kernel_shape", ints(&[2]))
        .attribute("dilations", ints(&[2]));
    assert_eq!(check(&case), ["own: pool, its window is dilated"]);
}
