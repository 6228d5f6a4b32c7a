//! Implementations of the 38 exported functions.
//!
//! # Safety
//! Every function has hipDNN's contract: pointers are null, which gives an error status, or valid for what the function
//! reads or writes. Handles and descriptors need not be valid: they are looked up, never dereferenced.
#![allow(clippy::missing_safety_doc, reason = "one contract for all, in the module documentation")]

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hipdnn::sys::{
    AttributeName, AttributeType, DescriptorType, LogCallbackMode, PluginLoadingMode, PluginUnloadingMode,
    RankingOutcome, Severity, Status, UserLogCallback,
};

use crate::descriptor::Descriptor;
use crate::engine;
use crate::fault::{self, Fault, Outcome};
use crate::implementation::{Engine, Implementation};
use crate::log as messages;
use crate::registry::{DESCRIPTORS, HANDLES, Handle};

pub use crate::entry_saved::*;

/// The library that exports the functions.
pub type Library = &'static dyn Implementation;

/// Runs an exported function: an error's message is kept for the thread, a panic becomes an internal error.
pub(crate) fn guard(body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Fault::new(Status::INTERNAL_ERROR, "the library panicked, which is a bug")));
    match outcome {
        Ok(()) => Status::SUCCESS,
        Err(fault) => {
            let severity = if fault.status == Status::NOT_SUPPORTED { Severity::WARN } else { Severity::ERROR };
            messages::line(severity, || format!("{}: {}", fault.status, fault.text));
            fault::remember(fault.text);
            fault.status
        }
    }
}

/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn store<T>(what: &str, out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(Fault::null(what));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { out.write(value) };
    Ok(())
}

