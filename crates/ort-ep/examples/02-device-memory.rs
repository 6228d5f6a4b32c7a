//! A plugin whose device has its own memory, in safe code: it multiplies two tensors.
//!
//! The "device" is a piece of RAM that ONNX Runtime must not touch directly: tensors move through our allocator and our
//! copies, as on a GPU. Build it with `cargo build -p ort-ep --example device_ep` and register the library:
//!
//! ```python
//! onnxruntime.register_execution_provider_library("MulExecutionProvider", "libdevice_ep.so")
//! ```
#![deny(unsafe_code)]
#![allow(missing_docs)]
use ort_ep::view::{Graph, HardwareDevice, HardwareKind, KernelContext, KeyValues, Node, ValueType};
use ort_ep::{
    AllocatorHandle, Claims, Compiled, DataTransfer, DeviceOffer, ElementType, Environment, Ep, EpRequest, Error,
    Factory, FusedPartition, HostAllocator, MemoryDevice, NewEp, NewHardware, OfferedHardware, OfferedMemory,
    Partition, Registration, Result, TensorCopy,
};

const VENDOR: u32 = 0xF00D;
const DEVICE: MemoryDevice = MemoryDevice::gpu(VENDOR, 0);

ort_ep::plugin!(create, log_variable = "MUL_EP_LOG");

fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(MulFactory))
}

struct MulFactory;

impl Factory for MulFactory {
    fn vendor(&self) -> &str {
        "Example"
    }

    fn vendor_id(&self) -> u32 {
        VENDOR
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices<'a>(&self, _: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        let hardware = NewHardware {
            kind: HardwareKind::Gpu,
            vendor_id: VENDOR,
            device_id: 0,
            vendor: "Example".into(),
            metadata: vec![("is_virtual".into(), "1".into())],
        };
        Ok(vec![DeviceOffer {
            hardware: OfferedHardware::New(hardware),
            metadata: vec![("speed".into(), "modest".into())],
            options: Vec::new(),
            memories: vec![OfferedMemory { name: "mul".into(), memory: DEVICE }],
        }])
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let entries = request.options.config_entries()?;
        tracing::info!(devices = request.devices.len(), options = entries.len(), "session");
        Ok(MulEp.into())
    }

    fn create_allocator(&self, _: MemoryDevice, _: KeyValues<'_>) -> Result<AllocatorHandle> {
        Ok(AllocatorHandle::new(HostAllocator))
    }

    fn create_data_transfer(&self) -> Result<Option<Box<dyn DataTransfer>>> {
        Ok(Some(Box::new(MulTransfer)))
    }
}

struct MulTransfer;

impl DataTransfer for MulTransfer {
    fn can_copy(&self, src: MemoryDevice, dst: MemoryDevice) -> bool {
        [(DEVICE, DEVICE), (DEVICE, MemoryDevice::CPU), (MemoryDevice::CPU, DEVICE)].contains(&(src, dst))
    }

    fn copy(&self, copies: &mut [TensorCopy<'_>]) -> Result<()> {
        for copy in copies {
            copy.dst.bytes_mut()?.copy_from_slice(copy.src.bytes()?);
        }
        Ok(())
    }
}

struct MulEp;

impl Ep for MulEp {
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        for node in graph.nodes()? {
            if node.op_type()? == "Mul" && node.domain()?.is_empty() && same_f32_shapes(node)? {
                claims.fuse(&[node], false)?;
            }
        }
        Ok(())
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        Ok(partitions.iter().map(|_| Compiled::new(Mul)).collect())
    }
}

/// True if no broadcasting is needed.
fn same_f32_shapes(node: Node<'_>) -> Result<bool> {
    let mut types = Vec::new();
    for input in node.inputs()?.into_iter().flatten() {
        match input.value_type()? {
            ValueType::Tensor(tensor) if tensor.element == ElementType::F32 => types.push(tensor.shape),
            _ => return Ok(false),
        }
    }
    Ok(types.len() == 2 && types[0].is_some() && types[0] == types[1])
}

struct Mul;

impl Partition for Mul {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let missing = || Error::invalid_argument("Mul needs two inputs and an output");
        let a = context.input(0)?.ok_or_else(missing)?;
        // The fused node of `Mul(x, x)` has one input.
        let b = if context.input_count()? > 1 { context.input(1)?.ok_or_else(missing)? } else { a };
        let mut out = context.output(0, a.shape()?)?.ok_or_else(missing)?;
        let (a, b) = (a.as_slice::<f32>()?, b.as_slice::<f32>()?);
        for ((out, a), b) in out.as_mut_slice::<f32>()?.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
        Ok(())
    }
}
