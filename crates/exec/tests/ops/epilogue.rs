//! Checks that maps after products are fused where possible, without changing a bit of the result.
use graph::ops::Attribute;
use graph::{DType, Tensor, ValueId};
use proptest::prelude::*;

use crate::chain::{Chain, prims};
use crate::common::{assert_close, device, numbers, random, tensor};

fn noise(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    tensor(dtype, shape, &random(shape.iter().product(), seed))
}

/// Builds `product → map` twice: as is, and with the product as a separate output, which prevents fusion. The host's
/// own code must give the same bits for both. On a GPU, a separate product may be summed in another order, and hipDNN
/// does not round in between. Returns the primitives of the first.
fn check(product: impl Fn(&mut Chain) -> ValueId, map: impl Fn(&mut Chain, ValueId) -> ValueId) -> Vec<&'static str> {
    let mut chain = Chain::default();
    let made = product(&mut chain);
    let out = map(&mut chain, made);
    let (plan, merged) = chain.run(&[out]);
    let mut chain = Chain::default();
    let made = product(&mut chain);
    let out = map(&mut chain, made);
    let (_, apart) = chain.run(&[out, made]);
    if device::keeps_bits() {
        assert!(apart[0].bytes() == merged[0].bytes(), "{:?}", plan.steps);
    } else {
        let relative = if apart[0].dtype() == DType::F16 { 4e-3 } else { 2e-5 };
        assert_close(&numbers(&merged[0]), &numbers(&apart[0]), relative);
    }
    prims(&plan)
}

fn matmul(dtype: DType, a: &[usize], b: &[usize]) -> impl Fn(&mut Chain) -> ValueId + use<> {
    let (a, b) = (noise(dtype, a, 1), noise(dtype, b, 2));
    move |chain: &mut Chain| {
        let (a, b) = (chain.input(a.clone()), chain.constant(b.clone()));
        chain.node("MatMul", &[a, b], dtype)
    }
}

fn conv(dtype: DType, x: &[usize], w: &[usize], stride: i64, group: i64) -> impl Fn(&mut Chain) -> ValueId + use<> {
    let (x, w, bias) = (noise(dtype, x, 3), noise(dtype, w, 4), noise(dtype, &w[..1], 5));
    let attributes = [
        ("strides", Attribute::Ints(vec![stride; 2])),
        ("pads", Attribute::Ints(vec![1; 4])),
        ("group", Attribute::Int(group)),
    ];
    move |chain: &mut Chain| {
        let (x, w, bias) = (chain.input(x.clone()), chain.constant(w.clone()), chain.constant(bias.clone()));
        chain.node_with("Conv", &attributes, &[x, w, bias], dtype)
    }
}

#[test]
fn bias_activation_and_residual_are_merged_into_a_product() {
    for dtype in [DType::F32, DType::F16, DType::F64] {
        for (m, k, n) in [(1, 70, 130), (5, 33, 40), (37, 300, 65), (130, 64, 3)] {
            let product = matmul(dtype, &[m, k], &[k, n]);
            let bias = check(&product, |chain, made| {
                let bias = chain.constant(noise(dtype, &[n], 6));
                let sum = chain.node("Add", &[made, bias], dtype);
                chain.node("Relu", &[sum], dtype)
            });
            assert_eq!(bias, ["fused_matmul"]);
            let by_row = check(&product, |chain, made| {
                let bias = chain.input(noise(dtype, &[m, 1], 7));
                let sum = chain.node("Add", &[bias, made], dtype);
                chain.node("Gelu", &[sum], dtype)
            });
            assert_eq!(by_row, ["fused_matmul"]);
            let residual = check(&product, |chain, made| {
                let residual = chain.input(noise(dtype, &[m, n], 8));
                chain.node("Add", &[made, residual], dtype)
            });
            assert_eq!(residual, ["fused_matmul"]);
        }
    }
}

#[test]
fn a_map_of_a_part_of_a_product_stays_a_step() {
    let found = check(matmul(DType::F32, &[4, 3], &[3, 5]), |chain, made| {
        let [start, end] = [0, 2].map(|row| chain.constant(Tensor::from_i64s(&[row])));
        let rows = chain.node("Slice", &[made, start, end], DType::F32);
        chain.node("Exp", &[rows], DType::F32)
    });
    assert_eq!(found, ["matmul", "map"]);
}

