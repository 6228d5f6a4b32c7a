//! The runtime table: devices, memory, streams, events, modules, captures.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::table::function_table;
use super::{Handle, HostFn, Status, StreamCallback};

function_table! {
    /// HIP's runtime functions, from whichever driver was loaded.
    ///
    /// The field names are HIP's without the prefix. `Option` functions were added after HIP 5.0 or are missing from
    /// one of the drivers.
    pub struct RuntimeTable;

    required {
        /// `hipRuntimeGetVersion`
        runtime_get_version: fn(*mut c_int) -> Status = ["hipRuntimeGetVersion"] "cudaRuntimeGetVersion";
        /// `hipGetDeviceCount`
        get_device_count: fn(*mut c_int) -> Status = ["hipGetDeviceCount"] "cudaGetDeviceCount";
        /// `hipSetDevice`
        set_device: fn(c_int) -> Status = ["hipSetDevice"] "cudaSetDevice";
        /// `hipGetDevice`
        get_device: fn(*mut c_int) -> Status = ["hipGetDevice"] "cudaGetDevice";
        /// `hipDeviceGetAttribute`; the twin's numbers differ, see `twin::attribute`
        device_get_attribute: fn(*mut c_int, c_int, c_int) -> Status
            = ["hipDeviceGetAttribute"] "cudaDeviceGetAttribute";
        /// `hipDeviceSynchronize`
        device_synchronize: fn() -> Status = ["hipDeviceSynchronize"] "cudaDeviceSynchronize";
        /// `hipMemGetInfo`
        mem_get_info: fn(*mut usize, *mut usize) -> Status = ["hipMemGetInfo"] "cudaMemGetInfo";
        /// `hipGetErrorString`
        get_error_string: fn(Status) -> *const c_char = ["hipGetErrorString"] "cudaGetErrorString";
        /// `hipMalloc`
        malloc: fn(*mut *mut c_void, usize) -> Status = ["hipMalloc"] "cudaMalloc";
        /// `hipFree`
        free: fn(*mut c_void) -> Status = ["hipFree"] "cudaFree";
        /// `hipHostMalloc`
        host_malloc: fn(*mut *mut c_void, usize, c_uint) -> Status = ["hipHostMalloc"] "cudaHostAlloc";
        /// `hipHostFree`
        host_free: fn(*mut c_void) -> Status = ["hipHostFree"] "cudaFreeHost";
        /// `hipMemcpy`
        memcpy: fn(*mut c_void, *const c_void, usize, c_int) -> Status = ["hipMemcpy"] "cudaMemcpy";
        /// `hipMemcpyAsync`
        memcpy_async: fn(*mut c_void, *const c_void, usize, c_int, Handle) -> Status
            = ["hipMemcpyAsync"] "cudaMemcpyAsync";
        /// `hipMemsetAsync`
        memset_async: fn(*mut c_void, c_int, usize, Handle) -> Status = ["hipMemsetAsync"] "cudaMemsetAsync";
        /// `hipStreamCreateWithFlags`
        stream_create_with_flags: fn(*mut Handle, c_uint) -> Status
            = ["hipStreamCreateWithFlags"] "cudaStreamCreateWithFlags";
        /// `hipStreamDestroy`
        stream_destroy: fn(Handle) -> Status = ["hipStreamDestroy"] "cudaStreamDestroy";
        /// `hipStreamSynchronize`
        stream_synchronize: fn(Handle) -> Status = ["hipStreamSynchronize"] "cudaStreamSynchronize";
        /// `hipStreamQuery`
        stream_query: fn(Handle) -> Status = ["hipStreamQuery"] "cudaStreamQuery";
        /// `hipStreamWaitEvent`
        stream_wait_event: fn(Handle, Handle, c_uint) -> Status = ["hipStreamWaitEvent"] "cudaStreamWaitEvent";
        /// `hipEventCreateWithFlags`
        event_create_with_flags: fn(*mut Handle, c_uint) -> Status
            = ["hipEventCreateWithFlags"] "cudaEventCreateWithFlags";
        /// `hipEventDestroy`
        event_destroy: fn(Handle) -> Status = ["hipEventDestroy"] "cudaEventDestroy";
        /// `hipEventRecord`
        event_record: fn(Handle, Handle) -> Status = ["hipEventRecord"] "cudaEventRecord";
        /// `hipEventSynchronize`
        event_synchronize: fn(Handle) -> Status = ["hipEventSynchronize"] "cudaEventSynchronize";
        /// `hipEventQuery`
        event_query: fn(Handle) -> Status = ["hipEventQuery"] "cudaEventQuery";
        /// `hipEventElapsedTime`
        event_elapsed_time: fn(*mut f32, Handle, Handle) -> Status = ["hipEventElapsedTime"] "cudaEventElapsedTime";
    }

    optional {
        /// `hipInit`
        init: fn(c_uint) -> Status = ["hipInit"] "cuInit";
        /// `hipDriverGetVersion`
        driver_get_version: fn(*mut c_int) -> Status = ["hipDriverGetVersion"] "cudaDriverGetVersion";
        /// `hipGetLastError`
        get_last_error: fn() -> Status = ["hipGetLastError"] "cudaGetLastError";
        /// `hipDeviceGetName`
        device_get_name: fn(*mut c_char, c_int, c_int) -> Status = ["hipDeviceGetName"] "cuDeviceGetName";
        /// `hipDeviceTotalMem`
        device_total_mem: fn(*mut usize, c_int) -> Status = ["hipDeviceTotalMem"] "cuDeviceTotalMem_v2";
        /// `hipDeviceGetPCIBusId`
        device_get_pci_bus_id: fn(*mut c_char, c_int, c_int) -> Status
            = ["hipDeviceGetPCIBusId"] "cudaDeviceGetPCIBusId";
        /// `hipGetDevicePropertiesR0600`; before HIP 6 the plain name, with an older structure
        get_device_properties: fn(*mut c_void, c_int) -> Status
            = ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"] "";
        /// `hipDeviceCanAccessPeer`
        device_can_access_peer: fn(*mut c_int, c_int, c_int) -> Status
            = ["hipDeviceCanAccessPeer"] "cudaDeviceCanAccessPeer";
        /// `hipDeviceEnablePeerAccess`
        device_enable_peer_access: fn(c_int, c_uint) -> Status
            = ["hipDeviceEnablePeerAccess"] "cudaDeviceEnablePeerAccess";
        /// `hipPointerGetAttributes`; the structure is read from a buffer that is larger than all of its versions
        pointer_get_attributes: fn(*mut c_void, *const c_void) -> Status
            = ["hipPointerGetAttributes"] "cudaPointerGetAttributes";
        /// `hipMallocAsync`, HIP 5.1
        malloc_async: fn(*mut *mut c_void, usize, Handle) -> Status = ["hipMallocAsync"] "cudaMallocAsync";
        /// `hipFreeAsync`, HIP 5.1
        free_async: fn(*mut c_void, Handle) -> Status = ["hipFreeAsync"] "cudaFreeAsync";
        /// `hipMemcpyPeerAsync`
        memcpy_peer_async: fn(*mut c_void, c_int, *const c_void, c_int, usize, Handle) -> Status
            = ["hipMemcpyPeerAsync"] "cudaMemcpyPeerAsync";
        /// `hipLaunchHostFunc`, HIP 5.3
        launch_host_func: fn(Handle, HostFn, *mut c_void) -> Status = ["hipLaunchHostFunc"] "cudaLaunchHostFunc";
        /// `hipStreamAddCallback`, the replacement for `hipLaunchHostFunc` before HIP 5.3
        stream_add_callback: fn(Handle, StreamCallback, *mut c_void, c_uint) -> Status
            = ["hipStreamAddCallback"] "cudaStreamAddCallback";
        /// `hipModuleLoadData`
        module_load_data: fn(*mut Handle, *const c_void) -> Status = ["hipModuleLoadData"] "cuModuleLoadData";
        /// `hipModuleUnload`
        module_unload: fn(Handle) -> Status = ["hipModuleUnload"] "cuModuleUnload";
        /// `hipModuleGetFunction`
        module_get_function: fn(*mut Handle, Handle, *const c_char) -> Status
            = ["hipModuleGetFunction"] "cuModuleGetFunction";
        /// `hipModuleLaunchKernel`
        module_launch_kernel: fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> Status = ["hipModuleLaunchKernel"] "cuLaunchKernel";
        /// The twin's `cuLaunchKernelEx`; HIP's function with a similar name is newer than the releases we support and
        /// cannot start a launch early
        twin_launch_kernel_ex: fn(
            *const super::twin::LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> Status = [""] "cuLaunchKernelEx";
        /// `hipFuncGetAttribute`
        func_get_attribute: fn(*mut c_int, c_int, Handle) -> Status = ["hipFuncGetAttribute"] "cuFuncGetAttribute";
        /// The twin's `cuFuncSetAttribute`; HIP's function with a similar name takes another kind of handle and is not
        /// used
        twin_func_set_attribute: fn(Handle, c_int, c_int) -> Status = [""] "cuFuncSetAttribute";
        /// `hipModuleOccupancyMaxActiveBlocksPerMultiprocessor`
        occupancy_max_active_blocks: fn(*mut c_int, Handle, c_int, usize) -> Status
            = ["hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"] "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        /// `hipStreamBeginCapture`
        stream_begin_capture: fn(Handle, c_int) -> Status = ["hipStreamBeginCapture"] "cudaStreamBeginCapture";
        /// `hipStreamEndCapture`
        stream_end_capture: fn(Handle, *mut Handle) -> Status = ["hipStreamEndCapture"] "cudaStreamEndCapture";
        /// `hipStreamIsCapturing`
        stream_is_capturing: fn(Handle, *mut c_int) -> Status = ["hipStreamIsCapturing"] "cudaStreamIsCapturing";
        /// `hipGraphInstantiateWithFlags`, HIP 4.5
        graph_instantiate_with_flags: fn(*mut Handle, Handle, u64) -> Status
            = ["hipGraphInstantiateWithFlags"] "cudaGraphInstantiateWithFlags";
        /// `hipGraphLaunch`
        graph_launch: fn(Handle, Handle) -> Status = ["hipGraphLaunch"] "cudaGraphLaunch";
        /// `hipGraphExecUpdate`, HIP's signature
        graph_exec_update: fn(Handle, Handle, *mut Handle, *mut c_int) -> Status = ["hipGraphExecUpdate"] "";
        /// `cudaGraphExecUpdate`, CUDA 12's signature; called through `twin::graph_exec_update`
        twin_graph_exec_update: fn(Handle, Handle, *mut super::twin::GraphExecUpdateInfo) -> Status
            = [""] "cudaGraphExecUpdate";
        /// `hipGraphGetNodes`
        graph_get_nodes: fn(Handle, *mut Handle, *mut usize) -> Status = ["hipGraphGetNodes"] "cudaGraphGetNodes";
        /// `hipGraphExecDestroy`
        graph_exec_destroy: fn(Handle) -> Status = ["hipGraphExecDestroy"] "cudaGraphExecDestroy";
        /// `hipGraphDestroy`
        graph_destroy: fn(Handle) -> Status = ["hipGraphDestroy"] "cudaGraphDestroy";
    }
}
