//! Opaque handles, and enums as integers.

/// A status of the runtime: null means success.
pub type Status = *mut OrtStatus;

/// A character of a file path: bytes on Unix, UTF-16 on Windows.
#[cfg(not(windows))]
pub type os_char = core::ffi::c_char;
/// A character of a file path: bytes on Unix, UTF-16 on Windows.
#[cfg(windows)]
pub type os_char = u16;

macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub struct $name {
                opaque: [u8; 0],
                // Neither Send, Sync nor Unpin: only the runtime knows what is behind the pointer.
                marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
            }
        )*
    };
}

opaque! {
    OrtCustomOpDomain OrtDataType OrtDeviceEpIncompatibilityDetails OrtEnv OrtEnvCreationOptions
    OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextConfig OrtEpDevice OrtEpGraphSupportInfo
    OrtExternalInitializerInfo OrtGraph OrtHardwareDevice OrtIoBinding OrtKernelContext OrtKernelDef
    OrtKernelDefBuilder OrtKernelInfo OrtKernelRegistry OrtKeyValuePairs OrtLogger OrtMemoryDevice
    OrtMemoryInfo OrtModel OrtModelMetadata OrtNode OrtNodeComputeContext OrtOpAttr OrtOpSchema
    OrtOpSchemaTypeConstraint OrtPrepackedWeightsContainer OrtProfilingEvent OrtProfilingEventsContainer
    OrtRunOptions OrtSession OrtSessionOptions OrtSharedPrePackedWeightCache OrtStatus OrtSyncStream
    OrtTensorTypeAndShapeInfo OrtTypeInfo OrtValue OrtValueInfo
}

