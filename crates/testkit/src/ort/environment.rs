//! The environment: registrations, devices and their memory.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ort_ep_sys::{
    ORT_LOGGING_LEVEL_ERROR, ORT_MEMORY_DEFAULT, ORT_MEMORY_HOST_ACCESSIBLE, OrtAllocator, OrtEnv, OrtEpDevice,
    OrtKeyValuePairs, OrtMemoryInfo,
};

use super::{Runtime, Value};

/// ONNX Runtime's environment; a process has only one, however often it is opened.
pub struct Environment {
    pub(super) runtime: Arc<Runtime>,
    pub(super) raw: NonNull<OrtEnv>,
}

impl Environment {
    /// Opens the environment; only errors are logged.
    ///
    /// # Errors
    /// When ONNX Runtime reports an error.
    pub fn new(runtime: Arc<Runtime>, name: &str) -> Result<Self> {
        let name = CString::new(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are valid for the call; the name is copied.
        let status = unsafe { runtime.api.CreateEnv(ORT_LOGGING_LEVEL_ERROR, name.as_ptr(), &mut raw) };
        runtime.check(status)?;
        let raw = NonNull::new(raw).context("CreateEnv returned no environment")?;
        Ok(Self { runtime, raw })
    }

    /// Registers the plugin library at `path`.
    ///
    /// # Errors
    /// When ONNX Runtime or the library reports an error.
    pub fn register(&self, name: &str, path: &Path) -> Result<Registration<'_>> {
        let name = CString::new(name)?;
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: the environment is alive, the texts are valid for the call and copied.
        let status = unsafe {
            self.runtime.api.RegisterExecutionProviderLibrary(self.raw.as_ptr(), name.as_ptr(), path.as_ptr().cast())
        };
        self.runtime.check(status)?;
        Ok(Registration { environment: self, name })
    }

    /// Copies the contents of each source to the destination with the same index, without a stream.
    ///
    /// # Errors
    /// When ONNX Runtime or the plugin reports an error.
    pub fn copy(&self, sources: &[&Value<'_>], destinations: &[&Value<'_>]) -> Result<()> {
        if sources.len() != destinations.len() {
            bail!("{} sources for {} destinations", sources.len(), destinations.len());
        }
        let sources: Vec<_> = sources.iter().map(|value| value.raw.as_ptr().cast_const()).collect();
        let mut destinations: Vec<_> = destinations.iter().map(|value| value.raw.as_ptr().cast_const()).collect();
        // SAFETY: both arrays hold as many live values as the count says; a null stream is allowed.
        let status = unsafe {
            self.runtime.api.CopyTensors(
                self.raw.as_ptr(),
                sources.as_ptr(),
                destinations.as_mut_ptr(),
                ptr::null_mut(),
                sources.len(),
            )
        };
        self.runtime.check(status)
    }

    fn unregister(&self, name: &CStr) -> Result<()> {
        // SAFETY: the environment is alive and the name valid for the call.
        let status = unsafe { self.runtime.api.UnregisterExecutionProviderLibrary(self.raw.as_ptr(), name.as_ptr()) };
        self.runtime.check(status)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: everything created from the environment borrows it, so nothing still uses it.
        unsafe { self.runtime.api.ReleaseEnv(self.raw.as_ptr()) }
    }
}

/// A registered library; unregistered when dropped.
pub struct Registration<'e> {
    environment: &'e Environment,
    name: CString,
}

impl Registration<'_> {
    /// The devices that the library listed.
    ///
    /// # Errors
    /// When ONNX Runtime reports an error.
    pub fn devices(&self) -> Result<Vec<Device<'_>>> {
        let runtime = &self.environment.runtime;
        let (mut all, mut count) = (ptr::null(), 0);
        // SAFETY: both out-pointers are valid; the array belongs to the environment until the next registration call.
        runtime.check(unsafe { runtime.api.GetEpDevices(self.environment.raw.as_ptr(), &mut all, &mut count) })?;
        let all = if count == 0 {
            &[][..]
        } else {
            // SAFETY: ONNX Runtime gave `count` pointers.
            unsafe { std::slice::from_raw_parts(all, count) }
        };
        let devices = all.iter().filter_map(|&raw| NonNull::new(raw.cast_mut()));
        let devices = devices.map(|raw| Device { environment: self.environment, raw, registration: PhantomData });
        Ok(devices.filter(|device| device.ep_name().as_bytes() == self.name.as_bytes()).collect())
    }

    /// Unregisters the library.
    ///
    /// # Errors
    /// When ONNX Runtime or the library reports an error.
    pub fn unregister(mut self) -> Result<()> {
        // An empty name tells `drop` that nothing is left to do.
        let name = std::mem::take(&mut self.name);
        self.environment.unregister(&name)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty()
            && let Err(error) = self.environment.unregister(&self.name)
        {
            eprintln!("can't unregister {}: {error}", self.name.to_string_lossy());
        }
    }
}

