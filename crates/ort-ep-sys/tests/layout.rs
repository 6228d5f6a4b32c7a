//! Compares every position bound here with the `ort-sys` crate, which others wrote from the same headers.
use ort_ep_sys::{Api, EpApi, MAX_API_VERSION, MIN_API_VERSION, ModelEditorApi, OrtAllocator};

const WORD: usize = size_of::<usize>();

/// The (name, position) pairs of a table in `ort-sys`.
macro_rules! positions {
    ($table:ident: $($name:ident)*) => {
        vec![$((stringify!($name), std::mem::offset_of!(ort_sys::$table, $name) / WORD)),*]
    };
}

fn bound(slots: &'static [(&'static str, usize, u32)]) -> Vec<(&'static str, usize)> {
    slots.iter().map(|&(name, index, _)| (name, index)).collect()
}

#[test]
fn main_table_matches_ort_sys() {
    let theirs = positions! { OrtApi:
    CreateStatus GetErrorCode GetErrorMessage CreateEnv DisableTelemetryEvents CreateSession CreateSessionFromArray
    Run CreateSessionOptions SetOptimizedModelFilePath CloneSessionOptions SetSessionExecutionMode EnableProfiling DisableProfiling
    EnableMemPattern DisableMemPattern EnableCpuMemArena DisableCpuMemArena SetSessionLogId
    SetSessionLogVerbosityLevel SetSessionLogSeverityLevel SetSessionGraphOptimizationLevel SetIntraOpNumThreads
    SetInterOpNumThreads CreateCustomOpDomain AddCustomOpDomain SessionGetInputCount SessionGetOutputCount
    SessionGetInputTypeInfo SessionGetOutputTypeInfo SessionGetInputName SessionGetOutputName CreateRunOptions
    RunOptionsSetRunLogVerbosityLevel RunOptionsSetRunLogSeverityLevel RunOptionsGetRunLogVerbosityLevel
    RunOptionsGetRunLogSeverityLevel RunOptionsSetTerminate RunOptionsUnsetTerminate CreateTensorAsOrtValue
    CreateTensorWithDataAsOrtValue IsTensor
    GetTensorMutableData FillStringTensor GetStringTensorDataLength GetStringTensorContent CastTypeInfoToTensorInfo
    GetOnnxTypeFromTypeInfo CreateTensorTypeAndShapeInfo SetTensorElementType SetDimensions GetTensorElementType
    GetDimensionsCount GetDimensions GetSymbolicDimensions GetTensorShapeElementCount GetTensorTypeAndShape
    GetTypeInfo GetValueType CreateMemoryInfo CreateCpuMemoryInfo CompareMemoryInfo MemoryInfoGetName MemoryInfoGetId
    MemoryInfoGetMemType MemoryInfoGetType AllocatorAlloc AllocatorFree AllocatorGetInfo
    GetAllocatorWithDefaultOptions KernelInfoGetAttribute_float KernelInfoGetAttribute_int64
    KernelInfoGetAttribute_string KernelContext_GetInputCount KernelContext_GetOutputCount KernelContext_GetInput
    KernelContext_GetOutput ReleaseEnv ReleaseStatus ReleaseMemoryInfo ReleaseSession ReleaseValue ReleaseRunOptions
    ReleaseTypeInfo ReleaseTensorTypeAndShapeInfo ReleaseSessionOptions ReleaseCustomOpDomain
    GetDenotationFromTypeInfo SessionEndProfiling SessionGetModelMetadata ModelMetadataGetProducerName
    ModelMetadataGetGraphName ModelMetadataGetDomain ModelMetadataGetDescription ModelMetadataLookupCustomMetadataMap
    ModelMetadataGetVersion ReleaseModelMetadata DisablePerSessionThreads ModelMetadataGetCustomMetadataMapKeys
    AddFreeDimensionOverrideByName GetStringTensorElementLength GetStringTensorElement FillStringTensorElement
    AddSessionConfigEntry CreateAllocator ReleaseAllocator RunWithBinding CreateIoBinding ReleaseIoBinding BindInput BindOutput BindOutputToDevice
    GetBoundOutputNames GetBoundOutputValues ClearBoundInputs ClearBoundOutputs SessionGetProfilingStartTimeNs
    AddInitializer ModelMetadataGetGraphDescription KernelInfoGetAttributeArray_float
    KernelInfoGetAttributeArray_int64 AddRunConfigEntry RegisterAllocator UnregisterAllocator HasValue
    KernelContext_GetGPUComputeStream GetTensorMemoryInfo SynchronizeBoundInputs SynchronizeBoundOutputs CreateOpAttr
    ReleaseOpAttr SessionOptionsAppendExecutionProvider CopyKernelInfo ReleaseKernelInfo MemoryInfoGetDeviceType
    KernelInfo_GetInputCount KernelInfo_GetOutputCount KernelInfo_GetInputName KernelInfo_GetOutputName
    KernelInfo_GetInputTypeInfo KernelInfo_GetOutputTypeInfo KernelInfoGetAttribute_tensor HasSessionConfigEntry
    GetSessionConfigEntry KernelInfo_GetNodeName KernelInfo_GetLogger KernelContext_GetLogger Logger_LogMessage
    Logger_GetLoggingSeverityLevel KernelInfoGetConstantInput_tensor GetResizedStringTensorElementBuffer
    KernelContext_GetAllocator GetBuildInfoString KernelContext_GetResource ReadOpAttr KernelContext_ParallelFor
    KernelContext_GetScratchBuffer KernelInfoGetAllocator SetEpDynamicOptions ReleaseValueInfo ReleaseNode
    ReleaseGraph ReleaseModel GetValueInfoName GetValueInfoTypeInfo GetModelEditorApi CreateKeyValuePairs
    AddKeyValuePair GetKeyValue GetKeyValuePairs RemoveKeyValuePair ReleaseKeyValuePairs
    RegisterExecutionProviderLibrary UnregisterExecutionProviderLibrary GetEpDevices
    SessionOptionsAppendExecutionProvider_V2 HardwareDevice_Type HardwareDevice_VendorId HardwareDevice_Vendor
    HardwareDevice_DeviceId HardwareDevice_Metadata EpDevice_EpName EpDevice_EpVendor EpDevice_EpMetadata
    EpDevice_EpOptions EpDevice_Device GetEpApi GetTensorSizeInBytes AllocatorGetStats CreateMemoryInfo_V2
    MemoryInfoGetDeviceMemType MemoryInfoGetVendorId ValueInfo_GetValueProducer ValueInfo_GetValueNumConsumers
    ValueInfo_GetValueConsumers ValueInfo_GetInitializerValue ValueInfo_GetExternalInitializerInfo
    ValueInfo_IsRequiredGraphInput ValueInfo_IsOptionalGraphInput ValueInfo_IsGraphOutput
    ValueInfo_IsConstantInitializer ValueInfo_IsFromOuterScope Graph_GetName Graph_GetModelPath Graph_GetOnnxIRVersion
    Graph_GetNumOperatorSets Graph_GetOperatorSets Graph_GetNumInputs Graph_GetInputs Graph_GetNumOutputs
    Graph_GetOutputs Graph_GetNumInitializers Graph_GetInitializers Graph_GetNumNodes Graph_GetNodes
    Graph_GetParentNode Graph_GetGraphView Node_GetId Node_GetName Node_GetOperatorType Node_GetDomain
    Node_GetSinceVersion Node_GetNumInputs Node_GetInputs Node_GetNumOutputs Node_GetOutputs Node_GetNumImplicitInputs
    Node_GetImplicitInputs Node_GetNumAttributes Node_GetAttributes Node_GetAttributeByName
    OpAttr_GetTensorAttributeAsOrtValue OpAttr_GetType OpAttr_GetName Node_GetNumSubgraphs Node_GetSubgraphs
    Node_GetGraph Node_GetEpName ReleaseExternalInitializerInfo ExternalInitializerInfo_GetFilePath
    ExternalInitializerInfo_GetFileOffset ExternalInitializerInfo_GetByteSize GetRunConfigEntry EpDevice_MemoryInfo
    CreateSharedAllocator GetSharedAllocator ReleaseSharedAllocator GetTensorData GetSessionOptionsConfigEntries
    SessionGetMemoryInfoForInputs SessionGetMemoryInfoForOutputs SessionGetEpDeviceForInputs
    CreateSyncStreamForEpDevice SyncStream_GetHandle ReleaseSyncStream CopyTensors Graph_GetModelMetadata
    GetModelCompatibilityForEpDevices TensorTypeAndShape_HasShape KernelInfo_GetConfigEntries
    KernelInfo_GetOperatorDomain KernelInfo_GetOperatorType KernelInfo_GetOperatorSinceVersion
    SessionGetEpDeviceForOutputs GetNumHardwareDevices GetHardwareDevices GetHardwareDeviceEpIncompatibilityDetails
    DeviceEpIncompatibilityDetails_GetReasonsBitmask DeviceEpIncompatibilityDetails_GetNotes
    DeviceEpIncompatibilityDetails_GetErrorCode ReleaseDeviceEpIncompatibilityDetails GetCompatibilityInfoFromModel
    GetCompatibilityInfoFromModelBytes CreateEnvWithOptions Session_GetEpGraphAssignmentInfo
    EpAssignedSubgraph_GetEpName EpAssignedSubgraph_GetNodes EpAssignedNode_GetName EpAssignedNode_GetDomain
    EpAssignedNode_GetOperatorType RunOptionsSetSyncStream GetTensorElementTypeAndShapeDataReference
    RunOptionsEnableProfiling RunOptionsDisableProfiling KernelInfoGetAttributeArray_string GetMemPatternEnabled
    GetSessionExecutionMode SessionReleaseCapturedGraph GetExperimentalFunction KernelContext_GetSyncStream
    SessionOptionsSetWeightlessSourceModelBuffer KernelContext_GetPreallocatedOutput
    SessionOptionsSetEpContextDataReadFunc
    };
    assert_eq!(bound(Api::SLOTS), theirs);
}

