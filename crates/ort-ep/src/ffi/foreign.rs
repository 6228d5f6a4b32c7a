//! Other plugins that this one loads.
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use ort_ep_sys as sys;

use super::elf::missing_bytes;
use super::life::{LifeToken, this_library};
use super::runtime::c_string;
use crate::view::{HardwareDevice, KeyValues};
use crate::{EpRequest, Error, ModelCompatibility, Result, Runtime};

type CreateFn = unsafe extern "C" fn(
    *const c_char,
    *const sys::OrtApiBase,
    *const sys::OrtLogger,
    *mut *mut sys::OrtEpFactory,
    usize,
    *mut usize,
) -> sys::Status;
type ReleaseFn = unsafe extern "C" fn(*mut sys::OrtEpFactory) -> sys::Status;

/// The oldest API version whose `OrtEp` has `GetCapability`.
const FIRST_WITH_CAPABILITY: u32 = 23;

/// The capacity of the array that ONNX Runtime passes for factories; some libraries require exactly this number.
const MAX_FACTORIES: usize = 4;

/// The capacity of the array that ONNX Runtime passes for devices.
const MAX_DEVICES: usize = 8;

/// A plugin library's two entry points. Dropping it closes the library.
pub(super) struct Entries {
    create: CreateFn,
    release: ReleaseFn,
    // Last, so that it outlives the two functions.
    _library: Library,
}

impl Entries {
    /// Opens a library by path or name; the error names the file and the loader's reason.
    pub fn open(file: &OsStr) -> std::result::Result<Self, String> {
        if let Some(missing) = missing_bytes(file.as_ref()) {
            return Err(format!("{}: the file is truncated: {missing} bytes are missing", file.display()));
        }
        // SAFETY: loading runs the library's initialisers; it is the plugin the user installed for this purpose.
        let library = unsafe { dylib::open_to_close(file) }.map_err(|error| reason(file, &error))?;
        // SAFETY: the two symbols have these types in every plugin of ONNX Runtime.
        unsafe {
            let create: CreateFn = *library.get(c"CreateEpFactories").map_err(|error| reason(file, &error))?;
            let release: ReleaseFn = *library.get(c"ReleaseEpFactory").map_err(|error| reason(file, &error))?;
            // Loading ourselves would recurse without end. This also stops a copy of this library in another file, one
            // call later.
            let opened = dylib::file_at(create as *const () as usize);
            if opened.is_some() && opened == this_library() {
                return Err(format!("{} is this library itself, not a backend", file.display()));
            }
            Ok(Self { create, release, _library: library })
        }
    }

    /// Creates the library's factory: the first one if there are several.
    ///
    /// # Errors
    /// The library returned an error or no factory.
    ///
    /// # Safety
    /// The pointers are what ONNX Runtime passes to `CreateEpFactories`.
    pub unsafe fn create_factory(
        &self,
        runtime: Runtime,
        name: *const c_char,
        base: *const sys::OrtApiBase,
        logger: *const sys::OrtLogger,
    ) -> Result<*mut sys::OrtEpFactory> {
        let (mut factories, mut count) = ([ptr::null_mut(); MAX_FACTORIES], 0);
        // SAFETY: the library's entry point follows the same contract as ours; there is room for the given number of
        // factories.
        let status = unsafe { (self.create)(name, base, logger, factories.as_mut_ptr(), MAX_FACTORIES, &mut count) };
        runtime.check("CreateEpFactories", status)?;
        let mut made = factories.into_iter().take(count).filter(|factory| !factory.is_null());
        let Some(first) = made.next() else {
            return Err(Error::ep_fail("CreateEpFactories reported success, but returned no factory"));
        };
        for other in made {
            // SAFETY: made above and not used by anyone else.
            let status = unsafe { self.release_factory(other) };
            runtime.check("ReleaseEpFactory", status)?;
        }
        Ok(first)
    }

