//! A graph on one engine, ready to run.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::handle::RawHandle;
use super::{Descriptor, Handle};
use crate::result;
use crate::sys::{AttributeName as A, DescriptorType};
use crate::{Error, Result};

/// A graph on one engine, ready to run.
pub struct Plan {
    descriptor: Descriptor,
    engine: i64,
    workspace: usize,
    arguments: RefCell<Arguments>,
    /// The plan's handle must outlive it.
    _handle: Arc<RawHandle>,
}

/// The addresses of the last execution. A backend's variant pack cannot be changed, but it can be reused.
struct Arguments {
    uids: Vec<i64>,
    addresses: Vec<*mut c_void>,
    workspace: *mut c_void,
    pack: Option<Descriptor>,
}

// SAFETY: the stored addresses are only passed to the backend again by `execute`, whose caller vouches for the same
// ones.
unsafe impl Send for Plan {}

impl Plan {
    /// Wraps a finalized plan.
    pub(crate) fn new(descriptor: Descriptor, engine: i64, handle: Arc<RawHandle>) -> Result<Self> {
        let workspace = descriptor.i64(A::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let workspace = usize::try_from(workspace)
            .map_err(|_| Error::invalid("a plan", format!("it needs a workspace of {workspace} bytes")))?;
        Ok(Self { descriptor, engine, workspace, arguments: RefCell::new(Arguments::NONE), _handle: handle })
    }

    /// The raw descriptor of the plan, for calls that this crate does not make.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The engine's id.
    pub fn engine(&self) -> i64 {
        self.engine
    }

    /// Bytes of device memory that [`execute`](Self::execute) needs as workspace.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    /// The uids of the tensors that [`execute`](Self::execute) needs.
    ///
    /// # Errors
    /// The backend cannot report them.
    pub fn tensor_uids(&self) -> Result<Vec<i64>> {
        self.descriptor.i64s(A::EXECUTION_PLAN_TENSOR_UIDS_EXT)
    }

    /// Enqueues the graph on the handle's stream, with an address for each tensor that is not virtual and has no value
    /// in the graph. If the addresses and their order are the same as the last time, this costs one backend call.
    ///
    /// # Errors
    /// A tensor is missing, or the engine fails.
    ///
    /// # Safety
    /// The handle belongs to the library that created the plan. Each address is valid for its tensor's extents and
    /// strides until the work is done: device memory, except for a tensor [given by value](crate::Tensor::by_value),
    /// whose address is in host memory. `workspace` has [`workspace_bytes`](Self::workspace_bytes) bytes of device
    /// memory, or is null if that is 0.
    pub unsafe fn execute(
        &self,
        handle: &Handle,
        tensors: impl IntoIterator<Item = (i64, *mut c_void)>,
        workspace: *mut c_void,
    ) -> Result<()> {
        let workspace = if self.workspace == 0 { ptr::null_mut() } else { workspace };
        let Ok(mut arguments) = self.arguments.try_borrow_mut() else {
            return Err(Error::invalid("a plan", "its tensors are unknown"));
        };
        arguments.replace(tensors, workspace);
        let pack = arguments.pack(&self.descriptor)?;
        let (backend, plan) = (&**self.descriptor.backend(), self.descriptor.raw());
        // SAFETY: handle, plan and pack are alive and finalized; the caller vouches for the addresses.
        unsafe { result::plan::execute(backend, handle.raw(), plan, pack.raw()) }
    }
}

impl Arguments {
    const NONE: Self = Self { uids: Vec::new(), addresses: Vec::new(), workspace: ptr::null_mut(), pack: None };

    /// Stores new addresses; keeps the pack if they are the same.
    fn replace(&mut self, tensors: impl IntoIterator<Item = (i64, *mut c_void)>, workspace: *mut c_void) {
        let (mut count, mut differs) = (0, workspace != self.workspace);
        for (uid, address) in tensors {
            if count < self.uids.len() {
                differs |= self.uids[count] != uid || self.addresses[count] != address;
                (self.uids[count], self.addresses[count]) = (uid, address);
            } else {
                differs = true;
                self.uids.push(uid);
                self.addresses.push(address);
            }
            count += 1;
        }
        if count < self.uids.len() {
            differs = true;
            self.uids.truncate(count);
            self.addresses.truncate(count);
        }
        self.workspace = workspace;
        if differs {
            self.pack = None;
        }
    }

    fn pack(&mut self, plan: &Descriptor) -> Result<&Descriptor> {
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => {
                let pack = Descriptor::new(plan.backend(), DescriptorType::VARIANT_PACK_DESCRIPTOR)?;
                pack.set_addresses(A::VARIANT_PACK_DATA_POINTERS, &self.addresses)?;
                pack.set_i64s(A::VARIANT_PACK_UNIQUE_IDS, &self.uids)?;
                pack.set_addresses(A::VARIANT_PACK_WORKSPACE, &[self.workspace])?;
                pack.finalize()?;
                pack
            }
        };
        Ok(self.pack.insert(pack))
    }
}
