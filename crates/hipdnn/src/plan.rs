//! From a built graph to something that runs.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

use crate::descriptor::Descriptor;
use crate::handle::{Handle, check};
use crate::sys::{AttributeName, AttributeType, DescriptorType, HeurMode};
use crate::{Error, Result};

/// A graph that a backend has accepted.
pub struct OperationGraph {
    descriptor: Descriptor,
    name: String,
}

/// An engine that can run a graph, in the order of the backend's preference.
pub struct Candidate {
    config: Descriptor,
    /// The engine's id.
    pub engine: i64,
}

impl OperationGraph {
    pub(crate) fn new(descriptor: Descriptor, name: String) -> Self {
        Self { descriptor, name }
    }

    /// The engines that can run the graph, the best first; none is an answer, not an error.
    ///
    /// # Errors
    /// The backend could not say.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let heuristic = self.heuristic(false)?;
        let backend = heuristic.backend();
        let count = heuristic.count(AttributeName::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR)?;
        let configs = (0..count)
            .map(|_| Descriptor::new(backend, DescriptorType::ENGINECFG_DESCRIPTOR))
            .collect::<Result<Vec<_>>>()?;
        let filled = if count == 0 { 0 } else { heuristic.fill(AttributeName::ENGINEHEUR_RESULTS, &configs)? };
        configs
            .into_iter()
            .take(filled)
            .map(|config| {
                config.finalize()?;
                let engine = config.descriptor(AttributeName::ENGINECFG_ENGINE, DescriptorType::ENGINE_DESCRIPTOR)?;
                let engine = engine.i64(AttributeName::ENGINE_GLOBAL_INDEX)?;
                Ok(Candidate { config, engine })
            })
            .collect()
    }

    /// True if some engine runs the graph; cheaper than asking for all.
    ///
    /// # Errors
    /// The backend could not say.
    pub fn is_supported(&self) -> Result<bool> {
        let heuristic = self.heuristic(true)?;
        Ok(heuristic.count(AttributeName::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR)? > 0)
    }

    /// A plan on the best engine that can make one.
    ///
    /// # Errors
    /// No engine runs the graph, or none could make a plan: then the last one's reason.
    pub fn plan(&self) -> Result<Plan> {
        let nobody = Error::NotSupported { backend: self.descriptor.backend().describe(), graph: self.name.clone() };
        let mut last = Err(nobody);
        for candidate in self.candidates()? {
            last = candidate.plan();
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn heuristic(&self, first_only: bool) -> Result<Descriptor> {
        let heuristic = Descriptor::new(self.descriptor.backend(), DescriptorType::ENGINEHEUR_DESCRIPTOR)?;
        heuristic.set_descriptors(AttributeName::ENGINEHEUR_OPERATION_GRAPH, [&self.descriptor])?;
        heuristic.set_mode(AttributeName::ENGINEHEUR_MODE, AttributeType::HEUR_MODE, HeurMode::FALLBACK.0)?;
        if first_only {
            heuristic.set_bool(AttributeName::ENGINEHEUR_FIND_FIRST_EXT, true)?;
        }
        heuristic.finalize()?;
        Ok(heuristic)
    }
}

impl Candidate {
    /// A plan on this engine, which may compile code.
    ///
    /// # Errors
    /// The engine refuses.
    pub fn plan(&self) -> Result<Plan> {
        let plan = Descriptor::new(self.config.backend(), DescriptorType::EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set_descriptors(AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, [&self.config])?;
        plan.finalize()?;
        let workspace = plan.i64(AttributeName::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let workspace = usize::try_from(workspace).unwrap_or(0);
        Ok(Plan { descriptor: plan, engine: self.engine, workspace, arguments: RefCell::default() })
    }
}

/// A graph on one engine, ready to run.
pub struct Plan {
    descriptor: Descriptor,
    engine: i64,
    workspace: usize,
    arguments: RefCell<(Vec<i64>, Vec<*mut c_void>)>,
}

// SAFETY: the kept lists hold addresses only during `execute`, which does not leave its thread.
unsafe impl Send for Plan {}

impl Plan {
    /// The engine's id.
    pub fn engine(&self) -> i64 {
        self.engine
    }

    /// Bytes of device memory that [`execute`](Self::execute) needs for itself.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    /// Enqueues the graph on the handle's stream, with an address for each tensor that is not virtual and has no value
    /// in the graph.
    ///
    /// # Errors
    /// A tensor is missing, or the engine fails.
    ///
    /// # Safety
    /// Each address is valid for its tensor's extents and strides until the work is done: device memory, except for a
    /// tensor [given by value](crate::Tensor::by_value), whose address is in host memory. `workspace` has
    /// [`workspace_bytes`](Self::workspace_bytes) bytes of device memory, or is null where that is 0.
    pub unsafe fn execute(
        &self,
        handle: &Handle,
        tensors: impl IntoIterator<Item = (i64, *mut c_void)>,
        workspace: *mut c_void,
    ) -> Result<()> {
        let backend = self.descriptor.backend();
        let pack = Descriptor::new(backend, DescriptorType::VARIANT_PACK_DESCRIPTOR)?;
        {
            let (uids, addresses) = &mut *self.arguments.borrow_mut();
            uids.clear();
            addresses.clear();
            for (uid, address) in tensors {
                uids.push(uid);
                addresses.push(address);
            }
            pack.set_addresses(AttributeName::VARIANT_PACK_DATA_POINTERS, addresses)?;
            pack.set_i64s(AttributeName::VARIANT_PACK_UNIQUE_IDS, uids)?;
        }
        pack.set_addresses(
            AttributeName::VARIANT_PACK_WORKSPACE,
            &[if self.workspace == 0 { ptr::null_mut() } else { workspace }],
        )?;
        pack.finalize()?;
        // SAFETY: handle, plan and pack are alive and finalized; the caller vouches for the addresses.
        let status = unsafe { backend.execute(handle.raw(), self.descriptor.raw(), pack.raw()) };
        check(&**backend, || "executing a plan".into(), status)
    }
}
