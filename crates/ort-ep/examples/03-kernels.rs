//! Operators that run one by one, without compiling: a registry of kernels.
//!
//! A partition is a good fit for a device that runs many nodes at once. A kernel is simpler: ONNX Runtime checks the
//! operator's version and types, creates one kernel for each node, and calls it.
//!
//! Build it with `cargo build -p ort-ep --example kernels_ep` and register `libkernels_ep.so`.
#![deny(unsafe_code)]
#![allow(missing_docs)]
use ort_ep::view::{Graph, HardwareDevice, KernelContext};
use ort_ep::{
    Claims, DeviceOffer, ElementType, Environment, Ep, EpRequest, Error, Factory, Kernel, KernelDef, NewEp,
    Registration, Result,
};

ort_ep::plugin!(create, log_variable = "KERNELS_EP_LOG");

fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(KernelsFactory))
}

struct KernelsFactory;

impl Factory for KernelsFactory {
    fn vendor(&self) -> &str {
        "Example"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[]).into_iter().collect())
    }

    fn create_ep(&self, _: &EpRequest<'_>) -> Result<NewEp> {
        Ok(KernelsEp.into())
    }

    /// `Neg` and `Abs` share one kernel type; the function that creates a kernel decides what it computes.
    fn kernels(&self) -> Vec<KernelDef> {
        let unary = |op_type, apply: fn(f32) -> f32| {
            KernelDef::new("", op_type, 13..=99, move |_| Ok(Box::new(Unary(apply)))).types("T", &[ElementType::F32])
        };
        vec![unary("Neg", |x| -x), unary("Abs", f32::abs)]
    }
}

struct KernelsEp;

impl Ep for KernelsEp {
    /// Claims the nodes for which the registry has a kernel.
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        for node in graph.nodes()? {
            if claims.has_kernel(node)? {
                claims.single(node)?;
            }
        }
        Ok(())
    }
}

struct Unary(fn(f32) -> f32);

impl Kernel for Unary {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let missing = || Error::invalid_argument("the operator needs an input and an output");
        let x = context.input(0)?.ok_or_else(missing)?;
        let mut y = context.output(0, x.shape()?)?.ok_or_else(missing)?;
        for (y, x) in y.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
            *y = (self.0)(*x);
        }
        Ok(())
    }
}
