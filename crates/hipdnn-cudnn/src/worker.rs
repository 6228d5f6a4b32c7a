//! The data of a hipDNN handle: a cuDNN handle on the device that was current when it was created.

use std::sync::{Mutex, PoisonError};

use hipdnn::sys::Status;
use hipdnn_abi::{Fault, Outcome};

use crate::plan_cache::PlanCache;
use crate::safe::{Descriptor, Handle};
use crate::sys::{AttributeName, Cudnn, DescriptorType};

/// The file that describes a device, as cuDNN serialises it, to build plans for without having it.
const DEVICE_FILE: &str = "AMDGPU_EP_CUDNN_DEVICE_FILE";

/// A cuDNN handle, or the description of an absent device: plans can then be built, but not executed.
pub struct Worker {
    /// cuDNN.
    pub cudnn: &'static Cudnn,
    /// One call at a time may use it.
    handle: Option<Mutex<Handle>>,
    described: Option<Descriptor>,
    /// Cached plans, if cuDNN can describe this device.
    pub plan_cache: Option<PlanCache>,
}

impl Worker {
    /// A handle on the current device.
    pub fn new() -> Outcome<Self> {
        let absent = |text: String| Fault::new(Status::NOT_INITIALIZED, text);
        let cudnn = Cudnn::load().map_err(|error| absent(error.to_string()))?;
        if let Some(file) = std::env::var_os(DEVICE_FILE).filter(|file| !file.is_empty()) {
            let shown = file.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).map_err(|error| absent(format!("{shown}: {error}")))?;
            let described = Descriptor::new(cudnn, DescriptorType::DEVICEPROP_DESCRIPTOR)?;
            described.set_text(AttributeName::DEVICEPROP_JSON_REPRESENTATION, &text)?;
            described.finalize()?;
            let plan_cache = PlanCache::new(made_for(cudnn, &text));
            return Ok(Self { cudnn, handle: None, described: Some(described), plan_cache });
        }
        let handle = Handle::new(cudnn)?;
        let plan_cache = device_of(cudnn, &handle).ok().and_then(|device| PlanCache::new(made_for(cudnn, &device)));
        Ok(Self { cudnn, handle: Some(Mutex::new(handle)), described: None, plan_cache })
    }

    /// Sets the device of a graph.
    pub fn place_graph(&self, graph: &Descriptor) -> Outcome {
        self.with_handle(|handle| graph.set_handle(AttributeName::OPERATIONGRAPH_HANDLE, handle))
    }

    /// Sets the device that engines are searched for.
    pub fn place_heuristic(&self, heuristic: &Descriptor) -> Outcome {
        match &self.described {
            Some(device) => heuristic.set_descriptors(AttributeName::ENGINEHEUR_DEVICEPROP, &[device]),
            None => Ok(()),
        }
    }

    /// Sets the device of a plan.
    pub fn place_plan(&self, plan: &Descriptor) -> Outcome {
        match &self.described {
            Some(device) => plan.set_descriptors(AttributeName::EXECUTION_PLAN_DEVICEPROP, &[device]),
            None => self.with_handle(|handle| plan.set_handle(AttributeName::EXECUTION_PLAN_HANDLE, handle)),
        }
    }

    /// Calls with the handle, if there is one.
    pub fn with_handle(&self, call: impl FnOnce(&Handle) -> Outcome) -> Outcome {
        match &self.handle {
            Some(handle) => call(&handle.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Ok(()),
        }
    }

    /// Calls with the handle set to a stream.
    pub fn on_stream(&self, stream: usize, call: impl FnOnce(&Handle) -> Outcome) -> Outcome {
        let Some(handle) = &self.handle else {
            return Err(Fault::new(
                Status::NOT_INITIALIZED,
                format!("{DEVICE_FILE} describes a device that is not present"),
            ));
        };
        let mut handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller of hipdnnSetStream guarantees the stream.
        unsafe { handle.set_stream(stream)? };
        call(&handle)
    }
}

/// The device of a handle, as cuDNN describes it.
fn device_of(cudnn: &'static Cudnn, handle: &Handle) -> Outcome<String> {
    let device = Descriptor::new(cudnn, DescriptorType::DEVICEPROP_DESCRIPTOR)?;
    device.set_handle(AttributeName::DEVICEPROP_HANDLE, handle)?;
    device.finalize()?;
    device.text(AttributeName::DEVICEPROP_JSON_REPRESENTATION)
}

fn made_for(cudnn: &Cudnn, device: &str) -> String {
    format!("cuDNN {}\n{device}", cudnn.release())
}
