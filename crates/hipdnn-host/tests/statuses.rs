//! Every mistake gets the status that hipDNN documents for it.
#![allow(clippy::unwrap_used)]
#[path = "common/caller.rs"]
mod caller;
mod common;

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use hipdnn::sys::{
    AttributeName as A, AttributeType as T, BehaviorNote, DataType, DescriptorType as D, LogCallbackMode,
    PluginLoadingMode, PluginUnloadingMode, RankingOutcome, Severity, Status,
};

use caller::Caller;
use common::backend;

const NULL: *mut c_void = ptr::null_mut();

fn nowhere() -> *mut c_void {
    ptr::without_provenance_mut(0x1234_5670)
}

fn caller() -> Caller {
    Caller(backend())
}

#[test]
fn null_and_unknown_pointers() {
    let caller = caller();
    let (backend, handle) = (&caller.0, caller.handle());
    let mut stream = NULL;
    // SAFETY: the test passes null and unknown pointers on purpose.
    unsafe {
        for status in [
            backend.create(ptr::null_mut()),
            backend.destroy(NULL),
            backend.destroy(nowhere()),
            backend.set_stream(NULL, NULL),
            backend.get_stream(NULL, &mut stream),
            backend.get_stream(handle, ptr::null_mut()),
            backend.create_descriptor(D::TENSOR_DESCRIPTOR, ptr::null_mut()),
            backend.destroy_descriptor(NULL),
            backend.destroy_descriptor(nowhere()),
            backend.execute(NULL, NULL, NULL),
            backend.execute(handle, nowhere(), nowhere()),
            backend.finalize(NULL),
            backend.set_attribute(NULL, A::TENSOR_UNIQUE_ID, T::INT64, 1, NULL),
            backend.get_attribute(NULL, A::TENSOR_UNIQUE_ID, T::INT64, 1, ptr::null_mut(), NULL),
            backend.version(ptr::null_mut()),
            backend.engine_count(NULL, ptr::null_mut()),
            backend.engine_count(handle, ptr::null_mut()),
            backend.engine_id_by_name(handle, ptr::null(), ptr::null_mut()),
            backend.set_engine_plugin_paths(1, ptr::null(), PluginLoadingMode::ADDITIVE),
            backend.set_heuristic_plugin_paths(1, ptr::null(), PluginLoadingMode::ADDITIVE),
            backend.write_engine_ranking(NULL, NULL, ptr::null(), 0, ptr::null_mut()),
        ] {
            assert_eq!(status, Status::BAD_PARAM_NULL_POINTER);
        }
        assert_eq!(backend.set_stream(handle, NULL), Status::SUCCESS, "null is the default stream");
        assert_eq!(backend.get_stream(handle, &mut stream), Status::SUCCESS);
        assert!(stream.is_null());
        assert_eq!(backend.destroy(handle), Status::SUCCESS);
        assert_eq!(backend.destroy(handle), Status::BAD_PARAM_NULL_POINTER, "a second time");
    }
}

#[test]
fn kinds_that_cannot_be_created() {
    let caller = caller();
    for kind in [D(0), D(-1), D(39), D(1000), D::LAYOUT_INFO_DESCRIPTOR, D::KERNEL_CACHE_DESCRIPTOR] {
        let mut made = NULL;
        // SAFETY: a valid out-pointer.
        assert_eq!(unsafe { caller.0.create_descriptor(kind, &mut made) }, Status::NOT_SUPPORTED, "{kind:?}");
        assert!(made.is_null());
    }
}

