//! [`OrtEp`](sys::OrtEp) over [`Ep`].
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use ort_ep_sys as sys;

use super::allocator::ServedMemory;
use super::compute::{context_node, partition_into_raw, release_partition};
use super::factory::FactoryState;
use super::guard::Border;
use super::kernel::KernelRegistry;
use super::life::LifeToken;
use super::profiler::profiler_into_raw;
use super::runtime::{c_string, text};
use super::stream::stream_into_raw;
use crate::view::{Graph, Node, RunOptions};
use crate::{Ep, Error, FusedPartition, Layout, MemoryDevice, Result, Runtime, Weightless};

/// Collects the claims of an execution provider.
pub struct Claims<'a> {
    runtime: Runtime,
    raw: *mut sys::OrtEpGraphSupportInfo,
    lifetime: PhantomData<&'a mut ()>,
}

impl Claims<'_> {
    /// Claims a group of nodes, to be compiled into one partition. The group must be convex: no node outside it may be
    /// on a path between two nodes inside. With `drop_constants`, constant initializers are not inputs of the partition
    /// and must be copied while compiling.
    ///
    /// # Errors
    /// The runtime reported an error.
    pub fn fuse(&mut self, nodes: &[Node<'_>], drop_constants: bool) -> Result<()> {
        let nodes: Vec<_> = nodes.iter().map(|node| node.as_ptr()).collect();
        let options = sys::OrtNodeFusionOptions {
            ort_version_supported: self.runtime.api_version(),
            drop_constant_initializers: drop_constants,
        };
        // SAFETY: the claims and nodes are alive for the call in progress; the options are read during it.
        let status = unsafe {
            self.runtime.ep_api.EpGraphSupportInfo_AddNodesToFuse(self.raw, nodes.as_ptr(), nodes.len(), &options)
        };
        self.runtime.check("EpGraphSupportInfo_AddNodesToFuse", status)
    }

    /// Claims one node that a registered kernel runs.
    ///
    /// # Errors
    /// The runtime reported an error.
    pub fn single(&mut self, node: Node<'_>) -> Result<()> {
        // SAFETY: the claims and the node are alive for the call in progress.
        let status = unsafe { self.runtime.ep_api.EpGraphSupportInfo_AddSingleNode(self.raw, node.as_ptr()) };
        self.runtime.check("EpGraphSupportInfo_AddSingleNode", status)
    }

    /// True if a registered kernel runs this node.
    ///
    /// # Errors
    /// The runtime reported an error.
    pub fn has_kernel(&mut self, node: Node<'_>) -> Result<bool> {
        let mut def = ptr::null();
        // SAFETY: as above, and `def` is a valid out-pointer.
        let status = unsafe { self.runtime.ep_api.EpGraphSupportInfo_LookUpKernel(self.raw, node.as_ptr(), &mut def) };
        self.runtime.check("EpGraphSupportInfo_LookUpKernel", status)?;
        Ok(!def.is_null())
    }

    /// The runtime's own object, to pass to another plugin's code.
    pub fn as_ptr(&self) -> *mut sys::OrtEpGraphSupportInfo {
        self.raw
    }
}

/// The first fields of every execution provider created here, own or forwarded.
#[repr(C)]
pub(super) struct EpHeader {
    pub raw: sys::OrtEp,
    pub release: unsafe fn(*mut sys::OrtEp),
}

const _: () = assert!(std::mem::offset_of!(EpHeader, raw) == 0);

#[repr(C)]
pub(super) struct EpBox {
    header: EpHeader,
    inner: Box<dyn Ep>,
    name: CString,
    border: Border,
    state: Arc<FactoryState>,
    registry: Option<Arc<KernelRegistry>>,
    /// ONNX Runtime copies the text immediately, but through a pointer that must outlive the call.
    compatibility: Mutex<CString>,
    token: LifeToken,
}

const _: () = assert!(std::mem::offset_of!(EpBox, header) == 0);

