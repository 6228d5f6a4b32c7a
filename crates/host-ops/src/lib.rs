//! CPU implementations of the graph engine's primitives.
//!
//! [`run`] executes one [`Step`] of a plan on memory that the caller provides. Each file holds one family of
//! primitives, which take typed, strided [`Tensor`]s. Work is split into tasks for a [`Parallel`] that the caller
//! provides: ONNX Runtime's thread pool, our own [`Pool`], or [`Serial`].
mod activation;
mod affine;
mod append;
mod arg_reduce;
mod attention;
mod bound;
mod cached_attention;
mod carve;
mod causal_conv;
mod cell;
mod conv;
mod conv_transpose;
mod convert;
mod convolve;
mod cumulative;
mod depthwise;
mod ends;
mod epilogue;
mod error;
mod experts;
mod fused;
mod gather;
mod gemv;
mod index;
mod integer;
mod linear_attention;
mod lrn;
mod map;
mod math;
mod matmul;
mod microkernel;
mod norm;
mod number;
mod operand;
mod paged;
mod pairs;
mod parallel;
mod planes;
mod pool;
mod pool_index;
mod product;
mod quant;
mod real;
mod recurrent;
mod recurrent_product;
mod reduce;
mod resize;
mod resize_nearest;
mod resize_table;
mod retain;
mod rotary;
mod rows;
mod scatter;
mod scratch;
mod simd;
mod softmax;
mod tensor;
mod threads;
mod tiles;
mod top_k;
mod walk;

use graph::prim::BufferId;
use graph::{DType, Prim, Step};
use smallvec::SmallVec;

pub use bound::Bound;
pub use error::OpError;
pub use parallel::{Parallel, Serial};
pub use quant::{INTERLEAVED, interleaved};
pub use scratch::Scratch;
pub use tensor::{Element, Tensor, TensorMut};
pub use threads::Pool;

/// The resources a step runs with.
pub struct Context<'a> {
    /// Runs tasks on threads.
    pub parallel: &'a dyn Parallel,
    /// Memory kept from step to step, so that a warm run allocates nothing.
    pub scratch: &'a mut Scratch,
}

/// Runs one step.
///
/// # Errors
/// The data is invalid for the operator (an index out of range), the types are not supported, or memory is exhausted.
///
/// # Safety
/// For every view of the step, `address` returns memory that holds the view's buffer. It is aligned to the element
/// type, readable for inputs and writable for outputs, and nothing else changes it during the call. An output may share
/// memory with an input only if both are accessed element by element in the same layout, as the planner arranges for
/// maps; the outputs of an [`Append`](graph::prim::Append) or a `PagedAppend` may be its past, those of a `Retain` the cache that they
/// replace, and a new state the old one.
pub unsafe fn run(step: &Step, address: impl Fn(BufferId) -> *mut u8, cx: &mut Context<'_>) -> Result<(), OpError> {
    if let Prim::AppendAttention(both) = &step.prim
        && let Some(parts) = both.parts(step)
    {
        // SAFETY: the parts use the step's views. The second reads what the first has written.
        return parts.iter().try_for_each(|part| unsafe { run_one(part, &address, cx) });
    }
    // SAFETY: the caller vouches for every view's memory.
    unsafe { run_one(step, &address, cx) }
}

/// # Safety
/// Same as for [`run`].
unsafe fn run_one(step: &Step, address: &impl Fn(BufferId) -> *mut u8, cx: &mut Context<'_>) -> Result<(), OpError> {
    let inputs: SmallVec<[Tensor<'_>; 8]> =
        // SAFETY: the caller vouches for every view's memory.
        step.inputs.iter().map(|view| unsafe { Tensor::new(view, address(view.buffer)) }).collect();
    let outputs: SmallVec<[TensorMut<'_>; 4]> =
        // SAFETY: as above.
        step.outputs.iter().map(|view| unsafe { TensorMut::new(view, address(view.buffer)) }).collect();
    scratch::or_no_memory(|| dispatch(&step.prim, &inputs, &outputs, cx))
}

fn dispatch(
    prim: &Prim,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    match prim {
        Prim::Map(map) => map::run(map, inputs, outputs, cx),
        Prim::Reduce(reduce) => reduce::run(reduce, inputs, outputs, cx),
        Prim::Softmax(softmax) => softmax::run(softmax, inputs, outputs, cx),
        Prim::Norm(norm) => norm::run(norm, inputs, outputs, cx),
        Prim::ArgReduce(search) => arg_reduce::run(search, inputs, outputs, cx),
        Prim::Product(product) => fused::run(product, inputs, outputs, cx),
        Prim::Gather => gather::run(inputs, outputs, cx),
        Prim::GatherElements(axis) => gather::elements(axis.0, inputs, outputs, cx),
        Prim::GatherNd(batch) => gather::nd(batch.0, inputs, outputs, cx),
        Prim::ScatterElements(scatter) => scatter::elements(scatter, inputs, outputs, cx),
        Prim::ScatterNd(scatter) => scatter::nd(scatter, inputs, outputs, cx),
        Prim::Cumulative(cumulative) => cumulative::run(cumulative, inputs, outputs, cx),
        Prim::TopK(search) => top_k::run(search, inputs, outputs, cx),
        Prim::Lrn(lrn) => lrn::run(lrn, inputs, outputs, cx),
        Prim::Pool(prim) => pool::run(prim, inputs, outputs, cx),
        Prim::Resize(prim) => resize::run(prim, &inputs[0], outputs[0], cx),
        Prim::Recurrent(prim) => recurrent::run(prim, inputs, outputs, cx),
        Prim::Attention(prim) => attention::run(prim, inputs, outputs[0], cx),
        Prim::Rotary(prim) => rotary::run(prim, inputs, outputs, cx),
        Prim::Append(prim) => append::run(prim, inputs, outputs, cx),
        Prim::CachedAttention(prim) => cached_attention::run(prim, inputs, outputs[0], cx),
        Prim::CausalConv(prim) => causal_conv::run(prim, inputs, outputs, cx),
        Prim::LinearAttention(prim) => linear_attention::run(prim, inputs, outputs, cx),
        Prim::ExpertProduct(prim) => experts::run(prim, inputs, outputs[0], cx),
        Prim::PagedPlaces(prim) => paged::places(prim, inputs, outputs),
        Prim::PagedAppend => paged::append(inputs, outputs, cx),
        Prim::PagedAttention(prim) => cached_attention::run_paged(prim, inputs, outputs[0], cx),
        Prim::Retain => retain::run(inputs, outputs, cx),
        _ => {
            Err(OpError::Unsupported { prim: prim.name(), dtype: outputs.first().map_or(DType::F32, TensorMut::dtype) })
        }
    }
}