    /// Releases a factory.
    ///
    /// # Safety
    /// It came from [`create_factory`](Self::create_factory) and was not released before.
    pub unsafe fn release_factory(&self, factory: *mut sys::OrtEpFactory) -> sys::Status {
        // SAFETY: guaranteed by the caller.
        unsafe { (self.release)(factory) }
    }
}

/// The loader's own message, which names the missing file or symbol; `libloading` keeps it as the source of its error.
fn reason(file: &OsStr, error: &libloading::Error) -> String {
    let name = file.display().to_string();
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if cause.contains(&name) { cause } else { format!("{name}: {cause}") }
}

/// What happens to a plugin's code once none of its objects are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// It is unmapped.
    Unload,
    /// It stays mapped until the process ends: for libraries that link a vendor's runtime, whose threads and
    /// thread-local destructors would crash if the code were unmapped.
    Stay,
}

/// What a library needs to load other plugins into the runtime that loaded it. Lives as long as its factory.
#[derive(Clone)]
pub struct PluginHost {
    runtime: Runtime,
    name: CString,
    base: *const sys::OrtApiBase,
    logger: *const sys::OrtLogger,
}

// SAFETY: the entry point is a static of the runtime, and its loggers may be used from any thread.
unsafe impl Send for PluginHost {}
// SAFETY: as above.
unsafe impl Sync for PluginHost {}

impl PluginHost {
    /// # Safety
    /// The pointers are what ONNX Runtime passed to `CreateEpFactories`, and outlive the result.
    pub(super) unsafe fn new(
        runtime: Runtime,
        name: CString,
        base: *const sys::OrtApiBase,
        logger: *const sys::OrtLogger,
    ) -> Self {
        Self { runtime, name, base, logger }
    }

    /// Loads a plugin library and creates its factory, under the name this library is registered by. On failure the
    /// library is closed again.
    ///
    /// # Errors
    /// The library cannot be loaded, or returns an error.
    pub fn load(&self, file: impl AsRef<OsStr>, mapping: Mapping) -> Result<Arc<ForeignFactory>> {
        let entries = Entries::open(file.as_ref()).map_err(Error::ep_fail)?;
        // SAFETY: the pointers are what ONNX Runtime passed to us, and still alive.
        let raw = unsafe { entries.create_factory(self.runtime, self.name.as_ptr(), self.base, self.logger)? };
        let called = Mutex::default();
        let factory = ForeignFactory { raw, entries: Some(entries), mapping, runtime: self.runtime, called };
        // SAFETY: the factory is alive.
        let slots = unsafe { (sys::OrtEpFactory::CreateEp(raw), sys::OrtEpFactory::ReleaseEp(raw)) };
        match slots {
            (Some(_), Some(_)) => Ok(Arc::new(factory)),
            _ => Err(Error::ep_fail("its factory cannot create or cannot release execution providers")),
        }
    }

    /// The folder of this library, where other libraries may be.
    pub fn own_folder() -> Option<std::path::PathBuf> {
        this_library().and_then(|path| Some(path.parent()?.to_owned()))
    }
}

/// The factory of another plugin. Dropping the last reference releases it and closes its library.
pub struct ForeignFactory {
    raw: *mut sys::OrtEpFactory,
    /// `None` only during drop.
    entries: Option<Entries>,
    mapping: Mapping,
    runtime: Runtime,
    /// The metadata it gave each piece of hardware, by address.
    called: Mutex<BTreeMap<usize, Pairs>>,
}

/// Keys and values of metadata.
type Pairs = Vec<(String, String)>;

// SAFETY: ONNX Runtime itself calls factories from any thread.
unsafe impl Send for ForeignFactory {}
// SAFETY: as above.
unsafe impl Sync for ForeignFactory {}

/// A custom-op domain that another plugin's factory owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomOpDomain(*mut sys::OrtCustomOpDomain);

impl CustomOpDomain {
    pub(super) fn as_ptr(self) -> *mut sys::OrtCustomOpDomain {
        self.0
    }
}

