//! Tests the GPU device with hipDNN on the host driver: our kernels run in the wave simulator, hipDNN's steps in
//! libhipdnn_host.

use std::sync::Arc;

use exec::CompiledPartition;
use exec::gpu::GpuSettings;
use exec::host::HostDevice;
use graph::ops::Attribute;
use graph::{DType, Graph, Tensor};

use crate::build::Build;
use crate::common;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};
use crate::dnn;

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// Convolutions with everything fused into them (hipDNN cannot run one of them), a pool, a norm and a product.
fn network() -> Graph {
    let mut build = Build::default();
    let x = build.input();
    let pads = [("pads", Attribute::Ints(vec![1; 4]))];
    let (w, bias) = (build.constant(floats(&[6, 3, 3, 3], 1)), build.constant(floats(&[6], 2)));
    let first = build.with("Conv", &[x, w, bias], &pads);
    let first = build.node("Relu", &[first]);
    let w = build.constant(floats(&[6, 6, 3, 3], 3));
    let second = build.with("Conv", &[first, w], &pads);
    let sum = build.node("Add", &[second, first]);
    let sum = build.node("HardSwish", &[sum]);
    let w = build.constant(floats(&[4, 6, 1, 1], 4));
    let third = build.node("Conv", &[sum, w]);
    let third = build.node("Mish", &[third]);
    let kernel = [("kernel_shape", Attribute::Ints(vec![2, 2])), ("strides", Attribute::Ints(vec![2, 2]))];
    let pooled = build.with("AveragePool", &[third], &kernel);
    let flat = build.node("Flatten", &[pooled]);
    let (scale, bias) = (build.constant(floats(&[16], 5)), build.constant(floats(&[16], 6)));
    let flat = build.node("LayerNormalization", &[flat, scale, bias]);
    let w = build.constant(floats(&[16, 3], 7));
    let scores = build.node("MatMul", &[flat, w]);
    build.outputs(&[scores])
}

#[test]
fn a_network_runs_through_hipdnn_between_our_kernels() {
    let graph = network();
    let settings = GpuSettings { dnn: Some(Arc::new(dnn::offering())), ..GpuSettings::default() };
    let gpu = common::device::simulated("gfx1100").with(settings);
    let on_gpu = CompiledPartition::new(graph.clone(), &gpu).unwrap();
    let on_host = CompiledPartition::new(graph, &HostDevice::new()).unwrap();
    for (batch, seed) in [(1, 8), (3, 9), (1, 10)] {
        let x = floats(&[batch, 3, 4, 4], seed);
        let found = run_partition(&on_gpu, std::slice::from_ref(&x)).unwrap();
        let wanted = run_partition(&on_host, std::slice::from_ref(&x)).unwrap();
        assert_close(&numbers(&found[0]), &numbers(&wanted[0]), 1e-4);
    }
    let by = dnn::run_by(&on_gpu, &[floats(&[1, 3, 4, 4], 8)]);
    let taken = by.iter().filter(|by| by.starts_with("hipDNN: HOST_CPU_ENGINE")).count();
    assert_eq!(taken, 6, "three convolutions, a pool, a norm and a product: {by:#?}");
    assert!(by.iter().all(|by| by.starts_with("hipDNN: ") || by.starts_with("own: ")), "{by:#?}");
}

/// Attention whose heads lie side by side in one product, as exporters write it.
fn encoder(heads: usize) -> Graph {
    let size = 8;
    let mut build = Build::default();
    let x = build.input();
    let split = build.constant(Tensor::from_i64s(&[0, 0, heads as i64, size as i64]));
    let turns = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]];
    let parts: Vec<_> = (0..3u64)
        .zip(turns)
        .map(|(seed, turn)| {
            let weights = build.constant(floats(&[16, heads * size], seed));
            let bias = build.constant(floats(&[heads * size], seed + 4));
            let made = build.node("MatMul", &[x, weights]);
            let made = build.node("Add", &[made, bias]);
            let made = build.node("Reshape", &[made, split]);
            build.with("Transpose", &[made], &[("perm", Attribute::Ints(turn.to_vec()))])
        })
        .collect();
    let scores = build.node("MatMul", &[parts[0], parts[1]]);
    let scale = build.number(3.0);
    let scores = build.node("Div", &[scores, scale]);
    let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
    let mixed = build.node("MatMul", &[weights, parts[2]]);
    let turned = build.with("Transpose", &[mixed], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))]);
    let to = build.constant(Tensor::from_i64s(&[0, 0, -1]));
    let joined = build.node("Reshape", &[turned, to]);
    build.outputs(&[joined])
}

