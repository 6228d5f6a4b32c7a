//! Whatever calls a client makes, with arbitrary numbers and arrays that are large enough, it gets a documented status.
#![allow(clippy::unwrap_used)]
#[path = "common/caller.rs"]
mod caller;
mod common;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use hipdnn::sys::{
    AttributeName as A, AttributeType as T, DataType, DescriptorType as D, PluginLoadingMode, Severity, Status,
};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use caller::Caller;

/// A call of a random client; numbers select among the descriptors created so far.
#[derive(Clone, Debug)]
enum Call {
    Make(i32),
    /// A tensor, finalized or not.
    Tensor {
        uid: i64,
        dims: Vec<i64>,
        code: i32,
        is_virtual: bool,
        finalizes: bool,
    },
    /// A unary or binary operation on existing tensors, and a graph, a plan and a pack for it.
    Pointwise {
        mode: i32,
        tensors: [usize; 3],
    },
    Plan(usize),
    Destroy(usize),
    Set {
        on: usize,
        name: A,
        kind: i32,
        values: Vec<i64>,
    },
    Refer {
        on: usize,
        name: A,
        to: usize,
    },
    Get {
        on: usize,
        name: A,
        kind: i32,
        room: i64,
    },
    Finalize(usize),
    Execute(usize, usize),
    /// Serialises, corrupts one byte, and reads it again.
    Save {
        on: usize,
        how: u8,
        at: usize,
        byte: u8,
    },
    Other(u8, i64),
}

fn call() -> impl Strategy<Value = Call> {
    let name = || prop::sample::select(A::ALL.to_vec());
    let small = || prop_oneof![0i64..5, 0i64..5, Just(-1), Just(i64::MAX), Just(i64::MIN), Just(1 << 40)];
    let some = 0usize..24;
    prop_oneof![
        1 => (-1i32..40).prop_map(Call::Make),
        3 => tensor(),
        3 => (0i32..49, [some.clone(), some.clone(), some.clone()])
            .prop_map(|(mode, tensors)| Call::Pointwise { mode, tensors }),
        2 => some.clone().prop_map(Call::Plan),
        1 => some.clone().prop_map(Call::Destroy),
        1 => (some.clone(), name(), -1i32..32, prop::collection::vec(small(), 1..5))
            .prop_map(|(on, name, kind, values)| Call::Set { on, name, kind, values }),
        1 => (some.clone(), name(), some.clone()).prop_map(|(on, name, to)| Call::Refer { on, name, to }),
        1 => (some.clone(), name(), -1i32..32, -1i64..6).prop_map(|(on, name, kind, room)| Call::Get {
            on,
            name,
            kind,
            room
        }),
        1 => some.clone().prop_map(Call::Finalize),
        1 => (some.clone(), some.clone()).prop_map(|(plan, pack)| Call::Execute(plan, pack)),
        1 => (some, any::<u8>(), any::<usize>(), any::<u8>()).prop_map(|(on, how, at, byte)| Call::Save {
            on,
            how,
            at,
            byte
        }),
        1 => (any::<u8>(), small()).prop_map(|(which, number)| Call::Other(which, number)),
    ]
}

/// A tensor that mostly matches others, and is occasionally impossible.
fn tensor() -> impl Strategy<Value = Call> {
    let dims = prop_oneof![
        6 => Just(vec![2i64, 3]),
        2 => prop::collection::vec(1i64..4, 1..5),
        1 => prop::collection::vec(prop_oneof![Just(-1), Just(0), Just(i64::MAX), Just(1 << 40)], 1..4),
    ];
    let code = prop_oneof![4 => Just(DataType::FLOAT.0), 2 => 0i32..18, 1 => -1i32..20];
    (0i64..60, dims, code, 0..6, 0..10).prop_map(|(uid, dims, code, is_virtual, last)| Call::Tensor {
        uid,
        dims,
        code,
        is_virtual: is_virtual == 0,
        finalizes: last > 0,
    })
}

/// A client and the descriptors it has created so far.
struct Client {
    caller: Caller,
    handle: *mut c_void,
    made: Vec<*mut c_void>,
    tensors: Vec<*mut c_void>,
    graphs: Vec<*mut c_void>,
    /// The memory of every tensor; larger than any tensor that is small enough to be executed.
    memory: Box<[u64; 1024]>,
}

