//! Modules (compiled code on a device) and the kernels in them.

use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;
use super::image;
use super::report_leak;
use super::stream::RawStream;
use crate::HipError;
use crate::result::{Runtime, module};
use crate::sys::codes::function;
use crate::sys::{Handle, twin};

/// Compiled code on a device. Clones and functions share it; it is unloaded when the last of them is dropped.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    device: Device,
    handle: Handle,
}

// SAFETY: module handles may be used from any thread; the driver does its own locking.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A kernel of a module.
pub struct Function {
    module: Module,
    handle: Handle,
    /// Dynamic LDS already opted in to; only the twin needs that.
    opted_lds: AtomicU32,
    /// Held while opting in: setting a smaller size last would override a larger one.
    opting: Mutex<()>,
}

// SAFETY: function handles may be used from any thread and live as long as the module.
unsafe impl Send for Function {}
// SAFETY: as above; `opted_lds` is atomic.
unsafe impl Sync for Function {}

impl Device {
    /// Loads compiled code, like [`Module::load`].
    ///
    /// # Errors
    /// As [`Module::load`].
    pub fn module(&self, image: &[u8]) -> Result<Module, HipError> {
        Module::load(self, image)
    }
}

impl Module {
    /// Loads compiled code: an ELF code object, a clang offload bundle or, on the twin, a cubin, fat binary or PTX.
    ///
    /// # Errors
    /// [`HipError::Invalid`] for bytes that are none of these or are truncated; otherwise the driver's status, 209 if
    /// the code is for another target.
    pub fn load(device: &Device, image: &[u8]) -> Result<Module, HipError> {
        let image = image::checked(device.kind(), image)
            .map_err(|reason| HipError::Invalid { call: "hipModuleLoadData", reason })?;
        let _scope = device.enter()?;
        // SAFETY: `checked` made sure that everything the image's headers refer to is present.
        let handle = unsafe { module::load(device.driver().runtime(), image.as_ptr().cast::<c_void>()) }?;
        Ok(Module(Arc::new(Inner { device: device.clone(), handle })))
    }

    /// The device that it was loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// The driver's status, 500 if there is no kernel with that name.
    pub fn function(&self, name: &str) -> Result<Function, HipError> {
        let call = "hipModuleGetFunction";
        let name = CString::new(name)
            .map_err(|_| HipError::Invalid { call, reason: format!("{name:?} contains a NUL byte") })?;
        let _scope = self.0.device.enter()?;
        // SAFETY: the handle is ours and live.
        let handle = unsafe { module::function(self.0.device.driver().runtime(), self.0.handle, &name) }?;
        let opted_lds = AtomicU32::new(twin::SHARED_WITHOUT_OPT_IN);
        Ok(Function { module: self.clone(), handle, opted_lds, opting: Mutex::default() })
    }
}

/// A function that queues a launch.
type Launch = unsafe fn(&Runtime, Handle, [u32; 3], [u32; 3], u32, Handle, *mut *mut c_void) -> Result<(), HipError>;

impl Function {
    /// The device it runs on.
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    /// Launches the kernel in stream order: `grid` counts blocks, `block` counts threads.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// `arguments` has one pointer per kernel parameter, each to a value of its type. Memory that the kernel accesses
    /// stays valid, and this function is not dropped, until the stream has passed this point and, if it is captured,
    /// for every launch of the capture.
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        lds_bytes: u32,
        stream: RawStream<'_>,
        arguments: &mut [*mut c_void],
    ) -> Result<(), HipError> {
        // SAFETY: the caller vouches for the arguments.
        unsafe { self.launch_as(grid, block, lds_bytes, stream, arguments, module::launch) }
    }

    /// Like [`launch`](Self::launch), but the blocks may start before the previous launch has ended, if the driver
    /// supports it; otherwise the same.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch). The work queued before it is a launch, and the kernel itself waits for its end
    /// before it accesses memory that earlier work on the stream reads or writes.
    pub unsafe fn launch_early(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        lds_bytes: u32,
        stream: RawStream<'_>,
        arguments: &mut [*mut c_void],
    ) -> Result<(), HipError> {
        // SAFETY: the caller vouches for the arguments.
        unsafe { self.launch_as(grid, block, lds_bytes, stream, arguments, module::launch_early) }
    }

    /// # Safety
    /// As for the function that calls it.
    unsafe fn launch_as(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        lds_bytes: u32,
        stream: RawStream<'_>,
        arguments: &mut [*mut c_void],
        launch: Launch,
    ) -> Result<(), HipError> {
        let device = self.device();
        let runtime = device.driver().runtime();
        let _scope = device.enter()?;
        if lds_bytes > self.opted_lds.load(Ordering::Acquire) {
            let _turn = self.opting.lock().unwrap_or_else(PoisonError::into_inner);
            if lds_bytes > self.opted_lds.load(Ordering::Acquire) {
                // SAFETY: the handle is ours and live.
                unsafe { module::allow_dynamic_lds(runtime, self.handle, lds_bytes) }?;
                self.opted_lds.store(lds_bytes, Ordering::Release);
            }
        }
        // SAFETY: the handle is ours and live; the caller vouches for the arguments and the memory they refer to.
        unsafe { launch(runtime, self.handle, grid, block, lds_bytes, stream.handle(), arguments.as_mut_ptr()) }
    }

    /// Registers that a lane uses.
    ///
    /// # Errors
    /// The driver's status.
    pub fn registers(&self) -> Result<u32, HipError> {
        self.attribute(function::REGISTERS)
    }

    /// Scratch bytes that a lane uses; anything but 0 is a spill.
    ///
    /// # Errors
    /// The driver's status.
    pub fn scratch_bytes(&self) -> Result<u32, HipError> {
        self.attribute(function::SCRATCH)
    }

    /// LDS bytes fixed at compile time.
    ///
    /// # Errors
    /// The driver's status.
    pub fn static_lds_bytes(&self) -> Result<u32, HipError> {
        self.attribute(function::STATIC_LDS)
    }

    /// The largest block the kernel can be launched with.
    ///
    /// # Errors
    /// The driver's status.
    pub fn max_threads(&self) -> Result<u32, HipError> {
        self.attribute(function::MAX_THREADS)
    }

    /// Blocks that fit on one compute unit at a time.
    ///
    /// # Errors
    /// The driver's status.
    pub fn max_active_blocks(&self, block_threads: u32, lds_bytes: u32) -> Result<u32, HipError> {
        let _scope = self.device().enter()?;
        let runtime = self.device().driver().runtime();
        let threads = c_int::try_from(block_threads).unwrap_or(c_int::MAX);
        // SAFETY: the handle is ours and live.
        let blocks = unsafe { module::max_active_blocks(runtime, self.handle, threads, lds_bytes as usize) }?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    fn attribute(&self, number: c_int) -> Result<u32, HipError> {
        let _scope = self.device().enter()?;
        // SAFETY: the handle is ours and live.
        let value = unsafe { module::function_attribute(self.device().driver().runtime(), self.handle, number) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        // SAFETY: the handle came from `load` on this driver; every `Function` holds `self`, and callers that launched
        // one vouched for keeping it until the work was done.
        let unloaded = self.device.enter().and_then(|_scope| unsafe { module::unload(runtime, self.handle) });
        if let Err(error) = unloaded {
            report_leak("module", &error);
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:p}, {})", self.0.handle, self.0.device)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({:p}, {:?})", self.handle, self.module)
    }
}