#[test]
fn hipdnn_reads_heads_of_several_sequences_in_place() {
    let settings = GpuSettings { dnn: Some(Arc::new(dnn::offering())), ..GpuSettings::default() };
    let gpu = common::device::simulated("gfx1100").with(settings);
    for heads in [1, 3] {
        let on_gpu = CompiledPartition::new(encoder(heads), &gpu).unwrap();
        let on_host = CompiledPartition::new(encoder(heads), &HostDevice::new()).unwrap();
        for batch in [1, 2, 3] {
            let x = [floats(&[batch, 5, 16], 9)];
            let (found, wanted) = (run_partition(&on_gpu, &x).unwrap(), run_partition(&on_host, &x).unwrap());
            assert_close(&numbers(&found[0]), &numbers(&wanted[0]), 1e-4);
            let by = dnn::run_by(&on_gpu, &x);
            let wanted = ["hipDNN: HOST_CPU_ENGINE, 2 operations", "hipDNN: HOST_CPU_ENGINE"];
            assert_eq!(by, wanted, "a product with a bias and an attention, {heads} heads, batch {batch}");
        }
    }
}

/// A decoder's attention; its last input is the total number of tokens, including the new ones.
fn decoder() -> Graph {
    let mut build = Build::default();
    let floats = [(); 5].map(|()| Some(build.input()));
    let inputs = [&floats[..], &[(); 2].map(|()| Some(build.input_of(DType::I32)))].concat();
    let attributes = [("num_heads", Attribute::Int(4)), ("kv_num_heads", Attribute::Int(2))];
    let made = build.outputs_of("com.microsoft", "GroupQueryAttention", &inputs, &attributes, &[Some(DType::F32); 3]);
    build.outputs(&made)
}

/// One compiled partition runs everything: a plan cached for a prompt must not be used for the tokens after it,
/// which have the same shapes as a prompt of one or two tokens.
#[test]
fn hipdnn_runs_a_prompt_and_our_kernels_the_later_tokens() {
    const DNN: &str = "hipDNN: HOST_CPU_ENGINE";
    const OWN: &str = "own: cached_attention";
    let settings = GpuSettings { dnn: Some(Arc::new(dnn::offering())), ..GpuSettings::default() };
    let on_gpu = CompiledPartition::new(decoder(), &common::device::simulated("gfx1100").with(settings)).unwrap();
    let on_host = CompiledPartition::new(decoder(), &HostDevice::new()).unwrap();
    let mut caches = [floats(&[2, 2, 8, 16], 7), floats(&[2, 2, 8, 16], 8)];
    // The second sequence is two tokens shorter than the first and padded at its end.
    for (rows, total, by) in [(5, 5, DNN), (1, 6, OWN), (2, 8, OWN), (1, 1, DNN), (1, 2, OWN), (2, 2, DNN), (5, 5, DNN)]
    {
        let mut given: Vec<Tensor> = [64, 32, 32].map(|width| floats(&[2, rows, width], width as u64)).to_vec();
        given.extend(caches.clone());
        let last = total as f64 - 1.0;
        given.push(tensor(DType::I32, &[2], &[last, (last - 2.0).max(0.0)]));
        given.push(tensor(DType::I32, &[], &[total as f64]));
        let (found, wanted) = (run_partition(&on_gpu, &given).unwrap(), run_partition(&on_host, &given).unwrap());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_close(&numbers(found), &numbers(wanted), 1e-4);
        }
        let steps = dnn::run_by(&on_gpu, &given);
        assert_eq!(steps.last().map(String::as_str), Some(by), "{rows} of {total}: {steps:?}");
        caches = [found[1].clone(), found[2].clone()];
    }
}
