//! Every rule of every operation, checked by the message that names the tensor and the rule.

use super::*;
use crate::sys::{MoeGroupedMatmulMode, PointwiseMode, ReduceOp, ResampleMode};

/// The error of validating a graph with one operation.
fn refusal(build: impl FnOnce(&mut Graph)) -> String {
    let mut graph = graph();
    build(&mut graph);
    match graph.validate() {
        Ok(()) => "nothing".into(),
        Err(Error::Invalid { subject, rule }) => format!("{subject}: {rule}"),
        Err(other) => format!("not a rule: {other}"),
    }
}

fn add(graph: &mut Graph, name: &str, dims: &[i64]) -> TensorId {
    graph.tensor(Tensor::new(dims).named(name))
}

#[track_caller]
fn assert_says(found: &str, wanted: &str) {
    assert!(found.contains(wanted), "{wanted:?} is not in {found:?}");
}

#[test]
fn graphs_as_a_whole() {
    assert_says(&refusal(|_| {}), "graph \"test\": it has no operation");
    let found = refusal(|graph| {
        for name in ["a", "b"] {
            let x = add(graph, name, &[2, 3]);
            graph.pointwise(PointwiseMode::ABS, &[x]);
        }
    });
    assert_says(&found, "graph \"test\": the graph is not connected");
    let found = refusal(|graph| {
        let [a, b] = ["a", "twin"].map(|name| graph.tensor(Tensor::new(&[2, 3]).uid(7).named(name)));
        graph.pointwise(PointwiseMode::ADD, &[a, b]);
    });
    assert_says(&found, "tensor \"twin\": uid 7 is also used by another tensor");
}

#[test]
fn convolutions() {
    let says = |x: &[i64], w: &[i64], parameters: Convolution, wanted: &str| {
        let found = refusal(|graph| {
            let [x, w] = [add(graph, "x", x), add(graph, "w", w)];
            graph.convolution(x, w, parameters);
        });
        assert_says(&found, wanted);
    };
    let plain = || Convolution::new(2);
    says(&[1, 3], &[2, 3], Convolution::new(0), "tensor \"x\": it has 2 axes, expected at least 3");
    says(&[1, 3, 4, 4], &[2, 3, 1], plain(), "tensor \"w\": it has 3 axes, but the data has 4");
    says(&[1, 5, 4, 4], &[2, 3, 1, 1], plain(), "tensor \"w\": 5 channels cannot be divided into groups of 3");
    says(&[1, 4, 4, 4], &[3, 2, 1, 1], plain(), "tensor \"w\": 3 filters cannot be divided into 2 groups");
    says(&[1, 3, 2, 9], &[2, 3, 3, 3], plain(), "tensor \"x\": extent 2 of spatial axis 0 is smaller");
    says(&[1, 3, 4, 4], &[2, 3, 1, 1], plain().strides(&[1, 0]), "convolution: strides 0 is below 1");
    says(&[1, 3, 4, 4], &[2, 3, 1, 1], plain().dilations(&[0, 1]), "convolution: dilations 0 is below 1");
    says(&[1, 3, 4, 4], &[2, 3, 1, 1], plain().padding(&[-1, 0]), "convolution: pre-padding -1 is below 0");
    says(&[1, 3, 4, 4], &[2, 3, 1, 1], plain().padding(&[1]), "convolution: pre-padding has 1 numbers for 2");
    let found = refusal(|graph| {
        let [dy, w] = [add(graph, "dy", &[1, 2, 4, 4]), add(graph, "w", &[2, 3, 3, 3])];
        graph.convolution_to_data(dy, w, &[1, 3, 7, 6], Convolution::new(2));
    });
    assert_says(&found, "tensor \"dy\": its extents are [1, 2, 4, 4], expected [1, 2, 5, 4]");
    let found = refusal(|graph| {
        let [x, dy] = [add(graph, "x", &[1, 3, 6, 6]), add(graph, "dy", &[1, 2, 4, 4])];
        graph.convolution_to_filter(x, dy, &[], Convolution::new(2));
    });
    assert_says(&found, "its extents cannot be inferred and must be set");
}

