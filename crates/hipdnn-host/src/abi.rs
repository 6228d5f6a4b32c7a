//! The 38 exported functions.
//!
//! # Safety
//! The contract of every function is hipDNN's: pointers are null, which gives a status, or valid for what the function
//! reads or writes. Handles and descriptors need not be valid: they are looked up, never trusted.
#![allow(non_snake_case, reason = "the names are hipDNN's")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, in the module documentation")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use hipdnn::sys::{
    AttributeName, AttributeType, DescriptorType, LogCallbackMode, PluginLoadingMode, PluginUnloadingMode,
    RankingOutcome, Severity, Status, UserLogCallback,
};

use crate::descriptor::Descriptor;
use crate::engine;
use crate::fault::{self, Fault, Outcome};
use crate::registry::{DESCRIPTORS, HANDLES, Handle};
use crate::run;

/// `major.minor.patch.tweak` of the interface this library speaks.
const VERSION: &CStr = c"0.4.0.host";

static LOG_LEVEL: AtomicI32 = AtomicI32::new(Severity::OFF.0);

/// Runs an exported function: a failure leaves its words with the thread, a panic becomes an internal error.
fn guard(body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Fault::new(Status::INTERNAL_ERROR, "the library panicked, which is a mistake in it")));
    match outcome {
        Ok(()) => Status::SUCCESS,
        Err(fault) => {
            fault::remember(fault.text);
            fault.status
        }
    }
}

/// # Safety
/// `out` is null or writable.
unsafe fn store<T>(what: &str, out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(Fault::null(what));
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Fills a text by the two-call rule: without room only its size, with its NUL, is given.
///
/// # Safety
/// `text` is null or has room for `*size` characters; `size` is null or valid.
unsafe fn store_text(text: *mut c_char, size: *mut usize, value: &str) -> Outcome {
    if size.is_null() {
        return Err(Fault::null("a text's size"));
    }
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, count);
        message.add(count).write(0);
    }
}

fn absent(what: &str) -> Status {
    guard(|| Err(Fault::unsupported(format!("this backend has no {what}"))))
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnCreate(handle: *mut *mut c_void) -> Status {
    guard(|| {
        if handle.is_null() {
            return Err(Fault::null("the handle's place"));
        }
        // SAFETY: the module's contract.
        unsafe { store("the handle's place", handle, HANDLES.add(Arc::new(Handle::default()))) }
    })
}

/// Destroys a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnDestroy(handle: *mut c_void) -> Status {
    guard(|| HANDLES.remove("the handle", handle))
}

/// Sends work to a stream from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnSetStream(handle: *mut c_void, stream: *mut c_void) -> Status {
    guard(|| {
        run::handle(handle)?.set_stream(stream.expose_provenance());
        Ok(())
    })
}

/// The stream that work goes to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetStream(handle: *mut c_void, stream: *mut *mut c_void) -> Status {
    guard(|| {
        let address = run::handle(handle)?.stream();
        // SAFETY: the module's contract.
        unsafe { store("the stream's place", stream, std::ptr::with_exposed_provenance_mut(address)) }
    })
}

/// Makes a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendCreateDescriptor(kind: DescriptorType, descriptor: *mut *mut c_void) -> Status {
    guard(|| {
        if descriptor.is_null() {
            return Err(Fault::null("the descriptor's place"));
        }
        let made = Arc::new(Descriptor::new(kind)?);
        // SAFETY: the module's contract.
        unsafe { store("the descriptor's place", descriptor, DESCRIPTORS.add(made)) }
    })
}

/// Drops a descriptor; others that refer to it keep it alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendDestroyDescriptor(descriptor: *mut c_void) -> Status {
    guard(|| DESCRIPTORS.remove("the descriptor", descriptor))
}

/// Enqueues a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendExecute(handle: *mut c_void, plan: *mut c_void, pack: *mut c_void) -> Status {
    guard(|| {
        let (plan, pack) = (DESCRIPTORS.get("the plan", plan)?, DESCRIPTORS.get("the variant pack", pack)?);
        // SAFETY: the module's contract.
        unsafe { run::execute(&*run::handle(handle)?, &plan, &pack) }
    })
}

