//! An [`OrtEp`](sys::OrtEp) that forwards to another plugin's.
//!
//! Which slots exist is decided once, when the table is created: by the runtime's version, ours, and the version stamp
//! of the backend's own table. Slots that only forward do nothing else, so a call costs one jump.
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use ort_ep_sys as sys;

use super::ep::EpHeader;
use super::factory::FactoryState;
use super::foreign::{ForeignAllocator, ForeignEp};
use super::guard::Border;
use super::kernel::KernelRegistry;
use super::life::LifeToken;
use super::runtime::{c_string, text};
use crate::{BackendMemory, Ep, Error, Forwarded};

#[repr(C)]
struct ForwardBox {
    header: EpHeader,
    backend: ForeignEp,
    own: Box<dyn Ep>,
    compatibility_prefix: String,
    name: CString,
    border: Border,
    state: Arc<FactoryState>,
    registry: Option<Arc<KernelRegistry>>,
    /// ONNX Runtime copies the text immediately, but through a pointer that must outlive the call.
    compatibility: Mutex<CString>,
    token: LifeToken,
}

const _: () = assert!(std::mem::offset_of!(ForwardBox, header) == 0);

/// Creates the C object.
pub(super) fn forward_into_raw(
    forwarded: Forwarded,
    name: &CStr,
    border: Border,
    state: Arc<FactoryState>,
    registry: Option<Arc<KernelRegistry>>,
) -> *mut sys::OrtEp {
    let raw = table(&forwarded, border, registry.is_some());
    let header = EpHeader { raw, release };
    let token = state.life.token();
    let Forwarded { backend, own, compatibility_prefix, .. } = forwarded;
    let (name, compatibility) = (name.to_owned(), Mutex::default());
    Box::into_raw(Box::new(ForwardBox {
        header,
        backend,
        own,
        compatibility_prefix,
        name,
        border,
        state,
        registry,
        compatibility,
        token,
    }))
    .cast()
}

/// The slots that ONNX Runtime sees.
fn table(forwarded: &Forwarded, border: Border, has_registry: bool) -> sys::OrtEp {
    let backend: *const sys::OrtEp = forwarded.backend.as_ptr();
    let mut raw = sys::OrtEp::empty(border.runtime.api_version());
    raw.GetName = Some(get_name);
    raw.SetDynamicOptions = Some(set_dynamic_options);
    raw.Sync = Some(sync);
    raw.GetCapability = Some(get_capability);
    raw.GetDefaultMemoryDevice = Some(get_default_memory_device);
    // SAFETY (for every read of the backend's table below): the backend created it, and its memory extends as far as
    // its version stamp says.
    macro_rules! forward {
        ($($slot:ident => $function:ident),* $(,)?) => {
            $(
                // SAFETY: see above.
                if unsafe { sys::OrtEp::$slot(backend) }.is_some() {
                    raw.$slot = Some($function);
                }
            )*
        };
    }
    forward! {
        Compile => compile,
        ReleaseNodeComputeInfos => release_node_compute_infos,
        GetPreferredDataLayout => get_preferred_data_layout,
        ShouldConvertDataLayoutForOp => should_convert_data_layout_for_op,
        OnRunStart => on_run_start,
        OnRunEnd => on_run_end,
        CreateAllocator => create_allocator,
        CreateSyncStreamForDevice => create_stream,
        GetCompiledModelCompatibilityInfo => get_compatibility_info,
        GetKernelRegistry => get_kernel_registry,
        IsConcurrentRunSupported => is_concurrent_run_supported,
        CreateProfiler => create_profiler,
        IsGraphCaptureEnabled => is_graph_capture_enabled,
        IsGraphCaptured => is_graph_captured,
        ReplayGraph => replay_graph,
        GetGraphCaptureNodeAssignmentPolicy => get_capture_policy,
        GetAvailableResource => get_available_resource,
        OnSessionInitializationEnd => on_session_initialization_end,
        ReleaseCapturedGraph => release_captured_graph,
        GetWeightlessSupport => get_weightless_support,
        GetEpContextDataCallbackSupport => get_data_callback_support,
    }
    if has_registry {
        raw.GetKernelRegistry = Some(get_kernel_registry);
    }
    if forwarded.own.available_bytes().is_some() {
        raw.GetAvailableResource = Some(get_available_resource);
    }
    match forwarded.memory {
        BackendMemory::Ours => {
            raw.CreateAllocator = None;
            raw.CreateSyncStreamForDevice = None;
        }
        BackendMemory::Shared => {}
        BackendMemory::Backend => {
            let factory = forwarded.backend.factory();
            if factory.makes_allocators() {
                raw.CreateAllocator = Some(create_allocator);
            }
            if factory.makes_streams() {
                raw.CreateSyncStreamForDevice = Some(create_stream);
            }
        }
    }
    raw
}