/// Creates the C object.
pub(super) fn ep_into_raw(
    inner: Box<dyn Ep>,
    name: &CStr,
    border: Border,
    state: Arc<FactoryState>,
    registry: Option<Arc<KernelRegistry>>,
) -> *mut sys::OrtEp {
    let mut raw = sys::OrtEp::empty(border.runtime.api_version());
    raw.GetName = Some(get_name);
    raw.GetCapability = Some(get_capability);
    raw.Compile = Some(compile);
    raw.ReleaseNodeComputeInfos = Some(release_partitions);
    raw.SetDynamicOptions = Some(set_dynamic_options);
    raw.OnRunStart = Some(on_run_start);
    raw.OnRunEnd = Some(on_run_end);
    raw.IsConcurrentRunSupported = Some(is_concurrent_run_supported);
    raw.Sync = Some(sync);
    raw.OnSessionInitializationEnd = Some(on_session_ready);
    if registry.is_some() {
        raw.GetKernelRegistry = Some(get_kernel_registry);
    }
    if inner.default_memory().is_some() {
        raw.GetDefaultMemoryDevice = Some(get_default_memory_device);
    }
    if inner.available_bytes().is_some() {
        raw.GetAvailableResource = Some(get_available_resource);
    }
    if inner.session_resources().is_some() {
        raw.CreateAllocator = Some(create_allocator);
        raw.CreateSyncStreamForDevice = Some(create_stream);
    }
    if inner.data_layout().is_some() {
        raw.GetPreferredDataLayout = Some(get_preferred_data_layout);
        raw.ShouldConvertDataLayoutForOp = Some(should_convert_data_layout);
    }
    if inner.graph_capture().is_some() {
        raw.IsGraphCaptureEnabled = Some(is_graph_capture_enabled);
        raw.IsGraphCaptured = Some(is_graph_captured);
        raw.ReplayGraph = Some(replay_graph);
        raw.GetGraphCaptureNodeAssignmentPolicy = Some(get_capture_policy);
        raw.ReleaseCapturedGraph = Some(release_captured_graph);
    }
    if inner.profiling().is_some() {
        raw.CreateProfiler = Some(create_profiler);
    }
    if inner.compiled_models().is_some() {
        raw.GetCompiledModelCompatibilityInfo = Some(get_compatibility_info);
        raw.GetWeightlessSupport = Some(get_weightless_support);
        raw.GetEpContextDataCallbackSupport = Some(get_data_callbacks);
    }
    let token = state.life.token();
    let compatibility = Mutex::default();
    let (header, name) = (EpHeader { raw, release: release_own }, name.to_owned());
    Box::into_raw(Box::new(EpBox { header, inner, name, border, state, registry, compatibility, token })).cast()
}

/// Releases an execution provider.
///
/// # Safety
/// `this` is null, or an execution provider of this library that was not released before.
pub(super) unsafe fn release_ep(this: *mut sys::OrtEp) {
    if this.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller; every one of them starts with the header.
    unsafe { ((*this.cast::<EpHeader>()).release)(this) }
}