#[test]
fn products() {
    let says = |a: &[i64], b: &[i64], wanted: &str| {
        let found = refusal(|graph| {
            let [a, b] = [add(graph, "a", a), add(graph, "b", b)];
            graph.matmul(a, b);
        });
        assert_says(&found, wanted);
    };
    says(&[3], &[3], "tensor \"a\": it has 1 axes, expected at least 2");
    says(&[2, 3], &[1, 3, 4], "tensor \"b\": it has 3 axes, but the left operand has 2");
    says(&[2, 3], &[4, 5], "tensor \"b\": its 4 rows do not match the left operand's 3 columns");
    says(&[2, 2, 3], &[3, 3, 5], "tensor \"b\": batch 3 cannot be broadcast to 2");
}

#[test]
fn pointwise_operations_and_reductions() {
    let unary = |what: Pointwise, wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[2, 3]);
            graph.pointwise(what, &[x]);
        });
        assert_says(&found, wanted);
    };
    unary(PointwiseMode::ADD.into(), "pointwise: ADD expects 2 tensors, found 1");
    unary(PointwiseMode::BINARY_SELECT.into(), "pointwise: BINARY_SELECT expects 3 tensors, found 1");
    let index = Pointwise { axis: Some(2), ..PointwiseMode::GEN_INDEX.into() };
    unary(index, "tensor \"x\": it has no axis 2 for indices");
    let found = refusal(|graph| {
        graph.pointwise(PointwiseMode(999), &[]);
    });
    assert_says(&found, "expects 1 tensors, found 0");
    let found = refusal(|graph| {
        let [x, y] = [add(graph, "x", &[2, 3]), add(graph, "y", &[2, 4])];
        graph.pointwise(PointwiseMode::MUL, &[x, y]);
    });
    assert_says(&found, "tensor \"y\": extent 4 of axis 1 does not match 3");
    let found = refusal(|graph| {
        let [x, y] = [add(graph, "x", &[2, 1]), add(graph, "y", &[1, 3])];
        let sum = graph.pointwise(PointwiseMode::ADD, &[x, y]);
        graph.output(sum, Tensor::default().named("sum"));
    });
    assert_says(&found, "tensor \"sum\": no input has its extents, so its strides must be set");
    let reduce = |dims: &[i64], wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[2, 3]);
            let y = graph.reduction(ReduceOp::ADD, x, dims);
            graph.output(y, Tensor::default().named("y"));
        });
        assert_says(&found, wanted);
    };
    reduce(&[2], "tensor \"y\": it has 1 axes, but the input has 2");
    reduce(&[2, 2], "tensor \"y\": extent 2 of axis 1 is neither 3 nor 1");
    reduce(&[2, 3], "tensor \"y\": no axis is reduced");
}

#[test]
fn norms() {
    let layer = |scale: &[i64], epsilon: &[i64], axes: usize, wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[2, 3, 4]);
            let [scale, bias] = [add(graph, "scale", scale), add(graph, "bias", &[1, 3, 4])];
            let epsilon = add(graph, "epsilon", epsilon);
            graph.layer_norm(x, [scale, bias], epsilon, axes);
        });
        assert_says(&found, wanted);
    };
    layer(&[1, 3, 4], &[2], 2, "tensor \"epsilon\": it must be a scalar, but its extents are [2]");
    layer(&[1, 1, 4], &[1], 2, "tensor \"scale\": its extents are [1, 1, 4], expected [1, 3, 4]");
    layer(&[1, 1, 4], &[1], 1, "tensor \"bias\": its extents are [1, 3, 4], expected [1, 1, 4]");
    layer(&[1, 3, 4], &[1], 3, "tensor \"x\": 3 of its 3 axes cannot be normalised: the first axis must remain");
    layer(&[1, 3, 4], &[1], 0, "tensor \"x\": 0 of its 3 axes cannot be normalised");
    let found = refusal(|graph| {
        let [dy, x] = [add(graph, "dy", &[2, 3]), add(graph, "x", &[2, 4])];
        let [scale, inverse] = [add(graph, "scale", &[1, 4]), add(graph, "inverse", &[2, 1])];
        graph.rms_norm_backward([dy, x, scale], inverse, 1);
    });
    assert_says(&found, "tensor \"dy\": its extents are [2, 3], expected [2, 4]");
    let batch = |x: &[i64], mean: &[i64], wanted: &str| {
        let found = refusal(|graph| {
            let [x, mean] = [add(graph, "x", x), add(graph, "mean", mean)];
            let [variance, scale, bias] = ["variance", "scale", "bias"].map(|name| add(graph, name, &[1, 3, 1]));
            let epsilon = graph.tensor(Tensor::scalar(Scalar::F32(1e-5)));
            let statistics = BatchNormStatistics::Variance { variance, epsilon };
            graph.batch_norm_inference(x, mean, statistics, [scale, bias]);
        });
        assert_says(&found, wanted);
    };
    batch(&[3], &[3], "tensor \"x\": it has 1 axes, expected at least 2");
    batch(&[2, 3, 5], &[1, 4, 1], "tensor \"mean\": its extents are [1, 4, 1], expected [1, 3, 1]");
    let found = refusal(|graph| {
        let x = add(graph, "x", &[1, 3, 1]);
        let [scale, bias] = ["scale", "bias"].map(|name| add(graph, name, &[1, 3, 1]));
        let epsilon = graph.tensor(Tensor::scalar(Scalar::F32(1e-5)));
        graph.batch_norm_training(x, [scale, bias], epsilon, None);
    });
    assert_says(&found, "tensor \"x\": a single element per channel has no variance");
}