/// Ends the setting of attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendFinalize(descriptor: *mut c_void) -> Status {
    guard(|| DESCRIPTORS.get("the descriptor", descriptor)?.finalize())
}

/// Reads an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetAttribute(
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendSetAttribute(
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

/// A status by name.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnGetErrorString(status: Status) -> *const c_char {
    let name = status_names!(status; SUCCESS, NOT_INITIALIZED, BAD_PARAM, BAD_PARAM_NULL_POINTER, BAD_PARAM_NOT_FINALIZED,
        BAD_PARAM_OUT_OF_BOUND, BAD_PARAM_SIZE_INSUFFICIENT, BAD_PARAM_STREAM_MISMATCH, NOT_SUPPORTED, INTERNAL_ERROR,
        ALLOC_FAILED, INTERNAL_ERROR_HOST_ALLOCATION_FAILED, INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, EXECUTION_FAILED,
        PLUGIN_ERROR, VERSION_MISMATCH);
    name.as_ptr().cast()
}

/// The thread's last error, which is forgotten then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetLastErrorString(message: *mut c_char, size: usize) {
    // SAFETY: the module's contract.
    unsafe { give_error(message, size, true) };
}

/// The thread's last error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPeekLastErrorString_ext(message: *mut c_char, size: usize) {
    // SAFETY: the module's contract.
    unsafe { give_error(message, size, false) };
}

/// Not offered: graphs are built from descriptors.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendCreateAndDeserializeGraph_ext(_: *mut *mut c_void, _: *const u8, _: usize) -> Status {
    absent("serialised graphs")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendGetSerializedBinaryGraph_ext(
    _: *mut c_void,
    _: usize,
    _: *mut usize,
    _: *mut u8,
) -> Status {
    absent("serialised graphs")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendGetSerializedJsonGraph_ext(
    _: *mut c_void,
    _: usize,
    _: *mut usize,
    _: *mut c_char,
) -> Status {
    absent("graphs as JSON")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendGetSerializedExecutionPlan_ext(
    _: *mut c_void,
    _: usize,
    _: *mut usize,
    _: *mut u8,
) -> Status {
    absent("serialised plans")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendCreateAndDeserializeExecutionPlan_ext(
    _: *mut c_void,
    _: *mut *mut c_void,
    _: *const u8,
    _: usize,
) -> Status {
    absent("serialised plans")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(
    _: *mut c_void,
    _: *mut c_void,
    _: usize,
    _: *mut usize,
    _: *mut u8,
) -> Status {
    absent("serialised graphs and plans")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendGetSerializedBinaryContents_ext(_: *const u8, _: usize, _: *mut c_int) -> Status {
    absent("serialised contents")
}

/// Not offered.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendCreateAndDeserializeJsonGraph_ext(
    _: *mut *mut c_void,
    _: *const c_char,
    _: usize,
) -> Status {
    absent("graphs as JSON")
}

/// Takes a message for the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnLoggingCallback_ext(severity: Severity, message: *const c_char) {
    if message.is_null() || severity.0 < LOG_LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let _ = guard(|| {
        // SAFETY: the module's contract.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        tracing::info!(target: "hipdnn_host", "{text}");
        Ok(())
    });
}

/// There are no plugins: any path is taken and none is read.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnSetEnginePluginPaths_ext(
    count: usize,
    paths: *const *const c_char,
    _: PluginLoadingMode,
) -> Status {
    guard(|| if count > 0 && paths.is_null() { Err(Fault::null("the paths")) } else { Ok(()) })
}

/// There are no plugins: any path is taken and none is read.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnSetHeuristicPluginPaths_ext(
    count: usize,
    paths: *const *const c_char,
    mode: PluginLoadingMode,
) -> Status {
    hipdnnSetEnginePluginPaths_ext(count, paths, mode)
}

/// There are no plugins to unload.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnSetPluginUnloadMode_ext(mode: PluginUnloadingMode) -> Status {
    guard(|| if mode.name().is_some() { Ok(()) } else { Err(Fault::bad("an unknown mode")) })
}

/// There are no plugins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetLoadedEnginePluginPaths_ext(
    handle: *mut c_void,
    count: *mut usize,
    _: *mut *mut c_char,
    longest: *mut usize,
) -> Status {
    guard(|| {
        run::handle(handle)?;
        // SAFETY: the module's contract.
        unsafe {
            store("the count", count, 0)?;
            store("the longest path's size", longest, 0)
        }
    })
}

