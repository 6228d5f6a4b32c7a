//! Runs partitions on tensors.
use exec::host::HostDevice;
use exec::{CompiledPartition, ExecError, Input, Order, Run, Serial};
use graph::{Graph, Tensor, shape};

/// Runs a graph once on the host.
pub fn run_on_host(graph: Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    run_partition(&CompiledPartition::new(graph, &HostDevice::new())?, inputs)
}

/// Runs a partition once.
pub fn run_partition(partition: &CompiledPartition, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    let value = |at: usize| partition.needs_value(at).then(|| inputs[at].bytes());
    let given: Vec<Input<'_>> =
        inputs.iter().enumerate().map(|(at, tensor)| Input { shape: tensor.shape(), value: value(at) }).collect();
    let prepared = partition.plan(&given)?;
    let wanted = prepared.plan().outputs.clone();
    let bytes: Vec<usize> =
        wanted.iter().map(|output| shape::elems(&output.shape).unwrap_or(0) * output.dtype.bytes()).collect();
    // Words, so that every element type is aligned; not zero, so that elements without a result are seen.
    let mut made: Vec<Vec<u128>> =
        bytes.iter().map(|bytes| vec![u128::from_ne_bytes([0xA5; 16]); bytes.div_ceil(16).max(1)]).collect();
    let sources: Vec<*const u8> = inputs.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
    let targets: Vec<*mut u8> = made.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
    let run = Run { inputs: &sources, outputs: &targets, parallel: &Serial, observer: None };
    // SAFETY: inputs are complete tensors of the planned shapes; outputs are fresh memory of the sizes in the plan.
    unsafe { prepared.run(run, Order::Now)? };
    let tensors = wanted.iter().zip(&made).zip(bytes).map(|((output, words), bytes)| {
        let flat: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).collect();
        Tensor::from_bytes(output.dtype, &output.shape, &flat)
    });
    Ok(tensors.flatten().collect())
}
