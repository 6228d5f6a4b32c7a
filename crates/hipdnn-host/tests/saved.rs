//! Graphs and plans as bytes: foreign files are readable, and corrupt ones are rejected.
#![allow(clippy::unwrap_used)]
#[path = "common/caller.rs"]
mod caller;
mod common;

use std::ffi::c_void;
use std::ptr;

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Table, UOffsetT, Vector, WIPOffset};
use hipdnn::sys::{
    AttributeName as A, AttributeType as T, CONTENT_EXECUTION_PLAN, CONTENT_GRAPH, DataType, DescriptorType as D,
    Status,
};
use proptest::prelude::*;

use caller::Caller;

/// Reads bytes in two calls: first the size, then the bytes.
fn bytes(ask: impl Fn(usize, *mut usize, *mut u8) -> Status) -> Vec<u8> {
    let mut size = 0;
    assert_eq!(ask(0, &mut size, ptr::null_mut()), Status::SUCCESS);
    let mut bytes = vec![0; size];
    assert_eq!(ask(size - 1, &mut size, bytes.as_mut_ptr()), Status::BAD_PARAM_SIZE_INSUFFICIENT, "one too few");
    assert_eq!(ask(bytes.len(), &mut size, bytes.as_mut_ptr()), Status::SUCCESS);
    bytes
}

struct Saved {
    graph: Vec<u8>,
    json: Vec<u8>,
    plan: Vec<u8>,
    both: Vec<u8>,
    alone: Vec<u8>,
}

/// Every serialised form of the small graph.
fn saved(caller: &Caller, handle: *mut c_void) -> Saved {
    let graph = caller.small_graph(handle);
    let plan = caller.plan(graph);
    let backend = &caller.0;
    // SAFETY: the buffers have the given sizes.
    unsafe {
        Saved {
            graph: bytes(|room, size, to| backend.serialized_graph(graph, room, size, to)),
            json: bytes(|room, size, to| backend.serialized_json_graph(graph, room, size, to.cast())),
            plan: bytes(|room, size, to| backend.serialized_plan(plan, room, size, to)),
            both: bytes(|room, size, to| backend.serialized_graph_and_plan(graph, plan, room, size, to)),
            alone: bytes(|room, size, to| backend.serialized_graph_and_plan(graph, ptr::null_mut(), room, size, to)),
        }
    }
}

fn read_graph(caller: &Caller, bytes: &[u8]) -> (Status, *mut c_void) {
    let mut read = ptr::null_mut();
    // SAFETY: the pointer and the count come from one slice.
    (unsafe { caller.0.deserialize_graph(&mut read, bytes.as_ptr(), bytes.len()) }, read)
}

fn read_plan(caller: &Caller, handle: *mut c_void, bytes: &[u8]) -> (Status, *mut c_void) {
    let mut read = ptr::null_mut();
    // SAFETY: the pointer and the count come from one slice.
    (unsafe { caller.0.deserialize_plan(handle, &mut read, bytes.as_ptr(), bytes.len()) }, read)
}

/// Requires that a plan computes absolute values.
fn assert_runs(caller: &Caller, handle: *mut c_void, plan: *mut c_void) {
    let (mut x, mut y) = ([-1.5f32, 2.0, -3.0, 0.0], [0f32; 4]);
    let pack = caller.pack(&[1, 2], &[x.as_mut_ptr().cast(), y.as_mut_ptr().cast()]);
    // SAFETY: four numbers each.
    assert_eq!(unsafe { caller.0.execute(handle, plan, pack) }, Status::SUCCESS);
    assert_eq!(y, [1.5, 2.0, 3.0, 0.0]);
}

#[test]
fn graphs_and_plans_are_read_back() {
    let caller = Caller(common::backend());
    let handle = caller.handle();
    let saved = saved(&caller, handle);
    let json = |bytes: &[u8]| {
        let mut read = ptr::null_mut();
        // SAFETY: the pointer and the count come from one slice.
        (unsafe { caller.0.deserialize_json_graph(&mut read, bytes.as_ptr().cast(), bytes.len()) }, read)
    };
    assert_eq!(saved.json.last(), Some(&0), "a text ends");
    for (status, graph) in [
        read_graph(&caller, &saved.graph),
        read_graph(&caller, &saved.both),
        read_graph(&caller, &saved.alone),
        json(&saved.json),
        json(&saved.json[..saved.json.len() - 1]),
    ] {
        assert_eq!(status, Status::SUCCESS);
        assert_eq!(caller.finalize(graph), Status::BAD_PARAM, "it has no handle yet");
        caller.put(graph, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle]);
        assert_eq!(caller.finalize(graph), Status::SUCCESS);
        assert_runs(&caller, handle, caller.plan(graph));
    }
    for bytes in [&saved.plan, &saved.both] {
        let (status, plan) = read_plan(&caller, handle, bytes);
        assert_eq!(status, Status::SUCCESS);
        assert_runs(&caller, handle, plan);
    }
    assert_eq!(read_plan(&caller, handle, &saved.alone).0, Status::BAD_PARAM, "no plan in it");
    assert_eq!(read_plan(&caller, ptr::null_mut(), &saved.plan).0, Status::BAD_PARAM_NULL_POINTER, "no handle");
    let contents = |bytes: &[u8]| {
        let mut flags = 0;
        // SAFETY: the pointer and the count come from one slice.
        assert_eq!(unsafe { caller.0.serialized_contents(bytes.as_ptr(), bytes.len(), &mut flags) }, Status::SUCCESS);
        flags
    };
    assert_eq!(contents(&saved.both), CONTENT_GRAPH | CONTENT_EXECUTION_PLAN);
    assert_eq!(contents(&saved.alone), CONTENT_GRAPH);
    assert_eq!(contents(&saved.graph), CONTENT_GRAPH);
    assert_eq!(contents(b"arbitrary bytes"), CONTENT_GRAPH, "bytes without a marker are a graph");
}