impl Client {
    fn new() -> Self {
        let caller = Caller(common::backend());
        let handle = caller.handle();
        Self {
            caller,
            handle,
            made: vec![ptr::null_mut()],
            tensors: Vec::new(),
            graphs: Vec::new(),
            memory: Box::new([0; 1024]),
        }
    }

    fn of(&self, at: usize) -> *mut c_void {
        self.made[at % self.made.len()]
    }

    /// One of the given descriptors, or of all if none are given.
    fn among(&self, some: &[*mut c_void], at: usize) -> *mut c_void {
        some.get(at % some.len().max(1)).copied().unwrap_or_else(|| self.of(at))
    }

    fn make(&mut self, kind: i32) -> Status {
        let mut new = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { self.caller.0.create_descriptor(D(kind), &mut new) };
        self.made.push(new);
        status
    }

    fn last(&self) -> *mut c_void {
        self.made[self.made.len() - 1]
    }

    fn run(&mut self, call: Call) -> Vec<Status> {
        match call {
            Call::Make(kind) => vec![self.make(kind)],
            Call::Tensor { uid, dims, code, is_virtual, finalizes } => {
                let strides: Vec<i64> = (0..dims.len())
                    .map(|axis| dims[axis + 1..].iter().fold(1i64, |all, &it| all.wrapping_mul(it)))
                    .collect();
                let mut statuses = vec![self.make(D::TENSOR_DESCRIPTOR.0)];
                let (caller, tensor) = (&self.caller, self.last());
                statuses.push(caller.set(tensor, A::TENSOR_UNIQUE_ID, T::INT64, &[uid]));
                statuses.push(caller.set(tensor, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[code]));
                statuses.push(caller.set(tensor, A::TENSOR_DIMENSIONS, T::INT64, &dims));
                statuses.push(caller.set(tensor, A::TENSOR_STRIDES, T::INT64, &strides));
                statuses.push(caller.set(tensor, A::TENSOR_IS_VIRTUAL, T::BOOLEAN, &[u8::from(is_virtual)]));
                if finalizes {
                    statuses.push(caller.finalize(tensor));
                }
                self.tensors.push(tensor);
                statuses
            }
            Call::Pointwise { mode, tensors } => {
                let [x, y, z] = tensors.map(|at| self.among(&self.tensors, at));
                let mut statuses = vec![self.make(D::OPERATION_POINTWISE_DESCRIPTOR.0)];
                let (caller, operation) = (&self.caller, self.last());
                let slots = [
                    A::OPERATION_POINTWISE_IN_0_EXT,
                    A::OPERATION_POINTWISE_OUT_0_EXT,
                    A::OPERATION_POINTWISE_IN_1_EXT,
                ];
                let set = slots.into_iter().zip([x, y, z]).take(2 + usize::from(mode % 2 == 0));
                statuses.extend(set.map(|(name, to)| caller.set(operation, name, T::BACKEND_DESCRIPTOR, &[to])));
                statuses.push(caller.set(operation, A::POINTWISE_MODE, T::POINTWISE_MODE, &[mode]));
                statuses.push(caller.set(operation, A::POINTWISE_MATH_PREC, T::DATA_TYPE, &[DataType::FLOAT]));
                statuses.push(caller.finalize(operation));
                statuses.push(self.make(D::OPERATIONGRAPH_DESCRIPTOR.0));
                let (caller, graph) = (&self.caller, self.last());
                statuses.push(caller.set(graph, A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[operation]));
                statuses.push(caller.set(graph, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[self.handle]));
                statuses.push(caller.finalize(graph));
                self.graphs.push(graph);
                statuses
            }
            Call::Plan(graph) => self.plan(self.among(&self.graphs, graph)),
            // SAFETY: descriptors are looked up, never dereferenced unchecked.
            Call::Destroy(at) => vec![unsafe { self.caller.0.destroy_descriptor(self.of(at)) }],
            // No library can check that addresses are valid.
            Call::Set { name: A::VARIANT_PACK_DATA_POINTERS, .. } => Vec::new(),
            Call::Set { on, name, kind, mut values } => {
                let count = values.len() as i64;
                values.resize(8, 0);
                // SAFETY: eight numbers of eight bytes are more than any count passed.
                vec![unsafe { self.caller.0.set_attribute(self.of(on), name, T(kind), count, values.as_ptr().cast()) }]
            }
            Call::Refer { on, name, to } => {
                vec![self.caller.set(self.of(on), name, T::BACKEND_DESCRIPTOR, &[self.of(to)])]
            }
            Call::Get { on, name, kind, room } => {
                let (mut count, mut elements) = (0, [0u64; 8]);
                let elements = elements.as_mut_ptr().cast();
                // SAFETY: as for setting.
                vec![unsafe { self.caller.0.get_attribute(self.of(on), name, T(kind), room, &mut count, elements) }]
            }
            Call::Finalize(at) => vec![self.caller.finalize(self.of(at))],
            Call::Execute(plan, pack) => {
                let (plan, pack) = (self.of(plan), self.of(pack));
                // SAFETY: packs of this client have memory for every tensor that can be executed, or no address at all.
                vec![unsafe { self.caller.0.execute(self.handle, plan, pack) }]
            }
            Call::Save { on, how, at, byte } => {
                let on = if how % 4 == 2 { self.of(on) } else { self.among(&self.graphs, on) };
                self.save(on, how, at, byte)
            }
            Call::Other(which, number) => vec![self.other(which, number)],
        }
    }

