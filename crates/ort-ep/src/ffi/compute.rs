//! [`OrtNodeComputeInfo`](sys::OrtNodeComputeInfo) over [`Partition`], and the EPContext node of a saved partition.
use std::ffi::{CStr, CString, c_void};

use ort_ep_sys as sys;

use super::guard::Border;
use super::runtime::c_string;
use crate::view::{KernelContext, Node, ValueInfo};
use crate::{EpContextNode, Error, Partition, Result, Runtime};

#[repr(C)]
struct ComputeBox {
    raw: sys::OrtNodeComputeInfo,
    inner: Box<dyn Partition>,
    border: Border,
}

const _: () = assert!(std::mem::offset_of!(ComputeBox, raw) == 0);

/// Creates the C object.
pub(super) fn partition_into_raw(inner: Box<dyn Partition>, border: Border) -> *mut sys::OrtNodeComputeInfo {
    let mut raw = sys::OrtNodeComputeInfo::empty(border.runtime.api_version());
    raw.CreateState = Some(create_state);
    raw.Compute = Some(compute);
    raw.ReleaseState = Some(release_state);
    Box::into_raw(Box::new(ComputeBox { raw, inner, border })).cast()
}

/// Releases a partition.
///
/// # Safety
/// `this` is null, or came from `partition_into_raw` and was not released before.
pub(super) unsafe fn release_partition(this: *mut sys::OrtNodeComputeInfo) {
    if this.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let partition = unsafe { Box::from_raw(this.cast::<ComputeBox>()) };
    let border = partition.border.after_session();
    border.value("ReleaseNodeComputeInfos", (), move || {
        drop(partition);
        Ok(())
    });
}

/// The partition is its own state: concurrent runs share one state pointer anyway.
unsafe extern "system" fn create_state(
    this: *mut sys::OrtNodeComputeInfo,
    _: *mut sys::OrtNodeComputeContext,
    state: *mut *mut c_void,
) -> sys::Status {
    // SAFETY: a valid out-pointer.
    unsafe { state.write(this.cast()) };
    std::ptr::null_mut()
}

unsafe extern "system" fn compute(
    this: *mut sys::OrtNodeComputeInfo,
    _: *mut c_void,
    context: *mut sys::OrtKernelContext,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this: &ComputeBox = unsafe { &*this.cast() };
    this.border.status("Compute", || {
        // SAFETY: the context is alive for the call.
        let context = unsafe { KernelContext::from_raw(this.border.runtime, context) };
        this.inner.compute(&context)
    })
}

unsafe extern "system" fn release_state(_: *mut sys::OrtNodeComputeInfo, _: *mut c_void) {}

/// Creates the EPContext node that replaces `fused` in a saved model; ONNX Runtime takes ownership of it.
pub(super) fn context_node(
    runtime: Runtime,
    fused: Node<'_>,
    node: &EpContextNode,
    ep_name: &CStr,
) -> Result<*mut sys::OrtNode> {
    let editor = runtime.api.model_editor_api().ok_or_else(|| {
        Error::not_implemented("this build of ONNX Runtime cannot create nodes, so compiled models cannot be saved")
    })?;
    let names = |values: Vec<Option<ValueInfo<'_>>>| -> Result<Vec<CString>> {
        values
            .into_iter()
            .map(|value| value.map_or(Ok(CString::default()), |value| Ok(c_string(value.name()?))))
            .collect()
    };
    let inputs = names(fused.inputs()?)?;
    let outputs = names(fused.outputs()?)?;
    let mut attributes = Attributes { runtime, raw: Vec::new() };
    attributes.int("main_context", i64::from(node.main))?;
    attributes.int("embed_mode", i64::from(node.embedded))?;
    attributes.bytes("ep_cache_context", &node.context)?;
    // The provider recognises its own nodes by this.
    attributes.bytes("source", ep_name.to_bytes())?;
    for (name, text) in node.texts.iter().filter(|(name, _)| name != "source") {
        attributes.bytes(name, text.as_bytes())?;
    }
    let pointers = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
    let (input_names, output_names) = (pointers(&inputs), pointers(&outputs));
    let name = c_string(fused.name()?);
    let mut out = std::ptr::null_mut();
    // SAFETY: all strings are NUL-terminated and copied. On success the call takes ownership of the attributes and
    // nulls the entries, so that `Attributes` has nothing left to release.
    let status = unsafe {
        editor.CreateNode(
            c"EPContext".as_ptr(),
            c"com.microsoft".as_ptr(),
            name.as_ptr(),
            input_names.as_ptr(),
            input_names.len(),
            output_names.as_ptr(),
            output_names.len(),
            attributes.raw.as_mut_ptr(),
            attributes.raw.len(),
            &mut out,
        )
    };
    runtime.check("CreateNode", status)?;
    Ok(out)
}

/// Attributes for a node under construction.
struct Attributes {
    runtime: Runtime,
    raw: Vec<*mut sys::OrtOpAttr>,
}

impl Attributes {
    fn int(&mut self, name: &str, value: i64) -> Result<()> {
        self.add(name, (&raw const value).cast(), 1, sys::ORT_OP_ATTR_INT)
    }

    fn bytes(&mut self, name: &str, value: &[u8]) -> Result<()> {
        let length = i32::try_from(value.len()).map_err(|_| {
            Error::invalid_argument(format!(
                "the attribute {name} of an EPContext node would be {} bytes long; the limit is 2 GiB\n  help: set ep.context_embed_mode to 0 to write a separate file",
                value.len()
            ))
        })?;
        self.add(name, value.as_ptr().cast(), length, sys::ORT_OP_ATTR_STRING)
    }

    fn add(&mut self, name: &str, data: *const c_void, length: i32, kind: sys::OrtOpAttrType) -> Result<()> {
        let name = c_string(name);
        let mut attribute = std::ptr::null_mut();
        // SAFETY: `data` holds `length` values of `kind`, and everything is copied.
        let status = unsafe { self.runtime.api.CreateOpAttr(name.as_ptr(), data, length, kind, &mut attribute) };
        self.runtime.check("CreateOpAttr", status)?;
        self.raw.push(attribute);
        Ok(())
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        for &attribute in self.raw.iter().filter(|attribute| !attribute.is_null()) {
            // SAFETY: made by `CreateOpAttr` and still ours.
            unsafe { self.runtime.api.ReleaseOpAttr(attribute) };
        }
    }
}