#[test]
fn wrong_types_counts_and_names() {
    let caller = caller();
    let tensor = caller.make(D::TENSOR_DESCRIPTOR);
    let refused = |what: &str, status: Status, wanted: Status| {
        assert_eq!(status, wanted, "{what}");
        assert!(caller.text().starts_with("TensorDescriptor::setAttribute"), "{what}");
    };
    refused("type", caller.set(tensor, A::TENSOR_DATA_TYPE, T::INT64, &[0i64]), Status::BAD_PARAM);
    refused("two", caller.set(tensor, A::TENSOR_UNIQUE_ID, T::INT64, &[1i64, 2]), Status::BAD_PARAM);
    refused("none", caller.set(tensor, A::TENSOR_DIMENSIONS, T::INT64, &[0i64; 0]), Status::BAD_PARAM);
    refused("a value before its type", caller.set(tensor, A::TENSOR_VALUE_EXT, T::CHAR, &[0u8; 4]), Status::BAD_PARAM);
    refused("name", caller.set(tensor, A::POINTWISE_MODE, T::POINTWISE_MODE, &[1]), Status::NOT_SUPPORTED);
    refused("unknown name", caller.set(tensor, A(77_777), T::INT64, &[1i64]), Status::NOT_SUPPORTED);
    // SAFETY: the test passes a null array and impossible counts on purpose.
    unsafe {
        let set = |count, elements| caller.0.set_attribute(tensor, A::TENSOR_DIMENSIONS, T::INT64, count, elements);
        assert_eq!(set(1, ptr::null()), Status::BAD_PARAM_NULL_POINTER);
        let one = [1i64];
        assert_eq!(set(-1, one.as_ptr().cast()), Status::BAD_PARAM);
        assert_eq!(set(i64::MAX, one.as_ptr().cast()), Status::BAD_PARAM);
    }
    caller.put(tensor, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    assert_eq!(caller.set(tensor, A::TENSOR_VALUE_EXT, T::CHAR, &[0u8; 2]), Status::BAD_PARAM, "half a float");
}

#[test]
fn a_descriptor_is_created_set_and_finalized() {
    let caller = caller();
    let tensor = caller.make(D::TENSOR_DESCRIPTOR);
    assert_eq!(caller.finalize(tensor), Status::BAD_PARAM, "dimensions are missing");
    let said = caller.text();
    assert!(said.starts_with("TensorDescriptor::finalize() failed: HIPDNN_ATTR_TENSOR_D"), "{said}");
    assert_eq!(caller.text(), "", "reading an error clears it");
    assert_eq!(caller.count(tensor, A::TENSOR_DIMENSIONS, T::INT64).0, Status::NOT_INITIALIZED, "get before finalize");
    let pointwise = caller.make(D::OPERATION_POINTWISE_DESCRIPTOR);
    let refer = |to| caller.set(pointwise, A::OPERATION_POINTWISE_IN_0_EXT, T::BACKEND_DESCRIPTOR, &[to]);
    assert_eq!(refer(tensor), Status::BAD_PARAM_NOT_FINALIZED);
    assert_eq!(refer(NULL), Status::BAD_PARAM_NULL_POINTER);
    assert_eq!(refer(nowhere()), Status::BAD_PARAM_NULL_POINTER);
    caller.put(tensor, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    caller.put(tensor, A::TENSOR_DIMENSIONS, T::INT64, &[2i64, 3]);
    caller.put(tensor, A::TENSOR_STRIDES, T::INT64, &[1i64]);
    assert_eq!(caller.finalize(tensor), Status::BAD_PARAM, "a stride is missing");
    caller.put(tensor, A::TENSOR_STRIDES, T::INT64, &[3i64, 1]);
    assert_eq!(caller.finalize(tensor), Status::SUCCESS);
    assert_eq!(caller.finalize(tensor), Status::SUCCESS, "a tensor is only looked at again");
    assert_eq!(caller.set(tensor, A::TENSOR_UNIQUE_ID, T::INT64, &[1i64]), Status::NOT_INITIALIZED, "set after it");
    assert_eq!(refer(tensor), Status::SUCCESS);
    let handle = caller.handle();
    let graph = caller.small_graph(handle);
    assert_eq!(refer(graph), Status::BAD_PARAM, "a graph is not a tensor");
    let heuristic = caller.make(D::ENGINEHEUR_DESCRIPTOR);
    let early = caller.count(heuristic, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR).0;
    assert_eq!(early, Status::BAD_PARAM_NOT_FINALIZED);
    for mode in [1, 3, -1] {
        assert_eq!(caller.set(heuristic, A::ENGINEHEUR_MODE, T::HEUR_MODE, &[mode]), Status::NOT_SUPPORTED);
    }
    let config = caller.config(graph);
    let plan = caller.plan(graph);
    for finalized in [config, plan] {
        assert_eq!(caller.finalize(finalized), Status::BAD_PARAM, "a second time");
    }
    let unfinished = caller.make(D::OPERATIONGRAPH_DESCRIPTOR);
    assert_eq!(caller.count(unfinished, A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR).0, Status::SUCCESS);
}

#[test]
fn values_are_read_up_to_the_size_of_the_buffer() {
    let caller = caller();
    let tensor = caller.tensor(7, &[2, 3]);
    assert_eq!(caller.count(tensor, A::TENSOR_DIMENSIONS, T::INT64), (Status::SUCCESS, 2));
    assert_eq!(caller.get::<i64>(tensor, A::TENSOR_DIMENSIONS, T::INT64, 1), (Status::SUCCESS, vec![2]));
    assert_eq!(caller.get::<i64>(tensor, A::TENSOR_DIMENSIONS, T::INT64, 9), (Status::SUCCESS, vec![2, 3]));
    assert_eq!(caller.get::<i64>(tensor, A::TENSOR_DIMENSIONS, T::FLOAT, 2).0, Status::BAD_PARAM);
    assert_eq!(caller.get::<i64>(tensor, A::TENSOR_BYTE_ALIGNMENT, T::INT64, 1), (Status::SUCCESS, vec![16]));
    assert_eq!(caller.get::<u8>(tensor, A::TENSOR_IS_BY_VALUE, T::BOOLEAN, 1), (Status::SUCCESS, vec![0]));
    assert_eq!(caller.get::<u8>(tensor, A::TENSOR_VALUE_EXT, T::CHAR, 4).0, Status::BAD_PARAM, "it has none");
    let offsets = caller.count(tensor, A::TENSOR_RAGGED_OFFSET_DESC, T::BACKEND_DESCRIPTOR);
    assert_eq!(offsets, (Status::SUCCESS, 0), "an optional one that is not set");
    // SAFETY: the test passes null pointers on purpose.
    unsafe {
        let ask = |count, elements| caller.0.get_attribute(tensor, A::TENSOR_DIMENSIONS, T::INT64, 2, count, elements);
        assert_eq!(ask(ptr::null_mut(), NULL), Status::BAD_PARAM_NULL_POINTER);
        let mut dims = [0i64; 2];
        assert_eq!(ask(ptr::null_mut(), dims.as_mut_ptr().cast()), Status::SUCCESS, "the count may be null");
        assert_eq!(dims, [2, 3]);
    }
}

#[test]
fn strings_are_terminated_and_truncated() {
    let caller = caller();
    let tensor = caller.make(D::TENSOR_DESCRIPTOR);
    caller.put(tensor, A::TENSOR_NAME_EXT, T::CHAR, b"weights");
    caller.put(tensor, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    caller.put(tensor, A::TENSOR_DIMENSIONS, T::INT64, &[1i64]);
    caller.put(tensor, A::TENSOR_STRIDES, T::INT64, &[1i64]);
    assert_eq!(caller.finalize(tensor), Status::SUCCESS);
    assert_eq!(caller.count(tensor, A::TENSOR_NAME_EXT, T::CHAR), (Status::SUCCESS, 8));
    assert_eq!(caller.get::<u8>(tensor, A::TENSOR_NAME_EXT, T::CHAR, 20), (Status::SUCCESS, b"weights\0".to_vec()));
    assert_eq!(caller.get::<u8>(tensor, A::TENSOR_NAME_EXT, T::CHAR, 4), (Status::SUCCESS, b"wei\0".to_vec()));
}

#[test]
fn engines_and_plans_give_single_values() {
    let caller = caller();
    let handle = caller.handle();
    let graph = caller.small_graph(handle);
    let (config, plan) = (caller.config(graph), caller.plan(graph));
    let room = |room| caller.get::<i64>(plan, A::EXECUTION_PLAN_WORKSPACE_SIZE, T::INT64, room).0;
    assert_eq!((room(1), room(2)), (Status::SUCCESS, Status::BAD_PARAM));
    assert_eq!(caller.get::<i64>(plan, A::EXECUTION_PLAN_TENSOR_UIDS_EXT, T::INT64, 9).1, [1, 2]);
    let (_, engines) = caller.get::<usize>(config, A::ENGINECFG_ENGINE, T::BACKEND_DESCRIPTOR, 1);
    let engine = ptr::without_provenance_mut::<c_void>(engines[0]);
    let notes = |room| caller.get::<i32>(engine, A::ENGINE_BEHAVIOR_NOTE, T::BEHAVIOR_NOTE, room);
    assert_eq!(notes(1).0, Status::BAD_PARAM, "there are more");
    assert!(notes(8).1.contains(&BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION.0));
    for name in [A::ENGINE_NUMERICAL_NOTE, A::ENGINE_LAYOUT_INFO, A::ENGINE_CU_COUNT_TARGET_EXT, A::ENGINE_DEVICEPROP] {
        assert_eq!(caller.count(engine, name, T::INT64).0, Status::NOT_SUPPORTED);
    }
    let foreign = caller.make(D::ENGINE_DESCRIPTOR);
    caller.put(foreign, A::ENGINE_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[graph]);
    caller.put(foreign, A::ENGINE_GLOBAL_INDEX, T::INT64, &[1i64]);
    assert_eq!(caller.finalize(foreign), Status::BAD_PARAM, "no such engine");
    // SAFETY: a descriptor that the library returned to us.
    assert_eq!(unsafe { caller.0.destroy_descriptor(engine) }, Status::SUCCESS);
}

#[test]
fn graphs_are_checked_as_a_whole() {
    let caller = caller();
    let handle = caller.handle();
    let (x, y) = (caller.tensor(1, &[4]), caller.tensor(1, &[4]));
    let graph = caller.graph(handle, &[caller.pointwise(1, x, y)]);
    assert_eq!(caller.finalize(graph), Status::BAD_PARAM, "one number, two tensors");
    assert!(caller.text().contains("uid 1"));
    let empty = caller.make(D::OPERATIONGRAPH_DESCRIPTOR);
    caller.put(empty, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle]);
    assert_eq!(caller.finalize(empty), Status::BAD_PARAM, "no operation");
    assert_eq!(caller.set(empty, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[NULL]), Status::BAD_PARAM_NULL_POINTER);
    // Wrong shapes are not a mistake in the calls: no engine supports the graph, and the reason can be read.
    let odd = caller.graph(handle, &[caller.pointwise(1, caller.tensor(1, &[4]), caller.tensor(2, &[5]))]);
    assert_eq!(caller.finalize(odd), Status::SUCCESS);
    let heuristic = caller.make(D::ENGINEHEUR_DESCRIPTOR);
    caller.put(heuristic, A::ENGINEHEUR_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[odd]);
    caller.put(heuristic, A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0]);
    assert_eq!(caller.finalize(heuristic), Status::SUCCESS);
    assert_eq!(caller.count(heuristic, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR), (Status::SUCCESS, 0));
    assert!(caller.text().contains("tensor 2"));
}

#[test]
fn operations_are_checked_by_themselves() {
    let caller = caller();
    let quantize = caller.make(D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR);
    for name in [
        A::OPERATION_BLOCK_SCALE_QUANTIZE_XDESC,
        A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC,
        A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC,
    ] {
        caller.put(quantize, name, T::BACKEND_DESCRIPTOR, &[caller.tensor(1, &[4])]);
    }
    let size = |kind, block: i32| caller.set(quantize, A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, kind, &[block]);
    assert_eq!(size(T::INT64, 4), Status::BAD_PARAM, "a block's size has 32 bits");
    assert_eq!(size(T::INT32, 0), Status::SUCCESS);
    assert_eq!(caller.finalize(quantize), Status::BAD_PARAM, "no compute type");
    caller.put(quantize, A::OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, T::DATA_TYPE, &[DataType::FLOAT]);
    assert_eq!(caller.finalize(quantize), Status::BAD_PARAM, "empty blocks");
    assert_eq!(size(T::INT32, 4), Status::SUCCESS);
    assert_eq!(caller.finalize(quantize), Status::SUCCESS);
    let norm = caller.make(D::OPERATION_LAYERNORM_DESCRIPTOR_EXT);
    for (uid, name) in [
        A::OPERATION_LAYERNORM_X_EXT,
        A::OPERATION_LAYERNORM_SCALE_EXT,
        A::OPERATION_LAYERNORM_BIAS_EXT,
        A::OPERATION_LAYERNORM_EPSILON_EXT,
        A::OPERATION_LAYERNORM_Y_EXT,
        A::OPERATION_LAYERNORM_MEAN_EXT,
    ]
    .into_iter()
    .enumerate()
    {
        caller.put(norm, name, T::BACKEND_DESCRIPTOR, &[caller.tensor(uid as i64, &[2, 4])]);
    }
    caller.put(norm, A::OPERATION_LAYERNORM_FWD_PHASE_EXT, T::NORM_FWD_PHASE, &[2]);
    caller.put(norm, A::LAYERNORM_COMP_TYPE_EXT, T::DATA_TYPE, &[DataType::FLOAT]);
    assert_eq!(caller.finalize(norm), Status::BAD_PARAM, "a mean without a variance");
}

#[test]
fn execution_checks_its_arguments() {
    let caller = caller();
    let handle = caller.handle();
    let graph = caller.small_graph(handle);
    let plan = caller.plan(graph);
    let (mut x, mut y) = ([-1.5f32, 2.0, -3.0, 0.0], [0f32; 4]);
    let addresses = [x.as_mut_ptr().cast::<c_void>(), y.as_mut_ptr().cast()];
    // SAFETY: the tensors have four numbers each, or are missing.
    let execute = |plan, pack| unsafe { caller.0.execute(handle, plan, pack) };
    let whole = caller.pack(&[2, 1], &[addresses[1], addresses[0]]);
    assert_eq!(execute(plan, whole), Status::SUCCESS);
    assert_eq!(y, [1.5, 2.0, 3.0, 0.0]);
    assert_eq!(execute(graph, whole), Status::BAD_PARAM, "a graph is not a plan");
    assert_eq!(execute(plan, plan), Status::BAD_PARAM, "a plan is not a variant pack");
    let unfinished = caller.make(D::VARIANT_PACK_DESCRIPTOR);
    assert_eq!(execute(plan, unfinished), Status::BAD_PARAM_NOT_FINALIZED);
    assert_eq!(execute(caller.make(D::EXECUTION_PLAN_DESCRIPTOR), whole), Status::BAD_PARAM_NOT_FINALIZED);
    assert_eq!(execute(plan, caller.pack(&[1], &addresses[..1])), Status::BAD_PARAM, "a tensor is missing");
    assert!(caller.text().contains("tensor 2"));
    assert_eq!(
        execute(plan, caller.pack(&[1, 2], &[addresses[0], NULL])),
        Status::BAD_PARAM,
        "a tensor has a null address"
    );
    let odd = [addresses[0].wrapping_byte_add(2), addresses[1]];
    assert_eq!(execute(plan, caller.pack(&[1, 2], &odd)), Status::BAD_PARAM, "misaligned address");
    assert!(caller.text().contains("multiple"));
    let pack = caller.make(D::VARIANT_PACK_DESCRIPTOR);
    caller.put(pack, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, &[1i64, 2]);
    assert_eq!(caller.finalize(pack), Status::BAD_PARAM, "no addresses");
    caller.put(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &addresses[..1]);
    assert_eq!(caller.finalize(pack), Status::BAD_PARAM, "two ids for one address");
    caller.put(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &addresses);
    caller.put(pack, A::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, T::INT64, &[1i64]);
    assert_eq!(caller.finalize(pack), Status::BAD_PARAM, "an override without a shape");
    for name in [A::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, A::VARIANT_PACK_OVERRIDE_STRIDES_EXT] {
        caller.put(pack, name, T::INT64, &[1i64]);
    }
    caller.put(pack, A::VARIANT_PACK_OVERRIDE_SHAPES_EXT, T::INT64, &[2i64]);
    assert_eq!(caller.finalize(pack), Status::SUCCESS);
    assert_eq!(execute(plan, pack), Status::NOT_SUPPORTED, "shapes cannot be changed");
    // SAFETY: the test passes a null array on purpose.
    let ask = unsafe { caller.0.get_attribute(whole, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, 0, &mut 0, NULL) };
    assert_eq!(ask, Status::BAD_PARAM_NULL_POINTER, "a pack has no count");
}

#[test]
fn work_that_needs_too_much_memory_fails() {
    let caller = caller();
    let handle = caller.handle();
    // One number that broadcasts to 2^54 elements: the intermediate result exceeds any memory, and the sum needs all of
    // it.
    let tensor = |uid: i64, dims: [i64; 2], strides: [i64; 2], is_virtual: bool| {
        let made = caller.make(D::TENSOR_DESCRIPTOR);
        caller.put(made, A::TENSOR_UNIQUE_ID, T::INT64, &[uid]);
        caller.put(made, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
        caller.put(made, A::TENSOR_DIMENSIONS, T::INT64, &dims);
        caller.put(made, A::TENSOR_STRIDES, T::INT64, &strides);
        caller.put(made, A::TENSOR_IS_VIRTUAL, T::BOOLEAN, &[u8::from(is_virtual)]);
        assert_eq!(caller.finalize(made), Status::SUCCESS);
        made
    };
    const LONG: i64 = 1 << 27;
    let (x, y) = (tensor(1, [LONG, LONG], [0, 0], false), tensor(2, [LONG, LONG], [LONG, 1], true));
    let sum = tensor(3, [1, 1], [1, 1], false);
    let reduction = caller.make(D::OPERATION_REDUCTION_DESCRIPTOR);
    caller.put(reduction, A::OPERATION_REDUCTION_XDESC, T::BACKEND_DESCRIPTOR, &[y]);
    caller.put(reduction, A::OPERATION_REDUCTION_YDESC, T::BACKEND_DESCRIPTOR, &[sum]);
    caller.put(reduction, A::REDUCTION_OPERATOR, T::REDUCTION_OPERATOR_TYPE, &[1]);
    caller.put(reduction, A::REDUCTION_COMP_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    assert_eq!(caller.finalize(reduction), Status::SUCCESS);
    let graph = caller.graph(handle, &[caller.pointwise(16, x, y), reduction]);
    assert_eq!(caller.finalize(graph), Status::SUCCESS);
    let plan = caller.plan(graph);
    let (mut number, mut made) = ([1f32], [0f32]);
    let pack = caller.pack(&[1, 3], &[number.as_mut_ptr().cast(), made.as_mut_ptr().cast()]);
    // SAFETY: each tensor is one number in memory.
    let status = unsafe { caller.0.execute(handle, plan, pack) };
    assert_eq!(status, Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    assert!(caller.text().contains("could not allocate"));
}

#[test]
fn descriptors_passed_to_others_may_be_destroyed() {
    let caller = caller();
    let handle = caller.handle();
    let (x, y) = (caller.tensor(1, &[4]), caller.tensor(2, &[4]));
    let operation = caller.pointwise(1, x, y);
    let graph = caller.graph(handle, &[operation]);
    for descriptor in [x, y, operation] {
        // SAFETY: alive until now.
        assert_eq!(unsafe { caller.0.destroy_descriptor(descriptor) }, Status::SUCCESS);
    }
    assert_eq!(caller.finalize(graph), Status::SUCCESS);
    let plan = caller.plan(graph);
    // SAFETY: as above.
    assert_eq!(unsafe { caller.0.destroy_descriptor(graph) }, Status::SUCCESS);
    let (mut from, mut to) = ([-1f32; 4], [0f32; 4]);
    let pack = caller.pack(&[1, 2], &[from.as_mut_ptr().cast(), to.as_mut_ptr().cast()]);
    // SAFETY: four numbers each.
    assert_eq!(unsafe { caller.0.execute(handle, plan, pack) }, Status::SUCCESS);
    assert_eq!(to, [1.0; 4]);
}

#[test]
fn knobs_hold_values_of_three_types() {
    let caller = caller();
    let choice = || {
        let choice = caller.make(D::KNOB_CHOICE_DESCRIPTOR);
        caller.put(choice, A::KNOB_CHOICE_KNOB_TYPE, T::CHAR, b"global.benchmarking");
        choice
    };
    let value = A::KNOB_CHOICE_KNOB_VALUE;
    let (whole, real, word) = (choice(), choice(), choice());
    caller.put(whole, value, T::INT64, &[3i64]);
    caller.put(real, value, T::DOUBLE, &[0.5f64]);
    caller.put(word, value, T::CHAR, b"fast");
    assert_eq!(caller.set(choice(), value, T::FLOAT, &[0.5f32]), Status::BAD_PARAM);
    for choice in [whole, real, word] {
        assert_eq!(caller.finalize(choice), Status::SUCCESS);
    }
    assert_eq!(caller.get::<f64>(real, value, T::DOUBLE, 1), (Status::SUCCESS, vec![0.5]));
    assert_eq!(caller.get::<i64>(real, value, T::INT64, 1).0, Status::BAD_PARAM);
    assert_eq!(caller.get::<u8>(word, value, T::CHAR, 9), (Status::SUCCESS, b"fast\0".to_vec()));
}

#[test]
fn engines_are_listed_by_the_two_call_rule() {
    let caller = caller();
    let (backend, handle) = (&caller.0, caller.handle());
    let (mut count, mut id, mut sizes) = (0, 0, [0usize; 4]);
    let none: *mut c_char = ptr::null_mut();
    // SAFETY: null buffers ask for sizes; the others have the given sizes.
    unsafe {
        assert_eq!(backend.engine_count(handle, &mut count), Status::SUCCESS);
        assert_eq!(count, 1);
        let [a, b, c, d] = &mut sizes;
        let asked = backend.engine_info(handle, 0, &mut id, none, a, none, b, none, c, none, d);
        assert_eq!(asked, Status::SUCCESS);
        assert_eq!(sizes[0], "HOST_CPU_ENGINE".len() + 1);
        let [a, b, c, d] = &mut sizes;
        let beyond = backend.engine_info(handle, 1, &mut id, none, a, none, b, none, c, none, d);
        assert_eq!(beyond, Status::BAD_PARAM_OUT_OF_BOUND);
        let (mut name, mut room) = ([0 as c_char; 16], 15usize);
        assert_eq!(backend.engine_name_by_id(handle, id, name.as_mut_ptr(), &mut room), Status::BAD_PARAM, "too small");
        room = 16;
        assert_eq!(backend.engine_name_by_id(handle, id, name.as_mut_ptr(), &mut room), Status::SUCCESS);
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"HOST_CPU_ENGINE");
        assert_eq!(backend.engine_name_by_id(handle, 5, name.as_mut_ptr(), &mut room), Status::NOT_SUPPORTED);
        let mut found = 0;
        assert_eq!(backend.engine_id_by_name(handle, name.as_ptr(), &mut found), Status::SUCCESS);
        assert_eq!(found, id);
        assert_eq!(backend.engine_id_by_name(handle, c"OTHER".as_ptr(), &mut found), Status::NOT_SUPPORTED);
        let mut outcome = RankingOutcome::WRITTEN;
        let ranked = backend.write_engine_ranking(handle, NULL, ptr::null(), 0, &mut outcome);
        assert_eq!((ranked, outcome), (Status::SUCCESS, RankingOutcome::DECLINED_DISABLED));
    }
}

#[test]
fn levels_modes_and_paths() {
    let caller = caller();
    let backend = &caller.0;
    let mut level = Severity::OFF;
    // SAFETY: numbers and valid or null out-pointers.
    unsafe {
        assert_eq!(backend.set_global_log_level(Severity(9)), Status::BAD_PARAM);
        assert_eq!(backend.global_log_level(ptr::null_mut()), Status::BAD_PARAM);
        assert_eq!(backend.global_log_level(&mut level), Status::SUCCESS);
        assert_eq!(backend.set_plugin_unload_mode(PluginUnloadingMode(9)), Status::BAD_PARAM);
        assert_eq!(backend.set_plugin_unload_mode(PluginUnloadingMode::EAGER), Status::SUCCESS);
        let callback = backend.set_user_log_callback(None, Severity::INFO, LogCallbackMode::SYNC, NULL);
        assert_eq!(callback, Status::BAD_PARAM, "no callback");
        let handle = caller.handle();
        let paths = backend.set_engine_plugin_paths(0, ptr::null(), PluginLoadingMode::ADDITIVE);
        assert_eq!(paths, Status::NOT_SUPPORTED, "a handle is there already");
        let (mut count, mut longest) = (9, 9);
        let loaded = backend.loaded_engine_plugin_paths(handle, &mut count, ptr::null_mut(), &mut longest);
        assert_eq!((loaded, count), (Status::SUCCESS, 0));
    }
}

#[test]
fn statuses_have_names_and_errors_belong_to_threads() {
    let caller = caller();
    let name = |status| {
        // SAFETY: the library returns a static string.
        unsafe { CStr::from_ptr(caller.0.error_string(status)) }.to_str().unwrap().to_owned()
    };
    assert_eq!(name(Status::BAD_PARAM_NOT_FINALIZED), "HIPDNN_STATUS_BAD_PARAM_NOT_FINALIZED");
    assert_eq!(name(Status(77)), "HIPDNN_STATUS_UNKNOWN");
    assert_eq!(caller.finalize(NULL), Status::BAD_PARAM_NULL_POINTER);
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| Caller(backend()).text()).join().unwrap());
    assert_eq!(elsewhere, "", "another thread has its own");
    let mut short = [1 as c_char; 4];
    // SAFETY: the buffers have the given sizes, or are null.
    unsafe {
        caller.0.peek_last_error_string(short.as_mut_ptr(), 4);
        assert_eq!(short[3], 0, "truncated, with a terminator");
        caller.0.peek_last_error_string(ptr::null_mut(), 4);
        caller.0.last_error_string(short.as_mut_ptr(), 0);
    }
    assert!(caller.text().contains("null"), "peeking does not clear it");
    assert_eq!(caller.text(), "");
}