impl ForeignFactory {
    /// The API version the plugin's factory was built for.
    pub fn api_version(&self) -> u32 {
        // SAFETY: the factory is alive, and every table starts with its stamp.
        unsafe { (*self.raw).ort_version_supported }
    }

    /// Creates the plugin's execution provider for a session.
    ///
    /// # Errors
    /// The plugin returned an error or no execution provider.
    pub fn create_ep(self: &Arc<Self>, request: &EpRequest<'_>) -> Result<ForeignEp> {
        let devices: Vec<_> = request.devices.iter().map(|device| device.hardware.as_ptr()).collect();
        let metadata: Vec<_> = request.devices.iter().map(|device| device.metadata.as_ptr()).collect();
        let (options, logger) = (request.options.as_ptr(), request.logger);
        let mut raw = ptr::null_mut();
        // SAFETY: the factory is alive, and everything passed is alive for this call, the logger for the session's
        // life. The slot was there when the factory was loaded.
        let status = unsafe {
            sys::OrtEpFactory::CreateEp(self.raw).map_or(ptr::null_mut(), |create| {
                create(self.raw, devices.as_ptr(), metadata.as_ptr(), devices.len(), options, logger, &mut raw)
            })
        };
        // If the call failed, we own nothing that has to be released.
        self.runtime.check("CreateEp", status)?;
        if raw.is_null() {
            return Err(Error::ep_fail("CreateEp reported success, but returned no execution provider"));
        }
        let ep = ForeignEp { raw, factory: self.clone() };
        // SAFETY: it is alive. ONNX Runtime calls this slot without a null check.
        if unsafe { sys::OrtEp::GetCapability(raw) }.is_some() {
            return Ok(ep);
        }
        let stamp = ep.api_version();
        Err(Error::ep_fail(if stamp < FIRST_WITH_CAPABILITY {
            format!(
                "its execution provider was built for API {stamp}: API {FIRST_WITH_CAPABILITY} or newer is needed to claim nodes"
            )
        } else {
            "its execution provider has no GetCapability".to_owned()
        }))
    }

    /// The metadata of the first device that the plugin offers on this hardware; empty if it offers none. ONNX Runtime
    /// asks every plugin for its devices before it asks for an execution provider. Plugins rely on that call, and on
    /// getting their metadata back.
    ///
    /// # Errors
    /// The plugin reported an error.
    pub fn device_metadata(&self, hardware: HardwareDevice<'_>) -> Result<Vec<(String, String)>> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let key = hardware.as_ptr() as usize;
        if let Some(known) = called.get(&key) {
            return Ok(known.clone());
        }
        let (listed, runtime) = ([hardware.as_ptr()], self.runtime);
        let (mut offered, mut count) = ([ptr::null_mut(); MAX_DEVICES], 0);
        // SAFETY: the factory and the hardware are alive, and the array has the given capacity.
        let status = unsafe {
            let Some(ask) = sys::OrtEpFactory::GetSupportedDevices(self.raw) else { return Ok(Vec::new()) };
            ask(self.raw, listed.as_ptr(), listed.len(), offered.as_mut_ptr(), MAX_DEVICES, &mut count)
        };
        let asked = runtime.check("GetSupportedDevices", status);
        let mut pairs = None;
        for device in offered.into_iter().take(count).filter(|device| !device.is_null()) {
            // SAFETY: the plugin made the device for us; its metadata is copied before the device is released.
            unsafe {
                if pairs.is_none() {
                    let metadata = KeyValues::from_raw(runtime, runtime.api.EpDevice_EpMetadata(device));
                    pairs = Some(metadata.iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect());
                }
                runtime.ep_api.ReleaseEpDevice(device);
            }
        }
        asked?;
        let pairs: Pairs = pairs.unwrap_or_default();
        called.insert(key, pairs.clone());
        Ok(pairs)
    }