/// Not offered: messages go to the process's own log.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnSetUserLogCallback_ext(
    _: Option<UserLogCallback>,
    _: Severity,
    _: LogCallbackMode,
    _: *mut c_void,
) -> Status {
    absent("log callbacks")
}

/// Sets the least severity that is logged.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendSetGlobalLogLevel_ext(level: Severity) -> Status {
    guard(|| {
        if level.name().is_none() {
            return Err(Fault::bad("an unknown severity"));
        }
        LOG_LEVEL.store(level.0, Ordering::Relaxed);
        Ok(())
    })
}

/// The least severity that is logged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetGlobalLogLevel_ext(level: *mut Severity) -> Status {
    guard(|| {
        if level.is_null() {
            return Err(Fault::bad("the level's place is null"));
        }
        // SAFETY: the module's contract.
        unsafe { store("the level's place", level, Severity(LOG_LEVEL.load(Ordering::Relaxed))) }
    })
}

/// There is one engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineCount_ext(handle: *mut c_void, count: *mut usize) -> Status {
    guard(|| {
        run::handle(handle)?;
        // SAFETY: the module's contract.
        unsafe { store("the count", count, 1) }
    })
}

/// The engine's names.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn hipdnnGetEngineInfo_ext(
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
        run::handle(handle)?;
        if index != 0 {
            return Err(Fault::new(Status::BAD_PARAM_OUT_OF_BOUND, format!("there is no engine {index}")));
        }
        let texts = [
            (name, name_size, engine::NAME),
            (plugin, plugin_size, "hipdnn-host"),
            (version, version_size, env!("CARGO_PKG_VERSION")),
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
            unsafe { id.write(engine::id()) };
        }
        Ok(())
    })
}

/// The engine's id by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineIdByName_ext(handle: *mut c_void, name: *const c_char, id: *mut i64) -> Status {
    guard(|| {
        run::handle(handle)?;
        if name.is_null() {
            return Err(Fault::null("the name"));
        }
        // SAFETY: the module's contract.
        if unsafe { CStr::from_ptr(name) }.to_bytes() != engine::NAME.as_bytes() {
            return Err(Fault::unsupported("there is no engine of this name"));
        }
        // SAFETY: the module's contract.
        unsafe { store("the id's place", id, engine::id()) }
    })
}

/// The engine's name by its id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineNameById_ext(
    handle: *mut c_void,
    id: i64,
    name: *mut c_char,
    size: *mut usize,
) -> Status {
    guard(|| {
        run::handle(handle)?;
        if id != engine::id() {
            return Err(Fault::unsupported(format!("there is no engine {id}")));
        }
        // SAFETY: the module's contract.
        unsafe { store_text(name, size, engine::NAME) }
    })
}

/// There are no policies: one engine needs no ranking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetHeuristicPolicyCount_ext(handle: *mut c_void, count: *mut usize) -> Status {
    guard(|| {
        run::handle(handle)?;
        // SAFETY: the module's contract.
        unsafe { store("the count", count, 0) }
    })
}

/// There are no policies.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn hipdnnGetHeuristicPolicyInfo_ext(
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
        run::handle(handle)?;
        Err(Fault::new(Status::BAD_PARAM_OUT_OF_BOUND, format!("there is no policy {index}")))
    })
}

/// One engine needs no ranking: nothing is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendWriteEngineRankingResults_ext(
    handle: *mut c_void,
    _: *mut c_void,
    _: *const i64,
    _: usize,
    outcome: *mut RankingOutcome,
) -> Status {
    guard(|| {
        run::handle(handle)?;
        if !outcome.is_null() {
            // SAFETY: the module's contract.
            unsafe { outcome.write(RankingOutcome::DECLINED_DISABLED) };
        }
        Ok(())
    })
}

/// The version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetVersion_ext(version: *mut *const c_char) -> Status {
    // SAFETY: the module's contract.
    guard(|| unsafe { store("the version's place", version, VERSION.as_ptr()) })
}

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnVersionString_ext() -> *const c_char {
    VERSION.as_ptr()
}