/// A kind of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Device memory.
    Device,
    /// Memory that the CPU can read and write too.
    HostAccessible,
}

impl Memory {
    fn raw(self) -> i32 {
        match self {
            Self::Device => ORT_MEMORY_DEFAULT,
            Self::HostAccessible => ORT_MEMORY_HOST_ACCESSIBLE,
        }
    }
}

/// A device of a registered library.
pub struct Device<'r> {
    pub(super) environment: &'r Environment,
    pub(super) raw: NonNull<OrtEpDevice>,
    registration: PhantomData<&'r Registration<'r>>,
}

impl Device<'_> {
    /// The name of the execution provider.
    pub fn ep_name(&self) -> String {
        // SAFETY: the device lives as long as its registration, which `self` borrows.
        text(unsafe { self.environment.runtime.api.EpDevice_EpName(self.raw.as_ptr()) })
    }

    /// The provider's metadata of the device.
    pub fn metadata(&self) -> Vec<(String, String)> {
        // SAFETY: as in `ep_name`; the pairs belong to the device.
        pairs(&self.environment.runtime, unsafe { self.environment.runtime.api.EpDevice_EpMetadata(self.raw.as_ptr()) })
    }

    /// The environment's shared allocator for a memory of the device.
    ///
    /// # Errors
    /// When the device has no such memory.
    pub fn allocator(&self, memory: Memory) -> Result<Allocator<'_>> {
        let runtime = &self.environment.runtime;
        // SAFETY: as in `ep_name`; the info belongs to the device.
        let info = unsafe { runtime.api.EpDevice_MemoryInfo(self.raw.as_ptr(), memory.raw()) };
        let info = NonNull::new(info.cast_mut()).with_context(|| format!("the device has no {memory:?} memory"))?;
        let mut raw = ptr::null_mut();
        // SAFETY: all three are alive; the allocator belongs to the environment until its library is unregistered.
        let status = unsafe {
            runtime.api.GetSharedAllocator(self.environment.raw.as_ptr(), info.as_ptr().cast_const(), &mut raw)
        };
        runtime.check(status)?;
        let raw = NonNull::new(raw).with_context(|| format!("there is no shared allocator for {memory:?} memory"))?;
        Ok(Allocator { runtime, raw, info })
    }
}

/// A shared allocator.
pub struct Allocator<'d> {
    pub(super) runtime: &'d Arc<Runtime>,
    pub(super) raw: NonNull<OrtAllocator>,
    info: NonNull<OrtMemoryInfo>,
}

impl Allocator<'_> {
    /// The device's index in its memory infos.
    ///
    /// # Errors
    /// When ONNX Runtime reports an error.
    pub fn device_id(&self) -> Result<i32> {
        let mut id = 0;
        // SAFETY: the info lives as long as the device, which the allocator borrows.
        self.runtime.check(unsafe { self.runtime.api.MemoryInfoGetId(self.info.as_ptr(), &mut id) })?;
        Ok(id)
    }

    /// Allocates `bytes` and frees them again; returns the address.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn probe(&self, bytes: usize) -> Result<usize> {
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: the allocator is alive and the out-pointer valid.
        self.runtime.check(unsafe { self.runtime.api.AllocatorAlloc(self.raw.as_ptr(), bytes, &mut address) })?;
        // SAFETY: the address came from this allocator just now and is used nowhere else.
        self.runtime.check(unsafe { self.runtime.api.AllocatorFree(self.raw.as_ptr(), address) })?;
        Ok(address.addr())
    }

    /// The allocator's statistics.
    ///
    /// # Errors
    /// When it keeps no statistics.
    pub fn stats(&self) -> Result<Vec<(String, String)>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the allocator is alive and the out-pointer valid; the pairs are ours to release.
        self.runtime.check(unsafe { self.runtime.api.AllocatorGetStats(self.raw.as_ptr(), &mut raw) })?;
        let stats = pairs(self.runtime, raw);
        // SAFETY: as above; the texts were copied.
        unsafe { self.runtime.api.ReleaseKeyValuePairs(raw) };
        Ok(stats)
    }
}

fn pairs(runtime: &Runtime, raw: *const OrtKeyValuePairs) -> Vec<(String, String)> {
    let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
    if raw.is_null() {
        return Vec::new();
    }
    // SAFETY: `raw` is alive, by the caller; the arrays belong to it and hold `count` texts each.
    unsafe {
        runtime.api.GetKeyValuePairs(raw, &mut keys, &mut values, &mut count);
        (0..count).map(|index| (text(*keys.add(index)), text(*values.add(index)))).collect()
    }
}

fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the callers pass texts of ONNX Runtime, which are NUL-terminated and outlive the call.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