#[test]
fn model_editor_table_matches_ort_sys() {
    let theirs = positions! { OrtModelEditorApi:
    CreateTensorTypeInfo CreateSparseTensorTypeInfo CreateMapTypeInfo CreateSequenceTypeInfo CreateOptionalTypeInfo
    CreateValueInfo CreateNode CreateGraph SetGraphInputs SetGraphOutputs AddInitializerToGraph AddNodeToGraph
    CreateModel AddGraphToModel CreateSessionFromModel CreateModelEditorSession CreateModelEditorSessionFromArray
    SessionGetOpsetForDomain ApplyModelToModelEditorSession FinalizeModelEditorSession
    };
    assert_eq!(bound(ModelEditorApi::SLOTS), theirs);
}

#[test]
fn allocator_matches_ort_sys() {
    assert_eq!(size_of::<OrtAllocator>(), size_of::<ort_sys::OrtAllocator>());
    let ours = [
        std::mem::offset_of!(OrtAllocator, Alloc),
        std::mem::offset_of!(OrtAllocator, Free),
        std::mem::offset_of!(OrtAllocator, Info),
        std::mem::offset_of!(OrtAllocator, Reserve),
        std::mem::offset_of!(OrtAllocator, GetStats),
        std::mem::offset_of!(OrtAllocator, AllocOnStream),
        std::mem::offset_of!(OrtAllocator, Shrink),
    ];
    let theirs = positions! { OrtAllocator: Alloc Free Info Reserve GetStats AllocOnStream Shrink };
    assert_eq!(ours.map(|offset| offset / WORD).to_vec(), theirs.iter().map(|(_, index)| *index).collect::<Vec<_>>());
}

