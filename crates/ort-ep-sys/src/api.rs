//! The runtime's main table.
use core::ffi::{c_char, c_int, c_void};

use crate::types::*;
use crate::{OrtAllocator, OrtReadNamedBufferFunc};

functions! {
    /// The runtime's main table, at a negotiated version.
    Api
    always {
        0 CreateStatus(code: OrtErrorCode, msg: *const c_char) -> Status;
        1 GetErrorCode(status: *const OrtStatus) -> OrtErrorCode;
        2 GetErrorMessage(status: *const OrtStatus) -> *const c_char;
        3 CreateEnv(log_severity_level: OrtLoggingLevel, logid: *const c_char, out: *mut *mut OrtEnv) -> Status;
        6 DisableTelemetryEvents(env: *const OrtEnv) -> Status;
        7 CreateSession(
            env: *const OrtEnv, model_path: *const os_char, options: *const OrtSessionOptions,
            out: *mut *mut OrtSession
        ) -> Status;
        8 CreateSessionFromArray(
            env: *const OrtEnv, model_data: *const c_void, model_data_length: usize,
            options: *const OrtSessionOptions, out: *mut *mut OrtSession
        ) -> Status;
        9 Run(
            session: *mut OrtSession, run_options: *const OrtRunOptions, input_names: *const *const c_char,
            inputs: *const *const OrtValue, input_len: usize, output_names: *const *const c_char,
            output_names_len: usize, outputs: *mut *mut OrtValue
        ) -> Status;
        10 CreateSessionOptions(options: *mut *mut OrtSessionOptions) -> Status;
        11 SetOptimizedModelFilePath(
            options: *mut OrtSessionOptions, optimized_model_filepath: *const os_char
        ) -> Status;
        12 CloneSessionOptions(
            in_options: *const OrtSessionOptions, out_options: *mut *mut OrtSessionOptions
        ) -> Status;
        13 SetSessionExecutionMode(options: *mut OrtSessionOptions, execution_mode: ExecutionMode) -> Status;
        14 EnableProfiling(options: *mut OrtSessionOptions, profile_file_prefix: *const os_char) -> Status;
        15 DisableProfiling(options: *mut OrtSessionOptions) -> Status;
        16 EnableMemPattern(options: *mut OrtSessionOptions) -> Status;
        17 DisableMemPattern(options: *mut OrtSessionOptions) -> Status;
        18 EnableCpuMemArena(options: *mut OrtSessionOptions) -> Status;
        19 DisableCpuMemArena(options: *mut OrtSessionOptions) -> Status;
        20 SetSessionLogId(options: *mut OrtSessionOptions, logid: *const c_char) -> Status;
        21 SetSessionLogVerbosityLevel(options: *mut OrtSessionOptions, session_log_verbosity_level: c_int) -> Status;
        22 SetSessionLogSeverityLevel(options: *mut OrtSessionOptions, session_log_severity_level: c_int) -> Status;
        23 SetSessionGraphOptimizationLevel(
            options: *mut OrtSessionOptions, graph_optimization_level: GraphOptimizationLevel
        ) -> Status;
        24 SetIntraOpNumThreads(options: *mut OrtSessionOptions, intra_op_num_threads: c_int) -> Status;
        25 SetInterOpNumThreads(options: *mut OrtSessionOptions, inter_op_num_threads: c_int) -> Status;
        26 CreateCustomOpDomain(domain: *const c_char, out: *mut *mut OrtCustomOpDomain) -> Status;
        28 AddCustomOpDomain(options: *mut OrtSessionOptions, custom_op_domain: *mut OrtCustomOpDomain) -> Status;
        30 SessionGetInputCount(session: *const OrtSession, out: *mut usize) -> Status;
        31 SessionGetOutputCount(session: *const OrtSession, out: *mut usize) -> Status;
        33 SessionGetInputTypeInfo(
            session: *const OrtSession, index: usize, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        34 SessionGetOutputTypeInfo(
            session: *const OrtSession, index: usize, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        36 SessionGetInputName(
            session: *const OrtSession, index: usize, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        37 SessionGetOutputName(
            session: *const OrtSession, index: usize, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        39 CreateRunOptions(out: *mut *mut OrtRunOptions) -> Status;
        40 RunOptionsSetRunLogVerbosityLevel(options: *mut OrtRunOptions, log_verbosity_level: c_int) -> Status;
        41 RunOptionsSetRunLogSeverityLevel(options: *mut OrtRunOptions, log_severity_level: c_int) -> Status;
        43 RunOptionsGetRunLogVerbosityLevel(
            options: *const OrtRunOptions, log_verbosity_level: *mut c_int
        ) -> Status;
        44 RunOptionsGetRunLogSeverityLevel(options: *const OrtRunOptions, log_severity_level: *mut c_int) -> Status;
        46 RunOptionsSetTerminate(options: *mut OrtRunOptions) -> Status;
        47 RunOptionsUnsetTerminate(options: *mut OrtRunOptions) -> Status;
        48 CreateTensorAsOrtValue(
            allocator: *mut OrtAllocator, shape: *const i64, shape_len: usize, kind: ONNXTensorElementDataType,
            out: *mut *mut OrtValue
        ) -> Status;
        49 CreateTensorWithDataAsOrtValue(
            info: *const OrtMemoryInfo, p_data: *mut c_void, p_data_len: usize, shape: *const i64, shape_len: usize,
            kind: ONNXTensorElementDataType, out: *mut *mut OrtValue
        ) -> Status;
        50 IsTensor(value: *const OrtValue, out: *mut c_int) -> Status;
        51 GetTensorMutableData(value: *mut OrtValue, out: *mut *mut c_void) -> Status;
        52 FillStringTensor(value: *mut OrtValue, s: *const *const c_char, s_len: usize) -> Status;
        53 GetStringTensorDataLength(value: *const OrtValue, len: *mut usize) -> Status;
        54 GetStringTensorContent(
            value: *const OrtValue, s: *mut c_void, s_len: usize, offsets: *mut usize, offsets_len: usize
        ) -> Status;
        55 CastTypeInfoToTensorInfo(
            type_info: *const OrtTypeInfo, out: *mut *const OrtTensorTypeAndShapeInfo
        ) -> Status;
        56 GetOnnxTypeFromTypeInfo(type_info: *const OrtTypeInfo, out: *mut ONNXType) -> Status;
        57 CreateTensorTypeAndShapeInfo(out: *mut *mut OrtTensorTypeAndShapeInfo) -> Status;
        58 SetTensorElementType(info: *mut OrtTensorTypeAndShapeInfo, kind: ONNXTensorElementDataType) -> Status;
        59 SetDimensions(info: *mut OrtTensorTypeAndShapeInfo, dim_values: *const i64, dim_count: usize) -> Status;
        60 GetTensorElementType(
            info: *const OrtTensorTypeAndShapeInfo, out: *mut ONNXTensorElementDataType
        ) -> Status;
        61 GetDimensionsCount(info: *const OrtTensorTypeAndShapeInfo, out: *mut usize) -> Status;
        62 GetDimensions(
            info: *const OrtTensorTypeAndShapeInfo, dim_values: *mut i64, dim_values_length: usize
        ) -> Status;
        63 GetSymbolicDimensions(
            info: *const OrtTensorTypeAndShapeInfo, dim_params: *mut *const c_char, dim_params_length: usize
        ) -> Status;
        64 GetTensorShapeElementCount(info: *const OrtTensorTypeAndShapeInfo, out: *mut usize) -> Status;
        65 GetTensorTypeAndShape(value: *const OrtValue, out: *mut *mut OrtTensorTypeAndShapeInfo) -> Status;
        66 GetTypeInfo(value: *const OrtValue, out: *mut *mut OrtTypeInfo) -> Status;
        67 GetValueType(value: *const OrtValue, out: *mut ONNXType) -> Status;
        68 CreateMemoryInfo(
            name: *const c_char, kind: OrtAllocatorType, id: c_int, mem_type: OrtMemType,
            out: *mut *mut OrtMemoryInfo
        ) -> Status;
        69 CreateCpuMemoryInfo(kind: OrtAllocatorType, mem_type: OrtMemType, out: *mut *mut OrtMemoryInfo) -> Status;
        70 CompareMemoryInfo(info1: *const OrtMemoryInfo, info2: *const OrtMemoryInfo, out: *mut c_int) -> Status;
        71 MemoryInfoGetName(ptr: *const OrtMemoryInfo, out: *mut *const c_char) -> Status;
        72 MemoryInfoGetId(ptr: *const OrtMemoryInfo, out: *mut c_int) -> Status;
        73 MemoryInfoGetMemType(ptr: *const OrtMemoryInfo, out: *mut OrtMemType) -> Status;
        74 MemoryInfoGetType(ptr: *const OrtMemoryInfo, out: *mut OrtAllocatorType) -> Status;
        75 AllocatorAlloc(ort_allocator: *mut OrtAllocator, size: usize, out: *mut *mut c_void) -> Status;
        76 AllocatorFree(ort_allocator: *mut OrtAllocator, p: *mut c_void) -> Status;
        77 AllocatorGetInfo(ort_allocator: *const OrtAllocator, out: *mut *const OrtMemoryInfo) -> Status;
        78 GetAllocatorWithDefaultOptions(out: *mut *mut OrtAllocator) -> Status;
        85 KernelInfoGetAttribute_float(info: *const OrtKernelInfo, name: *const c_char, out: *mut f32) -> Status;
        86 KernelInfoGetAttribute_int64(info: *const OrtKernelInfo, name: *const c_char, out: *mut i64) -> Status;
        87 KernelInfoGetAttribute_string(
            info: *const OrtKernelInfo, name: *const c_char, out: *mut c_char, size: *mut usize
        ) -> Status;
        88 KernelContext_GetInputCount(context: *const OrtKernelContext, out: *mut usize) -> Status;
        89 KernelContext_GetOutputCount(context: *const OrtKernelContext, out: *mut usize) -> Status;
        90 KernelContext_GetInput(
            context: *const OrtKernelContext, index: usize, out: *mut *const OrtValue
        ) -> Status;
        91 KernelContext_GetOutput(
            context: *mut OrtKernelContext, index: usize, dim_values: *const i64, dim_count: usize,
            out: *mut *mut OrtValue
        ) -> Status;
        92 ReleaseEnv(input: *mut OrtEnv);
        93 ReleaseStatus(input: *mut OrtStatus);
        94 ReleaseMemoryInfo(input: *mut OrtMemoryInfo);
        95 ReleaseSession(input: *mut OrtSession);
        96 ReleaseValue(input: *mut OrtValue);
        97 ReleaseRunOptions(input: *mut OrtRunOptions);
        98 ReleaseTypeInfo(input: *mut OrtTypeInfo);
        99 ReleaseTensorTypeAndShapeInfo(input: *mut OrtTensorTypeAndShapeInfo);
        100 ReleaseSessionOptions(input: *mut OrtSessionOptions);
        101 ReleaseCustomOpDomain(input: *mut OrtCustomOpDomain);
        102 GetDenotationFromTypeInfo(
            type_info: *const OrtTypeInfo, denotation: *mut *const c_char, len: *mut usize
        ) -> Status;
        110 SessionEndProfiling(
            session: *mut OrtSession, allocator: *mut OrtAllocator, out: *mut *mut c_char
        ) -> Status;
        111 SessionGetModelMetadata(session: *const OrtSession, out: *mut *mut OrtModelMetadata) -> Status;
        112 ModelMetadataGetProducerName(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        113 ModelMetadataGetGraphName(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        114 ModelMetadataGetDomain(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        115 ModelMetadataGetDescription(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        116 ModelMetadataLookupCustomMetadataMap(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, key: *const c_char,
            value: *mut *mut c_char
        ) -> Status;
        117 ModelMetadataGetVersion(model_metadata: *const OrtModelMetadata, value: *mut i64) -> Status;
        118 ReleaseModelMetadata(input: *mut OrtModelMetadata);
        120 DisablePerSessionThreads(options: *mut OrtSessionOptions) -> Status;
        123 ModelMetadataGetCustomMetadataMapKeys(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, keys: *mut *mut *mut c_char,
            num_keys: *mut i64
        ) -> Status;
        124 AddFreeDimensionOverrideByName(
            options: *mut OrtSessionOptions, dim_name: *const c_char, dim_value: i64
        ) -> Status;
        127 GetStringTensorElementLength(value: *const OrtValue, index: usize, out: *mut usize) -> Status;
        128 GetStringTensorElement(value: *const OrtValue, s_len: usize, index: usize, s: *mut c_void) -> Status;
        129 FillStringTensorElement(value: *mut OrtValue, s: *const c_char, index: usize) -> Status;
        130 AddSessionConfigEntry(
            options: *mut OrtSessionOptions, config_key: *const c_char, config_value: *const c_char
        ) -> Status;
        131 CreateAllocator(
            session: *const OrtSession, mem_info: *const OrtMemoryInfo, out: *mut *mut OrtAllocator
        ) -> Status;
        132 ReleaseAllocator(input: *mut OrtAllocator);
        133 RunWithBinding(
            session: *mut OrtSession, run_options: *const OrtRunOptions, binding_ptr: *const OrtIoBinding
        ) -> Status;
        134 CreateIoBinding(session: *mut OrtSession, out: *mut *mut OrtIoBinding) -> Status;
        135 ReleaseIoBinding(input: *mut OrtIoBinding);
        136 BindInput(binding_ptr: *mut OrtIoBinding, name: *const c_char, val_ptr: *const OrtValue) -> Status;
        137 BindOutput(binding_ptr: *mut OrtIoBinding, name: *const c_char, val_ptr: *const OrtValue) -> Status;
        138 BindOutputToDevice(
            binding_ptr: *mut OrtIoBinding, name: *const c_char, mem_info_ptr: *const OrtMemoryInfo
        ) -> Status;
        139 GetBoundOutputNames(
            binding_ptr: *const OrtIoBinding, allocator: *mut OrtAllocator, buffer: *mut *mut c_char,
            lengths: *mut *mut usize, count: *mut usize
        ) -> Status;
        140 GetBoundOutputValues(
            binding_ptr: *const OrtIoBinding, allocator: *mut OrtAllocator, output: *mut *mut *mut OrtValue,
            output_count: *mut usize
        ) -> Status;
        141 ClearBoundInputs(binding_ptr: *mut OrtIoBinding);
        142 ClearBoundOutputs(binding_ptr: *mut OrtIoBinding);
        146 SessionGetProfilingStartTimeNs(session: *const OrtSession, out: *mut u64) -> Status;
        150 AddInitializer(options: *mut OrtSessionOptions, name: *const c_char, val: *const OrtValue) -> Status;
        158 ModelMetadataGetGraphDescription(
            model_metadata: *const OrtModelMetadata, allocator: *mut OrtAllocator, value: *mut *mut c_char
        ) -> Status;
        162 KernelInfoGetAttributeArray_float(
            info: *const OrtKernelInfo, name: *const c_char, out: *mut f32, size: *mut usize
        ) -> Status;
        163 KernelInfoGetAttributeArray_int64(
            info: *const OrtKernelInfo, name: *const c_char, out: *mut i64, size: *mut usize
        ) -> Status;
        165 AddRunConfigEntry(
            options: *mut OrtRunOptions, config_key: *const c_char, config_value: *const c_char
        ) -> Status;
        176 RegisterAllocator(env: *mut OrtEnv, allocator: *mut OrtAllocator) -> Status;
        177 UnregisterAllocator(env: *mut OrtEnv, mem_info: *const OrtMemoryInfo) -> Status;
        192 HasValue(value: *const OrtValue, out: *mut c_int) -> Status;
        193 KernelContext_GetGPUComputeStream(context: *const OrtKernelContext, out: *mut *mut c_void) -> Status;
        194 GetTensorMemoryInfo(value: *const OrtValue, mem_info: *mut *const OrtMemoryInfo) -> Status;
        202 SynchronizeBoundInputs(binding_ptr: *mut OrtIoBinding) -> Status;
        203 SynchronizeBoundOutputs(binding_ptr: *mut OrtIoBinding) -> Status;
        211 CreateOpAttr(
            name: *const c_char, data: *const c_void, len: c_int, kind: OrtOpAttrType, op_attr: *mut *mut OrtOpAttr
        ) -> Status;
        212 ReleaseOpAttr(input: *mut OrtOpAttr);
        216 SessionOptionsAppendExecutionProvider(
            options: *mut OrtSessionOptions, provider_name: *const c_char,
            provider_options_keys: *const *const c_char, provider_options_values: *const *const c_char,
            num_keys: usize
        ) -> Status;
        217 CopyKernelInfo(info: *const OrtKernelInfo, info_copy: *mut *mut OrtKernelInfo) -> Status;
        218 ReleaseKernelInfo(input: *mut OrtKernelInfo);
        225 MemoryInfoGetDeviceType(ptr: *const OrtMemoryInfo, out: *mut OrtMemoryInfoDeviceType);
        230 KernelInfo_GetInputCount(info: *const OrtKernelInfo, out: *mut usize) -> Status;
        231 KernelInfo_GetOutputCount(info: *const OrtKernelInfo, out: *mut usize) -> Status;
        232 KernelInfo_GetInputName(
            info: *const OrtKernelInfo, index: usize, out: *mut c_char, size: *mut usize
        ) -> Status;
        233 KernelInfo_GetOutputName(
            info: *const OrtKernelInfo, index: usize, out: *mut c_char, size: *mut usize
        ) -> Status;
        234 KernelInfo_GetInputTypeInfo(
            info: *const OrtKernelInfo, index: usize, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        235 KernelInfo_GetOutputTypeInfo(
            info: *const OrtKernelInfo, index: usize, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        236 KernelInfoGetAttribute_tensor(
            info: *const OrtKernelInfo, name: *const c_char, allocator: *mut OrtAllocator, out: *mut *mut OrtValue
        ) -> Status;
        237 HasSessionConfigEntry(
            options: *const OrtSessionOptions, config_key: *const c_char, out: *mut c_int
        ) -> Status;
        238 GetSessionConfigEntry(
            options: *const OrtSessionOptions, config_key: *const c_char, config_value: *mut c_char,
            size: *mut usize
        ) -> Status;
        244 KernelInfo_GetNodeName(info: *const OrtKernelInfo, out: *mut c_char, size: *mut usize) -> Status;
        245 KernelInfo_GetLogger(info: *const OrtKernelInfo, logger: *mut *const OrtLogger) -> Status;
        246 KernelContext_GetLogger(context: *const OrtKernelContext, logger: *mut *const OrtLogger) -> Status;
        247 Logger_LogMessage(
            logger: *const OrtLogger, log_severity_level: OrtLoggingLevel, message: *const c_char,
            file_path: *const os_char, line_number: c_int, func_name: *const c_char
        ) -> Status;
        248 Logger_GetLoggingSeverityLevel(logger: *const OrtLogger, out: *mut OrtLoggingLevel) -> Status;
        249 KernelInfoGetConstantInput_tensor(
            info: *const OrtKernelInfo, index: usize, is_constant: *mut c_int, out: *mut *const OrtValue
        ) -> Status;
        252 GetResizedStringTensorElementBuffer(
            value: *mut OrtValue, index: usize, length_in_bytes: usize, buffer: *mut *mut c_char
        ) -> Status;
        253 KernelContext_GetAllocator(
            context: *const OrtKernelContext, mem_info: *const OrtMemoryInfo, out: *mut *mut OrtAllocator
        ) -> Status;
        254 GetBuildInfoString() -> *const c_char;
        265 KernelContext_GetResource(
            context: *const OrtKernelContext, resouce_version: c_int, resource_id: c_int, resource: *mut *mut c_void
        ) -> Status;
        272 ReadOpAttr(
            op_attr: *const OrtOpAttr, kind: OrtOpAttrType, data: *mut c_void, len: usize, out: *mut usize
        ) -> Status;
        274 KernelContext_ParallelFor(
            context: *const OrtKernelContext, body: unsafe extern "C" fn(arg1: *mut c_void, arg2: usize),
            total: usize, num_batch: usize, usr_data: *mut c_void
        ) -> Status;
        277 KernelContext_GetScratchBuffer(
            context: *const OrtKernelContext, mem_info: *const OrtMemoryInfo, count_or_bytes: usize,
            out: *mut *mut c_void
        ) -> Status;
        278 KernelInfoGetAllocator(
            info: *const OrtKernelInfo, mem_type: OrtMemType, out: *mut *mut OrtAllocator
        ) -> Status;
        284 SetEpDynamicOptions(
            sess: *mut OrtSession, keys: *const *const c_char, values: *const *const c_char, kv_len: usize
        ) -> Status;
        285 ReleaseValueInfo(input: *mut OrtValueInfo);
        286 ReleaseNode(input: *mut OrtNode);
        287 ReleaseGraph(input: *mut OrtGraph);
        288 ReleaseModel(input: *mut OrtModel);
        289 GetValueInfoName(value_info: *const OrtValueInfo, name: *mut *const c_char) -> Status;
        290 GetValueInfoTypeInfo(value_info: *const OrtValueInfo, type_info: *mut *const OrtTypeInfo) -> Status;
        291 GetModelEditorApi() -> *const c_void;
        295 CreateKeyValuePairs(out: *mut *mut OrtKeyValuePairs);
        296 AddKeyValuePair(kvps: *mut OrtKeyValuePairs, key: *const c_char, value: *const c_char);
        297 GetKeyValue(kvps: *const OrtKeyValuePairs, key: *const c_char) -> *const c_char;
        298 GetKeyValuePairs(
            kvps: *const OrtKeyValuePairs, keys: *mut *const *const c_char, values: *mut *const *const c_char,
            num_entries: *mut usize
        );
        299 RemoveKeyValuePair(kvps: *mut OrtKeyValuePairs, key: *const c_char);
        300 ReleaseKeyValuePairs(input: *mut OrtKeyValuePairs);
        301 RegisterExecutionProviderLibrary(
            env: *mut OrtEnv, registration_name: *const c_char, path: *const os_char
        ) -> Status;
        302 UnregisterExecutionProviderLibrary(env: *mut OrtEnv, registration_name: *const c_char) -> Status;
        303 GetEpDevices(
            env: *const OrtEnv, ep_devices: *mut *const *const OrtEpDevice, num_ep_devices: *mut usize
        ) -> Status;
        304 SessionOptionsAppendExecutionProvider_V2(
            session_options: *mut OrtSessionOptions, env: *mut OrtEnv, ep_devices: *const *const OrtEpDevice,
            num_ep_devices: usize, ep_option_keys: *const *const c_char, ep_option_vals: *const *const c_char,
            num_ep_options: usize
        ) -> Status;
        307 HardwareDevice_Type(device: *const OrtHardwareDevice) -> OrtHardwareDeviceType;
        308 HardwareDevice_VendorId(device: *const OrtHardwareDevice) -> u32;
        309 HardwareDevice_Vendor(device: *const OrtHardwareDevice) -> *const c_char;
        310 HardwareDevice_DeviceId(device: *const OrtHardwareDevice) -> u32;
        311 HardwareDevice_Metadata(device: *const OrtHardwareDevice) -> *const OrtKeyValuePairs;
        312 EpDevice_EpName(ep_device: *const OrtEpDevice) -> *const c_char;
        313 EpDevice_EpVendor(ep_device: *const OrtEpDevice) -> *const c_char;
        314 EpDevice_EpMetadata(ep_device: *const OrtEpDevice) -> *const OrtKeyValuePairs;
        315 EpDevice_EpOptions(ep_device: *const OrtEpDevice) -> *const OrtKeyValuePairs;
        316 EpDevice_Device(ep_device: *const OrtEpDevice) -> *const OrtHardwareDevice;
        317 GetEpApi() -> *const c_void;
        318 GetTensorSizeInBytes(ort_value: *const OrtValue, size: *mut usize) -> Status;
        319 AllocatorGetStats(ort_allocator: *const OrtAllocator, out: *mut *mut OrtKeyValuePairs) -> Status;
        320 CreateMemoryInfo_V2(
            name: *const c_char, device_type: OrtMemoryInfoDeviceType, vendor_id: u32, device_id: i32,
            mem_type: OrtDeviceMemoryType, alignment: usize, allocator_type: OrtAllocatorType,
            out: *mut *mut OrtMemoryInfo
        ) -> Status;
        321 MemoryInfoGetDeviceMemType(ptr: *const OrtMemoryInfo) -> OrtDeviceMemoryType;
        322 MemoryInfoGetVendorId(ptr: *const OrtMemoryInfo) -> u32;
        323 ValueInfo_GetValueProducer(
            value_info: *const OrtValueInfo, producer_node: *mut *const OrtNode, producer_output_index: *mut usize
        ) -> Status;
        324 ValueInfo_GetValueNumConsumers(value_info: *const OrtValueInfo, num_consumers: *mut usize) -> Status;
        325 ValueInfo_GetValueConsumers(
            value_info: *const OrtValueInfo, nodes: *mut *const OrtNode, input_indices: *mut i64,
            num_consumers: usize
        ) -> Status;
        326 ValueInfo_GetInitializerValue(
            value_info: *const OrtValueInfo, initializer_value: *mut *const OrtValue
        ) -> Status;
        327 ValueInfo_GetExternalInitializerInfo(
            value_info: *const OrtValueInfo, info: *mut *mut OrtExternalInitializerInfo
        ) -> Status;
        328 ValueInfo_IsRequiredGraphInput(
            value_info: *const OrtValueInfo, is_required_graph_input: *mut bool
        ) -> Status;
        329 ValueInfo_IsOptionalGraphInput(
            value_info: *const OrtValueInfo, is_optional_graph_input: *mut bool
        ) -> Status;
        330 ValueInfo_IsGraphOutput(value_info: *const OrtValueInfo, is_graph_output: *mut bool) -> Status;
        331 ValueInfo_IsConstantInitializer(
            value_info: *const OrtValueInfo, is_constant_initializer: *mut bool
        ) -> Status;
        332 ValueInfo_IsFromOuterScope(value_info: *const OrtValueInfo, is_from_outer_scope: *mut bool) -> Status;
        333 Graph_GetName(graph: *const OrtGraph, graph_name: *mut *const c_char) -> Status;
        334 Graph_GetModelPath(graph: *const OrtGraph, model_path: *mut *const os_char) -> Status;
        335 Graph_GetOnnxIRVersion(graph: *const OrtGraph, onnx_ir_version: *mut i64) -> Status;
        336 Graph_GetNumOperatorSets(graph: *const OrtGraph, num_operator_sets: *mut usize) -> Status;
        337 Graph_GetOperatorSets(
            graph: *const OrtGraph, domains: *mut *const c_char, opset_versions: *mut i64, num_operator_sets: usize
        ) -> Status;
        338 Graph_GetNumInputs(graph: *const OrtGraph, num_inputs: *mut usize) -> Status;
        339 Graph_GetInputs(graph: *const OrtGraph, inputs: *mut *const OrtValueInfo, num_inputs: usize) -> Status;
        340 Graph_GetNumOutputs(graph: *const OrtGraph, num_outputs: *mut usize) -> Status;
        341 Graph_GetOutputs(graph: *const OrtGraph, outputs: *mut *const OrtValueInfo, num_outputs: usize) -> Status;
        342 Graph_GetNumInitializers(graph: *const OrtGraph, num_initializers: *mut usize) -> Status;
        343 Graph_GetInitializers(
            graph: *const OrtGraph, initializers: *mut *const OrtValueInfo, num_initializers: usize
        ) -> Status;
        344 Graph_GetNumNodes(graph: *const OrtGraph, num_nodes: *mut usize) -> Status;
        345 Graph_GetNodes(graph: *const OrtGraph, nodes: *mut *const OrtNode, num_nodes: usize) -> Status;
        346 Graph_GetParentNode(graph: *const OrtGraph, node: *mut *const OrtNode) -> Status;
        347 Graph_GetGraphView(
            src_graph: *const OrtGraph, nodes: *mut *const OrtNode, num_nodes: usize, dst_graph: *mut *mut OrtGraph
        ) -> Status;
        348 Node_GetId(node: *const OrtNode, node_id: *mut usize) -> Status;
        349 Node_GetName(node: *const OrtNode, node_name: *mut *const c_char) -> Status;
        350 Node_GetOperatorType(node: *const OrtNode, operator_type: *mut *const c_char) -> Status;
        351 Node_GetDomain(node: *const OrtNode, domain_name: *mut *const c_char) -> Status;
        352 Node_GetSinceVersion(node: *const OrtNode, since_version: *mut i32) -> Status;
        353 Node_GetNumInputs(node: *const OrtNode, num_inputs: *mut usize) -> Status;
        354 Node_GetInputs(node: *const OrtNode, inputs: *mut *const OrtValueInfo, num_inputs: usize) -> Status;
        355 Node_GetNumOutputs(node: *const OrtNode, num_outputs: *mut usize) -> Status;
        356 Node_GetOutputs(node: *const OrtNode, outputs: *mut *const OrtValueInfo, num_outputs: usize) -> Status;
        357 Node_GetNumImplicitInputs(node: *const OrtNode, num_implicit_inputs: *mut usize) -> Status;
        358 Node_GetImplicitInputs(
            node: *const OrtNode, implicit_inputs: *mut *const OrtValueInfo, num_implicit_inputs: usize
        ) -> Status;
        359 Node_GetNumAttributes(node: *const OrtNode, num_attributes: *mut usize) -> Status;
        360 Node_GetAttributes(
            node: *const OrtNode, attributes: *mut *const OrtOpAttr, num_attributes: usize
        ) -> Status;
        361 Node_GetAttributeByName(
            node: *const OrtNode, attribute_name: *const c_char, attribute: *mut *const OrtOpAttr
        ) -> Status;
        362 OpAttr_GetTensorAttributeAsOrtValue(
            attribute: *const OrtOpAttr, attr_tensor: *mut *mut OrtValue
        ) -> Status;
        363 OpAttr_GetType(attribute: *const OrtOpAttr, kind: *mut OrtOpAttrType) -> Status;
        364 OpAttr_GetName(attribute: *const OrtOpAttr, name: *mut *const c_char) -> Status;
        365 Node_GetNumSubgraphs(node: *const OrtNode, num_subgraphs: *mut usize) -> Status;
        366 Node_GetSubgraphs(
            node: *const OrtNode, subgraphs: *mut *const OrtGraph, num_subgraphs: usize,
            attribute_names: *mut *const c_char
        ) -> Status;
        367 Node_GetGraph(node: *const OrtNode, graph: *mut *const OrtGraph) -> Status;
        368 Node_GetEpName(node: *const OrtNode, out: *mut *const c_char) -> Status;
        369 ReleaseExternalInitializerInfo(value: *mut OrtExternalInitializerInfo);
        370 ExternalInitializerInfo_GetFilePath(info: *const OrtExternalInitializerInfo) -> *const os_char;
        371 ExternalInitializerInfo_GetFileOffset(info: *const OrtExternalInitializerInfo) -> i64;
        372 ExternalInitializerInfo_GetByteSize(info: *const OrtExternalInitializerInfo) -> usize;
        373 GetRunConfigEntry(options: *const OrtRunOptions, config_key: *const c_char) -> *const c_char;
        374 EpDevice_MemoryInfo(
            ep_device: *const OrtEpDevice, memory_type: OrtDeviceMemoryType
        ) -> *const OrtMemoryInfo;
        375 CreateSharedAllocator(
            env: *mut OrtEnv, ep_device: *const OrtEpDevice, mem_type: OrtDeviceMemoryType,
            allocator_type: OrtAllocatorType, allocator_options: *const OrtKeyValuePairs,
            allocator: *mut *mut OrtAllocator
        ) -> Status;
        376 GetSharedAllocator(
            env: *mut OrtEnv, mem_info: *const OrtMemoryInfo, allocator: *mut *mut OrtAllocator
        ) -> Status;
        377 ReleaseSharedAllocator(
            env: *mut OrtEnv, ep_device: *const OrtEpDevice, mem_type: OrtDeviceMemoryType
        ) -> Status;
        378 GetTensorData(value: *const OrtValue, out: *mut *const c_void) -> Status;
        379 GetSessionOptionsConfigEntries(
            options: *const OrtSessionOptions, out: *mut *mut OrtKeyValuePairs
        ) -> Status;
        380 SessionGetMemoryInfoForInputs(
            session: *const OrtSession, inputs_memory_info: *mut *const OrtMemoryInfo, num_inputs: usize
        ) -> Status;
        381 SessionGetMemoryInfoForOutputs(
            session: *const OrtSession, outputs_memory_info: *mut *const OrtMemoryInfo, num_outputs: usize
        ) -> Status;
        382 SessionGetEpDeviceForInputs(
            session: *const OrtSession, inputs_ep_devices: *mut *const OrtEpDevice, num_inputs: usize
        ) -> Status;
        383 CreateSyncStreamForEpDevice(
            ep_device: *const OrtEpDevice, stream_options: *const OrtKeyValuePairs, stream: *mut *mut OrtSyncStream
        ) -> Status;
        384 SyncStream_GetHandle(stream: *mut OrtSyncStream) -> *mut c_void;
        385 ReleaseSyncStream(value: *mut OrtSyncStream);
        386 CopyTensors(
            env: *mut OrtEnv, src_tensors: *const *const OrtValue, dst_tensors: *mut *const OrtValue,
            stream: *mut OrtSyncStream, num_tensors: usize
        ) -> Status;
        387 Graph_GetModelMetadata(graph: *mut OrtGraph, out: *mut *mut OrtModelMetadata) -> Status;
        388 GetModelCompatibilityForEpDevices(
            ep_devices: *const *const OrtEpDevice, num_ep_devices: usize, compatibility_info: *const c_char,
            out_status: *mut OrtCompiledModelCompatibility
        ) -> Status;
        390 TensorTypeAndShape_HasShape(info: *const OrtTensorTypeAndShapeInfo) -> bool;
        391 KernelInfo_GetConfigEntries(info: *const OrtKernelInfo, out: *mut *mut OrtKeyValuePairs) -> Status;
        392 KernelInfo_GetOperatorDomain(info: *const OrtKernelInfo, out: *mut c_char, size: *mut usize) -> Status;
        393 KernelInfo_GetOperatorType(info: *const OrtKernelInfo, out: *mut c_char, size: *mut usize) -> Status;
        394 KernelInfo_GetOperatorSinceVersion(info: *const OrtKernelInfo, since_version: *mut i32) -> Status;
        396 SessionGetEpDeviceForOutputs(
            session: *const OrtSession, outputs_ep_devices: *mut *const OrtEpDevice, num_outputs: usize
        ) -> Status;
        397 GetNumHardwareDevices(env: *const OrtEnv, num_devices: *mut usize) -> Status;
        398 GetHardwareDevices(
            env: *const OrtEnv, devices: *mut *const OrtHardwareDevice, num_devices: usize
        ) -> Status;
        399 GetHardwareDeviceEpIncompatibilityDetails(
            env: *const OrtEnv, ep_name: *const c_char, hw: *const OrtHardwareDevice,
            details: *mut *mut OrtDeviceEpIncompatibilityDetails
        ) -> Status;
        400 DeviceEpIncompatibilityDetails_GetReasonsBitmask(
            details: *const OrtDeviceEpIncompatibilityDetails, reasons_bitmask: *mut u32
        ) -> Status;
        401 DeviceEpIncompatibilityDetails_GetNotes(
            details: *const OrtDeviceEpIncompatibilityDetails, notes: *mut *const c_char
        ) -> Status;
        402 DeviceEpIncompatibilityDetails_GetErrorCode(
            details: *const OrtDeviceEpIncompatibilityDetails, error_code: *mut i32
        ) -> Status;
        403 ReleaseDeviceEpIncompatibilityDetails(value: *mut OrtDeviceEpIncompatibilityDetails);
        404 GetCompatibilityInfoFromModel(
            model_path: *const os_char, ep_type: *const c_char, allocator: *mut OrtAllocator,
            compatibility_info: *mut *mut c_char
        ) -> Status;
        405 GetCompatibilityInfoFromModelBytes(
            model_data: *const c_void, model_data_length: usize, ep_type: *const c_char,
            allocator: *mut OrtAllocator, compatibility_info: *mut *mut c_char
        ) -> Status;
        406 CreateEnvWithOptions(options: *const OrtEnvCreationOptions, out: *mut *mut OrtEnv) -> Status;
        407 Session_GetEpGraphAssignmentInfo(
            session: *const OrtSession, ep_subgraphs: *mut *const *const OrtEpAssignedSubgraph,
            num_ep_subgraphs: *mut usize
        ) -> Status;
        408 EpAssignedSubgraph_GetEpName(
            ep_subgraph: *const OrtEpAssignedSubgraph, out: *mut *const c_char
        ) -> Status;
        409 EpAssignedSubgraph_GetNodes(
            ep_subgraph: *const OrtEpAssignedSubgraph, ep_nodes: *mut *const *const OrtEpAssignedNode,
            num_ep_nodes: *mut usize
        ) -> Status;
        410 EpAssignedNode_GetName(ep_node: *const OrtEpAssignedNode, out: *mut *const c_char) -> Status;
        411 EpAssignedNode_GetDomain(ep_node: *const OrtEpAssignedNode, out: *mut *const c_char) -> Status;
        412 EpAssignedNode_GetOperatorType(ep_node: *const OrtEpAssignedNode, out: *mut *const c_char) -> Status;
        413 RunOptionsSetSyncStream(options: *mut OrtRunOptions, sync_stream: *mut OrtSyncStream);
        414 GetTensorElementTypeAndShapeDataReference(
            value: *const OrtValue, elem_type: *mut ONNXTensorElementDataType, shape_data: *mut *const i64,
            shape_data_count: *mut usize
        ) -> Status;
    }
    since 25 {
        415 RunOptionsEnableProfiling(options: *mut OrtRunOptions, profile_file_prefix: *const os_char) -> Status;
        416 RunOptionsDisableProfiling(options: *mut OrtRunOptions) -> Status;
        417 KernelInfoGetAttributeArray_string(
            info: *const OrtKernelInfo, name: *const c_char, allocator: *mut OrtAllocator,
            out: *mut *mut *mut c_char, size: *mut usize
        ) -> Status;
    }
    since 27 {
        419 GetMemPatternEnabled(options: *const OrtSessionOptions, out: *mut c_int) -> Status;
        420 GetSessionExecutionMode(options: *const OrtSessionOptions, out: *mut ExecutionMode) -> Status;
        421 SessionReleaseCapturedGraph(session: *mut OrtSession, graph_annotation_id: c_int) -> Status;
    }
    since 28 {
        422 GetExperimentalFunction(name: *const c_char) -> *const c_void;
        423 KernelContext_GetSyncStream(context: *const OrtKernelContext, out: *mut *mut OrtSyncStream) -> Status;
    }
    since 29 {
        424 SessionOptionsSetWeightlessSourceModelBuffer(
            options: *mut OrtSessionOptions, source_model_data: *const c_void, source_model_data_length: usize
        ) -> Status;
    }
    since 30 {
        425 KernelContext_GetPreallocatedOutput(
            context: *const OrtKernelContext, output_index: usize, output: *mut *mut OrtValue
        ) -> Status;
    }
    since 31 {
        426 SessionOptionsSetEpContextDataReadFunc(
            options: *mut OrtSessionOptions, read_func: OrtReadNamedBufferFunc, state: *mut c_void
        ) -> Status;
    }
}
