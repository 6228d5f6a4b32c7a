//! Compares the cost of a warm convolution through `libhipdnn_host.so` with that of the engine alone. The two
//! alternate, and the result is the median of many rounds. Neither can assume that the data or the filter stay the same
//! between calls.
//!
//! ```sh
//! cargo xtask stage --release
//! AMDGPU_EP_HIPDNN_LIBRARY=target/stage/release/lib/libhipdnn_host.so \
//!     cargo run --release -p exec --example conv_by_hipdnn
//! ```
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::dnn::{Libraries, Mode};
use exec::host::HostDevice;
use exec::{CompiledPartition, Input, Order, Pool, Prepared, Run};
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node};

const ROUNDS: usize = 201;

/// Channels, extent, filters, taps, stride.
const SHAPES: [[usize; 5]; 6] = [
    [3, 8, 4, 3, 1],
    [16, 14, 16, 1, 1],
    [64, 28, 64, 3, 1],
    [64, 56, 256, 1, 1],
    [3, 112, 32, 3, 2],
    [256, 14, 256, 3, 1],
];

fn convolution([channels, extent, filters, taps, stride]: [usize; 5]) -> Result<(Graph, [Vec<usize>; 3]), String> {
    let mut graph = Graph::default();
    let x = graph.add_value("x", DType::F32, None);
    let w = graph.add_value("w", DType::F32, None);
    let y = graph.add_value("y", DType::F32, None);
    let (pad, stride_of) = ((taps / 2) as i64, stride as i64);
    let attributes = [("pads", Attribute::Ints(vec![pad; 4])), ("strides", Attribute::Ints(vec![stride_of; 2]))];
    let attributes = Attributes::from(&attributes[..]);
    let inputs = [x, w].map(|id| Some(InputInfo::from(graph.value(id))));
    let info = NodeInfo {
        domain: "",
        op_type: "Conv",
        since_version: 11,
        attributes: &attributes,
        inputs: &inputs,
        outputs: &[Some(DType::F32)],
    };
    let op = ops::parse(&info).map_err(|declined| declined.to_string())?.into();
    graph.add_node(Node { name: "conv".into(), op, inputs: vec![Some(x), Some(w)], outputs: vec![Some(y)] });
    graph.set_inputs(vec![x, w]);
    graph.set_outputs(vec![y]);
    let out = (extent + taps / 2 * 2 - taps) / stride + 1;
    let shapes = [vec![1, channels, extent, extent], vec![filters, channels, taps, taps], vec![1, filters, out, out]];
    Ok((graph, shapes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let driver = hip::Driver::load(hip::DriverKind::Host)?;
    let device = driver.devices()?.into_iter().next().ok_or("the host driver has no device")?;
    let libraries = Libraries::default();
    let pool = Pool::new();
    println!("{:<24} {:>10} {:>10} {:>8}", "convolution", "engine µs", "hipDNN µs", "more µs");
    for shape in SHAPES {
        let (graph, shapes) = convolution(shape)?;
        let offering = libraries.offering(&device, Mode::On).ok_or("nothing is offered")?;
        let devices = [HostDevice::new(), HostDevice::new().with_dnn(offering)];
        let inputs = [&shapes[0], &shapes[1]].map(|shape| Input { shape, value: None });
        let mut plans = Vec::new();
        for device in &devices {
            plans.push(CompiledPartition::new(graph.clone(), device)?.plan(&inputs)?);
        }
        let memory = shapes.each_ref().map(|shape| vec![0.5f32; shape.iter().product()]);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (plan, times) in plans.iter().zip(&mut times) {
                times.push(once(plan, &memory, &pool)?);
            }
        }
        let [engine, library] = times.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2].as_secs_f64() * 1e6
        });
        let [channels, extent, filters, taps, stride] = shape;
        let name = format!("{channels}x{extent}² → {filters}, {taps}x{taps}/{stride}");
        println!("{name:<24} {engine:>10.1} {library:>10.1} {:>8.1}", library - engine);
    }
    Ok(())
}

fn once(plan: &Arc<dyn Prepared>, memory: &[Vec<f32>; 3], pool: &Pool) -> Result<Duration, Box<dyn Error>> {
    let mut result = memory[2].clone();
    let (inputs, outputs) = ([memory[0].as_ptr().cast(), memory[1].as_ptr().cast()], [result.as_mut_ptr().cast()]);
    let start = Instant::now();
    // SAFETY: the memory has the shapes that the plan was made for, and nothing else uses it.
    unsafe {
        plan.clone().run(Run { inputs: &inputs, outputs: &outputs, parallel: pool, observer: None }, Order::Now)?
    };
    Ok(start.elapsed())
}
