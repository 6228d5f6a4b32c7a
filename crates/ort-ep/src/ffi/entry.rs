//! The two symbols a plugin exports.
use std::ffi::{CStr, c_char};

use ort_ep_sys as sys;

use super::factory::{factory_into_raw, release};
use super::foreign::PluginHost;
use super::guard::{Border, guard};
use super::life::pin_this_library;
use super::log_sink::LogVariable;
use super::logging::{self, LoggerHandle};
use super::runtime::{c_string, new_status};
use crate::{Error, Factory, Registration, Result, Runtime};

/// The arguments of `CreateEpFactories`.
#[derive(Clone, Copy)]
pub struct CreateFactoriesArgs {
    /// The name the user registers the library under.
    pub registered_name: *const c_char,
    /// The runtime's entry point.
    pub api_base: *const sys::OrtApiBase,
    /// The environment's logger.
    pub default_logger: *const sys::OrtLogger,
    /// Where to store the factories.
    pub factories: *mut *mut sys::OrtEpFactory,
    /// How many factories fit there.
    pub max_factories: usize,
    /// Where to store their number.
    pub num_factories: *mut usize,
}

impl CreateFactoriesArgs {
    /// Opens the runtime, runs `body` and turns its error into a status. Without a runtime no status can be created, so
    /// the result is success with no factory.
    ///
    /// # Safety
    /// The pointers are null or what ONNX Runtime passes.
    pub(super) unsafe fn respond(self, body: impl FnOnce(Runtime, &str) -> Result<()>) -> sys::Status {
        // Windows: thread-local variables take slots of the process, about a thousand, which unloading does not give back.
        if cfg!(windows) {
            pin_this_library();
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !self.num_factories.is_null() {
                self.num_factories.write(0);
            }
            let runtime = match guard("CreateEpFactories", || Runtime::negotiate(self.api_base)) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let api = sys::Api::for_error_status(self.api_base);
                    return api.map_or(std::ptr::null_mut(), |api| new_status(api, &error));
                }
            };
            runtime.status(guard("CreateEpFactories", || body(runtime, &self.checked_name()?)))
        }
    }

    /// # Safety
    /// Same as for `respond`.
    unsafe fn checked_name(&self) -> Result<String> {
        if self.factories.is_null() || self.num_factories.is_null() || self.max_factories == 0 {
            return Err(Error::invalid_argument("CreateEpFactories got no output for a factory"));
        }
        if self.registered_name.is_null() {
            return Err(Error::invalid_argument("CreateEpFactories got no registration name"));
        }
        // SAFETY: guaranteed by the caller.
        let name = unsafe { CStr::from_ptr(self.registered_name) };
        match name.to_str() {
            Ok(name) if !name.trim().is_empty() => Ok(name.to_owned()),
            Ok(_) => Err(Error::invalid_argument("the registration name is empty")),
            Err(_) => Err(Error::invalid_argument("the registration name is not UTF-8")),
        }
    }
}

/// `CreateEpFactories` for a library with one factory. Used by [`plugin!`](crate::plugin).
///
/// # Safety
/// The pointers are null or what ONNX Runtime passes.
pub unsafe fn create_factories(
    args: CreateFactoriesArgs,
    log_variable: Option<LogVariable>,
    create: fn(Registration<'_>) -> Result<Box<dyn Factory>>,
) -> sys::Status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        args.respond(|runtime, name| {
            let logger = LoggerHandle::new(runtime, args.default_logger);
            let _scope = logger.enter();
            logging::install(log_variable);
            let host = PluginHost::new(runtime, c_string(name), args.api_base, args.default_logger);
            let factory = create(Registration { name, runtime, host }).inspect_err(|_| logging::uninstall())?;
            args.factories.write(factory_into_raw(factory, name, Border::new(runtime, logger)));
            args.num_factories.write(1);
            Ok(())
        })
    }
}

/// `ReleaseEpFactory`. Used by [`plugin!`](crate::plugin).
///
/// # Safety
/// `factory` is null, or came from [`create_factories`] of this library and was not released before.
pub unsafe fn release_factory(factory: *mut sys::OrtEpFactory) -> sys::Status {
    // SAFETY: guaranteed by the caller. A panic here cannot be reported: there may be no runtime left.
    let _ = guard("ReleaseEpFactory", || {
        // SAFETY: as above.
        unsafe { release(factory) };
        Ok(())
    });
    std::ptr::null_mut()
}

/// Exports the two symbols of a plugin library.
///
/// `create` is a `fn(Registration<'_>) -> Result<Box<dyn Factory>>`. The optional second argument names an environment
/// variable that holds a log level (`error` … `trace`): events at that level go to stderr if ONNX Runtime's logger
/// would drop them. If the variable with the suffix `_FILE` names a file, all events at that level are appended to it
/// instead. Invalid values are logged as warnings; a library loaded by another one of the same product uses
/// `quiet_log_variable` to leave those warnings to the other one.
#[macro_export]
macro_rules! plugin {
    ($create:expr) => {
        $crate::plugin!(@export None, $create);
    };
    ($create:expr, log_variable = $variable:literal) => {
        $crate::plugin!(@export Some($crate::ffi::LogVariable { name: $variable, reports: true }), $create);
    };
    ($create:expr, quiet_log_variable = $variable:literal) => {
        $crate::plugin!(@export Some($crate::ffi::LogVariable { name: $variable, reports: false }), $create);
    };
    (@export $variable:expr, $create:expr) => {
        $crate::export_entries! {
            create: |args| $crate::ffi::create_factories(args, $variable, $create),
            release: |factory| $crate::ffi::release_factory(factory),
        }
    };
}

/// Exports the two symbols with ONNX Runtime's signatures, around two functions that are as unsafe as the symbols.
#[doc(hidden)]
#[macro_export]
macro_rules! export_entries {
    (create: |$args:ident| $create:expr, release: |$factory:ident| $release:expr $(,)?) => {
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
            let $args = $crate::ffi::CreateFactoriesArgs {
                registered_name,
                api_base,
                default_logger,
                factories,
                max_factories,
                num_factories,
            };
            // SAFETY: only ONNX Runtime calls this symbol, by its contract.
            unsafe { $create }
        }

        #[allow(unsafe_code, non_snake_case, missing_docs, clippy::missing_safety_doc)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn ReleaseEpFactory($factory: *mut $crate::sys::OrtEpFactory) -> $crate::sys::Status {
            // SAFETY: only ONNX Runtime calls this symbol, by its contract.
            unsafe { $release }
        }
    };
}
