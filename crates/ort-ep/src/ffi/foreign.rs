//! Other plugins, loaded by this one.
use std::{
    ffi::{CString, OsStr, c_char},
    ptr,
    sync::Arc,
};

use libloading::Library;
use ort_ep_sys as sys;

use super::life::{LifeToken, this_library};
use crate::{EpRequest, Error, Result, Runtime};

type CreateFn = unsafe extern "C" fn(
    *const c_char,
    *const sys::OrtApiBase,
    *const sys::OrtLogger,
    *mut *mut sys::OrtEpFactory,
    usize,
    *mut usize,
) -> sys::Status;
type ReleaseFn = unsafe extern "C" fn(*mut sys::OrtEpFactory) -> sys::Status;

/// A plugin library's two entries. Dropping it closes the library.
pub(super) struct Entries {
    create: CreateFn,
    release: ReleaseFn,
    // Last, so that it outlives the two functions.
    _library: Library,
}

impl Entries {
    /// Opens a library by path or name; the error names the file and the loader's reason.
    pub fn open(file: &OsStr) -> std::result::Result<Self, String> {
        // SAFETY: loading runs the library's initialisers; it is the plugin the user installed for this purpose.
        let library = unsafe { Library::new(file) }.map_err(|error| reason(file, &error))?;
        // SAFETY: the two symbols have these types in every plugin of ONNX Runtime.
        unsafe {
            let create: CreateFn = *library.get(c"CreateEpFactories").map_err(|error| reason(file, &error))?;
            let release: ReleaseFn = *library.get(c"ReleaseEpFactory").map_err(|error| reason(file, &error))?;
            Ok(Self { create, release, _library: library })
        }
    }

    /// Makes the library's one factory.
    ///
    /// # Errors
    /// The library refused, or gave another number of factories.
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
        let (mut factory, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the library's entry follows the same contract as ours; there is room for one factory, as is said.
        let status = unsafe { (self.create)(name, base, logger, &mut factory, 1, &mut count) };
        runtime.check("CreateEpFactories of the external plugin", status)?;
        if count != 1 || factory.is_null() {
            return Err(Error::ep_fail(format!("the external plugin gave {count} factories instead of one")));
        }
        Ok(factory)
    }

    /// Gives a factory back.
    ///
    /// # Safety
    /// It came from [`create_factory`](Self::create_factory) and was not released before.
    pub unsafe fn release_factory(&self, factory: *mut sys::OrtEpFactory) -> sys::Status {
        // SAFETY: the caller's promise.
        unsafe { (self.release)(factory) }
    }
}

/// The loader's own words, which name the file or the symbol that is missing; `libloading` keeps them behind its error.
fn reason(file: &OsStr, error: &libloading::Error) -> String {
    let name = file.display().to_string();
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if cause.contains(&name) { cause } else { format!("{name}: {cause}") }
}

/// What a library needs to load other plugins into the runtime that loaded it. Lives as long as the factory it was given to.
#[derive(Clone)]
pub struct PluginHost {
    runtime: Runtime,
    name: CString,
    base: *const sys::OrtApiBase,
    logger: *const sys::OrtLogger,
}

// SAFETY: the entry is a static of the runtime, and its loggers may be used from any thread.
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

    /// Loads a plugin library and makes its factory, under the name this library is registered by.
    ///
    /// # Errors
    /// The library can't be loaded, or refuses.
    pub fn load(&self, file: impl AsRef<OsStr>) -> Result<Arc<ForeignFactory>> {
        let entries = Entries::open(file.as_ref()).map_err(Error::ep_fail)?;
        // SAFETY: the pointers are what ONNX Runtime passed to us, and still alive.
        let raw = unsafe { entries.create_factory(self.runtime, self.name.as_ptr(), self.base, self.logger)? };
        Ok(Arc::new(ForeignFactory { raw, entries, runtime: self.runtime }))
    }

    /// The folder of this library, where others may lie beside it.
    pub fn own_folder() -> Option<std::path::PathBuf> {
        this_library().and_then(|path| Some(path.parent()?.to_owned()))
    }
}

/// The factory of another plugin. Dropping the last reference releases it and closes its library.
pub struct ForeignFactory {
    raw: *mut sys::OrtEpFactory,
    entries: Entries,
    runtime: Runtime,
}

// SAFETY: ONNX Runtime itself calls factories from any thread.
unsafe impl Send for ForeignFactory {}
// SAFETY: as above.
unsafe impl Sync for ForeignFactory {}

impl ForeignFactory {
    /// Makes the plugin's execution provider for a session.
    ///
    /// # Errors
    /// The plugin refused.
    pub fn create_ep(self: &Arc<Self>, request: &EpRequest<'_>) -> Result<ForeignEp> {
        let devices: Vec<_> = request.devices.iter().map(|device| device.hardware.as_ptr()).collect();
        let metadata: Vec<_> = request.devices.iter().map(|device| device.metadata.as_ptr()).collect();
        let (options, logger) = (request.options.as_ptr(), request.logger);
        let mut raw = ptr::null_mut();
        // SAFETY: the factory is alive, everything passed is what ONNX Runtime passed to us for this very call, and a
        // factory without the two slots is refused.
        let status = unsafe {
            let (Some(create), Some(_)) =
                (sys::OrtEpFactory::CreateEp(self.raw), sys::OrtEpFactory::ReleaseEp(self.raw))
            else {
                return Err(Error::ep_fail("the external plugin makes no execution providers"));
            };
            create(self.raw, devices.as_ptr(), metadata.as_ptr(), devices.len(), options, logger, &mut raw)
        };
        self.runtime.check("CreateEp of the external plugin", status)?;
        if raw.is_null() {
            return Err(Error::ep_fail("the external plugin gave no execution provider"));
        }
        Ok(ForeignEp { raw, factory: self.clone(), token: None })
    }
}

impl Drop for ForeignFactory {
    fn drop(&mut self) {
        // SAFETY: made by `create_factory`, and every execution provider of it held a reference to `self`.
        let status = unsafe { self.entries.release_factory(self.raw) };
        if let Err(error) = self.runtime.check("ReleaseEpFactory of the external plugin", status) {
            tracing::warn!(target: "ort_ep::lifetime", %error, "a plugin did not let go of its factory");
        }
    }
}

/// An execution provider of another plugin, which ONNX Runtime talks to directly. Dropping it gives it back to its maker.
pub struct ForeignEp {
    raw: *mut sys::OrtEp,
    factory: Arc<ForeignFactory>,
    token: Option<LifeToken>,
}

// SAFETY: ONNX Runtime releases execution providers from any thread.
unsafe impl Send for ForeignEp {}

impl ForeignEp {
    /// The pointer for ONNX Runtime; `token` keeps our own factory alive as long.
    pub(super) fn adopt(&mut self, token: LifeToken) -> *mut sys::OrtEp {
        self.token = Some(token);
        self.raw
    }
}

impl Drop for ForeignEp {
    fn drop(&mut self) {
        // SAFETY: made by this factory's `CreateEp` and given back once; the slot was there when it was made.
        unsafe {
            if let Some(release) = sys::OrtEpFactory::ReleaseEp(self.factory.raw) {
                release(self.factory.raw, self.raw);
            }
        }
    }
}
