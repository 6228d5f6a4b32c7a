//! The C interface itself: what every caller sees, whatever it is written in.
#![allow(clippy::unwrap_used)]
mod common;

use std::ffi::c_void;
use std::process::Command;
use std::ptr;

use common::{backend, library};
use hipdnn::sys::{AttributeName as A, AttributeType as T, Backend, DataType, DescriptorType as D, SYMBOLS, Status};
use proptest::prelude::*;

#[test]
fn all_entry_points_are_exported() {
    let backend = backend();
    let missing: Vec<_> = SYMBOLS.iter().filter(|symbol| !backend.has(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(SYMBOLS.len(), 38);
}

#[test]
fn a_c_program_runs_a_graph() {
    let folder = std::env::temp_dir().join(format!("hipdnn-host-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("conv_bias_relu");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conv_bias_relu.c");
    let compiled = Command::new("cc").args(["-Wall", "-Werror", "-o"]).arg(&program).args([source, "-ldl"]).status();
    assert!(compiled.unwrap().success(), "cc failed");
    let output = Command::new(&program).arg(library()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"conv, bias, relu: right\n");
}

/// The C interface with less ceremony.
struct Caller(std::sync::Arc<dyn Backend>);

impl Caller {
    fn make(&self, kind: D) -> *mut c_void {
        let mut made = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        assert_eq!(unsafe { self.0.create_descriptor(kind, &mut made) }, Status::SUCCESS);
        made
    }

    fn set<E>(&self, descriptor: *mut c_void, name: A, kind: T, elements: &[E]) -> Status {
        // SAFETY: the array holds what is said.
        unsafe { self.0.set_attribute(descriptor, name, kind, elements.len() as i64, elements.as_ptr().cast()) }
    }

    fn finalize(&self, descriptor: *mut c_void) -> Status {
        // SAFETY: descriptors are looked up, never trusted.
        unsafe { self.0.finalize(descriptor) }
    }

    fn tensor(&self, uid: i64, dims: &[i64]) -> *mut c_void {
        let made = self.make(D::TENSOR_DESCRIPTOR);
        let strides: Vec<i64> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
        for status in [
            self.set(made, A::TENSOR_UNIQUE_ID, T::INT64, &[uid]),
            self.set(made, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]),
            self.set(made, A::TENSOR_DIMENSIONS, T::INT64, dims),
            self.set(made, A::TENSOR_STRIDES, T::INT64, &strides),
            self.finalize(made),
        ] {
            assert_eq!(status, Status::SUCCESS);
        }
        made
    }

    fn text(&self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the buffer is as large as said.
        unsafe { self.0.last_error_string(text.as_mut_ptr().cast(), text.len()) };
        text.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as char).collect()
    }
}

#[test]
fn mistakes_get_the_status_of_their_kind() {
    let caller = Caller(backend());
    let backend = &caller.0;
    let nowhere = ptr::without_provenance_mut::<c_void>(0x1234_5670);
    let null = ptr::null_mut::<c_void>();
    // SAFETY: null out-pointers and unknown handles are what is tested.
    unsafe {
        assert_eq!(backend.create(ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(backend.destroy(null), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(backend.create_descriptor(D::TENSOR_DESCRIPTOR, ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        let mut made = null;
        assert_eq!(backend.create_descriptor(D::LAYOUT_INFO_DESCRIPTOR, &mut made), Status::NOT_SUPPORTED);
        assert_eq!(backend.destroy_descriptor(nowhere), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(backend.execute(nowhere, nowhere, nowhere), Status::BAD_PARAM_NULL_POINTER);
    }
    assert_eq!(caller.finalize(null), Status::BAD_PARAM_NULL_POINTER);

    let tensor = caller.make(D::TENSOR_DESCRIPTOR);
    assert_eq!(caller.set(tensor, A::TENSOR_VALUE_EXT, T::CHAR, &[0u8; 4]), Status::BAD_PARAM, "no type yet");
    assert_eq!(caller.set(tensor, A::TENSOR_DATA_TYPE, T::INT64, &[0i64]), Status::BAD_PARAM, "wrong type");
    assert_eq!(caller.set(tensor, A::TENSOR_UNIQUE_ID, T::INT64, &[1i64, 2]), Status::BAD_PARAM, "wrong count");
    assert_eq!(caller.set(tensor, A::TENSOR_DIMENSIONS, T::INT64, &[0i64; 0]), Status::BAD_PARAM, "no elements");
    assert_eq!(caller.set(tensor, A::POINTWISE_MODE, T::POINTWISE_MODE, &[1]), Status::NOT_SUPPORTED);
    // SAFETY: a null array is what is tested.
    let status = unsafe { backend.set_attribute(tensor, A::TENSOR_UNIQUE_ID, T::INT64, 1, ptr::null()) };
    assert_eq!(status, Status::BAD_PARAM_NULL_POINTER);
    assert_eq!(caller.finalize(tensor), Status::BAD_PARAM, "dimensions are missing");
    let said = caller.text();
    assert!(said.starts_with("TensorDescriptor::finalize() failed: HIPDNN_ATTR_TENSOR_D"), "{said}");
    assert_eq!(caller.text(), "", "reading an error forgets it");

    let (mut count, whole) = (0, caller.tensor(1, &[2, 3]));
    // SAFETY: the out-pointers are valid.
    let read = |descriptor, name, kind, requested, into: *mut c_void, count: &mut i64| unsafe {
        backend.get_attribute(descriptor, name, kind, requested, count, into)
    };
    let mut dims = [0i64; 2];
    let unfinished = read(tensor, A::TENSOR_DIMENSIONS, T::INT64, 2, dims.as_mut_ptr().cast(), &mut count);
    assert_eq!(unfinished, Status::NOT_INITIALIZED);
    assert_eq!(read(whole, A::TENSOR_DIMENSIONS, T::INT64, 0, null, &mut count), Status::SUCCESS);
    assert_eq!(count, 2);
    assert_eq!(read(whole, A::TENSOR_DIMENSIONS, T::INT64, 1, dims.as_mut_ptr().cast(), &mut count), Status::SUCCESS);
    assert_eq!((dims, count), ([2, 0], 1), "as many as there is room for");
    assert_eq!(caller.set(whole, A::TENSOR_UNIQUE_ID, T::INT64, &[1i64]), Status::NOT_INITIALIZED, "it is finalized");

    let pointwise = caller.make(D::OPERATION_POINTWISE_DESCRIPTOR);
    let status = caller.set(pointwise, A::OPERATION_POINTWISE_IN_0_EXT, T::BACKEND_DESCRIPTOR, &[tensor]);
    assert_eq!(status, Status::BAD_PARAM_NOT_FINALIZED);
    let pack = caller.make(D::VARIANT_PACK_DESCRIPTOR);
    assert_eq!(caller.set(pack, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, &[1i64, 2]), Status::SUCCESS);
    assert_eq!(caller.set(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &[null]), Status::SUCCESS);
    assert_eq!(caller.finalize(pack), Status::BAD_PARAM, "two ids for one pointer");
    let heuristic = caller.make(D::ENGINEHEUR_DESCRIPTOR);
    assert_eq!(caller.set(heuristic, A::ENGINEHEUR_MODE, T::HEUR_MODE, &[3]), Status::NOT_SUPPORTED);
    let early = read(heuristic, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR, 0, null, &mut count);
    assert_eq!(early, Status::BAD_PARAM_NOT_FINALIZED);
}

#[test]
fn two_tensors_of_one_number_are_refused() {
    let caller = Caller(backend());
    let mut handle = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    assert_eq!(unsafe { caller.0.create(&mut handle) }, Status::SUCCESS);
    let (x, y) = (caller.tensor(1, &[4]), caller.tensor(1, &[4]));
    let operation = caller.make(D::OPERATION_POINTWISE_DESCRIPTOR);
    for (name, tensor) in [(A::OPERATION_POINTWISE_IN_0_EXT, x), (A::OPERATION_POINTWISE_OUT_0_EXT, y)] {
        assert_eq!(caller.set(operation, name, T::BACKEND_DESCRIPTOR, &[tensor]), Status::SUCCESS);
    }
    assert_eq!(caller.set(operation, A::POINTWISE_MODE, T::POINTWISE_MODE, &[1]), Status::SUCCESS);
    assert_eq!(caller.set(operation, A::POINTWISE_MATH_PREC, T::DATA_TYPE, &[DataType::FLOAT]), Status::SUCCESS);
    assert_eq!(caller.finalize(operation), Status::SUCCESS);
    let graph = caller.make(D::OPERATIONGRAPH_DESCRIPTOR);
    assert_eq!(caller.set(graph, A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[operation]), Status::SUCCESS);
    assert_eq!(caller.set(graph, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle]), Status::SUCCESS);
    assert_eq!(caller.finalize(graph), Status::BAD_PARAM);
    assert!(caller.text().contains("uid 1"));
}

/// One call of a random client; numbers choose among the descriptors made so far.
#[derive(Clone, Debug)]
enum Call {
    Make(i32),
    Destroy(usize),
    Set { on: usize, name: A, kind: i32, values: Vec<i64> },
    Refer { on: usize, name: A, to: usize },
    Get { on: usize, name: A, kind: i32, room: i64 },
    Finalize(usize),
    Execute(usize, usize),
}

fn call() -> impl Strategy<Value = Call> {
    let name = || prop::sample::select(A::ALL.to_vec());
    let small = prop_oneof![0i64..5, Just(-1), Just(i64::MAX), Just(i64::MIN), Just(1 << 40)];
    prop_oneof![
        (-1i32..40).prop_map(Call::Make),
        (0usize..12).prop_map(Call::Destroy),
        (0usize..12, name(), -1i32..32, prop::collection::vec(small, 1..5))
            .prop_map(|(on, name, kind, values)| Call::Set { on, name, kind, values }),
        (0usize..12, name(), 0usize..12).prop_map(|(on, name, to)| Call::Refer { on, name, to }),
        (0usize..12, name(), -1i32..32, -1i64..6).prop_map(|(on, name, kind, room)| Call::Get { on, name, kind, room }),
        (0usize..12).prop_map(Call::Finalize),
        (0usize..12, 0usize..12).prop_map(|(plan, pack)| Call::Execute(plan, pack)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a client does with numbers of its own and arrays that are large enough, it gets a documented status.
    #[test]
    fn random_clients_get_statuses(calls in prop::collection::vec(call(), 1..60)) {
        let caller = Caller(backend());
        let mut made = vec![ptr::null_mut::<c_void>()];
        let mut handle = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        unsafe { caller.0.create(&mut handle) };
        for call in calls {
            let of = |at: usize| made[at % made.len()];
            // SAFETY: arrays hold at least eight 8-byte elements, more than any count passed; descriptors are looked up.
            let status = unsafe {
                match call {
                    Call::Make(kind) => {
                        let mut new = ptr::null_mut();
                        let status = caller.0.create_descriptor(D(kind), &mut new);
                        made.push(new);
                        status
                    }
                    Call::Destroy(at) => caller.0.destroy_descriptor(of(at)),
                    Call::Set { on, name, kind, mut values } => {
                        let count = values.len() as i64;
                        values.resize(8, 0);
                        caller.0.set_attribute(of(on), name, T(kind), count, values.as_ptr().cast())
                    }
                    Call::Refer { on, name, to } => {
                        let to = [of(to)];
                        caller.0.set_attribute(of(on), name, T::BACKEND_DESCRIPTOR, 1, to.as_ptr().cast())
                    }
                    Call::Get { on, name, kind, room } => {
                        let (mut count, mut elements) = (0, [0u64; 8]);
                        caller.0.get_attribute(of(on), name, T(kind), room, &mut count, elements.as_mut_ptr().cast())
                    }
                    Call::Finalize(at) => caller.0.finalize(of(at)),
                    Call::Execute(plan, pack) => caller.0.execute(handle, of(plan), of(pack)),
                }
            };
            prop_assert!(status.name().is_some() && status != Status::INTERNAL_ERROR, "{:?}", status);
        }
        // SAFETY: as above.
        unsafe { caller.0.destroy(handle) };
    }
}
