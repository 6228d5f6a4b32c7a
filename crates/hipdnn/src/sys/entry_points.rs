//! The 38 functions of the library, declared once.

/// Passes the list of entry points to a macro: one line per function, as `method = symbol(arguments) -> result`.
#[doc(hidden)]
#[macro_export]
macro_rules! with_entry_points {
    ($macro:path) => {
        $macro! {
            create = hipdnnCreate(handle: *mut Handle) -> Status;
            destroy = hipdnnDestroy(handle: Handle) -> Status;
            set_stream = hipdnnSetStream(handle: Handle, stream: *mut c_void) -> Status;
            get_stream = hipdnnGetStream(handle: Handle, stream: *mut *mut c_void) -> Status;
            create_descriptor = hipdnnBackendCreateDescriptor(kind: DescriptorType, descriptor: *mut Descriptor) -> Status;
            destroy_descriptor = hipdnnBackendDestroyDescriptor(descriptor: Descriptor) -> Status;
            execute = hipdnnBackendExecute(handle: Handle, plan: Descriptor, pack: Descriptor) -> Status;
            finalize = hipdnnBackendFinalize(descriptor: Descriptor) -> Status;
            get_attribute = hipdnnBackendGetAttribute(descriptor: Descriptor, name: AttributeName, kind: AttributeType, requested: i64, count: *mut i64, elements: *mut c_void) -> Status;
            set_attribute = hipdnnBackendSetAttribute(descriptor: Descriptor, name: AttributeName, kind: AttributeType, count: i64, elements: *const c_void) -> Status;
            error_string = hipdnnGetErrorString(status: Status) -> *const c_char;
            last_error_string = hipdnnGetLastErrorString(message: *mut c_char, size: usize) -> ();
            peek_last_error_string = hipdnnPeekLastErrorString_ext(message: *mut c_char, size: usize) -> ();
            deserialize_graph = hipdnnBackendCreateAndDeserializeGraph_ext(descriptor: *mut Descriptor, bytes: *const u8, size: usize) -> Status;
            serialized_graph = hipdnnBackendGetSerializedBinaryGraph_ext(graph: Descriptor, requested: usize, size: *mut usize, bytes: *mut u8) -> Status;
            serialized_json_graph = hipdnnBackendGetSerializedJsonGraph_ext(graph: Descriptor, requested: usize, size: *mut usize, text: *mut c_char) -> Status;
            serialized_plan = hipdnnBackendGetSerializedExecutionPlan_ext(plan: Descriptor, requested: usize, size: *mut usize, bytes: *mut u8) -> Status;
            deserialize_plan = hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle: Handle, plan: *mut Descriptor, bytes: *const u8, size: usize) -> Status;
            serialized_graph_and_plan = hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph: Descriptor, plan: Descriptor, requested: usize, size: *mut usize, bytes: *mut u8) -> Status;
            serialized_contents = hipdnnBackendGetSerializedBinaryContents_ext(bytes: *const u8, size: usize, flags: *mut c_int) -> Status;
            deserialize_json_graph = hipdnnBackendCreateAndDeserializeJsonGraph_ext(descriptor: *mut Descriptor, text: *const c_char, size: usize) -> Status;
            log = hipdnnLoggingCallback_ext(severity: Severity, message: *const c_char) -> ();
            set_engine_plugin_paths = hipdnnSetEnginePluginPaths_ext(count: usize, paths: *const *const c_char, mode: PluginLoadingMode) -> Status;
            set_heuristic_plugin_paths = hipdnnSetHeuristicPluginPaths_ext(count: usize, paths: *const *const c_char, mode: PluginLoadingMode) -> Status;
            set_plugin_unload_mode = hipdnnSetPluginUnloadMode_ext(mode: PluginUnloadingMode) -> Status;
            loaded_engine_plugin_paths = hipdnnGetLoadedEnginePluginPaths_ext(handle: Handle, count: *mut usize, paths: *mut *mut c_char, longest: *mut usize) -> Status;
            set_user_log_callback = hipdnnSetUserLogCallback_ext(callback: Option<UserLogCallback>, least: Severity, mode: LogCallbackMode, user: *mut c_void) -> Status;
            set_global_log_level = hipdnnBackendSetGlobalLogLevel_ext(level: Severity) -> Status;
            global_log_level = hipdnnBackendGetGlobalLogLevel_ext(level: *mut Severity) -> Status;
            engine_count = hipdnnGetEngineCount_ext(handle: Handle, count: *mut usize) -> Status;
            engine_info = hipdnnGetEngineInfo_ext(handle: Handle, index: usize, id: *mut i64, name: *mut c_char, name_size: *mut usize, plugin: *mut c_char, plugin_size: *mut usize, version: *mut c_char, version_size: *mut usize, kind: *mut c_char, kind_size: *mut usize) -> Status;
            engine_id_by_name = hipdnnGetEngineIdByName_ext(handle: Handle, name: *const c_char, id: *mut i64) -> Status;
            engine_name_by_id = hipdnnGetEngineNameById_ext(handle: Handle, id: i64, name: *mut c_char, size: *mut usize) -> Status;
            heuristic_policy_count = hipdnnGetHeuristicPolicyCount_ext(handle: Handle, count: *mut usize) -> Status;
            heuristic_policy_info = hipdnnGetHeuristicPolicyInfo_ext(handle: Handle, index: usize, id: *mut i64, name: *mut c_char, name_size: *mut usize, plugin: *mut c_char, plugin_size: *mut usize, version: *mut c_char, version_size: *mut usize, api_version: *mut c_char, api_version_size: *mut usize) -> Status;
            write_engine_ranking = hipdnnBackendWriteEngineRankingResults_ext(handle: Handle, graph: Descriptor, ids: *const i64, count: usize, outcome: *mut RankingOutcome) -> Status;
            version = hipdnnGetVersion_ext(version: *mut *const c_char) -> Status;
            version_string = hipdnnVersionString_ext() -> *const c_char;
        }
    };
}