    /// Creates a heuristic, a configuration, a plan and a pack for a graph, as far as possible.
    fn plan(&mut self, graph: *mut c_void) -> Vec<Status> {
        let kinds = [
            D::ENGINEHEUR_DESCRIPTOR,
            D::ENGINECFG_DESCRIPTOR,
            D::EXECUTION_PLAN_DESCRIPTOR,
            D::VARIANT_PACK_DESCRIPTOR,
        ];
        let mut statuses: Vec<_> = kinds.iter().map(|kind| self.make(kind.0)).collect();
        let [heuristic, mut config, plan, pack] = self.made[self.made.len() - 4..] else { return statuses };
        let caller = &self.caller;
        statuses.push(caller.set(heuristic, A::ENGINEHEUR_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[graph]));
        statuses.push(caller.set(heuristic, A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0]));
        statuses.push(caller.finalize(heuristic));
        let mut count = 0;
        // SAFETY: the array has one descriptor.
        statuses.push(unsafe {
            let element = (&raw mut config).cast();
            caller.0.get_attribute(heuristic, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR, 1, &mut count, element)
        });
        statuses.push(caller.finalize(config));
        statuses.push(caller.set(plan, A::EXECUTION_PLAN_ENGINE_CONFIG, T::BACKEND_DESCRIPTOR, &[config]));
        statuses.push(caller.finalize(plan));
        let (_, uids) = caller.get::<i64>(plan, A::EXECUTION_PLAN_TENSOR_UIDS_EXT, T::INT64, 8);
        if uids.is_empty() || !self.is_small(graph) {
            return statuses;
        }
        let addresses = vec![self.memory.as_mut_ptr().cast::<c_void>(); uids.len()];
        let caller = &self.caller;
        statuses.push(caller.set(pack, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, &uids));
        statuses.push(caller.set(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &addresses));
        statuses.push(caller.finalize(pack));
        // SAFETY: every tensor of the graph fits the memory; sharing it makes results meaningless, not unsafe.
        statuses.push(unsafe { caller.0.execute(self.handle, plan, pack) });
        // An executed pack is destroyed: another plan may need more memory.
        // SAFETY: as for every descriptor.
        statuses.push(unsafe { caller.0.destroy_descriptor(pack) });
        statuses
    }

    /// Whether every tensor of a graph fits the memory.
    fn is_small(&self, graph: *mut c_void) -> bool {
        let (status, operations) = self.caller.get::<usize>(graph, A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, 4);
        let slots =
            [A::OPERATION_POINTWISE_IN_0_EXT, A::OPERATION_POINTWISE_OUT_0_EXT, A::OPERATION_POINTWISE_IN_1_EXT];
        let fits = |operation: &usize| {
            let operation = ptr::without_provenance_mut(*operation);
            slots.into_iter().all(|slot| {
                let (status, tensors) = self.caller.get::<usize>(operation, slot, T::BACKEND_DESCRIPTOR, 1);
                let small = tensors.iter().all(|&tensor| {
                    let (_, dims) =
                        self.caller.get::<i64>(ptr::without_provenance_mut(tensor), A::TENSOR_DIMENSIONS, T::INT64, 8);
                    dims.iter().try_fold(1i64, |all, &it| all.checked_mul(it)).is_some_and(|elems| elems <= 1024)
                });
                status == Status::SUCCESS && small
            })
        };
        status == Status::SUCCESS && operations.iter().all(fits)
    }

    fn save(&mut self, on: *mut c_void, how: u8, at: usize, byte: u8) -> Vec<Status> {
        let backend = &self.caller.0;
        // SAFETY: the buffers have the given sizes.
        unsafe {
            let (mut size, mut bytes, mut flags, mut read) = (0, vec![0u8; 1 << 14], 0 as c_int, ptr::null_mut());
            let (room, to) = (bytes.len(), bytes.as_mut_ptr());
            let written = match how % 4 {
                0 => backend.serialized_graph(on, room, &mut size, to),
                1 => backend.serialized_json_graph(on, room, &mut size, to.cast()),
                2 => backend.serialized_plan(on, room, &mut size, to),
                _ => backend.serialized_graph_and_plan(on, ptr::null_mut(), room, &mut size, to),
            };
            bytes.truncate(size.clamp(1, room));
            let length = bytes.len();
            if how > 127 {
                bytes[at % length] = byte;
            }
            let from = bytes.as_ptr();
            let again = match how % 4 {
                1 => backend.deserialize_json_graph(&mut read, from.cast(), length),
                2 => backend.deserialize_plan(self.handle, &mut read, from, length),
                _ => backend.deserialize_graph(&mut read, from, length),
            };
            let contents = backend.serialized_contents(from, length, &mut flags);
            self.made.push(read);
            vec![written, again, contents]
        }
    }

    fn other(&self, which: u8, number: i64) -> Status {
        let backend = &self.caller.0;
        let (mut place, mut size, mut text) = (0i64, 16usize, [0i8; 16]);
        // SAFETY: the out-pointers are valid, and the buffers have the given sizes.
        unsafe {
            match which % 8 {
                0 => backend.set_global_log_level(Severity(number as i32)),
                1 => backend.engine_name_by_id(self.handle, number, text.as_mut_ptr().cast(), &mut size),
                2 => backend.engine_id_by_name(self.handle, c"HOST_CPU_ENGINE".as_ptr(), &mut place),
                3 => backend.set_engine_plugin_paths(0, ptr::null(), PluginLoadingMode(number as i32)),
                4 => backend.heuristic_policy_count(self.handle, &mut size),
                5 => backend.engine_count(self.of(number.unsigned_abs() as usize), &mut size),
                6 => backend.set_stream(self.of(number.unsigned_abs() as usize), ptr::null_mut()),
                _ => backend.write_engine_ranking(self.handle, self.of(which.into()), ptr::null(), 0, ptr::null_mut()),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: alive until now.
        unsafe { self.caller.0.destroy(self.handle) };
    }
}

#[test]
fn random_clients_get_statuses() {
    let config = ProptestConfig {
        cases: 600,
        rng_seed: RngSeed::Fixed(5),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let (executed, read) = (Cell::new(0), Cell::new(0));
    let ran = TestRunner::new(config).run(&prop::collection::vec(call(), 1..80), |calls| {
        let mut client = Client::new();
        for call in calls {
            let text = format!("{call:?}");
            let is_plan = matches!(call, Call::Plan(_));
            let is_save = matches!(call, Call::Save { .. });
            let statuses = client.run(call);
            for status in &statuses {
                prop_assert!(status.name().is_some() && *status != Status::INTERNAL_ERROR, "{:?} of {}", status, text);
            }
            let all = statuses.iter().all(|&status| status == Status::SUCCESS);
            executed.set(executed.get() + usize::from(is_plan && all));
            read.set(read.get() + usize::from(is_save && all));
        }
        Ok(())
    });
    ran.unwrap();
    // Clients that only ever fail prove little.
    assert!(executed.get() > 100 && read.get() > 100, "{executed:?} plans ran, {read:?} graphs and plans were read");
}
