//! Functions that only execution providers call.
use core::ffi::{c_char, c_int, c_void};

use crate::types::*;
use crate::{
    OrtEp, OrtEpFactory, OrtKernelCreateFunc, OrtKernelImpl, OrtLoopKernelHelper, OrtNodeFusionOptions,
    OrtReadNamedBufferFunc, OrtScanKernelHelper, OrtSyncStreamImpl, OrtWriteNamedBufferFunc,
};

functions! {
    /// Functions that only execution providers call.
    EpApi
    always {
        0 CreateEpDevice(
            ep_factory: *mut OrtEpFactory, hardware_device: *const OrtHardwareDevice,
            ep_metadata: *const OrtKeyValuePairs, ep_options: *const OrtKeyValuePairs,
            ep_device: *mut *mut OrtEpDevice
        ) -> Status;
        1 ReleaseEpDevice(input: *mut OrtEpDevice);
        2 EpGraphSupportInfo_AddNodesToFuse(
            graph_support_info: *mut OrtEpGraphSupportInfo, nodes: *const *const OrtNode, num_nodes: usize,
            node_fusion_options: *const OrtNodeFusionOptions
        ) -> Status;
        3 EpGraphSupportInfo_AddSingleNode(
            graph_support_info: *mut OrtEpGraphSupportInfo, node: *const OrtNode
        ) -> Status;
        4 NodeComputeContext_NodeName(context: *const OrtNodeComputeContext) -> *const c_char;
        5 EpDevice_AddAllocatorInfo(
            ep_device: *mut OrtEpDevice, allocator_memory_info: *const OrtMemoryInfo
        ) -> Status;
        6 MemoryInfo_GetMemoryDevice(memory_info: *const OrtMemoryInfo) -> *const OrtMemoryDevice;
        7 Value_GetMemoryDevice(value: *const OrtValue) -> *const OrtMemoryDevice;
        8 MemoryDevice_AreEqual(a: *const OrtMemoryDevice, b: *const OrtMemoryDevice) -> bool;
        9 MemoryDevice_GetDeviceType(memory_device: *const OrtMemoryDevice) -> OrtMemoryInfoDeviceType;
        10 MemoryDevice_GetMemoryType(memory_device: *const OrtMemoryDevice) -> OrtDeviceMemoryType;
        11 MemoryDevice_GetVendorId(memory_device: *const OrtMemoryDevice) -> u32;
        12 MemoryDevice_GetDeviceId(memory_device: *const OrtMemoryDevice) -> u32;
        13 SyncStream_GetImpl(stream: *const OrtSyncStream) -> *const OrtSyncStreamImpl;
        14 SyncStream_GetSyncId(stream: *const OrtSyncStream) -> u64;
        15 GetSyncIdForLastWaitOnSyncStream(
            producer_stream: *const OrtSyncStream, consumer_stream: *const OrtSyncStream
        ) -> u64;
        16 CreateHardwareDevice(
            kind: OrtHardwareDeviceType, vendor_id: u32, device_id: u32, vendor_name: *const c_char,
            metadata: *const OrtKeyValuePairs, hardware_device: *mut *mut OrtHardwareDevice
        ) -> Status;
        17 ReleaseHardwareDevice(input: *mut OrtHardwareDevice);
        18 CreateKernelRegistry(kernel_registry: *mut *mut OrtKernelRegistry) -> Status;
        19 ReleaseKernelRegistry(input: *mut OrtKernelRegistry);
        20 KernelRegistry_AddKernel(
            kernel_registry: *mut OrtKernelRegistry, kernel_def: *const OrtKernelDef,
            kernel_create_func: OrtKernelCreateFunc, kernel_create_func_state: *mut c_void
        ) -> Status;
        21 CreateKernelDefBuilder(kernel_def_builder_out: *mut *mut OrtKernelDefBuilder) -> Status;
        22 ReleaseKernelDefBuilder(input: *mut OrtKernelDefBuilder);
        23 KernelDefBuilder_SetOperatorType(
            kernel_def_builder: *mut OrtKernelDefBuilder, op_type: *const c_char
        ) -> Status;
        24 KernelDefBuilder_SetDomain(kernel_def_builder: *mut OrtKernelDefBuilder, domain: *const c_char) -> Status;
        25 KernelDefBuilder_SetSinceVersion(
            kernel_def_builder: *mut OrtKernelDefBuilder, since_version_start: c_int, since_version_end: c_int
        ) -> Status;
        26 KernelDefBuilder_SetExecutionProvider(
            kernel_def_builder: *mut OrtKernelDefBuilder, ep_name: *const c_char
        ) -> Status;
        27 KernelDefBuilder_SetInputMemType(
            kernel_def_builder: *mut OrtKernelDefBuilder, input_index: usize, mem_type: OrtMemType
        ) -> Status;
        28 KernelDefBuilder_SetOutputMemType(
            kernel_def_builder: *mut OrtKernelDefBuilder, output_index: usize, mem_type: OrtMemType
        ) -> Status;
        29 KernelDefBuilder_AddTypeConstraint(
            kernel_def_builder: *mut OrtKernelDefBuilder, arg_name: *const c_char, types: *const *const OrtDataType,
            num_types: usize
        ) -> Status;
        30 KernelDefBuilder_AddInputOutputAliases(
            kernel_def_builder: *mut OrtKernelDefBuilder, input_indices: *const c_int, output_indices: *const c_int,
            num_io_indices: usize
        ) -> Status;
        31 KernelDefBuilder_AddInputOutputMutableAliases(
            kernel_def_builder: *mut OrtKernelDefBuilder, input_indices: *const c_int, output_indices: *const c_int,
            num_io_indices: usize
        ) -> Status;
        32 KernelDefBuilder_Build(
            kernel_def_builder: *mut OrtKernelDefBuilder, kernel_def_out: *mut *mut OrtKernelDef
        ) -> Status;
        33 ReleaseKernelDef(input: *mut OrtKernelDef);
        34 KernelDef_GetOperatorType(kernel_def: *const OrtKernelDef) -> *const c_char;
        35 KernelDef_GetDomain(kernel_def: *const OrtKernelDef) -> *const c_char;
        36 KernelDef_GetSinceVersion(
            kernel_def: *const OrtKernelDef, start_version: *mut c_int, end_version: *mut c_int
        ) -> Status;
        37 KernelDef_GetExecutionProvider(kernel_def: *const OrtKernelDef) -> *const c_char;
        38 KernelDef_GetInputMemType(
            kernel_def: *const OrtKernelDef, input_index: usize, mem_type: *mut OrtMemType
        ) -> Status;
        39 KernelDef_GetOutputMemType(
            kernel_def: *const OrtKernelDef, output_index: usize, mem_type: *mut OrtMemType
        ) -> Status;
        40 GetTensorDataType(elem_type: ONNXTensorElementDataType, out: *mut *const OrtDataType) -> Status;
        41 EpGraphSupportInfo_LookUpKernel(
            graph_support_info: *mut OrtEpGraphSupportInfo, node: *const OrtNode,
            out_kernel_def: *mut *const OrtKernelDef
        ) -> Status;
        42 SharedPrePackedWeightCache_StoreWeightData(
            prepacked_weight_cache: *mut OrtSharedPrePackedWeightCache, buffer_data_ptrs: *mut *mut c_void,
            buffer_data_sizes: *mut usize, num_buffers: usize
        ) -> Status;
        43 KernelInfo_GetEp(info: *const OrtKernelInfo, ep: *mut *const OrtEp) -> Status;
        44 DeviceEpIncompatibilityDetails_SetDetails(
            details: *mut OrtDeviceEpIncompatibilityDetails, reasons_bitmask: u32, error_code: i32,
            notes: *const c_char
        ) -> Status;
        45 CreateIfKernel(kernel_info: *const OrtKernelInfo, kernel_out: *mut *mut OrtKernelImpl) -> Status;
        46 CreateLoopKernel(
            kernel_info: *const OrtKernelInfo, helper: *mut OrtLoopKernelHelper, kernel_out: *mut *mut OrtKernelImpl
        ) -> Status;
        47 CreateScanKernel(
            kernel_info: *const OrtKernelInfo, helper: *mut OrtScanKernelHelper, kernel_out: *mut *mut OrtKernelImpl
        ) -> Status;
        48 ReleaseKernelImpl(input: *mut OrtKernelImpl);
        49 GetEnvConfigEntries(config_entries: *mut *mut OrtKeyValuePairs) -> Status;
    }
    since 25 {
        50 GetOpSchema(
            name: *const c_char, max_inclusive_version: c_int, domain: *const c_char,
            out_schema: *mut *mut OrtOpSchema
        ) -> Status;
        51 ReleaseOpSchema(input: *mut OrtOpSchema);
        52 OpSchema_GetSinceVersion(schema: *const OrtOpSchema, out: *mut c_int) -> Status;
        53 OpSchema_GetNumInputs(schema: *const OrtOpSchema, out: *mut usize) -> Status;
        54 OpSchema_GetInputName(schema: *const OrtOpSchema, index: usize, out: *mut *const c_char) -> Status;
        55 OpSchema_GetInputTypeConstraint(
            schema: *const OrtOpSchema, index: usize, out: *mut *const OrtOpSchemaTypeConstraint
        ) -> Status;
        56 OpSchema_GetNumOutputs(schema: *const OrtOpSchema, out: *mut usize) -> Status;
        57 OpSchema_GetOutputName(schema: *const OrtOpSchema, index: usize, out: *mut *const c_char) -> Status;
        58 OpSchema_GetOutputTypeConstraint(
            schema: *const OrtOpSchema, index: usize, out: *mut *const OrtOpSchemaTypeConstraint
        ) -> Status;
        59 OpSchema_GetTypeConstraintCount(schema: *const OrtOpSchema, out: *mut usize) -> Status;
        60 OpSchema_GetTypeConstraint(
            schema: *const OrtOpSchema, index: usize, out: *mut *const OrtOpSchemaTypeConstraint
        ) -> Status;
        61 OpSchemaTypeConstraint_GetTypeParamName(
            type_constraint: *const OrtOpSchemaTypeConstraint, out: *mut *const c_char
        ) -> Status;
        62 OpSchemaTypeConstraint_GetAllowedTypes(
            type_constraint: *const OrtOpSchemaTypeConstraint, out_types: *mut *const *const c_char,
            num_types: *mut usize
        ) -> Status;
        63 OpSchemaTypeConstraint_GetInputIndices(
            type_constraint: *const OrtOpSchemaTypeConstraint, out_indices: *mut *const usize, count: *mut usize
        ) -> Status;
        64 OpSchemaTypeConstraint_GetOutputIndices(
            type_constraint: *const OrtOpSchemaTypeConstraint, out_indices: *mut *const usize, count: *mut usize
        ) -> Status;
        65 CreateProfilingEvent(
            category: OrtProfilingEventCategory, process_id: i32, thread_id: i32, event_name: *const c_char,
            timestamp_us: i64, duration_us: i64, arg_keys: *const *const c_char, arg_values: *const *const c_char,
            num_args: usize, out: *mut *mut OrtProfilingEvent
        ) -> Status;
        66 ReleaseProfilingEvent(input: *mut OrtProfilingEvent);
        67 ProfilingEvent_GetCategory(event: *const OrtProfilingEvent, out: *mut OrtProfilingEventCategory) -> Status;
        68 ProfilingEvent_GetName(event: *const OrtProfilingEvent, out: *mut *const c_char) -> Status;
        69 ProfilingEvent_GetTimestampUs(event: *const OrtProfilingEvent, out: *mut i64) -> Status;
        70 ProfilingEvent_GetDurationUs(event: *const OrtProfilingEvent, out: *mut i64) -> Status;
        71 ProfilingEvent_GetArgValue(
            event: *const OrtProfilingEvent, key: *const c_char, out: *mut *const c_char
        ) -> Status;
        72 ProfilingEventsContainer_AddEvents(
            events_container: *mut OrtProfilingEventsContainer, events: *const *const OrtProfilingEvent,
            num_events: usize
        ) -> Status;
    }
    since 29 {
        73 SessionOptionsGetWeightlessSourceModelBuffer(
            session_options: *const OrtSessionOptions, source_model_data: *mut *const c_void,
            source_model_data_length: *mut usize
        ) -> Status;
    }
    since 31 {
        74 SessionOptions_GetEpContextConfig(
            session_options: *const OrtSessionOptions, config: *mut *mut OrtEpContextConfig
        ) -> Status;
        75 ReleaseEpContextConfig(input: *mut OrtEpContextConfig);
        76 EpContextConfig_GetEpContextDataReadFunc(
            config: *const OrtEpContextConfig, read_func: *mut OrtReadNamedBufferFunc, state: *mut *mut c_void
        ) -> Status;
        77 EpContextConfig_GetEpContextDataWriteFunc(
            config: *const OrtEpContextConfig, write_func: *mut OrtWriteNamedBufferFunc, state: *mut *mut c_void
        ) -> Status;
    }
}
