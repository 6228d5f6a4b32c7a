//! Memory for tensors, where a session wants it. Every block keeps its location alive, and the location its session,
//! so blocks may be dropped in any order.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{self as sys, Api, OrtAllocator, OrtMemoryInfo};

use crate::error::check;
use crate::{Element, Error, Result, Runtime, Session, Tensor, allocator};

/// The alignment that vectorised kernels prefer.
const ALIGNMENT: usize = 64;

/// Where memory is: on the host, or on a device of a session.
#[derive(Debug)]
pub struct MemoryLocation {
    runtime: Runtime,
    info: NonNull<OrtMemoryInfo>,
    /// `None` means host memory.
    device: Option<OnDevice>,
}

#[derive(Debug)]
struct OnDevice {
    allocator: NonNull<OrtAllocator>,
    /// Owns the memory info, and must outlive the allocator.
    session: Session,
}

// SAFETY: an ONNX Runtime allocator may be called from any thread, and a memory info is never changed.
unsafe impl Send for MemoryLocation {}
// SAFETY: as above; allocators of sessions lock internally.
unsafe impl Sync for MemoryLocation {}

impl MemoryLocation {
    /// Host memory.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn host(runtime: &Runtime) -> Result<Arc<MemoryLocation>> {
        let (api, mut info) = (&runtime.api, ptr::null_mut());
        // SAFETY: `info` is written if the call succeeds, and is then ours to release.
        check(api, unsafe { api.CreateCpuMemoryInfo(sys::ORT_ALLOCATOR_DEVICE, sys::ORT_MEM_DEFAULT, &mut info) })?;
        let info = NonNull::new(info).ok_or(Error::Nothing("memory info"))?;
        Ok(Arc::new(MemoryLocation { runtime: runtime.clone(), info, device: None }))
    }

    /// Where a session wants the input with this index: device memory, or `None` for host memory.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn of_input(session: &Session, index: usize) -> Result<Option<Arc<MemoryLocation>>> {
        let (api, mut infos) = (session.api(), vec![ptr::null(); session.inputs().len()]);
        // SAFETY: the array has space for every input; the infos belong to the session.
        check(api, unsafe { api.SessionGetMemoryInfoForInputs(session.as_ptr(), infos.as_mut_ptr(), infos.len()) })?;
        let Some(info) = infos.get(index).and_then(|info| NonNull::new(info.cast_mut())) else { return Ok(None) };
        let (mut kind, mut allocator) = (sys::ORT_DEVICE_CPU, ptr::null_mut());
        // SAFETY: the info lives as long as the session.
        unsafe { api.MemoryInfoGetDeviceType(info.as_ptr(), &mut kind) };
        if kind == sys::ORT_DEVICE_CPU {
            return Ok(None);
        }
        // SAFETY: session and info are alive; the allocator is ours to release if the call succeeds.
        check(api, unsafe { api.CreateAllocator(session.as_ptr(), info.as_ptr(), &mut allocator) })?;
        let allocator = NonNull::new(allocator).ok_or(Error::Nothing("allocator"))?;
        let device = OnDevice { allocator, session: session.clone() };
        let runtime = session.environment().runtime().clone();
        Ok(Some(Arc::new(MemoryLocation { runtime, info, device: Some(device) })))
    }

    /// The statistics of the device's allocator, if it keeps any.
    pub fn stats(&self) -> Option<Vec<(String, String)>> {
        // SAFETY: the allocator lives as long as the place.
        unsafe { allocator::stats(self.api(), self.device.as_ref()?.allocator) }.ok()
    }

    pub(crate) fn is_host(&self) -> bool {
        self.device.is_none()
    }

    pub(crate) fn api(&self) -> &Api {
        &self.runtime.api
    }

    pub(crate) fn info(&self) -> *const OrtMemoryInfo {
        self.info.as_ptr()
    }
}

impl Drop for MemoryLocation {
    fn drop(&mut self) {
        // SAFETY: both were created for this place. Blocks of memory hold the place, so none is left.
        unsafe {
            match &self.device {
                Some(device) => self.api().ReleaseAllocator(device.allocator.as_ptr()),
                None => self.api().ReleaseMemoryInfo(self.info.as_ptr()),
            }
        }
    }
}

/// A block of memory, initialised to zero. Only ONNX Runtime accesses its bytes, through [`Tensor`]s over it.
#[derive(Debug)]
pub struct Memory {
    data: NonNull<c_void>,
    bytes: usize,
    place: Arc<MemoryLocation>,
}

// SAFETY: the block is owned; its bytes are only accessed by ONNX Runtime, through tensors that hold the block, and by
// a `HostTensor`, which does not share its block.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of zeros.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn zeroed(place: &Arc<MemoryLocation>, bytes: usize) -> Result<Memory> {
        let refused = |reason: String| Error::OutOfMemory { bytes, reason };
        let Some(device) = &place.device else {
            let layout = layout(bytes).ok_or_else(|| refused("the size overflows".to_owned()))?;
            // SAFETY: the layout is never empty.
            let data = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<c_void>());
            let data = data.ok_or_else(|| refused("the system refused".to_owned()))?;
            return Ok(Memory { data, bytes, place: Arc::clone(place) });
        };
        let (api, mut data) = (place.api(), ptr::null_mut());
        // SAFETY: the allocator lives as long as the place, which the block will hold.
        check(api, unsafe { api.AllocatorAlloc(device.allocator.as_ptr(), bytes.max(1), &mut data) })
            .and_then(|()| NonNull::new(data).ok_or(Error::Nothing("memory")))
            .map_err(|error| refused(error.message().into_owned()))
            .and_then(|data| Memory { data, bytes, place: Arc::clone(place) }.cleared(&device.session))
    }

    /// The size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn data(&self) -> *mut c_void {
        self.data.as_ptr()
    }

    pub(crate) fn place(&self) -> &Arc<MemoryLocation> {
        &self.place
    }

    /// Fills a block of device memory with zeros.
    fn cleared(self, session: &Session) -> Result<Memory> {
        if self.bytes == 0 {
            return Ok(self);
        }
        let zeros = Arc::new(Memory::zeroed(&MemoryLocation::host(&self.place.runtime)?, self.bytes)?);
        let this = Arc::new(self);
        let shape = [this.bytes as i64];
        let source = Tensor::new(&zeros, Element::U8, &shape)?;
        let target = Tensor::new(&this, Element::U8, &shape)?;
        // SAFETY: both tensors are alive during the call and have the same size; nothing else uses the target yet.
        unsafe { session.environment().copy_raw(&[source.as_ptr()], &mut [target.as_ptr()]) }?;
        drop(target);
        Arc::into_inner(this).ok_or(Error::Nothing("memory"))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(device) = &self.place.device {
            let api = self.place.api();
            // SAFETY: the block came from this allocator, which the place keeps alive.
            let freed = check(api, unsafe { api.AllocatorFree(device.allocator.as_ptr(), self.data.as_ptr()) });
            if let Err(error) = freed {
                tracing::warn!(%error, bytes = self.bytes, "memory could not be freed");
            }
        } else if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.data.as_ptr().cast(), layout) };
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
}
