//! Inferred extents and strides, compared with counting.

use proptest::prelude::*;

use super::*;
use crate::sys::{MoeGroupedMatmulMode, PointwiseMode, ResampleMode};

/// The number of positions of a window of `taps` elements, `dilation` apart, in `extent` padded elements, by trying
/// all.
fn places(extent: i64, taps: i64, stride: i64, dilation: i64) -> i64 {
    (0..extent).step_by(stride as usize).filter(|start| start + dilation * (taps - 1) < extent).count() as i64
}

/// True if no two elements share an offset and there are no gaps.
fn is_packed(dims: &[i64], strides: &[i64]) -> bool {
    let mut places = vec![0];
    for (&extent, &stride) in dims.iter().zip(strides) {
        places = places.iter().flat_map(|place| (0..extent).map(move |at| place + at * stride)).collect();
    }
    places.sort_unstable();
    places.into_iter().eq(0..dims.iter().product())
}

proptest! {
    #[test]
    fn convolutions_and_pools_have_one_result_per_window_position(
        batch in 1i64..3, groups in 1i64..3, inputs in 1i64..3, outputs in 1i64..3, nhwc in any::<bool>(),
        axes in prop::collection::vec((1i64..8, 1i64..4, 1i64..4, 1i64..3, 0i64..3, 0i64..3), 1..4),
    ) {
        let mut parameters = Convolution::new(axes.len());
        let (mut x, mut w, mut y) = (vec![batch, groups * inputs], vec![groups * outputs, inputs], vec![batch, groups * outputs]);
        for (axis, &(extent, taps, stride, dilation, pre, post)) in axes.iter().enumerate() {
            (parameters.strides[axis], parameters.dilations[axis]) = (stride, dilation);
            (parameters.pre_padding[axis], parameters.post_padding[axis]) = (pre, post);
            x.push(extent);
            w.push(taps);
            y.push(places(extent + pre + post, taps, stride, dilation));
        }
        let mut graph = graph();
        let layout = |tensor: Tensor| if nhwc { tensor.channels_last() } else { tensor };
        let [xi, wi] = [graph.tensor(layout(Tensor::new(&x))), graph.tensor(Tensor::new(&w))];
        let made = graph.convolution(xi, wi, parameters.clone());
        let fits = !y.contains(&0);
        prop_assert_eq!(graph.validate().is_ok(), fits);
        if fits {
            let (dims, strides) = graph.extents(made);
            prop_assert_eq!(dims, &y[..]);
            let wanted = layout(Tensor::new(&y)).strides;
            prop_assert!(is_packed(dims, strides) && (strides == wanted || x.contains(&1) || y.contains(&1)));
        }

        let mut graph = super::graph();
        let xi = graph.tensor(layout(Tensor::new(&x)));
        let mut window = Resample::new(ResampleMode::MAXPOOL, &w[2..]);
        window.strides = parameters.strides.clone();
        (window.pre_padding, window.post_padding) = (parameters.pre_padding, parameters.post_padding);
        let pooled: Vec<i64> =
            axes.iter().map(|&(extent, taps, stride, _, pre, post)| places(extent + pre + post, taps, stride, 1)).collect();
        let made = graph.resample(window, xi);
        prop_assert_eq!(graph.validate().is_ok(), !pooled.contains(&0));
        if !pooled.contains(&0) {
            prop_assert_eq!(&graph.extents(made).0[2..], &pooled[..]);
        }
    }

    #[test]
    fn broadcasts_take_the_larger_extent_from_the_left(
        dims in prop::collection::vec(1i64..5, 1..5), keep in prop::collection::vec(any::<bool>(), 4), shorter in 0usize..4,
    ) {
        let small: Vec<i64> = dims.iter().zip(&keep).map(|(&extent, &keep)| if keep { extent } else { 1 }).collect();
        let small = &small[..small.len() - shorter.min(small.len() - 1)];
        let mut graph = graph();
        let [a, b] = [graph.tensor(Tensor::new(&dims)), graph.tensor(Tensor::new(small))];
        let sum = graph.pointwise(PointwiseMode::ADD, &[b, a]);
        graph.validate().unwrap();
        prop_assert_eq!(graph.extents(sum), graph.extents(a));
    }

    #[test]
    fn numbers_are_the_smallest_that_are_free(given in prop::collection::vec(prop::option::of(0i64..12), 1..8)) {
        let mut graph = graph();
        let tensor = |uid: &Option<i64>| uid.map_or(Tensor::new(&[2]), |uid| Tensor::new(&[2]).uid(uid));
        let tensors: Vec<TensorId> = given.iter().map(|uid| graph.tensor(tensor(uid))).collect();
        graph.custom("test.all", b"", &tensors, vec![Tensor::new(&[2])]);
        let mut chosen: Vec<i64> = given.iter().flatten().copied().collect();
        chosen.sort_unstable();
        let is_unique = chosen.windows(2).all(|pair| pair[0] != pair[1]);
        prop_assert_eq!(graph.validate().is_ok(), is_unique);
        if is_unique {
            let free: Vec<i64> = (0..).filter(|uid| !chosen.contains(uid)).take(given.len()).collect();
            let mut free = free.into_iter();
            for (id, uid) in tensors.iter().zip(given) {
                prop_assert_eq!(graph.uid(*id), uid.or_else(|| free.next()));
            }
        }
    }
}

