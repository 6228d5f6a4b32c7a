//! A library that takes the place of another plugin.
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use ort_ep_sys as sys;

use super::entry::CreateFactoriesArgs;
use super::foreign::Entries;
use super::guard::guard;
use super::life::this_library;
use crate::{Error, Result, Runtime};

/// The state behind [`passthrough!`](crate::passthrough). It loads an external plugin with the first factory, hands out
/// its factory unchanged, and is done with the plugin after the last factory.
pub struct PassThrough {
    stem: &'static str,
    variable: &'static str,
    state: Mutex<State>,
}

struct State {
    plugin: Option<Entries>,
    factories: usize,
}

impl PassThrough {
    /// Takes the place of the library `stem` (`hipgpu` is `libhipgpu.so` or `hipgpu.dll`). Looks for the file that
    /// `variable` names, then for one next to this library, then on the loader's path.
    pub const fn new(stem: &'static str, variable: &'static str) -> Self {
        Self { stem, variable, state: Mutex::new(State { plugin: None, factories: 0 }) }
    }

    /// `CreateEpFactories`: calls the external plugin's own, with room for one factory.
    ///
    /// # Safety
    /// The pointers are null or what ONNX Runtime passes.
    pub unsafe fn create(&self, args: CreateFactoriesArgs) -> sys::Status {
        // SAFETY: guaranteed by the caller.
        unsafe { args.respond(|runtime, _| self.create_inner(runtime, args)) }
    }

    /// # Safety
    /// Same as for `create`, and the arguments were checked.
    unsafe fn create_inner(&self, runtime: Runtime, args: CreateFactoriesArgs) -> Result<()> {
        // Locked for the whole call: loading and unloading must not race with each other.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Until a factory exists, a plugin loaded here is a local variable: any failure below closes it again.
        let fresh = if state.plugin.is_none() { Some(self.load()?) } else { None };
        let plugin = fresh.as_ref().or(state.plugin.as_ref()).ok_or_else(|| Error::ep_fail("no plugin"))?;
        // SAFETY: the pointers are what ONNX Runtime passed to us.
        let factory =
            unsafe { plugin.create_factory(runtime, args.registered_name, args.api_base, args.default_logger)? };
        if fresh.is_some() {
            state.plugin = fresh;
        }
        state.factories += 1;
        // SAFETY: checked to be valid by `respond`.
        unsafe {
            args.factories.write(factory);
            args.num_factories.write(1);
        }
        Ok(())
    }

    /// `ReleaseEpFactory`: calls the external plugin's own. Its code stays mapped; the next factory searches for the
    /// plugin again.
    ///
    /// # Safety
    /// `factory` is null, or came from [`create`](Self::create) and was not released before.
    pub unsafe fn release(&self, factory: *mut sys::OrtEpFactory) -> sys::Status {
        let mut status = ptr::null_mut();
        let _ = guard("ReleaseEpFactory", || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(plugin) = state.plugin.as_ref().filter(|_| !factory.is_null()) else { return Ok(()) };
            // SAFETY: guaranteed by the caller; the plugin made this factory.
            status = unsafe { plugin.release_factory(factory) };
            state.factories = state.factories.saturating_sub(1);
            if state.factories == 0 {
                // The handle is leaked on purpose. Such plugins link a vendor's runtime, and unmapping ROCm's crashes
                // the process when a thread ends that ran its code
                // (https://github.com/microsoft/onnxruntime/pull/31629).
                std::mem::forget(state.plugin.take());
            }
            Ok(())
        });
        status
    }

    /// Loads the plugin; the error lists what was tried.
    fn load(&self) -> Result<Entries> {
        let mut tried = Vec::new();
        for file in self.candidates() {
            match Entries::open(&file) {
                Ok(plugin) => return Ok(plugin),
                Err(reason) => tried.push(reason),
            }
        }
        Err(Error::ep_fail(format!(
            "could not load the plugin {} (tried {})\n  help: put the library next to this one or set {} to its path",
            self.stem,
            tried.join("; "),
            self.variable
        )))
    }

    fn candidates(&self) -> Vec<OsString> {
        let file = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", self.stem);
        if let Some(path) = std::env::var_os(self.variable).filter(|path| !path.is_empty()) {
            return vec![path];
        }
        let beside = this_library().and_then(|path| Some(path.parent()?.join(&file)));
        beside.map(PathBuf::into_os_string).into_iter().chain([file.into()]).collect()
    }
}

/// Exports the two symbols of a library that takes the place of another plugin: `passthrough!("hipgpu",
/// "HIPGPU_LIBRARY")`.
#[macro_export]
macro_rules! passthrough {
    ($stem:literal, $variable:literal) => {
        static PASS_THROUGH: $crate::ffi::PassThrough = $crate::ffi::PassThrough::new($stem, $variable);

        $crate::export_entries! {
            create: |args| PASS_THROUGH.create(args),
            release: |factory| PASS_THROUGH.release(factory),
        }
    };
}
