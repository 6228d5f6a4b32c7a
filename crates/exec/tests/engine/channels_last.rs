//! Checks that the channels-last layout gives the same results.

use std::sync::Arc;

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, ExecError, Input, Loaded, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::plan::{Capabilities, Capability};
use graph::prim::ProductKind;
use graph::{DType, Graph, Prim, Tensor};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};

/// The host as a device that wants channels-last images.
struct Turned(HostDevice);

impl Device for Turned {
    fn name(&self) -> &str {
        "turned"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with(Capability::ChannelsLast)
    }

    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError> {
        self.0.load(graph)
    }
}

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// Two convolutions with a residual, followed by a pool and a classifier, as in typical image networks.
fn network() -> Graph {
    let mut build = Build::default();
    let x = build.input();
    let pads = |ints: &[i64]| ("pads", Attribute::Ints(ints.to_vec()));
    let w = build.constant(floats(&[6, 3, 3, 3], 1));
    let first = build.with("Conv", &[x, w], &[pads(&[1, 1, 1, 1])]);
    let first = build.node("Relu", &[first]);
    let kernel = ("kernel_shape", Attribute::Ints(vec![3, 3]));
    let pooled = build.with("MaxPool", &[first], &[kernel, pads(&[1, 1, 1, 1])]);
    let (w, bias) = (build.constant(floats(&[6, 6, 3, 3], 2)), build.constant(floats(&[6], 3)));
    let second = build.with("Conv", &[pooled, w, bias], &[pads(&[1, 1, 1, 1])]);
    let sum = build.node("Add", &[second, pooled]);
    let sum = build.node("Relu", &[sum]);
    let w = build.constant(floats(&[4, 6, 1, 1], 4));
    let last = build.with("Conv", &[sum, w], &[]);
    let flat = build.node("Flatten", &[last]);
    let w = build.constant(floats(&[4 * 25, 3], 5));
    let scores = build.node("MatMul", &[flat, w]);
    build.outputs(&[scores, last])
}

#[test]
fn a_network_gives_the_same_result_in_both_layouts() {
    let x = floats(&[2, 3, 5, 5], 7);
    let plain = CompiledPartition::new(network(), &HostDevice::new()).unwrap();
    let wanted = run_partition(&plain, std::slice::from_ref(&x)).unwrap();
    // The host stores whole rows of a fused product, so products are not fused here.
    let (passes, _) = Selection::without("epilogues");
    let settings = Settings { passes, ..Settings::default() };
    let turned = CompiledPartition::with(network(), &Turned(HostDevice::new()), settings).unwrap();
    let found = run_partition(&turned, std::slice::from_ref(&x)).unwrap();
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_close(&numbers(found), &numbers(wanted), 1e-5);
    }
    let plan = turned.plan(&[Input { shape: &[2, 3, 5, 5], value: None }]).unwrap();
    let convs: Vec<_> = plan
        .plan()
        .steps
        .iter()
        .filter(|step| matches!(step.prim.plain_product(), Some(ProductKind::Conv(_))))
        .collect();
    assert_eq!(convs.len(), 3);
    for conv in convs {
        for view in [&conv.inputs[0], &conv.inputs[1], &conv.outputs[0]] {
            assert_eq!(view.strides[1], 1, "{conv:?}");
        }
    }
    // A run copies only the input image and the result that is both an output and flattened. The third map with one
    // input is the first Relu.
    let maps = plan.plan().steps.iter().filter(|step| matches!(step.prim, Prim::Map(_)) && step.inputs.len() == 1);
    assert_eq!(maps.count(), 3, "{:#?}", plan.plan().steps);
}

#[test]
fn the_layout_can_be_disabled() {
    let (passes, _) = Selection::without("channels-last");
    let settings = Settings { passes, ..Settings::default() };
    let turned = CompiledPartition::with(network(), &Turned(HostDevice::new()), settings).unwrap();
    let plan = turned.plan(&[Input { shape: &[2, 3, 5, 5], value: None }]).unwrap();
    assert!(plan.plan().steps.iter().flat_map(|step| &step.outputs).all(graph::View::is_dense));
}
