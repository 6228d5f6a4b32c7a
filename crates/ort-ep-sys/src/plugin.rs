//! The tables a plugin fills.
use core::ffi::{c_char, c_int, c_void};

use crate::plain::*;
use crate::types::*;

vtable! {
    /// Finds devices and creates execution providers; one per library.
    OrtEpFactory (ort_version_supported) = 21 words {
        1 22 GetName(this: *const Self) -> *const c_char;
        2 22 GetVendor(this: *const Self) -> *const c_char;
        3 22 GetSupportedDevices(
            this: *mut Self, devices: *const *const OrtHardwareDevice, num_devices: usize,
            ep_devices: *mut *mut OrtEpDevice, max_ep_devices: usize, num_ep_devices: *mut usize
        ) -> Status;
        4 22 CreateEp(
            this: *mut Self, devices: *const *const OrtHardwareDevice,
            ep_metadata_pairs: *const *const OrtKeyValuePairs, num_devices: usize,
            session_options: *const OrtSessionOptions, logger: *const OrtLogger, ep: *mut *mut OrtEp
        ) -> Status;
        5 22 ReleaseEp(this: *mut Self, ep: *mut OrtEp);
        6 23 GetVendorId(this: *const Self) -> u32;
        7 23 GetVersion(this: *const Self) -> *const c_char;
        8 23 ValidateCompiledModelCompatibilityInfo(
            this: *mut Self, devices: *const *const OrtHardwareDevice, num_devices: usize,
            compatibility_info: *const c_char, model_compatibility: *mut OrtCompiledModelCompatibility
        ) -> Status;
        9 23 CreateAllocator(
            this: *mut Self, memory_info: *const OrtMemoryInfo, allocator_options: *const OrtKeyValuePairs,
            allocator: *mut *mut OrtAllocator
        ) -> Status;
        10 23 ReleaseAllocator(this: *mut Self, allocator: *mut OrtAllocator);
        11 23 CreateDataTransfer(this: *mut Self, data_transfer: *mut *mut OrtDataTransferImpl) -> Status;
        12 23 IsStreamAware(this: *const Self) -> bool;
        13 23 CreateSyncStreamForDevice(
            this: *mut Self, memory_device: *const OrtMemoryDevice, stream_options: *const OrtKeyValuePairs,
            stream: *mut *mut OrtSyncStreamImpl
        ) -> Status;
        14 24 GetHardwareDeviceIncompatibilityDetails(
            this: *mut Self, hw: *const OrtHardwareDevice, details: *mut OrtDeviceEpIncompatibilityDetails
        ) -> Status;
        15 24 CreateExternalResourceImporterForDevice(
            this: *mut Self, ep_device: *const OrtEpDevice, out_importer: *mut *mut OrtExternalResourceImporterImpl
        ) -> Status;
        16 24 GetNumCustomOpDomains(this: *mut Self, num_domains: *mut usize) -> Status;
        17 24 GetCustomOpDomains(this: *mut Self, domains: *mut *mut OrtCustomOpDomain, num_domains: usize) -> Status;
        18 25 InitGraphicsInterop(
            this: *mut Self, ep_device: *const OrtEpDevice, config: *const OrtGraphicsInteropConfig
        ) -> Status;
        19 25 DeinitGraphicsInterop(this: *mut Self, ep_device: *const OrtEpDevice) -> Status;
        20 28 SelectBestModelCandidate(
            this: *mut Self, device: *const OrtHardwareDevice, candidates: *const *const OrtKeyValuePairs,
            num_candidates: usize, session_options: *const OrtSessionOptions, selected_index: *mut usize
        ) -> Status;
    }
}