/// Returns a string by the two-call rule: without a buffer only its size, including the NUL, is written.
///
/// # Safety
/// `text` is null or has room for `*size` characters; `size` is null or valid.
unsafe fn store_text(text: *mut c_char, size: *mut usize, value: &str) -> Outcome {
    if size.is_null() {
        return Err(Fault::null("the string's size"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !text.is_null() {
            if *size <= value.len() {
                return Err(Fault::bad(format!("{} characters do not fit in {}", value.len() + 1, *size)));
            }
            std::ptr::copy_nonoverlapping(value.as_ptr().cast(), text, value.len());
            text.add(value.len()).write(0);
        }
        size.write(value.len() + 1);
    }
    Ok(())
}

/// # Safety
/// `message` is null or has room for `size` characters.
unsafe fn give_error(message: *mut c_char, size: usize, clear: bool) {
    if message.is_null() || size == 0 {
        return;
    }
    let text = fault::last(clear);
    let count = text.len().min(size - 1);
    // SAFETY: guaranteed by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, count);
        message.add(count).write(0);
    }
}

/// A live handle.
fn alive(handle: *mut c_void) -> Outcome<Arc<Handle>> {
    HANDLES.get("the handle", handle)
}

/// Creates a handle.
pub unsafe fn create(library: Library, handle: *mut *mut c_void) -> Status {
    guard(|| {
        if handle.is_null() {
            return Err(Fault::null("the handle's address"));
        }
        let made = Arc::new(Handle::new(library.open()?));
        // SAFETY: the module's contract.
        unsafe { store("the handle's address", handle, HANDLES.add(made)) }
    })
}

/// Destroys a handle.
pub unsafe fn destroy(_: Library, handle: *mut c_void) -> Status {
    guard(|| HANDLES.remove("the handle", handle))
}

/// Sets the stream for subsequent work.
pub unsafe fn set_stream(_: Library, handle: *mut c_void, stream: *mut c_void) -> Status {
    guard(|| {
        alive(handle)?.set_stream(stream.expose_provenance());
        Ok(())
    })
}

/// The current stream.
pub unsafe fn get_stream(_: Library, handle: *mut c_void, stream: *mut *mut c_void) -> Status {
    guard(|| {
        let address = alive(handle)?.stream();
        // SAFETY: the module's contract.
        unsafe { store("the stream's address", stream, std::ptr::with_exposed_provenance_mut(address)) }
    })
}

/// Creates a descriptor.
pub unsafe fn create_descriptor(_: Library, kind: DescriptorType, descriptor: *mut *mut c_void) -> Status {
    guard(|| {
        if descriptor.is_null() {
            return Err(Fault::null("the descriptor's address"));
        }
        let made = Arc::new(Descriptor::new(kind)?);
        // SAFETY: the module's contract.
        unsafe { store("the descriptor's address", descriptor, DESCRIPTORS.add(made)) }
    })
}

/// Drops a descriptor; others that refer to it keep it alive.
pub unsafe fn destroy_descriptor(_: Library, descriptor: *mut c_void) -> Status {
    guard(|| DESCRIPTORS.remove("the descriptor", descriptor))
}

/// Enqueues a plan.
pub unsafe fn execute(_: Library, handle: *mut c_void, plan: *mut c_void, pack: *mut c_void) -> Status {
    guard(|| {
        let (plan, pack) = (DESCRIPTORS.get("the plan", plan)?, DESCRIPTORS.get("the variant pack", pack)?);
        // SAFETY: the module's contract.
        unsafe { engine::execute(&*alive(handle)?, &plan, &pack) }
    })
}

/// Finalizes a descriptor.
pub unsafe fn finalize(library: Library, descriptor: *mut c_void) -> Status {
    guard(|| DESCRIPTORS.get("the descriptor", descriptor)?.finalize(library))
}

/// Reads an attribute.
pub unsafe fn get_attribute(
    _: Library,
    descriptor: *mut c_void,
    name: AttributeName,
    kind: AttributeType,
    requested: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> Status {
    // SAFETY: the module's contract.
    guard(|| unsafe { DESCRIPTORS.get("the descriptor", descriptor)?.get(name, kind, requested, count, elements) })
}

/// Sets an attribute.
pub unsafe fn set_attribute(
    _: Library,
    descriptor: *mut c_void,
    name: AttributeName,
    kind: AttributeType,
    count: i64,
    elements: *const c_void,
) -> Status {
    // SAFETY: the module's contract.
    guard(|| unsafe { DESCRIPTORS.get("the descriptor", descriptor)?.set(name, kind, count, elements) })
}

macro_rules! status_names {
    ($status:expr; $($name:ident),*) => {
        match $status {
            $(Status::$name => concat!("HIPDNN_STATUS_", stringify!($name), "\0"),)*
            _ => "HIPDNN_STATUS_UNKNOWN\0",
        }
    };
}

/// The name of a status.
pub unsafe fn error_string(_: Library, status: Status) -> *const c_char {
    let name = status_names!(status; SUCCESS, NOT_INITIALIZED, BAD_PARAM, BAD_PARAM_NULL_POINTER, BAD_PARAM_NOT_FINALIZED,
        BAD_PARAM_OUT_OF_BOUND, BAD_PARAM_SIZE_INSUFFICIENT, BAD_PARAM_STREAM_MISMATCH, NOT_SUPPORTED, INTERNAL_ERROR,
        ALLOC_FAILED, INTERNAL_ERROR_HOST_ALLOCATION_FAILED, INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, EXECUTION_FAILED,
        PLUGIN_ERROR, VERSION_MISMATCH);
    name.as_ptr().cast()
}

/// The thread's last error message, which is then cleared.
pub unsafe fn last_error_string(_: Library, message: *mut c_char, size: usize) {
    // SAFETY: the module's contract.
    unsafe { give_error(message, size, true) };
}

/// The thread's last error message.
pub unsafe fn peek_last_error_string(_: Library, message: *mut c_char, size: usize) {
    // SAFETY: the module's contract.
    unsafe { give_error(message, size, false) };
}

/// Logs a message from the caller.
pub unsafe fn log(_: Library, severity: Severity, message: *const c_char) {
    if message.is_null() {
        return;
    }
    let _ = guard(|| {
        // SAFETY: the module's contract.
        messages::deliver(severity, unsafe { CStr::from_ptr(message) });
        Ok(())
    });
}

/// There are no plugins: any path is accepted and none is read.
pub unsafe fn set_engine_plugin_paths(
    _: Library,
    count: usize,
    paths: *const *const c_char,
    mode: PluginLoadingMode,
) -> Status {
    guard(|| {
        if count > 0 && paths.is_null() {
            return Err(Fault::null("the paths"));
        }
        if mode.name().is_none() {
            return Err(Fault::bad("unknown mode"));
        }
        if HANDLES.is_empty() {
            Ok(())
        } else {
            Err(Fault::unsupported("paths must be set before the first handle is created"))
        }
    })
}

/// There are no plugins: any path is accepted and none is read.
pub unsafe fn set_heuristic_plugin_paths(
    library: Library,
    count: usize,
    paths: *const *const c_char,
    mode: PluginLoadingMode,
) -> Status {
    // SAFETY: the module's contract.
    unsafe { set_engine_plugin_paths(library, count, paths, mode) }
}

/// There are no plugins to unload.
pub unsafe fn set_plugin_unload_mode(_: Library, mode: PluginUnloadingMode) -> Status {
    guard(|| if mode.name().is_some() { Ok(()) } else { Err(Fault::bad("unknown mode")) })
}

/// There are no plugins.
pub unsafe fn loaded_engine_plugin_paths(
    _: Library,
    handle: *mut c_void,
    count: *mut usize,
    _: *mut *mut c_char,
    longest: *mut usize,
) -> Status {
    guard(|| {
        alive(handle)?;
        // SAFETY: the module's contract.
        unsafe {
            store("the count", count, 0)?;
            store("the longest path's size", longest, 0)
        }
    })
}

/// Registers a log callback. Both modes call it synchronously, on the thread that logs.
pub unsafe fn set_user_log_callback(
    _: Library,
    callback: Option<UserLogCallback>,
    least: Severity,
    _: LogCallbackMode,
    user: *mut c_void,
) -> Status {
    guard(|| messages::set_callback(callback, least, user))
}

/// Sets the lowest severity that is logged.
pub unsafe fn set_global_log_level(_: Library, level: Severity) -> Status {
    guard(|| messages::set_level(level))
}

/// The lowest severity that is logged.
pub unsafe fn global_log_level(_: Library, level: *mut Severity) -> Status {
    guard(|| {
        if level.is_null() {
            return Err(Fault::bad("the level's address is null"));
        }
        // SAFETY: the module's contract.
        unsafe { store("the level's address", level, messages::level()) }
    })
}

/// How many engines there are.
pub unsafe fn engine_count(library: Library, handle: *mut c_void, count: *mut usize) -> Status {
    guard(|| {
        alive(handle)?;
        // SAFETY: the module's contract.
        unsafe { store("the count", count, library.engines().len()) }
    })
}

/// An engine's names.
#[allow(clippy::too_many_arguments)]
pub unsafe fn engine_info(
    library: Library,
    handle: *mut c_void,
    index: usize,
    id: *mut i64,
    name: *mut c_char,
    name_size: *mut usize,
    plugin: *mut c_char,
    plugin_size: *mut usize,
    version: *mut c_char,
    version_size: *mut usize,
    kind: *mut c_char,
    kind_size: *mut usize,
) -> Status {
    guard(|| {
        alive(handle)?;
        let Some(engine) = library.engines().get(index) else {
            return Err(Fault::new(Status::BAD_PARAM_OUT_OF_BOUND, format!("engine {index} does not exist")));
        };
        let identity = library.identity();
        let texts = [
            (name, name_size, engine.name),
            (plugin, plugin_size, identity.plugin),
            (version, version_size, identity.plugin_version),
            (kind, kind_size, "ENGINE"),
        ];
        let only_sizes = texts.iter().any(|(text, ..)| text.is_null());
        for (text, size, value) in texts {
            let text = if only_sizes { std::ptr::null_mut() } else { text };
            // SAFETY: the module's contract.
            unsafe { store_text(text, size, value)? };
        }
        if !id.is_null() {
            // SAFETY: the module's contract.
            unsafe { id.write(engine.id()) };
        }
        Ok(())
    })
}

/// An engine's id by its name.
pub unsafe fn engine_id_by_name(library: Library, handle: *mut c_void, name: *const c_char, id: *mut i64) -> Status {
    guard(|| {
        alive(handle)?;
        if name.is_null() {
            return Err(Fault::null("the name"));
        }
        // SAFETY: the module's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let known = library.engines().iter().find(|engine| engine.name.as_bytes() == name);
        let engine = known.ok_or_else(|| Fault::unsupported("unknown engine name"))?;
        // SAFETY: the module's contract.
        unsafe { store("the id's address", id, engine.id()) }
    })
}

/// An engine's name by its id.
pub unsafe fn engine_name_by_id(
    library: Library,
    handle: *mut c_void,
    id: i64,
    name: *mut c_char,
    size: *mut usize,
) -> Status {
    guard(|| {
        alive(handle)?;
        let known = library.engines().iter().find(|engine: &&Engine| engine.id() == id);
        let engine = known.ok_or_else(|| Fault::unsupported(format!("engine {id} does not exist")))?;
        // SAFETY: the module's contract.
        unsafe { store_text(name, size, engine.name) }
    })
}

/// There are no policies: a library ranks its engines itself.
pub unsafe fn heuristic_policy_count(_: Library, handle: *mut c_void, count: *mut usize) -> Status {
    guard(|| {
        alive(handle)?;
        // SAFETY: the module's contract.
        unsafe { store("the count", count, 0) }
    })
}

/// There are no policies.
#[allow(clippy::too_many_arguments)]
pub unsafe fn heuristic_policy_info(
    _: Library,
    handle: *mut c_void,
    index: usize,
    _: *mut i64,
    _: *mut c_char,
    _: *mut usize,
    _: *mut c_char,
    _: *mut usize,
    _: *mut c_char,
    _: *mut usize,
    _: *mut c_char,
    _: *mut usize,
) -> Status {
    guard(|| {
        alive(handle)?;
        Err(Fault::new(Status::BAD_PARAM_OUT_OF_BOUND, format!("policy {index} does not exist")))
    })
}

/// A library ranks its engines itself: nothing is written.
pub unsafe fn write_engine_ranking(
    _: Library,
    handle: *mut c_void,
    _: *mut c_void,
    _: *const i64,
    _: usize,
    outcome: *mut RankingOutcome,
) -> Status {
    guard(|| {
        alive(handle)?;
        if !outcome.is_null() {
            // SAFETY: the module's contract.
            unsafe { outcome.write(RankingOutcome::DECLINED_DISABLED) };
        }
        Ok(())
    })
}

/// The version.
pub unsafe fn version(library: Library, version: *mut *const c_char) -> Status {
    // SAFETY: the module's contract.
    guard(|| unsafe { store("the version's address", version, library.identity().version.as_ptr()) })
}

/// The version.
pub unsafe fn version_string(library: Library) -> *const c_char {
    library.identity().version.as_ptr()
}