#[test]
fn epilogues_of_convolutions_follow_channels_and_positions() {
    for (dtype, x, w, stride, group) in [
        (DType::F32, [2, 8, 9, 11], [13, 8, 3, 3], 1, 1),
        (DType::F32, [1, 8, 20, 20], [16, 4, 3, 3], 2, 2),
        (DType::F32, [2, 6, 40, 40], [12, 1, 3, 3], 1, 6),
        (DType::F16, [1, 8, 9, 9], [5, 8, 3, 3], 1, 1),
        (DType::F64, [1, 5, 9, 70], [30, 5, 1, 1], 1, 1),
    ] {
        let product = conv(dtype, &x, &w, stride, group);
        let out = |extent: usize| (extent + 2 - w[2]) / stride as usize + 1;
        let (maps, height, width) = (w[0], out(x[2]), out(x[3]));
        let bounded = check(&product, |chain, made| chain.node("Relu", &[made], dtype));
        assert_eq!(bounded, ["fused_conv"]);
        let scaled = check(&product, |chain, made| {
            let (scale, bias) = (noise(dtype, &[maps, 1, 1], 9), noise(dtype, &[maps, 1, 1], 10));
            let (scale, bias) = (chain.constant(scale), chain.constant(bias));
            let scaled = chain.node("Mul", &[made, scale], dtype);
            let sum = chain.node("Add", &[scaled, bias], dtype);
            chain.node("Relu", &[sum], dtype)
        });
        assert_eq!(scaled, ["fused_conv"]);
        let residual = check(&product, |chain, made| {
            let residual = chain.input(noise(dtype, &[x[0], maps, height, width], 11));
            let row = chain.input(noise(dtype, &[width], 12));
            let sum = chain.node("Add", &[made, residual], dtype);
            let sum = chain.node("Mul", &[sum, row], dtype);
            chain.node("Sigmoid", &[sum], dtype)
        });
        assert_eq!(residual, ["fused_conv"]);
    }
}

/// hipDNN libraries do not have this activation and may take only the convolution: then it is their step followed by
/// our map.
#[test]
fn an_epilogue_that_libraries_lack_is_still_merged() {
    let found = check(conv(DType::F32, &[2, 3, 9, 8], &[5, 3, 3, 3], 1, 1), |chain, made| {
        chain.node("Mish", &[made], DType::F32)
    });
    assert_eq!(found, ["fused_conv"]);
}

#[test]
fn a_transposed_convolution_applies_its_epilogue_to_every_phase() {
    let (x, w) = (noise(DType::F32, &[1, 4, 5, 6], 13), noise(DType::F32, &[4, 7, 3, 3], 14));
    let product = |chain: &mut Chain| {
        let (x, w) = (chain.input(x.clone()), chain.constant(w.clone()));
        chain.node_with("ConvTranspose", &[("strides", Attribute::Ints(vec![2, 2]))], &[x, w], DType::F32)
    };
    let found = check(product, |chain, made| {
        let residual = chain.input(noise(DType::F32, &[1, 7, 11, 13], 15));
        let sum = chain.node("Add", &[made, residual], DType::F32);
        chain.node("Tanh", &[sum], DType::F32)
    });
    assert_eq!(found, ["fused_conv_transpose"]);
}

#[test]
fn a_cast_and_a_transpose_of_batch_and_rows_are_part_of_the_product() {
    let cast = check(matmul(DType::F32, &[9, 20], &[20, 50]), |chain, made| {
        chain.node_with("Cast", &[("to", Attribute::Int(10))], &[made], DType::F16)
    });
    assert_eq!(cast, ["fused_matmul"]);
    let turned = check(matmul(DType::F32, &[2, 9, 20], &[2, 20, 48]), |chain, made| {
        let turned = chain.node_with("Transpose", &[("perm", Attribute::Ints(vec![1, 0, 2]))], &[made], DType::F32);
        chain.node("Relu", &[turned], DType::F32)
    });
    assert_eq!(turned, ["fused_matmul"]);
}

