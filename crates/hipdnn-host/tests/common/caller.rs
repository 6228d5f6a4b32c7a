//! Wrappers that make the C interface less verbose.
#![allow(dead_code, clippy::unwrap_used)]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use hipdnn::sys::{AttributeName as A, AttributeType as T, Backend, DataType, DescriptorType as D, Status};

/// Calls a backend like a C program.
pub struct Caller(pub Arc<dyn Backend>);

impl Caller {
    pub fn handle(&self) -> *mut c_void {
        let mut handle = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        assert_eq!(unsafe { self.0.create(&mut handle) }, Status::SUCCESS);
        handle
    }

    pub fn make(&self, kind: D) -> *mut c_void {
        let mut made = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        assert_eq!(unsafe { self.0.create_descriptor(kind, &mut made) }, Status::SUCCESS);
        made
    }

    pub fn set<E>(&self, descriptor: *mut c_void, name: A, kind: T, elements: &[E]) -> Status {
        // SAFETY: the array has the given number of elements.
        unsafe { self.0.set_attribute(descriptor, name, kind, elements.len() as i64, elements.as_ptr().cast()) }
    }

    /// Sets an attribute, which must succeed.
    pub fn put<E>(&self, descriptor: *mut c_void, name: A, kind: T, elements: &[E]) {
        assert_eq!(self.set(descriptor, name, kind, elements), Status::SUCCESS, "{name}: {}", self.text());
    }

    pub fn get<E: Default + Clone>(&self, descriptor: *mut c_void, name: A, kind: T, room: usize) -> (Status, Vec<E>) {
        let (mut elements, mut count) = (vec![E::default(); room], 0);
        // SAFETY: the array has space for the given number of elements.
        let status = unsafe {
            self.0.get_attribute(descriptor, name, kind, room as i64, &mut count, elements.as_mut_ptr().cast())
        };
        elements.truncate(usize::try_from(count).unwrap_or(0));
        (status, elements)
    }

    pub fn count(&self, descriptor: *mut c_void, name: A, kind: T) -> (Status, i64) {
        let mut count = -1;
        // SAFETY: a null array asks for the count.
        let status = unsafe { self.0.get_attribute(descriptor, name, kind, 0, &mut count, ptr::null_mut()) };
        (status, count)
    }

    pub fn finalize(&self, descriptor: *mut c_void) -> Status {
        // SAFETY: descriptors are looked up, never dereferenced unchecked.
        unsafe { self.0.finalize(descriptor) }
    }

    /// A finalized single-precision tensor.
    pub fn tensor(&self, uid: i64, dims: &[i64]) -> *mut c_void {
        let made = self.make(D::TENSOR_DESCRIPTOR);
        let strides: Vec<i64> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
        self.put(made, A::TENSOR_UNIQUE_ID, T::INT64, &[uid]);
        self.put(made, A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
        self.put(made, A::TENSOR_DIMENSIONS, T::INT64, dims);
        self.put(made, A::TENSOR_STRIDES, T::INT64, &strides);
        assert_eq!(self.finalize(made), Status::SUCCESS);
        made
    }

    /// A finalized pointwise operation.
    pub fn pointwise(&self, mode: i32, x: *mut c_void, y: *mut c_void) -> *mut c_void {
        let made = self.make(D::OPERATION_POINTWISE_DESCRIPTOR);
        self.put(made, A::OPERATION_POINTWISE_IN_0_EXT, T::BACKEND_DESCRIPTOR, &[x]);
        self.put(made, A::OPERATION_POINTWISE_OUT_0_EXT, T::BACKEND_DESCRIPTOR, &[y]);
        self.put(made, A::POINTWISE_MODE, T::POINTWISE_MODE, &[mode]);
        self.put(made, A::POINTWISE_MATH_PREC, T::DATA_TYPE, &[DataType::FLOAT]);
        assert_eq!(self.finalize(made), Status::SUCCESS);
        made
    }

    /// A graph of operations, not finalized.
    pub fn graph(&self, handle: *mut c_void, operations: &[*mut c_void]) -> *mut c_void {
        let made = self.make(D::OPERATIONGRAPH_DESCRIPTOR);
        self.put(made, A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, operations);
        self.put(made, A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle]);
        made
    }

    /// A finalized graph that computes the absolute values of four numbers: tensor 1 becomes tensor 2.
    pub fn small_graph(&self, handle: *mut c_void) -> *mut c_void {
        let (x, y) = (self.tensor(1, &[4]), self.tensor(2, &[4]));
        let graph = self.graph(handle, &[self.pointwise(1, x, y)]);
        assert_eq!(self.finalize(graph), Status::SUCCESS);
        graph
    }

    /// The finalized configuration of the first engine.
    pub fn config(&self, graph: *mut c_void) -> *mut c_void {
        let heuristic = self.make(D::ENGINEHEUR_DESCRIPTOR);
        self.put(heuristic, A::ENGINEHEUR_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[graph]);
        self.put(heuristic, A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0]);
        assert_eq!(self.finalize(heuristic), Status::SUCCESS);
        let (mut config, mut count) = (self.make(D::ENGINECFG_DESCRIPTOR), 0);
        // SAFETY: the array has one descriptor.
        let status = unsafe {
            let element = (&raw mut config).cast();
            self.0.get_attribute(heuristic, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR, 1, &mut count, element)
        };
        assert_eq!((status, count), (Status::SUCCESS, 1));
        assert_eq!(self.finalize(config), Status::SUCCESS);
        config
    }

    /// A finalized plan on the first engine.
    pub fn plan(&self, graph: *mut c_void) -> *mut c_void {
        let plan = self.make(D::EXECUTION_PLAN_DESCRIPTOR);
        self.put(plan, A::EXECUTION_PLAN_ENGINE_CONFIG, T::BACKEND_DESCRIPTOR, &[self.config(graph)]);
        assert_eq!(self.finalize(plan), Status::SUCCESS);
        plan
    }

    /// A finalized variant pack.
    pub fn pack(&self, uids: &[i64], addresses: &[*mut c_void]) -> *mut c_void {
        let pack = self.make(D::VARIANT_PACK_DESCRIPTOR);
        self.put(pack, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, uids);
        self.put(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, addresses);
        assert_eq!(self.finalize(pack), Status::SUCCESS);
        pack
    }

    /// The last error; reading it clears it.
    pub fn text(&self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has the given size.
        unsafe { self.0.last_error_string(text.as_mut_ptr().cast(), text.len()) };
        text.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as char).collect()
    }
}