macro_rules! enums {
    ($($(#[$doc:meta])* $name:ident: $repr:ty { $($constant:ident = $value:expr),* $(,)? })*) => {
        $($(#[$doc])* pub type $name = $repr; $(pub const $constant: $name = $value;)*)*
    };
}

enums! {
    OrtErrorCode: i32 {
        ORT_OK = 0, ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NO_SUCHFILE = 3, ORT_NO_MODEL = 4,
        ORT_ENGINE_ERROR = 5, ORT_RUNTIME_EXCEPTION = 6, ORT_INVALID_PROTOBUF = 7, ORT_MODEL_LOADED = 8,
        ORT_NOT_IMPLEMENTED = 9, ORT_INVALID_GRAPH = 10, ORT_EP_FAIL = 11, ORT_MODEL_LOAD_CANCELED = 12,
        ORT_MODEL_REQUIRES_COMPILATION = 13, ORT_NOT_FOUND = 14, ORT_DEVICE_RESET = 15,
    }
    OrtLoggingLevel: i32 {
        ORT_LOGGING_LEVEL_VERBOSE = 0, ORT_LOGGING_LEVEL_INFO = 1, ORT_LOGGING_LEVEL_WARNING = 2,
        ORT_LOGGING_LEVEL_ERROR = 3, ORT_LOGGING_LEVEL_FATAL = 4,
    }
    ONNXType: i32 {
        ONNX_TYPE_UNKNOWN = 0, ONNX_TYPE_TENSOR = 1, ONNX_TYPE_SEQUENCE = 2, ONNX_TYPE_MAP = 3, ONNX_TYPE_OPAQUE = 4,
        ONNX_TYPE_SPARSETENSOR = 5, ONNX_TYPE_OPTIONAL = 6,
    }
    ONNXTensorElementDataType: i32 {
        ONNX_UNDEFINED = 0, ONNX_FLOAT = 1, ONNX_UINT8 = 2, ONNX_INT8 = 3, ONNX_UINT16 = 4, ONNX_INT16 = 5,
        ONNX_INT32 = 6, ONNX_INT64 = 7, ONNX_STRING = 8, ONNX_BOOL = 9, ONNX_FLOAT16 = 10, ONNX_DOUBLE = 11,
        ONNX_UINT32 = 12, ONNX_UINT64 = 13, ONNX_COMPLEX64 = 14, ONNX_COMPLEX128 = 15, ONNX_BFLOAT16 = 16,
        ONNX_FLOAT8E4M3FN = 17, ONNX_FLOAT8E4M3FNUZ = 18, ONNX_FLOAT8E5M2 = 19, ONNX_FLOAT8E5M2FNUZ = 20,
        ONNX_UINT4 = 21, ONNX_INT4 = 22, ONNX_FLOAT4E2M1 = 23, ONNX_UINT2 = 24, ONNX_INT2 = 25,
        ONNX_FLOAT8E8M0 = 26,
    }
    OrtEpDataLayout: i32 { ORT_LAYOUT_NCHW = 0, ORT_LAYOUT_NHWC = 1 }
    /// Since API 26.
    OrtGraphCaptureNodeAssignmentPolicy: i32 { ORT_CAPTURE_ALL_NODES_ON_EP = 0, ORT_CAPTURE_ALLOW_CPU_FOR_SHAPES = 1 }
    /// Since API 29.
    OrtWeightlessSupport: i32 { ORT_WEIGHTLESS_NONE = 0, ORT_WEIGHTLESS_EXTERNAL_ONLY = 1, ORT_WEIGHTLESS_ALL = 2 }
    /// Since API 25.
    OrtProfilingEventCategory: i32 {
        ORT_PROFILING_SESSION = 0, ORT_PROFILING_NODE = 1, ORT_PROFILING_KERNEL = 2, ORT_PROFILING_API = 3,
    }
    /// Since API 26.
    OrtResourceCountKind: u32 { ORT_RESOURCE_NONE = 0, ORT_RESOURCE_TOTAL_BYTES = 1 }
    /// Bits, since API 31.
    OrtEpContextDataCallbacks: u32 { ORT_EP_CONTEXT_DATA_READ = 1, ORT_EP_CONTEXT_DATA_WRITE = 2 }
    OrtMemoryInfoDeviceType: i32 { ORT_DEVICE_CPU = 0, ORT_DEVICE_GPU = 1, ORT_DEVICE_FPGA = 2, ORT_DEVICE_NPU = 3 }
    OrtDeviceMemoryType: i32 { ORT_MEMORY_DEFAULT = 0, ORT_MEMORY_HOST_ACCESSIBLE = 5 }
    OrtAllocatorType: i32 {
        ORT_ALLOCATOR_INVALID = -1, ORT_ALLOCATOR_DEVICE = 0, ORT_ALLOCATOR_ARENA = 1, ORT_ALLOCATOR_READ_ONLY = 2,
    }
    OrtMemType: i32 { ORT_MEM_CPU_INPUT = -2, ORT_MEM_CPU_OUTPUT = -1, ORT_MEM_DEFAULT = 0 }
    OrtHardwareDeviceType: i32 { ORT_HARDWARE_CPU = 0, ORT_HARDWARE_GPU = 1, ORT_HARDWARE_NPU = 2 }
    /// Bits.
    OrtDeviceEpIncompatibilityReason: u32 {
        ORT_INCOMPATIBLE_NONE = 0, ORT_INCOMPATIBLE_DRIVER = 1, ORT_INCOMPATIBLE_DEVICE = 2,
        ORT_INCOMPATIBLE_MISSING_DEPENDENCY = 4, ORT_INCOMPATIBLE_UNKNOWN = 1 << 31,
    }
    OrtCompiledModelCompatibility: i32 {
        ORT_COMPILED_NOT_APPLICABLE = 0, ORT_COMPILED_OPTIMAL = 1, ORT_COMPILED_PREFER_RECOMPILATION = 2,
        ORT_COMPILED_UNSUPPORTED = 3,
    }
    OrtExternalMemoryHandleType: i32 {
        ORT_EXTERNAL_MEMORY_D3D12_RESOURCE = 0, ORT_EXTERNAL_MEMORY_D3D12_HEAP = 1,
        ORT_EXTERNAL_MEMORY_VK_WIN32 = 2, ORT_EXTERNAL_MEMORY_VK_OPAQUE_FD = 3,
    }
    OrtExternalSemaphoreType: i32 {
        ORT_EXTERNAL_SEMAPHORE_D3D12_FENCE = 0, ORT_EXTERNAL_SEMAPHORE_VK_TIMELINE_WIN32 = 1,
        ORT_EXTERNAL_SEMAPHORE_VK_TIMELINE_OPAQUE_FD = 2,
    }
    OrtGraphicsApi: i32 { ORT_GRAPHICS_NONE = 0, ORT_GRAPHICS_D3D12 = 1, ORT_GRAPHICS_VULKAN = 2 }
    OrtOpAttrType: i32 {
        ORT_OP_ATTR_UNDEFINED = 0, ORT_OP_ATTR_INT = 1, ORT_OP_ATTR_INTS = 2, ORT_OP_ATTR_FLOAT = 3,
        ORT_OP_ATTR_FLOATS = 4, ORT_OP_ATTR_STRING = 5, ORT_OP_ATTR_STRINGS = 6, ORT_OP_ATTR_GRAPH = 7,
        ORT_OP_ATTR_TENSOR = 8,
    }
    ExecutionMode: i32 { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 }
    GraphOptimizationLevel: i32 {
        ORT_DISABLE_ALL = 0, ORT_ENABLE_BASIC = 1, ORT_ENABLE_EXTENDED = 2, ORT_ENABLE_LAYOUT = 3, ORT_ENABLE_ALL = 99,
    }
}
