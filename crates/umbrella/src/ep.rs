//! The execution provider of one session.
use std::sync::Arc;

use ort_ep::{Claims, Ep, MemoryDevice, Result, view::Graph};

use crate::{context::DeviceContext, options::Options};

/// One session on one device that no backend runs: it claims no nodes, and still owns memory and streams.
pub(crate) struct AmdGpuEp {
    context: Arc<DeviceContext>,
    /// Several devices were selected: ONNX Runtime must be told which one it is.
    names_memory: bool,
}

impl AmdGpuEp {
    pub fn new(context: Arc<DeviceContext>, options: &Options, selected: usize) -> Self {
        let (device, driver) = (context.id(), context.driver());
        tracing::info!(
            target: "amdgpu_ep::load", device, %driver, arch = context.device.info().arch, profile = %options.profile,
            "session created without a backend"
        );
        Self { context, names_memory: selected > 1 }
    }
}

impl Ep for AmdGpuEp {
    fn claim(&self, _: Graph<'_>, _: &mut Claims<'_>) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn default_memory(&self) -> Option<MemoryDevice> {
        self.names_memory.then(|| self.context.memory())
    }

    fn available_bytes(&self) -> Option<u64> {
        self.context.device.memory_info().ok().map(|memory| memory.free as u64)
    }
}
