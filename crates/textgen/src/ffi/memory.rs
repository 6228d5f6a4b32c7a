//! Memory for tensors, where the session wants it. Every block owns its allocator, and the allocator owns the session,
//! so blocks may be dropped in any order.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort::AsPointer;
use ort::environment::Environment;
use ort::session::{Session, SharedSessionInner};
use ort::sys::{OrtAllocator, OrtAllocatorType, OrtMemType, OrtMemoryInfo, OrtMemoryInfoDeviceType};

use super::{Kind, Tensor, check};
use crate::error::Doing;
use crate::{Error, Result};

/// The alignment that vectorised kernels prefer.
const ALIGNMENT: usize = 64;

/// A memory location: host or device.
#[derive(Debug)]
pub(crate) struct Place {
    info: NonNull<OrtMemoryInfo>,
    /// `None` means host memory.
    device: Option<OnDevice>,
}

#[derive(Debug)]
struct OnDevice {
    allocator: NonNull<OrtAllocator>,
    environment: Environment,
    /// Owns the memory info, and must outlive the allocator.
    _session: Arc<SharedSessionInner>,
}

// SAFETY: an ONNX Runtime allocator may be called from any thread, and a memory info is never changed.
unsafe impl Send for Place {}
// SAFETY: as above; allocators of sessions lock internally.
unsafe impl Sync for Place {}

impl Place {
    /// Host memory.
    pub fn host() -> Result<Arc<Place>> {
        let mut info = ptr::null_mut();
        // SAFETY: `info` is written if the call succeeds, and is then ours to release.
        check(unsafe {
            (ort::api().CreateCpuMemoryInfo)(
                OrtAllocatorType::OrtDeviceAllocator,
                OrtMemType::OrtMemTypeDefault,
                &mut info,
            )
        })
        .and_then(|()| non_null(info))
        .doing("naming the memory of this process")
        .map(|info| Arc::new(Place { info, device: None }))
    }

    /// Where a session wants one of its inputs: device memory, or `None` for host memory.
    pub fn of_input(environment: &Environment, session: &Session, index: usize) -> Result<Option<Arc<Place>>> {
        let mut infos = vec![ptr::null(); session.inputs().len()];
        // SAFETY: the array has space for every input; the infos belong to the session.
        check(unsafe { (ort::api().SessionGetMemoryInfoForInputs)(session.ptr(), infos.as_mut_ptr(), infos.len()) })
            .doing("asking where inputs are wanted")?;
        let Some(info) = infos.get(index).and_then(|info| NonNull::new(info.cast_mut())) else { return Ok(None) };
        let mut kind = OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU;
        // SAFETY: the info lives as long as the session.
        unsafe { (ort::api().MemoryInfoGetDeviceType)(info.as_ptr(), &mut kind) };
        if kind == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU {
            return Ok(None);
        }
        let mut allocator = ptr::null_mut();
        // SAFETY: session and info are alive; the allocator is ours to release if the call succeeds.
        check(unsafe { (ort::api().CreateAllocator)(session.ptr(), info.as_ptr(), &mut allocator) })
            .and_then(|()| non_null(allocator))
            .doing("making the device's allocator")
            .map(|allocator| {
                let device = OnDevice { allocator, environment: environment.clone(), _session: session.inner() };
                Some(Arc::new(Place { info, device: Some(device) }))
            })
    }

    /// Peak memory of the device's allocator in bytes, if it has statistics.
    pub fn most_in_use(&self) -> Option<u64> {
        let device = self.device.as_ref()?;
        let mut counters = ptr::null_mut();
        // SAFETY: the allocator lives as long as the place; the counters are ours to release if the call succeeds.
        check(unsafe { (ort::api().AllocatorGetStats)(device.allocator.as_ptr(), &mut counters) }).ok()?;
        let counters = NonNull::new(counters)?;
        // SAFETY: the counters and their strings are alive until they are released below.
        unsafe {
            let text = (ort::api().GetKeyValue)(counters.as_ptr(), c"MaxInUse".as_ptr());
            let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            (ort::api().ReleaseKeyValuePairs)(counters.as_ptr());
            text?.parse().ok()
        }
    }

