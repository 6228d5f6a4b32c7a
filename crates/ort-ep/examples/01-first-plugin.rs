//! The smallest plugin that computes something: it runs `Relu` on the CPU.
//!
//! Build it with `cargo build -p ort-ep --example first_plugin` and register the library:
//!
//! ```python
//! onnxruntime.register_execution_provider_library("FirstExecutionProvider", "/path/to/libfirst_plugin.so")
//! ```
#![deny(unsafe_code)]
#![allow(missing_docs)]
use ort_ep::view::{Graph, HardwareDevice, KernelContext, Node, ValueType};
use ort_ep::{
    Claims, Compiled, DeviceOffer, ElementType, Environment, Ep, EpRequest, Error, Factory, FusedPartition, NewEp,
    Partition, Registration, Result,
};

// Exports the two functions that ONNX Runtime looks for. FIRST_EP_LOG=debug shows the log on stderr.
ort_ep::plugin!(create, log_variable = "FIRST_EP_LOG");

fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(FirstFactory))
}

/// One per library.
struct FirstFactory;

impl Factory for FirstFactory {
    fn vendor(&self) -> &str {
        "Example"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Offers the CPU, which ONNX Runtime lists. Its memory needs no allocator and no copies.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[]).into_iter().collect())
    }

    fn create_ep(&self, _: &EpRequest<'_>) -> Result<NewEp> {
        Ok(FirstEp.into())
    }
}

/// One per session.
struct FirstEp;

impl Ep for FirstEp {
    /// Claims the nodes that it is sure to run correctly. The CPU provider runs the others.
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        for node in graph.nodes()? {
            if node.op_type()? == "Relu" && node.domain()?.is_empty() && is_f32(node)? {
                claims.fuse(&[node], false)?;
            }
        }
        Ok(())
    }

    /// Makes one partition for each claim.
    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        Ok(partitions.iter().map(|_| Compiled::new(Relu)).collect())
    }
}

fn is_f32(node: Node<'_>) -> Result<bool> {
    let Some(input) = node.inputs()?.into_iter().flatten().next() else { return Ok(false) };
    Ok(matches!(input.value_type()?, ValueType::Tensor(tensor) if tensor.element == ElementType::F32))
}

struct Relu;

impl Partition for Relu {
    /// Runs it. Several threads may call this at once.
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let missing = || Error::invalid_argument("Relu needs an input and an output");
        let x = context.input(0)?.ok_or_else(missing)?;
        let mut y = context.output(0, x.shape()?)?.ok_or_else(missing)?;
        for (y, x) in y.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
            // ONNX's Relu keeps NaN, and `max` would not.
            *y = if *x < 0.0 { 0.0 } else { *x };
        }
        Ok(())
    }
}