    /// Asks the plugin whether a compiled model of its own runs here.
    ///
    /// # Errors
    /// The plugin reported an error.
    pub fn model_compatibility(&self, devices: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        let devices: Vec<_> = devices.iter().map(|device| device.as_ptr()).collect();
        let info = c_string(info);
        let mut answer = sys::ORT_COMPILED_NOT_APPLICABLE;
        // SAFETY: the factory is alive and everything passed is alive for the call.
        let status = unsafe {
            match sys::OrtEpFactory::ValidateCompiledModelCompatibilityInfo(self.raw) {
                Some(validate) => validate(self.raw, devices.as_ptr(), devices.len(), info.as_ptr(), &mut answer),
                None => ptr::null_mut(),
            }
        };
        self.runtime.check("ValidateCompiledModelCompatibilityInfo", status)?;
        Ok(match answer {
            sys::ORT_COMPILED_OPTIMAL => ModelCompatibility::Optimal,
            sys::ORT_COMPILED_PREFER_RECOMPILATION => ModelCompatibility::PreferRecompilation,
            sys::ORT_COMPILED_UNSUPPORTED => ModelCompatibility::Unsupported,
            _ => ModelCompatibility::NotApplicable,
        })
    }

    /// The custom-op domains the plugin offers to sessions.
    ///
    /// # Errors
    /// The plugin reported an error.
    pub fn custom_op_domains(&self) -> Result<Vec<CustomOpDomain>> {
        // SAFETY: the factory is alive, and the arrays behind the out-pointers have the given capacity.
        unsafe {
            let (Some(count_of), Some(fill)) =
                (sys::OrtEpFactory::GetNumCustomOpDomains(self.raw), sys::OrtEpFactory::GetCustomOpDomains(self.raw))
            else {
                return Ok(Vec::new());
            };
            let mut count = 0;
            self.runtime.check("GetNumCustomOpDomains", count_of(self.raw, &mut count))?;
            let mut domains = vec![ptr::null_mut(); count];
            if count > 0 {
                self.runtime.check("GetCustomOpDomains", fill(self.raw, domains.as_mut_ptr(), count))?;
            }
            Ok(domains.into_iter().filter(|domain| !domain.is_null()).map(CustomOpDomain).collect())
        }
    }

    /// True if the factory can create allocators.
    pub(super) fn makes_allocators(&self) -> bool {
        // SAFETY: the factory is alive.
        unsafe { sys::OrtEpFactory::CreateAllocator(self.raw) }.is_some()
    }

    /// True if the factory can create streams.
    pub(super) fn makes_streams(&self) -> bool {
        // SAFETY: the factory is alive.
        unsafe {
            sys::OrtEpFactory::IsStreamAware(self.raw).is_some_and(|aware| aware(self.raw))
                && sys::OrtEpFactory::CreateSyncStreamForDevice(self.raw).is_some()
        }
    }
}

impl Drop for ForeignFactory {
    fn drop(&mut self) {
        let Some(entries) = self.entries.take() else { return };
        // SAFETY: made by `create_factory`, and everything the plugin made held a reference to `self`.
        let status = unsafe { entries.release_factory(self.raw) };
        if let Err(error) = self.runtime.check("ReleaseEpFactory", status) {
            tracing::warn!(target: "ort_ep::lifetime", %error, "a plugin could not release its factory");
        }
        if self.mapping == Mapping::Stay {
            // The handle is leaked on purpose: it keeps the code mapped.
            std::mem::forget(entries);
        }
    }
}

/// An execution provider of another plugin. Dropping it releases it.
pub struct ForeignEp {
    raw: *mut sys::OrtEp,
    factory: Arc<ForeignFactory>,
}

// SAFETY: ONNX Runtime calls and releases execution providers from any thread.
unsafe impl Send for ForeignEp {}
// SAFETY: as above.
unsafe impl Sync for ForeignEp {}

