//! Handles: their stream, engines and policies.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use super::{check, require, until_nul};
use crate::Result;
use crate::sys::{Backend, Handle, Status};

/// Buffers for four strings, and their sizes.
type Texts = [*mut c_char; 4];
type Sizes = [*mut usize; 4];

/// Creates a handle; the first one loads the backend's plugins.
///
/// # Errors
/// The backend rejects the call.
pub fn create(backend: &dyn Backend) -> Result<Handle> {
    let mut handle = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { backend.create(&mut handle) };
    check(backend, || "creating a handle".into(), status)?;
    Ok(handle)
}

/// Destroys a handle.
///
/// # Errors
/// The backend rejects the call.
///
/// # Safety
/// The handle came from [`create`] on this backend and is not used afterwards.
pub unsafe fn destroy(backend: &dyn Backend, handle: Handle) -> Result<()> {
    // SAFETY: the caller vouches for the handle.
    let status = unsafe { backend.destroy(handle) };
    check(backend, || "destroying a handle".into(), status)
}

/// Queues work on this stream from now on.
///
/// # Errors
/// The backend rejects the call.
///
/// # Safety
/// The handle is alive. The stream belongs to the driver that the backend uses, and stays alive while it is set.
pub unsafe fn set_stream(backend: &dyn Backend, handle: Handle, stream: *mut c_void) -> Result<()> {
    // SAFETY: the caller vouches for the handle and the stream.
    let status = unsafe { backend.set_stream(handle, stream) };
    check(backend, || "setting the stream".into(), status)
}

/// The stream that work is queued on.
///
/// # Errors
/// The backend rejects the call, or cannot report the stream.
///
/// # Safety
/// The handle is alive.
pub unsafe fn stream(backend: &dyn Backend, handle: Handle) -> Result<*mut c_void> {
    require(backend, "hipdnnGetStream")?;
    let mut stream = ptr::null_mut();
    // SAFETY: the out-pointer is valid; the caller vouches for the handle.
    let status = unsafe { backend.get_stream(handle, &mut stream) };
    check(backend, || "reading the stream".into(), status)?;
    Ok(stream)
}

/// The number of engines.
///
/// # Errors
/// The backend rejects the call, or does not provide this list.
///
/// # Safety
/// The handle is alive.
pub unsafe fn engine_count(backend: &dyn Backend, handle: Handle) -> Result<usize> {
    require(backend, "hipdnnGetEngineCount_ext")?;
    let mut count = 0;
    // SAFETY: the out-pointer is valid; the caller vouches for the handle.
    let status = unsafe { backend.engine_count(handle, &mut count) };
    check(backend, || "counting engines".into(), status)?;
    Ok(count)
}

/// The id of an engine, with its name, its plugin, the plugin's version and its kind.
///
/// # Errors
/// There is no such engine, or the backend does not provide this list.
///
/// # Safety
/// The handle is alive.
pub unsafe fn engine_info(backend: &dyn Backend, handle: Handle, index: usize) -> Result<(i64, [String; 4])> {
    require(backend, "hipdnnGetEngineInfo_ext")?;
    // SAFETY: `four_texts` provides the buffers that the function requires; the caller vouches for the handle.
    let ask = |id, [a, b, c, d]: Texts, [sa, sb, sc, sd]: Sizes| unsafe {
        backend.engine_info(handle, index, id, a, sa, b, sb, c, sc, d, sd)
    };
    four_texts(backend, || format!("reading engine {index}"), ask)
}

/// The number of policies.
///
/// # Errors
/// The backend rejects the call, or does not provide this list.
///
/// # Safety
/// The handle is alive.
pub unsafe fn policy_count(backend: &dyn Backend, handle: Handle) -> Result<usize> {
    require(backend, "hipdnnGetHeuristicPolicyCount_ext")?;
    let mut count = 0;
    // SAFETY: the out-pointer is valid; the caller vouches for the handle.
    let status = unsafe { backend.heuristic_policy_count(handle, &mut count) };
    check(backend, || "counting policies".into(), status)?;
    Ok(count)
}

/// The id of a policy, with its name, its plugin, the plugin's version and that of its interface.
///
/// # Errors
/// There is no such policy, or the backend does not provide this list.
///
/// # Safety
/// The handle is alive.
pub unsafe fn policy_info(backend: &dyn Backend, handle: Handle, index: usize) -> Result<(i64, [String; 4])> {
    require(backend, "hipdnnGetHeuristicPolicyInfo_ext")?;
    // SAFETY: `four_texts` provides the buffers that the function requires; the caller vouches for the handle.
    let ask = |id, [a, b, c, d]: Texts, [sa, sb, sc, sd]: Sizes| unsafe {
        backend.heuristic_policy_info(handle, index, id, a, sa, b, sb, c, sc, d, sd)
    };
    four_texts(backend, || format!("reading policy {index}"), ask)
}

/// Calls `ask` twice: without buffers for the sizes of four strings, then for the strings.
fn four_texts(
    backend: &dyn Backend,
    attempted: impl Fn() -> String,
    ask: impl Fn(*mut i64, Texts, Sizes) -> Status,
) -> Result<(i64, [String; 4])> {
    let (mut id, mut sizes) = (0, [0usize; 4]);
    let status = ask(&mut id, [ptr::null_mut(); 4], sizes.each_mut().map(ptr::from_mut));
    check(backend, &attempted, status)?;
    let mut sizes = sizes.map(|size| size.max(1));
    let mut texts = sizes.map(|size| vec![0u8; size]);
    let room = texts.each_mut().map(|text| text.as_mut_ptr().cast());
    let status = ask(&mut id, room, sizes.each_mut().map(ptr::from_mut));
    check(backend, &attempted, status)?;
    Ok((id, texts.map(|text| until_nul(&text))))
}

/// An engine's id by its name.
///
/// # Errors
/// There is no engine with this name, or the backend cannot look names up.
///
/// # Safety
/// The handle is alive.
pub unsafe fn engine_id(backend: &dyn Backend, handle: Handle, name: &CStr) -> Result<i64> {
    require(backend, "hipdnnGetEngineIdByName_ext")?;
    let mut id = 0;
    // SAFETY: the text and the out-pointer are valid for the call; the caller vouches for the handle.
    let status = unsafe { backend.engine_id_by_name(handle, name.as_ptr(), &mut id) };
    check(backend, || format!("looking for engine {}", name.to_string_lossy()), status)?;
    Ok(id)
}

/// An engine's name by its id.
///
/// # Errors
/// There is no engine with this id, or the backend cannot report the name.
///
/// # Safety
/// The handle is alive.
pub unsafe fn engine_name(backend: &dyn Backend, handle: Handle, id: i64) -> Result<String> {
    require(backend, "hipdnnGetEngineNameById_ext")?;
    let attempted = || format!("looking for engine {id:#x}");
    let mut size = 0;
    // SAFETY: without a buffer the call only returns the size; the caller vouches for the handle.
    let status = unsafe { backend.engine_name_by_id(handle, id, ptr::null_mut(), &mut size) };
    check(backend, attempted, status)?;
    let mut text = vec![0u8; size.max(1)];
    size = text.len();
    // SAFETY: the buffer has the given size; the caller vouches for the handle.
    let status = unsafe { backend.engine_name_by_id(handle, id, text.as_mut_ptr().cast(), &mut size) };
    check(backend, attempted, status)?;
    Ok(until_nul(&text))
}
