//! The kernel registry: the plugin's kernels, and the two copy kernels every device needs.
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use ort_ep_sys as sys;

use super::control_flow;
use super::guard::Border;
use super::runtime::c_string;
use crate::kernel::Creator;
use crate::view::{KernelContext, KernelInfo};
use crate::{DataTransfer, ElementType, Error, Kernel, KernelDef, Result, Runtime, TensorCopy};

/// A kernel registry of the runtime, and the states its kernels are created from.
pub(super) struct KernelRegistry {
    runtime: Runtime,
    raw: *mut sys::OrtKernelRegistry,
    // Shared, so that the addresses given to ONNX Runtime stay fixed.
    _creators: Vec<Arc<CreatorState>>,
}

// SAFETY: the registry is filled before it is shared and only read afterwards.
unsafe impl Send for KernelRegistry {}
// SAFETY: as above.
unsafe impl Sync for KernelRegistry {}

struct CreatorState {
    create: Creator,
    border: Border,
}

impl KernelRegistry {
    /// Registers `kernels` under the execution provider's name.
    pub fn new(border: Border, ep_name: &std::ffi::CStr, kernels: &[KernelDef]) -> Result<Self> {
        let runtime = border.runtime;
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { runtime.ep_api.CreateKernelRegistry(&mut raw) };
        runtime.check("CreateKernelRegistry", status)?;
        let mut registry = Self { runtime, raw, _creators: Vec::new() };
        for kernel in kernels {
            let def = Definition::build(runtime, ep_name, kernel)?;
            let state = Arc::new(CreatorState { create: kernel.create.clone(), border });
            let state_address = Arc::as_ptr(&state).cast_mut().cast();
            // SAFETY: the definition is copied; the state lives as long as the registry.
            let status =
                unsafe { runtime.ep_api.KernelRegistry_AddKernel(raw, def.0, Some(create_kernel), state_address) };
            runtime.check("KernelRegistry_AddKernel", status)?;
            registry._creators.push(state);
        }
        Ok(registry)
    }

    pub fn as_ptr(&self) -> *const sys::OrtKernelRegistry {
        self.raw
    }
}

impl Drop for KernelRegistry {
    fn drop(&mut self) {
        // SAFETY: made by `CreateKernelRegistry`; the factory keeps it until no execution provider uses it.
        unsafe { self.runtime.ep_api.ReleaseKernelRegistry(self.raw) };
    }
}

/// A kernel definition of the runtime.
struct Definition(*mut sys::OrtKernelDef, Runtime);

impl Drop for Definition {
    fn drop(&mut self) {
        // SAFETY: made by `KernelDefBuilder_Build`.
        unsafe { self.1.ep_api.ReleaseKernelDef(self.0) };
    }
}

impl Definition {
    fn build(runtime: Runtime, ep_name: &std::ffi::CStr, kernel: &KernelDef) -> Result<Self> {
        struct Builder(*mut sys::OrtKernelDefBuilder, Runtime);
        impl Drop for Builder {
            fn drop(&mut self) {
                // SAFETY: made by `CreateKernelDefBuilder`.
                unsafe { self.1.ep_api.ReleaseKernelDefBuilder(self.0) };
            }
        }
        let api = runtime.ep_api;
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        runtime.check("CreateKernelDefBuilder", unsafe { api.CreateKernelDefBuilder(&mut raw) })?;
        let builder = Builder(raw, runtime);
        let (domain, op_type) = (c_string(&kernel.domain), c_string(&kernel.op_type));
        let (first, last): (c_int, c_int) = (*kernel.versions.start(), *kernel.versions.end());
        // SAFETY: the builder is alive and every text is NUL-terminated and copied.
        unsafe {
            runtime.check("SetOperatorType", api.KernelDefBuilder_SetOperatorType(builder.0, op_type.as_ptr()))?;
            runtime.check("SetDomain", api.KernelDefBuilder_SetDomain(builder.0, domain.as_ptr()))?;
            runtime.check("SetSinceVersion", api.KernelDefBuilder_SetSinceVersion(builder.0, first, last))?;
            runtime.check(
                "SetExecutionProvider",
                api.KernelDefBuilder_SetExecutionProvider(builder.0, ep_name.as_ptr()),
            )?;
        }
        for &index in &kernel.host_inputs {
            // SAFETY: the builder is alive.
            let status = unsafe { api.KernelDefBuilder_SetInputMemType(builder.0, index, sys::ORT_MEM_CPU_INPUT) };
            runtime.check("SetInputMemType", status)?;
        }
        for &index in &kernel.host_outputs {
            // SAFETY: the builder is alive.
            let status = unsafe { api.KernelDefBuilder_SetOutputMemType(builder.0, index, sys::ORT_MEM_CPU_OUTPUT) };
            runtime.check("SetOutputMemType", status)?;
        }
        for (name, types) in &kernel.constraints {
            let types: Vec<_> = types.iter().filter_map(|&element| data_type(runtime, element)).collect();
            let name = c_string(name);
            // SAFETY: the builder is alive and the types are static objects of the runtime.
            let status = unsafe {
                api.KernelDefBuilder_AddTypeConstraint(builder.0, name.as_ptr(), types.as_ptr(), types.len())
            };
            runtime.check("AddTypeConstraint", status)?;
        }
        let mut def = ptr::null_mut();
        // SAFETY: the builder is alive and `def` a valid out-pointer.
        runtime.check("KernelDefBuilder_Build", unsafe { api.KernelDefBuilder_Build(builder.0, &mut def) })?;
        Ok(Self(def, runtime))
    }
}

