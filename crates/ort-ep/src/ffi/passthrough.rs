//! A library that stands in for another plugin.
use std::{
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    ffi::{OsString, c_char},
    path::PathBuf,
    ptr,
    sync::{Mutex, PoisonError},
};

use libloading::Library;
use ort_ep_sys as sys;

use super::{entry::CreateFactoriesArgs, guard::guard, life::this_library};
use crate::{Error, Result, Runtime};

type CreateFn = unsafe extern "C" fn(
    *const c_char,
    *const sys::OrtApiBase,
    *const sys::OrtLogger,
    *mut *mut sys::OrtEpFactory,
    usize,
    *mut usize,
) -> sys::Status;
type ReleaseFn = unsafe extern "C" fn(*mut sys::OrtEpFactory) -> sys::Status;

/// The state behind [`passthrough!`](crate::passthrough): loads an external plugin with the first factory, hands its
/// factory out untouched, and lets the plugin go with the last one.
pub struct PassThrough {
    stem: &'static str,
    variable: &'static str,
    state: Mutex<State>,
}

struct State {
    plugin: Option<Plugin>,
    factories: usize,
}

struct Plugin {
    create: CreateFn,
    release: ReleaseFn,
    // Last, so that it outlives the two functions.
    _library: Library,
}

impl PassThrough {
    /// Stands in for the library `stem` (`hipgpu` is `libhipgpu.so` or `hipgpu.dll`): the file `variable` names, else one
    /// beside this library, else one on the loader's path.
    pub const fn new(stem: &'static str, variable: &'static str) -> Self {
        Self { stem, variable, state: Mutex::new(State { plugin: None, factories: 0 }) }
    }

    /// `CreateEpFactories`: the external plugin's own, with room for one factory.
    ///
    /// # Safety
    /// The pointers are null or what ONNX Runtime passes.
    pub unsafe fn create(&self, args: CreateFactoriesArgs) -> sys::Status {
        // SAFETY: the caller's promise.
        unsafe { args.respond(|runtime, _| self.create_inner(runtime, args)) }
    }

    /// # Safety
    /// As for `create`, and the arguments were checked.
    unsafe fn create_inner(&self, runtime: Runtime, args: CreateFactoriesArgs) -> Result<()> {
        // Held over the whole call: loading and unloading must not race with each other.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Until a factory exists, a plugin loaded here is only local: any failure below lets it go again.
        let fresh = if state.plugin.is_none() { Some(self.load()?) } else { None };
        let plugin = fresh.as_ref().or(state.plugin.as_ref()).ok_or_else(|| Error::ep_fail("no plugin"))?;
        let mut factory = ptr::null_mut();
        let mut count = 0;
        // SAFETY: the plugin's entry follows the same contract as ours; room for one factory is what we say it is.
        let status = unsafe {
            (plugin.create)(args.registered_name, args.api_base, args.default_logger, &mut factory, 1, &mut count)
        };
        runtime.check("CreateEpFactories of the external plugin", status)?;
        if count != 1 || factory.is_null() {
            return Err(Error::ep_fail(format!(
                "the external plugin {} gave {count} factories instead of one",
                self.stem
            )));
        }
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

    /// `ReleaseEpFactory`: the external plugin's own; after its last factory the plugin is unloaded.
    ///
    /// # Safety
    /// `factory` is null, or came from [`create`](Self::create) and was not released before.
    pub unsafe fn release(&self, factory: *mut sys::OrtEpFactory) -> sys::Status {
        let mut status = ptr::null_mut();
        let _ = guard("ReleaseEpFactory", || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(plugin) = state.plugin.as_ref().filter(|_| !factory.is_null()) else { return Ok(()) };
            // SAFETY: the caller's promise; the plugin made this factory.
            status = unsafe { (plugin.release)(factory) };
            state.factories = state.factories.saturating_sub(1);
            if state.factories == 0 {
                state.plugin = None;
            }
            Ok(())
        });
        status
    }

    /// Loads the plugin, or says what was tried.
    fn load(&self) -> Result<Plugin> {
        let mut tried = Vec::new();
        for file in self.candidates() {
            match open(&file) {
                Ok(plugin) => return Ok(plugin),
                Err(reason) => tried.push(reason),
            }
        }
        Err(Error::ep_fail(format!(
            "no plugin {} could be loaded (tried {})\n  help: put the library beside this one or set {} to its path",
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

fn open(file: &OsString) -> std::result::Result<Plugin, String> {
    // SAFETY: loading runs the library's initialisers; it is the plugin the user installed for this purpose.
    let library = unsafe { Library::new(file) }.map_err(|error| reason(file, &error))?;
    // SAFETY: the two symbols have these types in every plugin of ONNX Runtime.
    unsafe {
        let create: CreateFn = *library.get(c"CreateEpFactories").map_err(|error| reason(file, &error))?;
        let release: ReleaseFn = *library.get(c"ReleaseEpFactory").map_err(|error| reason(file, &error))?;
        Ok(Plugin { create, release, _library: library })
    }
}

/// The loader's own words, which name the file or the symbol that is missing; `libloading` keeps them behind its error.
fn reason(file: &OsString, error: &libloading::Error) -> String {
    let name = file.display().to_string();
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if cause.contains(&name) { cause } else { format!("{name}: {cause}") }
}

/// Exports the two symbols of a library that stands in for another plugin: `passthrough!("hipgpu", "HIPGPU_LIBRARY")`.
#[macro_export]
macro_rules! passthrough {
    ($stem:literal, $variable:literal) => {
        static PASS_THROUGH: $crate::ffi::PassThrough = $crate::ffi::PassThrough::new($stem, $variable);

        #[allow(unsafe_code, non_snake_case, missing_docs, clippy::missing_safety_doc)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn CreateEpFactories(
            registered_name: *const ::std::ffi::c_char,
            api_base: *const $crate::sys::OrtApiBase,
            default_logger: *const $crate::sys::OrtLogger,
            factories: *mut *mut $crate::sys::OrtEpFactory,
            max_factories: usize,
            num_factories: *mut usize,
        ) -> $crate::sys::Status {
            let args = $crate::ffi::CreateFactoriesArgs {
                registered_name,
                api_base,
                default_logger,
                factories,
                max_factories,
                num_factories,
            };
            // SAFETY: only ONNX Runtime calls this symbol, by its contract.
            unsafe { PASS_THROUGH.create(args) }
        }

        #[allow(unsafe_code, non_snake_case, missing_docs, clippy::missing_safety_doc)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut $crate::sys::OrtEpFactory) -> $crate::sys::Status {
            // SAFETY: only ONNX Runtime calls this symbol, by its contract.
            unsafe { PASS_THROUGH.release(factory) }
        }
    };
}
