//! Work in stream order.

use std::collections::HashMap;
use std::sync::Arc;

use hip::{Device, Driver, DriverKind, RawStream};
use hipdnn::sys::{AttributeName as A, DescriptorType as D, Status};

use crate::descriptor::Descriptor;
use crate::engine;
use crate::fault::{Fault, Outcome};
use crate::registry::Handle;
use crate::value::Value;

/// Enqueues a plan on the handle's stream.
///
/// # Safety
/// The addresses of the pack are valid for the plan's tensors until the stream has passed this point; the handle's stream
/// is alive and of the host driver.
pub unsafe fn execute(handle: &Handle, plan: &Descriptor, pack: &Descriptor) -> Outcome {
    plan.require(D::EXECUTION_PLAN_DESCRIPTOR)?;
    pack.require(D::VARIANT_PACK_DESCRIPTOR)?;
    let program = engine::program_of(plan)?;
    let addresses = match pack.value(A::VARIANT_PACK_DATA_POINTERS) {
        Some(Value::Addresses(addresses)) => addresses,
        _ => Vec::new(),
    };
    let tensors: HashMap<i64, usize> = pack.i64s(A::VARIANT_PACK_UNIQUE_IDS).into_iter().zip(addresses).collect();
    let bindings = program.bind(&tensors).map_err(Fault::bad)?;
    let failed = |text: String| Fault::new(Status::EXECUTION_FAILED, text);
    let stream = handle.stream();
    let device = match host_device() {
        Some(device) if stream != 0 => device,
        other => {
            if let Some(device) = other {
                // The default stream is ordered with every other one: what was enqueued before must be done.
                device.stream_synchronize(RawStream::DEFAULT).map_err(|error| failed(error.to_string()))?;
            }
            // SAFETY: the caller's promise.
            return unsafe { program.run(&bindings) }.map_err(failed);
        }
    };
    // SAFETY: the caller's promise.
    let stream = unsafe { RawStream::from_ptr(std::ptr::with_exposed_provenance_mut(stream)) };
    let work = move || {
        // SAFETY: the caller's promise lasts until the stream has passed this point.
        if let Err(text) = unsafe { program.run(&bindings) } {
            tracing::error!(target: "hipdnn_host", "{text}");
        }
    };
    device.launch_host_fn(stream, work).map_err(|error| failed(error.to_string()))
}

/// The host driver's device; `None` where its library can't be found, and then there are no streams either.
fn host_device() -> Option<Device> {
    let driver = Driver::load(DriverKind::Host).ok()?;
    driver.devices().ok()?.into_iter().next()
}

/// A handle that is alive.
pub fn handle(number: *mut std::ffi::c_void) -> Outcome<Arc<Handle>> {
    crate::registry::HANDLES.get("the handle", number)
}