/// The runtime's object for a type; `None` if this version does not know it.
fn data_type(runtime: Runtime, element: ElementType) -> Option<*const sys::OrtDataType> {
    let mut out = ptr::null();
    // SAFETY: a valid out-pointer.
    let status = unsafe { runtime.ep_api.GetTensorDataType(element.to_raw(), &mut out) };
    runtime.check("GetTensorDataType", status).is_ok().then_some(out).filter(|out| !out.is_null())
}

#[repr(C)]
struct KernelBox {
    raw: sys::OrtKernelImpl,
    inner: Box<dyn Kernel>,
    border: Border,
}

const _: () = assert!(std::mem::offset_of!(KernelBox, raw) == 0);

unsafe extern "system" fn create_kernel(
    state: *mut c_void,
    info: *const sys::OrtKernelInfo,
    out: *mut *mut sys::OrtKernelImpl,
) -> sys::Status {
    // SAFETY: the state was registered with this function and lives as long as the registry.
    let state: &CreatorState = unsafe { &*state.cast() };
    state.border.status("CreateKernel", || {
        let create = match &state.create {
            Creator::Own(create) => create,
            Creator::ControlFlow(kind, transfer) => {
                // SAFETY: the info is alive for the call, and the out-pointer is valid.
                return unsafe { control_flow::create(*kind, transfer, state.border, info, out) };
            }
        };
        // SAFETY: the info is alive for the call.
        let inner = create(unsafe { KernelInfo::from_raw(state.border.runtime, info) })?;
        let mut raw = sys::OrtKernelImpl::empty(state.border.runtime.api_version());
        raw.Compute = Some(compute);
        raw.Release = Some(release);
        let kernel = KernelBox { raw, inner, border: state.border };
        // SAFETY: a valid out-pointer; ONNX Runtime releases the kernel.
        unsafe { out.write(Box::into_raw(Box::new(kernel)).cast()) };
        Ok(())
    })
}

unsafe extern "system" fn compute(this: *mut sys::OrtKernelImpl, context: *mut sys::OrtKernelContext) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this: &KernelBox = unsafe { &*this.cast() };
    this.border.status("Kernel.Compute", || {
        // SAFETY: the context is alive for the call.
        this.inner.compute(&unsafe { KernelContext::from_raw(this.border.runtime, context) })
    })
}

unsafe extern "system" fn release(this: *mut sys::OrtKernelImpl) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each kernel once.
    let kernel = unsafe { Box::from_raw(this.cast::<KernelBox>()) };
    let border = kernel.border;
    border.value("Kernel.Release", (), move || {
        drop(kernel);
        Ok(())
    });
}

/// The kernels of the copy nodes that ONNX Runtime inserts at the edge of a partition. Without them it runs those nodes
/// on the CPU, and the partition gets host pointers.
pub(super) fn copy_kernels(transfer: &Arc<dyn DataTransfer>) -> Vec<KernelDef> {
    let make = |op_type: &str| {
        let transfer = transfer.clone();
        KernelDef::new("", op_type, 1..=1, move |_| Ok(Box::new(CopyKernel(transfer.clone()))))
            .types("T", ElementType::ALL)
    };
    vec![make("MemcpyFromHost").host_input(0), make("MemcpyToHost").host_output(0)]
}

struct CopyKernel(Arc<dyn DataTransfer>);

impl Kernel for CopyKernel {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let src = context.input(0)?.ok_or_else(|| Error::invalid_argument("a copy node has no input"))?;
        let dst =
            context.output(0, src.shape()?)?.ok_or_else(|| Error::invalid_argument("a copy node has no output"))?;
        self.0.copy(&mut [TensorCopy { src, dst, stream: context.stream()? }])
    }
}