vtable! {
    /// One execution provider of one session.
    OrtEp (ort_version_supported) = 27 words {
        1 22 GetName(this: *const Self) -> *const c_char;
        2 23 GetCapability(
            this: *mut Self, graph: *const OrtGraph, graph_support_info: *mut OrtEpGraphSupportInfo
        ) -> Status;
        3 23 Compile(
            this: *mut Self, graphs: *mut *const OrtGraph, fused_nodes: *mut *const OrtNode, count: usize,
            node_compute_infos: *mut *mut OrtNodeComputeInfo, ep_context_nodes: *mut *mut OrtNode
        ) -> Status;
        4 23 ReleaseNodeComputeInfos(
            this: *mut Self, node_compute_infos: *mut *mut OrtNodeComputeInfo, num_node_compute_infos: usize
        );
        5 23 GetPreferredDataLayout(this: *mut Self, preferred_data_layout: *mut OrtEpDataLayout) -> Status;
        6 23 ShouldConvertDataLayoutForOp(
            this: *mut Self, domain: *const c_char, op_type: *const c_char, target_data_layout: OrtEpDataLayout,
            should_convert: *mut c_int
        ) -> Status;
        7 23 SetDynamicOptions(
            this: *mut Self, option_keys: *const *const c_char, option_values: *const *const c_char,
            num_options: usize
        ) -> Status;
        8 23 OnRunStart(this: *mut Self, run_options: *const OrtRunOptions) -> Status;
        9 23 OnRunEnd(this: *mut Self, run_options: *const OrtRunOptions, sync_stream: bool) -> Status;
        10 23 CreateAllocator(
            this: *mut Self, memory_info: *const OrtMemoryInfo, allocator: *mut *mut OrtAllocator
        ) -> Status;
        11 23 CreateSyncStreamForDevice(
            this: *mut Self, memory_device: *const OrtMemoryDevice, stream: *mut *mut OrtSyncStreamImpl
        ) -> Status;
        12 23 GetCompiledModelCompatibilityInfo(this: *mut Self, graph: *const OrtGraph) -> *const c_char;
        13 24 GetKernelRegistry(this: *mut Self, kernel_registry: *mut *const OrtKernelRegistry) -> Status;
        14 24 IsConcurrentRunSupported(this: *mut Self, is_supported: *mut bool) -> Status;
        15 25 Sync(this: *mut Self) -> Status;
        16 25 CreateProfiler(this: *mut Self, profiler: *mut *mut OrtEpProfilerImpl) -> Status;
        17 26 IsGraphCaptureEnabled(this: *const Self) -> bool;
        18 26 IsGraphCaptured(this: *const Self, graph_annotation_id: c_int) -> bool;
        19 26 ReplayGraph(this: *mut Self, graph_annotation_id: c_int) -> Status;
        20 26 GetGraphCaptureNodeAssignmentPolicy(this: *const Self) -> OrtGraphCaptureNodeAssignmentPolicy;
        21 26 GetAvailableResource(this: *const Self, available: *mut OrtResourceCount) -> Status;
        22 27 OnSessionInitializationEnd(this: *mut Self) -> Status;
        23 27 GetDefaultMemoryDevice(this: *const Self, device: *mut *const OrtMemoryDevice) -> Status;
        24 27 ReleaseCapturedGraph(this: *mut Self, graph_annotation_id: c_int) -> Status;
        25 29 GetWeightlessSupport(this: *const Self, support: *mut OrtWeightlessSupport) -> Status;
        26 31 GetEpContextDataCallbackSupport(this: *const Self, flags: *mut u32) -> Status;
    }
}

vtable! {
    /// A compiled partition.
    OrtNodeComputeInfo (ort_version_supported) = 4 words {
        1 23 CreateState(
            this: *mut Self, compute_context: *mut OrtNodeComputeContext, compute_state: *mut *mut c_void
        ) -> Status;
        2 23 Compute(this: *mut Self, compute_state: *mut c_void, kernel_context: *mut OrtKernelContext) -> Status;
        3 23 ReleaseState(this: *mut Self, compute_state: *mut c_void);
    }
}

vtable! {
    /// Copies tensors between memories.
    OrtDataTransferImpl (ort_version_supported) = 4 words {
        1 23 Release(this: *mut Self);
        2 23 CanCopy(
            this: *const Self, src_memory_device: *const OrtMemoryDevice, dst_memory_device: *const OrtMemoryDevice
        ) -> bool;
        3 23 CopyTensors(
            this: *mut Self, src_tensors: *mut *const OrtValue, dst_tensors: *mut *mut OrtValue,
            streams: *mut *mut OrtSyncStream, num_tensors: usize
        ) -> Status;
    }
}

vtable! {
    /// An ordered queue of device work.
    OrtSyncStreamImpl (ort_version_supported) = 6 words {
        1 23 Release(this: *mut Self);
        2 23 GetHandle(this: *mut Self) -> *mut c_void;
        3 23 CreateNotification(this: *mut Self, notification: *mut *mut OrtSyncNotificationImpl) -> Status;
        4 23 Flush(this: *mut Self) -> Status;
        5 23 OnSessionRunEnd(this: *mut Self) -> Status;
    }
}

vtable! {
    /// A point in a stream that others can wait for.
    OrtSyncNotificationImpl (ort_version_supported) = 5 words {
        1 23 Release(this: *mut Self);
        2 23 Activate(this: *mut Self) -> Status;
        3 23 WaitOnDevice(this: *mut Self, consumer_stream: *mut OrtSyncStream) -> Status;
        4 23 WaitOnHost(this: *mut Self) -> Status;
    }
}

