//! An owned cuDNN handle.

use std::ptr;

use hipdnn_abi::Outcome;

use super::Descriptor;
use crate::result::handle as result;
use crate::sys::{self, Cudnn};

/// A handle on the device that was current when it was created. One call at a time may use it.
pub struct Handle {
    raw: sys::Handle,
    stream: usize,
    cudnn: &'static Cudnn,
}

// SAFETY: any thread may use a cuDNN handle, one at a time; `&Handle` does not leave its thread.
unsafe impl Send for Handle {}

impl Handle {
    /// Creates a handle on the current device.
    pub fn new(cudnn: &'static Cudnn) -> Outcome<Self> {
        Ok(Self { raw: result::create(cudnn)?, stream: 0, cudnn })
    }

    /// cuDNN's pointer to it.
    pub(super) fn raw(&self) -> sys::Handle {
        self.raw
    }

    /// Queues work on this stream from now on.
    ///
    /// # Safety
    /// The stream belongs to the handle's device, and stays alive until another one is set or the handle is dropped.
    pub unsafe fn set_stream(&mut self, stream: usize) -> Outcome {
        if self.stream != stream {
            // SAFETY: the handle is alive; the caller vouches for the stream.
            unsafe { result::set_stream(self.cudnn, self.raw, ptr::with_exposed_provenance_mut(stream))? };
            self.stream = stream;
        }
        Ok(())
    }

    /// Enqueues a plan with the addresses of a variant pack.
    ///
    /// # Safety
    /// The addresses are valid until the handle's stream has executed the plan.
    pub unsafe fn execute(&self, plan: &Descriptor, pack: &Descriptor) -> Outcome {
        // SAFETY: all of them are alive; the caller vouches for the addresses.
        unsafe { result::execute(self.cudnn, self.raw, plan.raw(), pack.raw()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `create` and never handed out.
        if let Err(fault) = unsafe { result::destroy(self.cudnn, self.raw) } {
            tracing::warn!(target: "hipdnn::cudnn", "{}", fault.text);
        }
    }
}
