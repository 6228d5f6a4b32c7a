//! Nodes and graphs built by the plugin (EPContext nodes, mostly).
use core::ffi::{c_char, c_void};

use crate::types::*;

functions! {
    /// Builds nodes and graphs.
    ModelEditorApi
    always {
        0 CreateTensorTypeInfo(
            tensor_info: *const OrtTensorTypeAndShapeInfo, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        1 CreateSparseTensorTypeInfo(
            tensor_info: *const OrtTensorTypeAndShapeInfo, type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        2 CreateMapTypeInfo(
            map_key_type: ONNXTensorElementDataType, map_value_type: *const OrtTypeInfo,
            type_info: *mut *mut OrtTypeInfo
        ) -> Status;
        3 CreateSequenceTypeInfo(sequence_type: *const OrtTypeInfo, type_info: *mut *mut OrtTypeInfo) -> Status;
        4 CreateOptionalTypeInfo(contained_type: *const OrtTypeInfo, type_info: *mut *mut OrtTypeInfo) -> Status;
        5 CreateValueInfo(
            name: *const c_char, type_info: *const OrtTypeInfo, value_info: *mut *mut OrtValueInfo
        ) -> Status;
        6 CreateNode(
            operator_name: *const c_char, domain_name: *const c_char, node_name: *const c_char,
            input_names: *const *const c_char, input_names_len: usize, output_names: *const *const c_char,
            output_names_len: usize, attributes: *mut *mut OrtOpAttr, attribs_len: usize, node: *mut *mut OrtNode
        ) -> Status;
        7 CreateGraph(graph: *mut *mut OrtGraph) -> Status;
        8 SetGraphInputs(graph: *mut OrtGraph, inputs: *mut *mut OrtValueInfo, inputs_len: usize) -> Status;
        9 SetGraphOutputs(graph: *mut OrtGraph, outputs: *mut *mut OrtValueInfo, outputs_len: usize) -> Status;
        10 AddInitializerToGraph(
            graph: *mut OrtGraph, name: *const c_char, tensor: *mut OrtValue, data_is_external: bool
        ) -> Status;
        11 AddNodeToGraph(graph: *mut OrtGraph, node: *mut OrtNode) -> Status;
        12 CreateModel(
            domain_names: *const *const c_char, opset_versions: *const i32, opset_entries_len: usize,
            model: *mut *mut OrtModel
        ) -> Status;
        13 AddGraphToModel(model: *mut OrtModel, graph: *mut OrtGraph) -> Status;
        14 CreateSessionFromModel(
            env: *const OrtEnv, model: *const OrtModel, options: *const OrtSessionOptions, out: *mut *mut OrtSession
        ) -> Status;
        15 CreateModelEditorSession(
            env: *const OrtEnv, model_path: *const os_char, options: *const OrtSessionOptions,
            out: *mut *mut OrtSession
        ) -> Status;
        16 CreateModelEditorSessionFromArray(
            env: *const OrtEnv, model_data: *const c_void, model_data_length: usize,
            options: *const OrtSessionOptions, out: *mut *mut OrtSession
        ) -> Status;
        17 SessionGetOpsetForDomain(session: *const OrtSession, domain: *const c_char, opset: *mut i32) -> Status;
        18 ApplyModelToModelEditorSession(session: *mut OrtSession, model: *mut OrtModel) -> Status;
        19 FinalizeModelEditorSession(
            session: *mut OrtSession, options: *const OrtSessionOptions,
            prepacked_weights_container: *const OrtPrepackedWeightsContainer
        ) -> Status;
    }
}