/// # Safety
/// `this` came from `ep_into_raw` and was not released before.
unsafe fn release_own(this: *mut sys::OrtEp) {
    // SAFETY: guaranteed by the caller.
    let ep = unsafe { Box::from_raw(this.cast::<EpBox>()) };
    let border = ep.border.after_session();
    border.value("ReleaseEp", (), move || {
        // The token is dropped last: it keeps everything the fields point to alive.
        let EpBox { inner, registry, token, .. } = *ep;
        drop(inner);
        drop(registry);
        drop(token);
        Ok(())
    });
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `ep_into_raw` and is alive.
unsafe fn of<'a>(this: *const sys::OrtEp) -> &'a EpBox {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

impl EpBox {
    fn status(&self, entry: &'static str, body: impl FnOnce(&dyn Ep) -> Result<()>) -> sys::Status {
        self.border.status(entry, || body(&*self.inner))
    }
}

/// The error for a hook whose group is missing: ONNX Runtime never got the slot, so only a broken caller gets here.
fn absent() -> Error {
    Error::not_implemented("this execution provider does not have that hook")
}

unsafe extern "system" fn get_name(this: *const sys::OrtEp) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.name.as_ptr()
}

unsafe extern "system" fn get_capability(
    this: *mut sys::OrtEp,
    graph: *const sys::OrtGraph,
    claims: *mut sys::OrtEpGraphSupportInfo,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given, and objects that are alive for the call.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.status("GetCapability", |ep| {
        // SAFETY: as above.
        let graph = unsafe { Graph::from_raw(runtime, graph) };
        ep.claim(graph, &mut Claims { runtime, raw: claims, lifetime: PhantomData })
    })
}

unsafe extern "system" fn compile(
    this: *mut sys::OrtEp,
    graphs: *mut *const sys::OrtGraph,
    fused_nodes: *mut *const sys::OrtNode,
    count: usize,
    infos: *mut *mut sys::OrtNodeComputeInfo,
    context_nodes: *mut *mut sys::OrtNode,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.status("Compile", |ep| {
        let partitions: Vec<_> = (0..count)
            // SAFETY: both arrays hold `count` objects that are alive for the call.
            .map(|index| unsafe {
                FusedPartition {
                    graph: Graph::from_raw(runtime, *graphs.add(index)),
                    node: Node::from_raw(runtime, *fused_nodes.add(index)),
                }
            })
            .collect();
        let compiled = ep.compile(&partitions)?;
        if compiled.len() != count {
            let found = compiled.len();
            return Err(Error::fail(format!("compile returned {found} results for {count} partitions")));
        }
        for (index, (compiled, partition)) in compiled.into_iter().zip(&partitions).enumerate() {
            let node = compiled
                .context_node
                .map(|node| context_node(runtime, partition.node, &node, &this.name))
                .transpose()?;
            // SAFETY: both out arrays hold `count` entries; what is written is released by ONNX Runtime, even if a
            // later partition fails.
            unsafe {
                if let Some(node) = node {
                    context_nodes.add(index).write(node);
                }
                infos.add(index).write(partition_into_raw(compiled.partition, this.border));
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn release_partitions(
    _: *mut sys::OrtEp,
    infos: *mut *mut sys::OrtNodeComputeInfo,
    count: usize,
) {
    for index in 0..count {
        // SAFETY: the array holds `count` entries that `compile` wrote, each passed back once.
        unsafe { release_partition(*infos.add(index)) };
    }
}

unsafe extern "system" fn set_dynamic_options(
    this: *mut sys::OrtEp,
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("SetDynamicOptions", |ep| {
        let options: Vec<_> = (0..count)
            // SAFETY: both arrays hold `count` C strings that are alive for the call.
            .map(|index| unsafe { (text(*keys.add(index)).into_owned(), text(*values.add(index)).into_owned()) })
            .collect();
        ep.set_dynamic_options(&options)
    })
}

unsafe extern "system" fn on_run_start(this: *mut sys::OrtEp, options: *const sys::OrtRunOptions) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    // SAFETY: the options are alive for the call.
    this.status("OnRunStart", |ep| ep.on_run_start(unsafe { RunOptions::from_raw(this.border.runtime, options) }))
}

unsafe extern "system" fn on_run_end(
    this: *mut sys::OrtEp,
    options: *const sys::OrtRunOptions,
    sync: bool,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    // SAFETY: the options are alive for the call.
    this.status("OnRunEnd", |ep| ep.on_run_end(unsafe { RunOptions::from_raw(this.border.runtime, options) }, sync))
}

unsafe extern "system" fn is_concurrent_run_supported(this: *mut sys::OrtEp, out: *mut bool) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a valid out-pointer.
    unsafe { of(this) }.status("IsConcurrentRunSupported", |ep| {
        // SAFETY: as above.
        unsafe { out.write(ep.runs_concurrently()) };
        Ok(())
    })
}

unsafe extern "system" fn sync(this: *mut sys::OrtEp) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("Sync", |ep| ep.sync())
}

unsafe extern "system" fn on_session_ready(this: *mut sys::OrtEp) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("OnSessionInitializationEnd", |ep| ep.on_session_ready())
}

unsafe extern "system" fn get_kernel_registry(
    this: *mut sys::OrtEp,
    out: *mut *const sys::OrtKernelRegistry,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let registry = this.registry.as_ref().map_or(ptr::null(), |registry| registry.as_ptr());
    // SAFETY: a valid out-pointer; the registry lives as long as this box.
    unsafe { out.write(registry) };
    ptr::null_mut()
}

unsafe extern "system" fn get_default_memory_device(
    this: *const sys::OrtEp,
    out: *mut *const sys::OrtMemoryDevice,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.status("GetDefaultMemoryDevice", |ep| {
        let found = ep.default_memory().and_then(|memory| this.state.info(memory)).map(|info| info.memory_device());
        // SAFETY: a valid out-pointer; the factory keeps what it points to. With null, ONNX Runtime infers the device.
        unsafe { out.write(found.unwrap_or(ptr::null())) };
        Ok(())
    })
}

unsafe extern "system" fn get_available_resource(
    this: *const sys::OrtEp,
    out: *mut sys::OrtResourceCount,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("GetAvailableResource", |ep| {
        let bytes = ep.available_bytes().ok_or_else(absent)?;
        // SAFETY: a valid out-pointer.
        unsafe { out.write(sys::OrtResourceCount::of_bytes(bytes)) };
        Ok(())
    })
}

unsafe extern "system" fn create_allocator(
    this: *mut sys::OrtEp,
    info: *const sys::OrtMemoryInfo,
    out: *mut *mut sys::OrtAllocator,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and an info that is alive for the call.
    let this = unsafe { of(this) };
    this.status("CreateAllocator", |ep| {
        // SAFETY: as above.
        let memory = unsafe { MemoryDevice::of_info(this.border.runtime, info) };
        // SAFETY: as above.
        let info = unsafe { this.state.session_info(this.border.runtime, info)? }.as_ptr();
        let allocator = ep.session_resources().ok_or_else(absent)?.create_allocator(memory)?;
        let served =
            ServedMemory { border: this.border.after_session(), memory, info, _token: this.state.life.token() };
        // SAFETY: a valid out-pointer; the factory's `ReleaseAllocator` takes it back.
        unsafe { out.write(allocator.into_raw(served)) };
        Ok(())
    })
}

unsafe extern "system" fn create_stream(
    this: *mut sys::OrtEp,
    device: *const sys::OrtMemoryDevice,
    out: *mut *mut sys::OrtSyncStreamImpl,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a device that is alive for the call.
    let this = unsafe { of(this) };
    this.status("CreateSyncStreamForDevice", |ep| {
        // SAFETY: as above.
        let device = unsafe { MemoryDevice::from_raw(this.border.runtime, device) };
        let stream = ep.session_resources().ok_or_else(absent)?.create_stream(device)?;
        // SAFETY: a valid out-pointer; ONNX Runtime releases the stream.
        unsafe { out.write(stream_into_raw(stream, this.border, this.state.life.token())) };
        Ok(())
    })
}

unsafe extern "system" fn get_preferred_data_layout(
    this: *mut sys::OrtEp,
    out: *mut sys::OrtEpDataLayout,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("GetPreferredDataLayout", |ep| {
        let layout = match ep.data_layout().ok_or_else(absent)?.preferred() {
            Layout::Nchw => sys::ORT_LAYOUT_NCHW,
            Layout::Nhwc => sys::ORT_LAYOUT_NHWC,
        };
        // SAFETY: a valid out-pointer.
        unsafe { out.write(layout) };
        Ok(())
    })
}

unsafe extern "system" fn should_convert_data_layout(
    this: *mut sys::OrtEp,
    domain: *const c_char,
    op_type: *const c_char,
    layout: sys::OrtEpDataLayout,
    out: *mut c_int,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and texts that are alive for the call.
    unsafe { of(this) }.status("ShouldConvertDataLayoutForOp", |ep| {
        let layout = if layout == sys::ORT_LAYOUT_NHWC { Layout::Nhwc } else { Layout::Nchw };
        let layouts = ep.data_layout().ok_or_else(absent)?;
        // SAFETY: as above.
        let answer = unsafe { layouts.converts(&text(domain), &text(op_type), layout) };
        // SAFETY: a valid out-pointer.
        unsafe { out.write(answer.map_or(-1, c_int::from)) };
        Ok(())
    })
}

unsafe extern "system" fn is_graph_capture_enabled(this: *const sys::OrtEp) -> bool {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border
        .value("IsGraphCaptureEnabled", false, || Ok(this.inner.graph_capture().is_some_and(|hooks| hooks.enabled())))
}

unsafe extern "system" fn is_graph_captured(this: *const sys::OrtEp, id: c_int) -> bool {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.value("IsGraphCaptured", false, || {
        // -1 means "no capture": true would make ONNX Runtime replay it.
        Ok(id != -1 && this.inner.graph_capture().is_some_and(|hooks| hooks.is_captured(id)))
    })
}

unsafe extern "system" fn replay_graph(this: *mut sys::OrtEp, id: c_int) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("ReplayGraph", |ep| ep.graph_capture().ok_or_else(absent)?.replay(id))
}

unsafe extern "system" fn release_captured_graph(this: *mut sys::OrtEp, id: c_int) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("ReleaseCapturedGraph", |ep| ep.graph_capture().ok_or_else(absent)?.release(id))
}