impl ForeignEp {
    /// The API version the execution provider was built for.
    pub fn api_version(&self) -> u32 {
        // SAFETY: it is alive, and every table starts with its stamp.
        unsafe { (*self.raw).ort_version_supported }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::OrtEp {
        self.raw
    }

    pub(super) fn factory(&self) -> &Arc<ForeignFactory> {
        &self.factory
    }

    /// Creates a stream with the execution provider, or with its factory. ONNX Runtime releases it.
    ///
    /// # Safety
    /// `device` is alive for the call.
    pub(super) unsafe fn create_stream(
        &self,
        device: *const sys::OrtMemoryDevice,
    ) -> Result<*mut sys::OrtSyncStreamImpl> {
        let factory = self.factory.raw;
        let mut raw = ptr::null_mut();
        // SAFETY: both objects are alive, and the caller vouches for `device`.
        let status = unsafe {
            if let Some(create) = sys::OrtEp::CreateSyncStreamForDevice(self.raw) {
                create(self.raw, device, &mut raw)
            } else if let Some(create) = sys::OrtEpFactory::CreateSyncStreamForDevice(factory) {
                create(factory, device, ptr::null(), &mut raw)
            } else {
                return Err(Error::not_implemented("the backend has no streams"));
            }
        };
        self.factory.runtime.check("CreateSyncStreamForDevice", status)?;
        if raw.is_null() {
            Err(Error::ep_fail("the backend reported success, but returned no stream"))
        } else {
            Ok(raw)
        }
    }
}

impl Drop for ForeignEp {
    fn drop(&mut self) {
        // SAFETY: made by this factory's `CreateEp` and released once; the slot was there when it was made.
        unsafe {
            if let Some(release) = sys::OrtEpFactory::ReleaseEp(self.factory.raw) {
                release(self.factory.raw, self.raw);
            }
        }
    }
}

/// An allocator of another plugin, which ONNX Runtime uses directly. It may outlive the session it was made for, and
/// keeps the plugin loaded. Dropping it releases it.
pub(super) struct ForeignAllocator {
    raw: *mut sys::OrtAllocator,
    factory: Arc<ForeignFactory>,
    _token: LifeToken,
}

// SAFETY: ONNX Runtime calls and releases allocators from any thread.
unsafe impl Send for ForeignAllocator {}

impl ForeignAllocator {
    /// Creates an allocator with the execution provider, or with its factory; `token` keeps our own factory alive.
    ///
    /// # Safety
    /// `info` is alive for the call.
    pub unsafe fn new(ep: &ForeignEp, info: *const sys::OrtMemoryInfo, token: LifeToken) -> Result<Self> {
        let factory = ep.factory.raw;
        let mut raw = ptr::null_mut();
        // SAFETY: both objects are alive, and the caller vouches for `info`.
        let status = unsafe {
            if sys::OrtEpFactory::ReleaseAllocator(factory).is_none() {
                return Err(Error::ep_fail("the backend creates allocators, but cannot release them"));
            }
            if let Some(create) = sys::OrtEp::CreateAllocator(ep.raw) {
                create(ep.raw, info, &mut raw)
            } else if let Some(create) = sys::OrtEpFactory::CreateAllocator(factory) {
                create(factory, info, ptr::null(), &mut raw)
            } else {
                return Err(Error::not_implemented("the backend has no allocators"));
            }
        };
        ep.factory.runtime.check("CreateAllocator", status)?;
        if raw.is_null() {
            return Err(Error::ep_fail("the backend reported success, but returned no allocator"));
        }
        Ok(Self { raw, factory: ep.factory.clone(), _token: token })
    }

    pub fn as_ptr(&self) -> *mut sys::OrtAllocator {
        self.raw
    }
}

impl Drop for ForeignAllocator {
    fn drop(&mut self) {
        // SAFETY: made by this factory or its execution provider, and released once; the slot was there when it was
        // made.
        unsafe {
            if let Some(release) = sys::OrtEpFactory::ReleaseAllocator(self.factory.raw) {
                release(self.factory.raw, self.raw);
            }
        }
    }
}