#[test]
fn errors_return_their_statuses() {
    let caller = Caller(common::backend());
    let handle = caller.handle();
    let (backend, graph) = (&caller.0, caller.small_graph(handle));
    let (mut read, mut size, mut flags) = (ptr::null_mut(), 0, 0);
    let none = ptr::null_mut();
    // SAFETY: the test passes null pointers and empty buffers on purpose.
    unsafe {
        assert_eq!(backend.deserialize_graph(none, [0].as_ptr(), 1), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(backend.deserialize_graph(&mut read, ptr::null(), 1), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(backend.deserialize_graph(&mut read, [0].as_ptr(), 0), Status::BAD_PARAM);
        assert_eq!(
            backend.serialized_graph(graph, 0, ptr::null_mut(), ptr::null_mut()),
            Status::BAD_PARAM_NULL_POINTER
        );
        assert_eq!(backend.serialized_contents(ptr::null(), 1, &mut flags), Status::BAD_PARAM_NULL_POINTER);
        let tensor = caller.tensor(1, &[4]);
        assert_eq!(backend.serialized_graph(tensor, 0, &mut size, ptr::null_mut()), Status::BAD_PARAM, "no graph");
        assert_eq!(backend.serialized_plan(graph, 0, &mut size, ptr::null_mut()), Status::BAD_PARAM, "no plan");
        let unfinished = caller.make(D::EXECUTION_PLAN_DESCRIPTOR);
        let status = backend.serialized_plan(unfinished, 0, &mut size, ptr::null_mut());
        assert_eq!(status, Status::BAD_PARAM_NOT_FINALIZED);
        for text in ["", "{", "[1]", "{}", r#"{"nodes": [{}]}"#, r#"{"nodes": [{"attributes_type": 99}]}"#] {
            let status = backend.deserialize_json_graph(&mut read, text.as_ptr().cast(), text.len());
            assert_eq!(status, Status::BAD_PARAM, "{text:?}");
        }
        let newer = r#"{"min_required_engine_api_version": [1, 5, 0]}"#;
        let status = backend.deserialize_json_graph(&mut read, newer.as_ptr().cast(), newer.len());
        assert_eq!(status, Status::NOT_SUPPORTED, "it needs a newer interface");
    }
}

/// The vtable offset of a field, as FlatBuffers counts it.
const fn slot(field: u16) -> u16 {
    4 + 2 * field
}

#[test]
fn flatbuffers_own_reader_finds_the_graph() {
    let caller = Caller(common::backend());
    let handle = caller.handle();
    let bytes = saved(&caller, handle).graph;
    // SAFETY: the offsets are those of the schema; data that does not match it fails the test.
    unsafe {
        let graph = flatbuffers::root_unchecked::<Table<'_>>(&bytes);
        let tensors: Vector<'_, ForwardsUOffset<Table<'_>>> =
            graph.get::<ForwardsUOffset<Vector<'_, ForwardsUOffset<Table<'_>>>>>(slot(4), None).unwrap();
        let found: Vec<_> = tensors
            .iter()
            .map(|tensor| {
                let dims = tensor.get::<ForwardsUOffset<Vector<'_, i64>>>(slot(4), None).unwrap();
                (
                    tensor.get::<i64>(slot(0), Some(0)),
                    tensor.get::<i8>(slot(2), Some(0)),
                    dims.iter().collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(found, [(Some(1), Some(1), vec![4]), (Some(2), Some(1), vec![4])], "number, FLOAT, extents");
        let nodes = graph.get::<ForwardsUOffset<Vector<'_, ForwardsUOffset<Table<'_>>>>>(slot(5), None).unwrap();
        assert_eq!(nodes.len(), 1);
        let node = nodes.get(0);
        assert_eq!(node.get::<u8>(slot(2), Some(0)), Some(2), "a pointwise operation");
        let attributes = node.get::<ForwardsUOffset<Table<'_>>>(slot(3), None).unwrap();
        assert_eq!(attributes.get::<i8>(slot(0), Some(0)), Some(1), "ABS");
        assert_eq!(attributes.get::<i64>(slot(5), Some(0)), Some(1));
        assert_eq!(attributes.get::<i64>(slot(8), Some(0)), Some(2));
        assert_eq!(attributes.get::<i64>(slot(6), None), None, "a second operand");
    }
}

type Offset = WIPOffset<UOffsetT>;

/// A graph written by FlatBuffers' own builder: `y = max(x, c)` with an embedded scalar, defaults omitted.
fn foreign_graph() -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let tensor = |builder: &mut FlatBufferBuilder<'_>, uid: i64, extent: i64, value: Option<f32>| -> Offset {
        let (dims, strides) = (builder.create_vector(&[extent]), builder.create_vector(&[1i64]));
        let value = value.map(|value| builder.push(value));
        let table = builder.start_table();
        builder.push_slot(slot(0), uid, 0i64);
        builder.push_slot(slot(2), 1i8, 0i8);
        builder.push_slot_always(slot(3), strides);
        builder.push_slot_always(slot(4), dims);
        if let Some(value) = value {
            builder.push_slot_always(slot(6), 1u8);
            builder.push_slot_always(slot(7), value);
        }
        WIPOffset::new(builder.end_table(table).value())
    };
    // Uid 0 is the default and therefore not written.
    let tensors =
        [tensor(&mut builder, 0, 4, None), tensor(&mut builder, 7, 1, Some(0.5)), tensor(&mut builder, 9, 4, None)];
    let tensors = builder.create_vector(&tensors.map(|tensor| WIPOffset::<Table<'_>>::new(tensor.value())));
    let attributes = builder.start_table();
    builder.push_slot(slot(0), 28i8, 0i8);
    builder.push_slot_always(slot(6), 7i64);
    builder.push_slot(slot(8), 9i64, 0);
    let attributes = builder.end_table(attributes);
    let name = builder.create_string("largest");
    let node = builder.start_table();
    builder.push_slot_always(slot(0), name);
    builder.push_slot(slot(1), 1i8, 0);
    builder.push_slot(slot(2), 2u8, 0);
    builder.push_slot_always(slot(3), attributes);
    let node = builder.end_table(node);
    let nodes = builder.create_vector(&[WIPOffset::<Table<'_>>::new(node.value())]);
    let graph = builder.start_table();
    builder.push_slot(slot(1), 1i8, 0);
    builder.push_slot_always(slot(4), tensors);
    builder.push_slot_always(slot(5), nodes);
    let graph = builder.end_table(graph);
    builder.finish_minimal(graph);
    builder.finished_data().to_vec()
}

#[test]
fn a_graph_of_flatbuffers_own_builder_runs() {
    let caller = Caller(common::backend());
    let handle = caller.handle();
    let (status, graph) = read_graph(&caller, &foreign_graph());
    assert_eq!(status, Status::SUCCESS, "{}", caller.text());
    caller.put(graph, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle]);
    assert_eq!(caller.finalize(graph), Status::SUCCESS);
    let plan = caller.plan(graph);
    let (mut x, mut y) = ([-1.0f32, 0.25, 0.75, 3.0], [0f32; 4]);
    let pack = caller.pack(&[0, 9], &[x.as_mut_ptr().cast(), y.as_mut_ptr().cast()]);
    // SAFETY: four numbers each.
    assert_eq!(unsafe { caller.0.execute(handle, plan, pack) }, Status::SUCCESS);
    assert_eq!(y, [0.5, 0.5, 0.75, 3.0]);
    assert_eq!(DataType::FLOAT.0, 0, "the C interface counts differently");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        rng_seed: prop::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Corrupt bytes are rejected or read as another graph; nothing else happens.
    #[test]
    fn corrupted_bytes_are_refused_or_give_another_graph(
        which in 0usize..5, cut in prop::option::of(0usize..600),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        thread_local! {
            static CASE: (Caller, *mut c_void, [Vec<u8>; 5]) = {
                let caller = Caller(common::backend());
                let handle = caller.handle();
                let all = saved(&caller, handle);
                (caller, handle, [all.graph, all.plan, all.both, all.alone, foreign_graph()])
            };
        }
        CASE.with(|(caller, handle, all)| {
            let mut bytes = all[which].clone();
            bytes.truncate(cut.unwrap_or(bytes.len()).max(1));
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let documented = [Status::SUCCESS, Status::BAD_PARAM, Status::NOT_SUPPORTED];
            let (status, graph) = read_graph(caller, &bytes);
            prop_assert!(documented.contains(&status), "{:?}", status);
            if status == Status::SUCCESS {
                caller.put(graph, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[*handle]);
                let finalized = caller.finalize(graph);
                prop_assert!(documented.contains(&finalized), "{:?}", finalized);
            }
            let (status, plan) = read_plan(caller, *handle, &bytes);
            prop_assert!(documented.contains(&status), "{:?}", status);
            for made in [graph, plan].into_iter().filter(|made| !made.is_null()) {
                // SAFETY: created for us above.
                unsafe { caller.0.destroy_descriptor(made) };
            }
            Ok(())
        })?;
    }
}