unsafe extern "system" fn get_capture_policy(this: *const sys::OrtEp) -> sys::OrtGraphCaptureNodeAssignmentPolicy {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.value("GetGraphCaptureNodeAssignmentPolicy", sys::ORT_CAPTURE_ALL_NODES_ON_EP, || {
        let allows = this.inner.graph_capture().is_some_and(|hooks| hooks.allows_cpu_shape_nodes());
        Ok(if allows { sys::ORT_CAPTURE_ALLOW_CPU_FOR_SHAPES } else { sys::ORT_CAPTURE_ALL_NODES_ON_EP })
    })
}

unsafe extern "system" fn create_profiler(this: *mut sys::OrtEp, out: *mut *mut sys::OrtEpProfilerImpl) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.status("CreateProfiler", |ep| {
        let profiler = ep.profiling().ok_or_else(absent)?.profiler()?;
        // SAFETY: a valid out-pointer; ONNX Runtime releases the profiler.
        unsafe { out.write(profiler_into_raw(profiler, this.border)) };
        Ok(())
    })
}

/// Never null: ONNX Runtime reads the text without a null check.
unsafe extern "system" fn get_compatibility_info(this: *mut sys::OrtEp, graph: *const sys::OrtGraph) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given and a graph that is alive for the call.
    let this = unsafe { of(this) };
    this.border.value("GetCompiledModelCompatibilityInfo", c"".as_ptr(), || {
        // SAFETY: as above.
        let graph = unsafe { Graph::from_raw(this.border.runtime, graph) };
        let info = this.inner.compiled_models().ok_or_else(absent)?.compatibility_info(graph);
        let mut kept = this.compatibility.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = c_string(&info);
        Ok(kept.as_ptr())
    })
}

unsafe extern "system" fn get_weightless_support(
    this: *const sys::OrtEp,
    out: *mut sys::OrtWeightlessSupport,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("GetWeightlessSupport", |ep| {
        let support = match ep.compiled_models().ok_or_else(absent)?.weightless() {
            Weightless::None => sys::ORT_WEIGHTLESS_NONE,
            Weightless::ExternalOnly => sys::ORT_WEIGHTLESS_EXTERNAL_ONLY,
            Weightless::All => sys::ORT_WEIGHTLESS_ALL,
        };
        // SAFETY: a valid out-pointer.
        unsafe { out.write(support) };
        Ok(())
    })
}

unsafe extern "system" fn get_data_callbacks(this: *const sys::OrtEp, out: *mut u32) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.status("GetEpContextDataCallbackSupport", |ep| {
        let (read, write) = ep.compiled_models().ok_or_else(absent)?.data_callbacks();
        let flags = if read { sys::ORT_EP_CONTEXT_DATA_READ } else { 0 }
            | if write { sys::ORT_EP_CONTEXT_DATA_WRITE } else { 0 };
        // SAFETY: a valid out-pointer.
        unsafe { out.write(flags) };
        Ok(())
    })
}