vtable! {
    /// One operator kernel.
    OrtKernelImpl (ort_version_supported, flags) = 5 words {
        1 24 Compute(this: *mut Self, context: *mut OrtKernelContext) -> Status;
        2 24 Release(this: *mut Self);
        3 24 PrePackWeight(
            this: *mut Self, tensor: *const OrtValue, input_index: c_int, allocator: *mut OrtAllocator,
            prepacked_weight_cache: *mut OrtSharedPrePackedWeightCache, is_packed: *mut bool
        ) -> Status;
        4 24 SetSharedPrePackedWeight(
            this: *mut Self, buffer_data_ptrs: *const *const c_void, buffer_data_sizes: *const usize,
            num_buffers: usize, input_index: c_int
        ) -> Status;
    }
}

vtable! {
    /// Device-side helper for the runtime's Loop kernel.
    OrtLoopKernelHelper (ort_version_supported) = 3 words {
        1 24 Release(this: *mut Self);
        2 24 ConcatOutput(
            this: *mut Self, stream_handle: *mut c_void, per_iteration_outputs: *const *const OrtValue,
            num_per_iteration_outputs: usize, output: *mut c_void, output_size_in_bytes: usize
        ) -> Status;
    }
}

vtable! {
    /// Device-side helper for the runtime's Scan kernel.
    OrtScanKernelHelper (ort_version_supported) = 3 words {
        1 24 Release(this: *mut Self);
        2 24 Transpose(
            this: *mut Self, permutation: *const usize, num_permutation_elems: usize, input: *const OrtValue,
            stream: *mut OrtSyncStream, output: *mut OrtValue
        ) -> Status;
    }
}

vtable! {
    /// Imports memory and semaphores of graphics APIs.
    OrtExternalResourceImporterImpl (ort_version_supported) = 11 words {
        1 24 CanImportMemory(this: *const Self, handle_type: OrtExternalMemoryHandleType) -> bool;
        2 24 ImportMemory(
            this: *mut Self, desc: *const OrtExternalMemoryDescriptor, out_handle: *mut *mut OrtExternalMemoryHandle
        ) -> Status;
        3 24 ReleaseMemory(this: *mut Self, handle: *mut OrtExternalMemoryHandle);
        4 24 CreateTensorFromMemory(
            this: *mut Self, mem_handle: *const OrtExternalMemoryHandle,
            tensor_desc: *const OrtExternalTensorDescriptor, out_tensor: *mut *mut OrtValue
        ) -> Status;
        5 24 CanImportSemaphore(this: *const Self, kind: OrtExternalSemaphoreType) -> bool;
        6 24 ImportSemaphore(
            this: *mut Self, desc: *const OrtExternalSemaphoreDescriptor,
            out_handle: *mut *mut OrtExternalSemaphoreHandle
        ) -> Status;
        7 24 ReleaseSemaphore(this: *mut Self, handle: *mut OrtExternalSemaphoreHandle);
        8 24 WaitSemaphore(
            this: *mut Self, handle: *mut OrtExternalSemaphoreHandle, stream: *mut OrtSyncStream, value: u64
        ) -> Status;
        9 24 SignalSemaphore(
            this: *mut Self, handle: *mut OrtExternalSemaphoreHandle, stream: *mut OrtSyncStream, value: u64
        ) -> Status;
        10 24 Release(this: *mut Self);
    }
}

vtable! {
    /// Adds device events to the runtime's profile.
    OrtEpProfilerImpl (ort_version_supported) = 6 words {
        1 25 Release(this: *mut Self);
        2 25 StartProfiling(this: *mut Self, ep_profiling_start_offset_ns: i64) -> Status;
        3 25 StartEvent(this: *mut Self, ort_event_correlation_id: u64) -> Status;
        4 25 StopEvent(this: *mut Self, ort_event_correlation_id: u64, ort_event: *const OrtProfilingEvent) -> Status;
        5 25 EndProfiling(this: *mut Self, events_container: *mut OrtProfilingEventsContainer) -> Status;
    }
}

vtable! {
    /// Allocates memory.
    OrtAllocator (version) = 8 words {
        1 22 Alloc(this: *mut Self, size: usize) -> *mut c_void;
        2 22 Free(this: *mut Self, p: *mut c_void);
        3 22 Info(this: *const Self) -> *const OrtMemoryInfo;
        4 22 Reserve(this: *mut Self, size: usize) -> *mut c_void;
        5 23 GetStats(this: *const Self, out: *mut *mut OrtKeyValuePairs) -> Status;
        6 23 AllocOnStream(this: *mut Self, size: usize, stream: *mut OrtSyncStream) -> *mut c_void;
        7 25 Shrink(this: *mut Self) -> Status;
    }
}