#[test]
fn pooling() {
    let says = |x: &[i64], change: fn(&mut Resample), wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", x);
            let mut what = Resample::new(ResampleMode::MAXPOOL, &[2, 2]);
            change(&mut what);
            graph.resample(what, x);
        });
        assert_says(&found, wanted);
    };
    says(&[2, 3], |_| {}, "tensor \"x\": it has 2 axes, expected at least 3");
    says(&[1, 1, 4], |_| {}, "resample: every parameter must have 1 numbers");
    says(&[1, 1, 4, 1], |_| {}, "tensor \"x\": extent 1 of spatial axis 1 is smaller than the window");
    says(&[1, 1, 4, 4], |what| what.strides[1] = 0, "resample: a parameter of spatial axis 1 is negative or zero");
    says(&[1, 1, 4, 4], |what| what.pre_padding[0] = -1, "a parameter of spatial axis 0 is negative");
    let index = |mode, data_type, wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[1, 1, 4, 4]);
            let (_, index) = graph.resample_with_index(Resample::new(mode, &[2, 2]), x, data_type);
            graph.output(index, Tensor::default().named("index").typed(data_type));
        });
        assert_says(&found, wanted);
    };
    index(ResampleMode::AVGPOOL_INCLUDE_PADDING, DataType::INT32, "tensor \"index\": only a maximum has an index");
    index(ResampleMode::MAXPOOL, DataType::FLOAT, "tensor \"index\": an index must be INT8 or INT32");
    let found = refusal(|graph| {
        let dy = add(graph, "dy", &[1, 1, 3, 3]);
        graph.resample_backward(Resample::new(ResampleMode::MAXPOOL, &[2, 2]), dy, None, &[1, 1, 4, 4]);
    });
    assert_says(&found, "tensor \"dy\": its extents are [1, 1, 3, 3], expected [1, 1, 2, 2]");
}