/// # Safety
/// `this` came from `forward_into_raw` and was not released before.
unsafe fn release(this: *mut sys::OrtEp) {
    // SAFETY: guaranteed by the caller.
    let ep = unsafe { Box::from_raw(this.cast::<ForwardBox>()) };
    let border = ep.border.after_session();
    border.value("ReleaseEp", (), move || {
        // The backend's part is dropped first and the token last: it keeps everything the fields point to alive.
        let ForwardBox { backend, own, registry, token, .. } = *ep;
        drop(backend);
        drop(own);
        drop(registry);
        drop(token);
        Ok(())
    });
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `forward_into_raw` and is alive.
unsafe fn of<'a>(this: *const sys::OrtEp) -> &'a ForwardBox {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

/// Slots that forward the call unchanged. The last column is the result if the backend lacks the slot: only a broken
/// caller gets it, because ONNX Runtime was never given the slot.
macro_rules! hand_over {
    ($($function:ident = $slot:ident($this:ident: $pointer:ty $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?, $absent:expr;)*) => {
        $(
            unsafe extern "system" fn $function($this: $pointer $(, $arg: $ty)*) $(-> $ret)? {
                // SAFETY: ONNX Runtime passes the pointer it was given, and arguments by this slot's contract, which is
                // the same for the backend's slot.
                unsafe {
                    let backend = of($this).backend.as_ptr();
                    match sys::OrtEp::$slot(backend) {
                        Some(function) => function(backend $(, $arg)*),
                        None => $absent,
                    }
                }
            }
        )*
    };
}

hand_over! {
    get_capability = GetCapability(
        this: *mut sys::OrtEp, graph: *const sys::OrtGraph, claims: *mut sys::OrtEpGraphSupportInfo
    ) -> sys::Status, ptr::null_mut();
    compile = Compile(
        this: *mut sys::OrtEp, graphs: *mut *const sys::OrtGraph, nodes: *mut *const sys::OrtNode, count: usize,
        infos: *mut *mut sys::OrtNodeComputeInfo, context_nodes: *mut *mut sys::OrtNode
    ) -> sys::Status, ptr::null_mut();
    release_node_compute_infos = ReleaseNodeComputeInfos(
        this: *mut sys::OrtEp, infos: *mut *mut sys::OrtNodeComputeInfo, count: usize
    ), ();
    get_preferred_data_layout = GetPreferredDataLayout(
        this: *mut sys::OrtEp, out: *mut sys::OrtEpDataLayout
    ) -> sys::Status, ptr::null_mut();
    should_convert_data_layout_for_op = ShouldConvertDataLayoutForOp(
        this: *mut sys::OrtEp, domain: *const c_char, op_type: *const c_char, layout: sys::OrtEpDataLayout,
        out: *mut c_int
    ) -> sys::Status, ptr::null_mut();
    on_run_start = OnRunStart(this: *mut sys::OrtEp, options: *const sys::OrtRunOptions) -> sys::Status, ptr::null_mut();
    on_run_end = OnRunEnd(
        this: *mut sys::OrtEp, options: *const sys::OrtRunOptions, sync: bool
    ) -> sys::Status, ptr::null_mut();
    is_concurrent_run_supported = IsConcurrentRunSupported(
        this: *mut sys::OrtEp, out: *mut bool
    ) -> sys::Status, ptr::null_mut();
    create_profiler = CreateProfiler(
        this: *mut sys::OrtEp, out: *mut *mut sys::OrtEpProfilerImpl
    ) -> sys::Status, ptr::null_mut();
    is_graph_capture_enabled = IsGraphCaptureEnabled(this: *const sys::OrtEp) -> bool, false;
    replay_graph = ReplayGraph(this: *mut sys::OrtEp, id: c_int) -> sys::Status, ptr::null_mut();
    get_capture_policy = GetGraphCaptureNodeAssignmentPolicy(
        this: *const sys::OrtEp
    ) -> sys::OrtGraphCaptureNodeAssignmentPolicy, sys::ORT_CAPTURE_ALL_NODES_ON_EP;
    on_session_initialization_end = OnSessionInitializationEnd(this: *mut sys::OrtEp) -> sys::Status, ptr::null_mut();
    release_captured_graph = ReleaseCapturedGraph(this: *mut sys::OrtEp, id: c_int) -> sys::Status, ptr::null_mut();
    get_weightless_support = GetWeightlessSupport(
        this: *const sys::OrtEp, out: *mut sys::OrtWeightlessSupport
    ) -> sys::Status, ptr::null_mut();
    get_data_callback_support = GetEpContextDataCallbackSupport(
        this: *const sys::OrtEp, out: *mut u32
    ) -> sys::Status, ptr::null_mut();
}

unsafe extern "system" fn get_name(this: *const sys::OrtEp) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.name.as_ptr()
}

unsafe extern "system" fn is_graph_captured(this: *const sys::OrtEp, id: c_int) -> bool {
    // SAFETY: ONNX Runtime passes the pointer it was given, alive for the call.
    unsafe {
        let backend = of(this).backend.as_ptr();
        // -1 means "no capture": true would make ONNX Runtime replay it.
        id != -1 && sys::OrtEp::IsGraphCaptured(backend).is_some_and(|function| function(backend, id))
    }
}

/// Our own hook sees the options first: what it rejects does not reach the backend.
unsafe extern "system" fn set_dynamic_options(
    this: *mut sys::OrtEp,
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let refused = this.border.status("SetDynamicOptions", || {
        let options: Vec<_> = (0..count)
            // SAFETY: both arrays hold `count` C strings that are alive for the call.
            .map(|index| unsafe { (text(*keys.add(index)).into_owned(), text(*values.add(index)).into_owned()) })
            .collect();
        this.own.set_dynamic_options(&options)
    });
    if !refused.is_null() {
        return refused;
    }
    let backend = this.backend.as_ptr();
    // SAFETY: as above; the backend's slot has the same contract.
    unsafe {
        sys::OrtEp::SetDynamicOptions(backend)
            .map_or(ptr::null_mut(), |function| function(backend, keys, values, count))
    }
}

/// Waits for the backend's work, then for everything else on the device: streams and copies are ours.
unsafe extern "system" fn sync(this: *mut sys::OrtEp) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let backend = this.backend.as_ptr();
    // SAFETY: the backend's execution provider is alive, and the slot has the same contract.
    let failed = unsafe { sys::OrtEp::Sync(backend).map_or(ptr::null_mut(), |function| function(backend)) };
    if failed.is_null() { this.border.status("Sync", || this.own.sync()) } else { failed }
}

unsafe extern "system" fn create_allocator(
    this: *mut sys::OrtEp,
    info: *const sys::OrtMemoryInfo,
    out: *mut *mut sys::OrtAllocator,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given, and arguments that are alive for the call.
    let this = unsafe { of(this) };
    this.border.status("CreateAllocator", || {
        // SAFETY: as above.
        let made = unsafe { ForeignAllocator::new(&this.backend, info, this.state.life.token())? };
        let address = made.as_ptr();
        this.state.foreign_allocators().insert(address as usize, made);
        // SAFETY: a valid out-pointer; our factory's `ReleaseAllocator` releases it.
        unsafe { out.write(address) };
        Ok(())
    })
}

unsafe extern "system" fn create_stream(
    this: *mut sys::OrtEp,
    device: *const sys::OrtMemoryDevice,
    out: *mut *mut sys::OrtSyncStreamImpl,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given, and arguments that are alive for the call.
    let this = unsafe { of(this) };
    this.border.status("CreateSyncStreamForDevice", || {
        // SAFETY: as above. ONNX Runtime releases a session's streams before its execution provider, which keeps the
        // backend loaded.
        unsafe { out.write(this.backend.create_stream(device)?) };
        Ok(())
    })
}

/// The backend's kernels; a backend without kernels gets the copy kernels, which every device needs.
unsafe extern "system" fn get_kernel_registry(
    this: *mut sys::OrtEp,
    out: *mut *const sys::OrtKernelRegistry,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a valid out-pointer.
    unsafe {
        let this = of(this);
        let backend = this.backend.as_ptr();
        out.write(ptr::null());
        if let Some(function) = sys::OrtEp::GetKernelRegistry(backend) {
            let status = function(backend, out);
            if !status.is_null() || !(*out).is_null() {
                return status;
            }
        }
        out.write(this.registry.as_ref().map_or(ptr::null(), |registry| registry.as_ptr()));
        ptr::null_mut()
    }
}

unsafe extern "system" fn get_default_memory_device(
    this: *const sys::OrtEp,
    out: *mut *const sys::OrtMemoryDevice,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a valid out-pointer.
    unsafe {
        let this = of(this);
        let backend: *const sys::OrtEp = this.backend.as_ptr();
        out.write(ptr::null());
        if let Some(function) = sys::OrtEp::GetDefaultMemoryDevice(backend) {
            let status = function(backend, out);
            if !status.is_null() || !(*out).is_null() {
                return status;
            }
        }
        this.border.status("GetDefaultMemoryDevice", || {
            let found = this.own.default_memory().and_then(|memory| this.state.info(memory));
            // The factory keeps what it points to. With null, ONNX Runtime infers the device.
            out.write(found.map_or(ptr::null(), |info| info.memory_device()));
            Ok(())
        })
    }
}

unsafe extern "system" fn get_available_resource(
    this: *const sys::OrtEp,
    out: *mut sys::OrtResourceCount,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a valid out-pointer.
    unsafe {
        let this = of(this);
        let backend: *const sys::OrtEp = this.backend.as_ptr();
        if let Some(function) = sys::OrtEp::GetAvailableResource(backend) {
            return function(backend, out);
        }
        this.border.status("GetAvailableResource", || {
            let bytes = this
                .own
                .available_bytes()
                .ok_or_else(|| Error::not_implemented("the amount of free memory is unknown"))?;
            out.write(sys::OrtResourceCount::of_bytes(bytes));
            Ok(())
        })
    }
}

/// Never null: ONNX Runtime reads the text without a null check.
unsafe extern "system" fn get_compatibility_info(this: *mut sys::OrtEp, graph: *const sys::OrtGraph) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given and a graph that is alive for the call.
    let this = unsafe { of(this) };
    this.border.value("GetCompiledModelCompatibilityInfo", c"".as_ptr(), || {
        let backend = this.backend.as_ptr();
        // SAFETY: as above; the backend's text outlives the call, and null reads as empty.
        let inner = unsafe {
            let function = sys::OrtEp::GetCompiledModelCompatibilityInfo(backend);
            text(function.map_or(ptr::null(), |function| function(backend, graph)))
        };
        let mut kept = this.compatibility.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = c_string(&format!("{}{inner}", this.compatibility_prefix));
        Ok(kept.as_ptr())
    })
}