#[test]
fn a_result_with_other_readers_stays_a_step() {
    let mut chain = Chain::default();
    let made = matmul(DType::F32, &[5, 6], &[6, 7])(&mut chain);
    let one = chain.node("Relu", &[made], DType::F32);
    let two = chain.node("Softmax", &[made], DType::F32);
    let (plan, _) = chain.run(&[one, two]);
    assert_eq!(prims(&plan), ["matmul", "map", "softmax"]);
    let mut chain = Chain::default();
    let made = matmul(DType::F32, &[5, 6], &[6, 7])(&mut chain);
    let out = chain.node("Relu", &[made], DType::F32);
    let (plan, _) = chain.run(&[made, out]);
    assert_eq!(prims(&plan), ["matmul", "map"]);
}

#[test]
fn a_result_that_is_read_twice_or_broadcast_stays_a_step() {
    // A square plus its transpose.
    let product = matmul(DType::F32, &[6, 6], &[6, 6]);
    let found = check(&product, |chain, made| {
        let turned = chain.node("Transpose", &[made], DType::F32);
        chain.node("Add", &[made, turned], DType::F32)
    });
    assert_eq!(found, ["matmul", "map"]);
    // A row of results broadcast to several rows.
    let found = check(matmul(DType::F32, &[1, 6], &[6, 6]), |chain, made| {
        let other = chain.input(noise(DType::F32, &[4, 6], 16));
        chain.node("Add", &[made, other], DType::F32)
    });
    assert_eq!(found, ["matmul", "map"]);
    // The columns of one product become the rows of several heads.
    let found = check(matmul(DType::F32, &[2, 9, 20], &[20, 48]), |chain, made| {
        let shape = chain.constant(Tensor::from_i64s(&[2, 9, 4, 12]));
        let heads = chain.node("Reshape", &[made, shape], DType::F32);
        let turned = chain.node_with("Transpose", &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))], &[heads], DType::F32);
        chain.node("Relu", &[turned], DType::F32)
    });
    assert_eq!(found, ["matmul", "map"]);
    // Columns would be stored with a large stride.
    let found = check(product, |chain, made| {
        let turned = chain.node("Transpose", &[made], DType::F32);
        chain.node("Relu", &[turned], DType::F32)
    });
    assert_eq!(found, ["matmul", "map"]);
}

#[test]
fn sums_of_integers_wrap_before_the_epilogue() {
    let (a, b) = (tensor(DType::I32, &[3, 4], &[65536.0; 12]), tensor(DType::I32, &[4, 5], &[65536.0; 20]));
    let product = |chain: &mut Chain| {
        let (a, b) = (chain.input(a.clone()), chain.constant(b.clone()));
        chain.node("MatMul", &[a, b], DType::I32)
    };
    let found = check(product, |chain, made| {
        let one = chain.input(tensor(DType::I32, &[5], &[1.0; 5]));
        chain.node("Add", &[made, one], DType::I32)
    });
    assert_eq!(found, ["fused_matmul"]);
}

#[test]
fn the_later_of_two_products_absorbs_the_sum() {
    let mut chain = Chain::default();
    let one = matmul(DType::F32, &[5, 6], &[6, 7])(&mut chain);
    let two = matmul(DType::F32, &[5, 8], &[8, 7])(&mut chain);
    let out = chain.node("Add", &[one, two], DType::F32);
    let (plan, _) = chain.run(&[out]);
    assert_eq!(prims(&plan), ["matmul", "fused_matmul"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn batches_with_operands_of_any_broadcast_keep_every_bit(
        (batch, m, k, n) in (1usize..4, 1usize..30, 1usize..40, 1usize..70),
        wide in prop::array::uniform3(any::<bool>()),
        shared in any::<bool>(),
    ) {
        let a = noise(DType::F32, &[batch, m, k], 17);
        let b = noise(DType::F32, &[if shared { 1 } else { batch }, k, n], 18);
        let shape: Vec<usize> = [batch, m, n].iter().zip(wide).map(|(&extent, wide)| if wide { extent } else { 1 }).collect();
        let product = |chain: &mut Chain| {
            let (a, b) = (chain.input(a.clone()), chain.input(b.clone()));
            chain.node("MatMul", &[a, b], DType::F32)
        };
        check(product, |chain, made| {
            let other = chain.input(noise(DType::F32, &shape, 19));
            let product = chain.node("Mul", &[made, other], DType::F32);
            chain.node("Tanh", &[product], DType::F32)
        });
    }
}