#[test]
fn attention() {
    let says = |[q, k, v]: [&[i64]; 3], change: fn(&mut Graph, &mut Attention), wanted: &str| {
        let found = refusal(|graph| {
            let qkv = [add(graph, "q", q), add(graph, "k", k), add(graph, "v", v)];
            let mut what = Attention::default();
            change(graph, &mut what);
            graph.attention(what, qkv);
        });
        assert_says(&found, wanted);
    };
    let good: [&[i64]; 3] = [&[2, 4, 5, 8], &[2, 2, 7, 8], &[2, 2, 7, 3]];
    let none: fn(&mut Graph, &mut Attention) = |_, _| {};
    says(good, none, "nothing");
    says([&[4, 5, 8], good[1], good[2]], none, "tensor \"q\": it must have four axes");
    says([&[2, 3, 5, 8], good[1], good[2]], none, "tensor \"k\": [2, 2, 7, 8] does not match queries of [2, 3, 5, 8]");
    says([good[0], &[2, 2, 7, 9], good[2]], none, "tensor \"k\": [2, 2, 7, 9] does not match");
    says([good[0], good[1], &[2, 2, 6, 3]], none, "tensor \"v\": [2, 2, 6, 3] does not match keys of");
    says(
        good,
        |g, a| a.mask = Some(add(g, "mask", &[5, 6])),
        "tensor \"mask\": [5, 6] does not broadcast to scores of [5, 7]",
    );
    says(good, |g, a| a.scale_by = Some(add(g, "scale", &[2])), "tensor \"scale\": it must be a scalar");
    says(
        good,
        |g, a| (a.scale, a.scale_by) = (Some(0.5), Some(add(g, "scale", &[1]))),
        "tensor \"scale\": a scale is also set as a number",
    );
    says(
        good,
        |g, a| a.lengths = Some([add(g, "queries", &[2, 1, 1, 1]), add(g, "keys", &[2])]),
        "tensor \"keys\": its extents are [2], expected [2, 1, 1, 1]",
    );
    says(good, |_, a| a.left_bound = Some(0), "tensor \"q\": a left bound of 0 is below 1");
    says(good, |_, a| a.right_bound = Some(-1), "tensor \"q\": a right bound of -1 is below 0");
    says(good, |_, a| (a.is_causal, a.right_bound) = (true, Some(1)), "causal attention does not attend to keys after");
    says(
        good,
        |g, a| {
            let [seed, offset] = ["seed", "offset"].map(|name| add(g, name, &[1]));
            a.dropout = Some(Dropout { probability: 1.0, seed, offset });
        },
        "tensor \"q\": a dropout probability of 1 is not in 0..1",
    );
    let found = refusal(|graph| {
        let qkv = [add(graph, "q", good[0]), add(graph, "k", good[1]), add(graph, "v", good[2])];
        let [o, d_o] = [add(graph, "o", &[2, 4, 5, 3]), add(graph, "do", &[2, 4, 5, 8])];
        let statistics = add(graph, "statistics", &[2, 4, 5, 1]);
        graph.attention_backward(Attention::default(), qkv, [o, statistics], d_o);
    });
    assert_says(&found, "tensor \"do\": its extents are [2, 4, 5, 8], expected [2, 4, 5, 3]");
}

#[test]
fn blocks_experts_and_custom_operations() {
    let quantize = |block: i32, axis: Option<i64>, wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[4, 64]);
            graph.block_scale_quantize(x, [DataType::FP8_E4M3, DataType::FP8_E8M0], block, axis);
        });
        assert_says(&found, wanted);
    };
    quantize(32, None, "nothing");
    quantize(0, None, "tensor \"x\": extent 64 cannot be divided into blocks of 0");
    quantize(24, None, "tensor \"x\": extent 64 cannot be divided into blocks of 24");
    quantize(2, Some(2), "tensor \"x\": it has no axis 2");
    quantize(2, Some(-1), "tensor \"x\": it has no axis -1");
    let dequantize = |scale: &[i64], blocks: &[i32], wanted: &str| {
        let found = refusal(|graph| {
            let [x, scale] = [add(graph, "x", &[4, 64]), add(graph, "scale", scale)];
            graph.block_scale_dequantize(x, scale, blocks);
        });
        assert_says(&found, wanted);
    };
    dequantize(&[4, 2], &[32], "nothing");
    dequantize(&[4, 2], &[], "tensor \"x\": blocks of [] do not match its 2 axes");
    dequantize(&[4, 2], &[1, 1, 32], "tensor \"x\": blocks of [1, 1, 32] do not match");
    dequantize(&[4, 2], &[-1], "tensor \"x\": blocks of [-1] do not match");
    dequantize(&[8], &[32], "tensor \"scale\": it has 1 axes, but the data has 2");
    let experts = |what: MoeGroupedMatmul, weight: &[i64], wanted: &str| {
        let found = refusal(|graph| {
            let [token, weight] = [add(graph, "token", &[1, 10, 8]), add(graph, "weight", weight)];
            let offsets = add(graph, "offsets", &[3, 1, 1]);
            graph.moe_grouped_matmul(what, [token, weight, offsets], None);
        });
        assert_says(&found, wanted);
    };
    let plain = MoeGroupedMatmul::default();
    experts(plain, &[3, 8, 5], "nothing");
    experts(plain, &[3, 7, 5], "tensor \"weight\": its 7 rows do not match the tokens' 8 columns");
    experts(plain, &[4, 8, 5], "tensor \"offsets\": 3 offsets for 4 experts");
    experts(plain, &[8, 5], "tensor \"weight\": it must have three axes");
    let gathers = MoeGroupedMatmul { mode: MoeGroupedMatmulMode::GATHER, ..plain };
    experts(gathers, &[3, 8, 5], "tensor \"token\": mode GATHER needs the rows of the tokens");
    let custom = |id: &str, results: Vec<Tensor>, wanted: &str| {
        let found = refusal(|graph| {
            let x = add(graph, "x", &[2]);
            graph.custom(id, b"", &[x], results);
        });
        assert_says(&found, wanted);
    };
    custom("", vec![Tensor::new(&[2])], "custom operation: it needs an id and at least one result");
    custom("plugin.nothing", vec![], "custom operation: it needs an id and at least one result");
    custom("plugin.vague", vec![Tensor::default().named("y")], "tensor \"y\": its extents cannot be inferred");
}