#[test]
fn enum_values_match_ort_sys() {
    use ort_ep_sys as ours;
    use ort_sys::{ONNXTensorElementDataType as Element, OrtErrorCode as Code, OrtOpAttrType as Attr};
    assert_eq!(ours::ONNX_FLOAT, Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT as i32);
    assert_eq!(ours::ONNX_STRING, Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING as i32);
    assert_eq!(ours::ONNX_BFLOAT16, Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 as i32);
    assert_eq!(ours::ONNX_INT4, Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 as i32);
    assert_eq!(ours::ORT_EP_FAIL, Code::ORT_EP_FAIL as i32);
    assert_eq!(ours::ORT_NOT_FOUND, Code::ORT_NOT_FOUND as i32);
    assert_eq!(ours::ORT_OP_ATTR_INTS, Attr::ORT_OP_ATTR_INTS as i32);
    assert_eq!(ours::ORT_OP_ATTR_TENSOR, Attr::ORT_OP_ATTR_TENSOR as i32);
}

/// The lengths of the provider table by release, as published with each release's header (1.31: from the binary).
#[test]
fn ep_table_grows_as_released() {
    let slots_in = |version: u32| EpApi::SLOTS.iter().filter(|(_, _, since)| *since <= version).count();
    let lengths: Vec<usize> = (MIN_API_VERSION..=MAX_API_VERSION).map(slots_in).collect();
    assert_eq!(lengths, [50, 73, 73, 73, 73, 74, 74, 78]);
    for (position, (name, index, _)) in EpApi::SLOTS.iter().enumerate() {
        assert_eq!(position, *index, "{name}");
    }
}

#[test]
fn a_table_filled_for_an_older_version_hides_newer_slots() {
    use ort_ep_sys::OrtEp;
    unsafe extern "system" fn sync(_: *mut OrtEp) -> ort_ep_sys::Status {
        std::ptr::null_mut()
    }
    for version in MIN_API_VERSION..=MAX_API_VERSION {
        let mut ep = OrtEp::empty(version);
        ep.Sync = Some(sync);
        // SAFETY: `ep` is a full-size table on this stack frame.
        assert_eq!(unsafe { OrtEp::Sync(&ep) }.is_some(), version >= 25);
    }
}