#[test]
fn gradients_of_attention_have_the_shapes_of_their_inputs() {
    let mut graph = graph();
    // Queries are stored as [batch, sequence, heads, depth], as a projection produces them.
    let q = graph.tensor(Tensor::new(&[2, 4, 5, 8]).strides(&[160, 8, 32, 1]));
    let [k, v] = [[2, 2, 7, 8], [2, 2, 7, 3]].map(|dims| graph.tensor(Tensor::new(&dims)));
    let (o, statistics) = graph.attention_training(Attention { is_causal: true, ..Attention::default() }, [q, k, v]);
    let d_o = graph.tensor(Tensor::new(&[2, 4, 5, 3]));
    let made = graph.attention_backward(Attention::default(), [q, k, v], [o, statistics], d_o);
    graph.validate().unwrap();
    assert_eq!((graph.extents(o).0, graph.extents(statistics).0), (&[2, 4, 5, 3][..], &[2, 4, 5, 1][..]));
    for (gradient, of) in made.into_iter().zip([q, k, v]) {
        assert_eq!(graph.extents(gradient), graph.extents(of));
    }
}

#[test]
fn blocks_have_one_scale_each_and_may_be_innermost() {
    let types = [DataType::FP8_E4M3, DataType::FP8_E8M0];
    let mut graph = graph();
    let x = graph.tensor(Tensor::new(&[4, 64, 3]));
    let [small, scale] = graph.block_scale_quantize_transposed(x, types, 32, 1);
    graph.block_scale_dequantize(small, scale, &[32, 1]);
    graph.validate().unwrap();
    assert_eq!(graph.extents(small), (&[4, 64, 3][..], &[192, 1, 64][..]), "axis 1 is innermost");
    assert_eq!(graph.extents(scale).0, [4, 2, 3]);
}

#[test]
fn experts_give_one_row_for_each_token() {
    let mut graph = graph();
    let [token, weight] = [&[1, 10, 8], &[3, 8, 5]].map(|dims| graph.tensor(Tensor::new(dims)));
    let offsets = graph.tensor(Tensor::new(&[3, 1, 1]).typed(DataType::INT32));
    let y = graph.moe_grouped_matmul(MoeGroupedMatmul::default(), [token, weight, offsets], None);
    let d_weight = graph.moe_grouped_matmul_backward([y, token, offsets]);
    let index = graph.tensor(Tensor::new(&[1, 20, 1]).typed(DataType::INT32));
    let gather = MoeGroupedMatmulMode::GATHER;
    let what = MoeGroupedMatmul { mode: gather, top_k: 2, token_index: Some(index), token_ks: None };
    let gathered = graph.moe_grouped_matmul(what, [token, weight, offsets], Some(&[1, 20, 5]));
    graph.validate().unwrap();
    assert_eq!(graph.extents(y).0, [1, 10, 5]);
    assert_eq!(graph.extents(d_weight).0, [3, 8, 5]);
    assert_eq!(graph.extents(gathered).0, [1, 20, 5]);
}

#[test]
fn a_convolution_with_bias_and_relu_is_inferred_in_the_datas_layout() {
    let mut graph = graph();
    let x = graph.tensor(Tensor::new(&[2, 8, 16, 16]).channels_last());
    let w = graph.tensor(Tensor::new(&[12, 4, 3, 3]));
    let bias = graph.tensor(Tensor::new(&[1, 12, 1, 1]));
    let parameters = Convolution::new(2).padding(&[1, 1]).strides(&[2, 2]);
    let y = graph.convolution(x, w, parameters);
    let sum = graph.pointwise(PointwiseMode::ADD, &[y, bias]);
    let relu = graph.pointwise(PointwiseMode::RELU_FWD, &[sum]);
    graph.output(relu, Tensor::default());
    graph.validate().unwrap();
    assert_eq!(graph.extents(relu), (&[2, 12, 8, 8][..], &[768, 1, 96, 12][..]));
    assert_eq!([x, w, bias, y].map(|id| graph.uid(id)), [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn batches_of_a_product_repeat_where_they_divide() {
    let mut graph = graph();
    let a = graph.tensor(Tensor::new(&[6, 3, 5]));
    let b = graph.tensor(Tensor::new(&[2, 5, 7]));
    let c = graph.matmul(a, b);
    graph.validate().unwrap();
    assert_eq!(graph.extents(c).0, [6, 3, 7]);
}