    pub(super) fn info(&self) -> *const OrtMemoryInfo {
        self.info.as_ptr()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: both were created for this place. Blocks of memory hold the place, so none is left.
        unsafe {
            match &self.device {
                Some(device) => (ort::api().ReleaseAllocator)(device.allocator.as_ptr()),
                None => (ort::api().ReleaseMemoryInfo)(self.info.as_ptr()),
            }
        }
    }
}

/// A block of memory, initialised to zero.
#[derive(Debug)]
pub(crate) struct Memory {
    data: NonNull<c_void>,
    bytes: usize,
    place: Arc<Place>,
}

// SAFETY: the block is owned; its bytes are only accessed by ONNX Runtime, through tensors that hold the block, and by
// a `HostTensor`, which does not share its block.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of zeros.
    pub fn zeroed(place: &Arc<Place>, bytes: usize) -> Result<Memory> {
        let refused = |why: String| {
            Error::request(
                format!("{bytes} bytes of memory cannot be had: {why}"),
                "ask for a smaller max_length (search.max_length in genai_config.json) or a smaller batch",
            )
        };
        match &place.device {
            None => {
                let layout = layout(bytes).ok_or_else(|| refused("it is too much".to_owned()))?;
                // SAFETY: the layout is never empty.
                let data = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<c_void>());
                let data = data.ok_or_else(|| refused("the system refused".to_owned()))?;
                Ok(Memory { data, bytes, place: Arc::clone(place) })
            }
            Some(device) => {
                let mut data = ptr::null_mut();
                // SAFETY: the allocator lives as long as the place, which the block will hold.
                check(unsafe { (ort::api().AllocatorAlloc)(device.allocator.as_ptr(), bytes.max(1), &mut data) })
                    .and_then(|()| non_null(data))
                    .map_err(|error| refused(error.to_string()))
                    .and_then(|data| {
                        let memory = Memory { data, bytes, place: Arc::clone(place) };
                        memory.clear(&device.environment)
                    })
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn data(&self) -> *mut c_void {
        self.data.as_ptr()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Fills a block of device memory with zeros.
    fn clear(self, environment: &Environment) -> Result<Memory> {
        if self.bytes == 0 {
            return Ok(self);
        }
        let zeros = Arc::new(Memory::zeroed(&Place::host()?, self.bytes)?);
        let this = Arc::new(self);
        let shape = [this.bytes as i64];
        let source = Tensor::new(&zeros, Kind::Byte, &shape)?;
        let target = Tensor::new(&this, Kind::Byte, &shape)?;
        let (sources, mut targets) = ([source.as_ptr()], [target.as_ptr()]);
        // SAFETY: both tensors are alive during the call, have the same size, and nothing else uses the target yet;
        // without a stream, the copy is complete on return.
        check(unsafe {
            (ort::api().CopyTensors)(
                environment.ptr().cast_mut(),
                sources.as_ptr(),
                targets.as_mut_ptr(),
                ptr::null_mut(),
                1,
            )
        })
        .doing("clearing a device's memory")?;
        drop(target);
        Arc::into_inner(this).ok_or_else(|| Error::request("memory is in use", "this is a mistake in textgen"))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(device) = &self.place.device {
            // SAFETY: the block came from this allocator, which the place keeps alive.
            let status = unsafe { (ort::api().AllocatorFree)(device.allocator.as_ptr(), self.data.as_ptr()) };
            drop(check(status));
        } else if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.data.as_ptr().cast(), layout) };
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
}

fn non_null<T>(pointer: *mut T) -> ort::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| ort::Error::new("ONNX Runtime returned nothing"))
}
