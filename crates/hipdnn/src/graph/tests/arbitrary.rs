//! Every graph that a caller can describe is either accepted or rejected with an error.

use proptest::prelude::*;

use super::*;
use crate::sys::{ConvolutionMode, MoeGroupedMatmulMode, PointwiseMode, ReduceOp, ResampleMode};

fn number() -> impl Strategy<Value = i64> {
    let odd = prop::sample::select(vec![0, -1, i64::MAX, i64::MIN]);
    prop_oneof![20 => 1i64..5, 2 => Just(1i64 << 40), 1 => odd]
}

fn numbers() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), 0..6)
}

fn tensor() -> impl Strategy<Value = Tensor> {
    // Strides of zero make large extents possible.
    let strides = prop_oneof![3 => Just(None), 2 => Just(Some(vec![0; 6])), 1 => numbers().prop_map(Some)];
    let data_type = prop::option::of(prop::sample::select(DataType::ALL.to_vec()));
    let rare = |strategy: BoxedStrategy<i64>| prop::option::weighted(0.1, strategy);
    let parts = (numbers(), strides, rare(number().boxed()), data_type, 0u8..16, rare(number().boxed()));
    parts.prop_map(|(dims, strides, uid, data_type, kind, alignment)| {
        let mut tensor = if kind == 0 { Tensor::scalar(Scalar::F32(1.0)) } else { Tensor::new(&dims) };
        if let Some(strides) = strides {
            let rank = tensor.dims.len().min(strides.len());
            tensor = tensor.strides(&strides[..rank]);
        }
        Tensor { uid, data_type: data_type.or(tensor.data_type), by_value: kind == 1, alignment, ..tensor }
    })
}

/// Adds the operation with this number, using the given tensors and parameters.
fn add(graph: &mut Graph, which: u8, at: [TensorId; 6], [a, b]: [Vec<i64>; 2], n: i64) -> TensorId {
    let [t0, t1, t2, t3, t4, t5] = at;
    let (small, axes) = (n as i32, n.unsigned_abs() as usize % 8);
    let convolution = Convolution {
        pre_padding: a.clone(),
        post_padding: b.clone(),
        strides: b.clone(),
        dilations: a.clone(),
        mode: ConvolutionMode(small),
    };
    let window = Resample {
        window: a.clone(),
        strides: b.clone(),
        pre_padding: b.clone(),
        post_padding: a.clone(),
        mode: ResampleMode(small),
    };
    let attention = Attention {
        scale_by: (n > 0).then_some(t3),
        left_bound: Some(n),
        mask: Some(t4),
        is_causal: n < 0,
        lengths: (n == 1).then_some([t4, t5]),
        dropout: (n == 2).then_some(Dropout { probability: n as f32, seed: t4, offset: t5 }),
        ..Attention::default()
    };
    let experts = MoeGroupedMatmul {
        mode: MoeGroupedMatmulMode(small % 3),
        top_k: small,
        token_index: (n > 0).then_some(t4),
        token_ks: None,
    };
    match which {
        0 => graph.convolution(t0, t1, convolution),
        1 => graph.convolution_to_data(t0, t1, &a, convolution),
        2 => graph.convolution_to_filter(t0, t1, &a, convolution),
        3 => graph.matmul(t0, t1),
        4 => graph.pointwise(Pointwise { axis: Some(n), ..PointwiseMode(small).into() }, &at[..axes % 7]),
        5 => graph.reduction(ReduceOp(small), t0, &a),
        6 => graph.layer_norm_training(t0, [t1, t2], t3, axes).0,
        7 => graph.rms_norm(t0, t1, Some(t2), t3, axes),
        8 => graph.layer_norm_backward([t0, t1, t2], [t3, t4], axes)[0],
        9 => graph.rms_norm_backward([t0, t1, t2], t3, axes)[1],
        10 => graph.batch_norm_inference(t0, t1, BatchNormStatistics::Variance { variance: t2, epsilon: t3 }, [t4, t5]),
        11 => {
            let running = RunningStatistics { mean: t3, variance: t4, momentum: t5 };
            graph.batch_norm_training(t0, [t1, t2], t3, Some(running)).0
        }
        12 => graph.batch_norm_backward([t0, t1, t2], Some([t3, t4]))[0],
        13 => graph.resample(window, t0),
        14 => graph.resample_with_index(window, t0, DataType(small)).1,
        15 => graph.resample_backward(window, t0, Some(t1), &a),
        16 => graph.attention_training(attention, [t0, t1, t2]).1,
        17 => graph.attention_backward(attention, [t0, t1, t2], [t3, t4], t5)[2],
        18 => graph.block_scale_quantize(t0, [DataType::FP8_E4M3; 2], small, Some(n))[0],
        19 => graph.block_scale_quantize_transposed(t0, [DataType::FP8_E4M3; 2], small, n)[1],
        20 => graph.block_scale_dequantize(t0, t1, &a.iter().map(|&n| n as i32).collect::<Vec<_>>()),
        21 => graph.moe_grouped_matmul(experts, [t0, t1, t2], (n > 0).then_some(&a)),
        22 => graph.moe_grouped_matmul_backward([t0, t1, t2]),
        _ => graph.custom("a.b", b"c", &[t0], vec![Tensor::new(&a)])[0],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_graph_is_accepted_or_rejected_with_a_message(
        tensors in prop::collection::vec(tensor(), 1..6),
        steps in prop::collection::vec((0u8..24, any::<[u8; 6]>(), [numbers(), numbers()], number()), 1..4),
        (is_output, wanted) in (any::<bool>(), tensor()),
    ) {
        let mut graph = graph();
        let mut known: Vec<TensorId> = tensors.into_iter().map(|tensor| graph.tensor(tensor)).collect();
        // A tensor that belongs to no graph.
        known.push(TensorId(1000));
        for (which, at, lists, n) in steps {
            let made = add(&mut graph, which, at.map(|at| known[at as usize % known.len()]), lists, n);
            known.push(made);
            if is_output {
                graph.output(made, wanted.clone());
            }
        }
        match graph.validate() {
            Ok(()) => {
                let all = graph.operations.iter().flat_map(Operation::tensors);
                let is_whole = |id| {
                    let (dims, strides) = graph.extents(id);
                    graph.uid(id).is_some() && !dims.is_empty() && dims.len() == strides.len()
                };
                prop_assert!(all.into_iter().all(is_whole));
            }
            Err(Error::Invalid { subject, rule }) => prop_assert!(!subject.is_empty() && !rule.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