#[test]
fn tensors_of_other_graphs_and_of_no_graph() {
    let mut other = graph();
    let foreign = (0..5).map(|_| add(&mut other, "foreign", &[2])).last().unwrap();
    let found = refusal(|graph| {
        let x = add(graph, "x", &[2]);
        graph.pointwise(PointwiseMode::ADD, &[x, foreign]);
    });
    assert_says(&found, "pointwise: TensorId(4) is a tensor of another graph");
    let found = refusal(|graph| {
        let x = add(graph, "x", &[2]);
        graph.pointwise(PointwiseMode::ABS, &[x]);
        graph.output(foreign, Tensor::default());
    });
    assert_says(&found, "graph \"test\": TensorId(4) is not the result of any of its operations");
    let found = refusal(|graph| {
        let x = add(graph, "x", &[2]);
        graph.pointwise(PointwiseMode::ABS, &[x]);
        graph.output(x, Tensor::default());
    });
    assert_says(&found, "is not the result of any of its operations");
    let small = graph();
    assert_eq!((small.extents(foreign), small.uid(foreign)), ((&[][..], &[][..]), None));
}

/// Zero strides allow extents whose product overflows.
#[test]
fn extents_that_overflow() {
    const MANY: i64 = 1 << 40;
    let found = refusal(|graph| {
        let x = graph.tensor(Tensor::new(&[MANY, 3, MANY]).strides(&[0, 1, 0]));
        let [scale, bias] = ["scale", "bias"].map(|name| add(graph, name, &[1, 3, 1]));
        let epsilon = graph.tensor(Tensor::scalar(Scalar::F32(1e-5)));
        graph.batch_norm_training(x, [scale, bias], epsilon, None);
    });
    assert_says(&found, "overflow");
    let found = refusal(|graph| {
        let [d_y, token] = [add(graph, "dy", &[1, 4, 8]), add(graph, "token", &[1, 4, 8])];
        let offsets = graph.tensor(Tensor::new(&[MANY, MANY]).strides(&[0, 0]).named("offsets"));
        graph.moe_grouped_matmul_backward([d_y, token, offsets]);
    });
    assert_says(&found, "tensor \"offsets\": extents [1099511627776, 1099511627776] overflow");
}

#[test]
fn scalars_in_the_graph_and_at_run_time() {
    let found = refusal(|graph| {
        let x = add(graph, "x", &[2, 2]);
        let two = graph.tensor(Tensor::scalar(Scalar::F32(2.0)).typed(DataType::DOUBLE).named("two"));
        graph.pointwise(PointwiseMode::MUL, &[x, two]);
    });
    assert_says(&found, "tensor \"two\": its value is FLOAT, but its type is DOUBLE");
    let found = refusal(|graph| {
        let [x, late] = [add(graph, "x", &[2, 2]), graph.tensor(Tensor::new(&[2, 1]).by_value().named("late"))];
        graph.pointwise(PointwiseMode::MUL, &[x, late]);
    });
    assert_says(&found, "tensor \"late\": only a scalar can be passed by value");
    let found = refusal(|graph| {
        let x = add(graph, "x", &[2, 2]);
        let y = graph.pointwise(PointwiseMode::ABS, &[x]);
        graph.output(y, Tensor::default().named("y").uid(0));
        graph.tensor(Tensor::new(&[1]).uid(0).named("twin"));
    });
    assert_says(&found, "tensor \"twin\": uid 0 is also used by another tensor");
}
