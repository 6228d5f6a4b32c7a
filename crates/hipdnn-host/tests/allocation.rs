//! Executing a plan that has already run allocates nothing, whatever its tensors' layout.
#![allow(clippy::unwrap_used)]
#[path = "common/inside.rs"]
mod inside;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use hip::{Driver, DriverKind};
use hipdnn::sys::{DataType, PointwiseMode as M};
use hipdnn::{Convolution, Graph, Handle, Tensor};

use inside::Inside;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations during the third execution of a convolution with an activation.
fn allocations(x: &Tensor, stream: Option<&hip::Stream>) -> usize {
    let handle = Handle::new(Arc::new(Inside)).unwrap();
    if let Some(stream) = stream {
        // SAFETY: the stream outlives the handle.
        unsafe { handle.set_stream(stream.raw()) }.unwrap();
    }
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
    let xi = graph.tensor(x.clone());
    let wi = graph.tensor(Tensor::new(&[4, 3, 3, 3]));
    let y = graph.convolution(xi, wi, Convolution::new(2));
    let relu = graph.pointwise(M::RELU_FWD, &[y]);
    graph.output(relu, Tensor::default());
    let plan = graph.build(&handle).unwrap().plan().unwrap();
    let mut memory = [xi, wi, relu].map(|id| (graph.uid(id).unwrap(), vec![0.5f32; 4096]));
    let mut found = 0;
    for _ in 0..3 {
        let addresses = memory.each_mut().map(|(uid, values)| (*uid, values.as_mut_ptr().cast::<c_void>()));
        let before = COUNT.get();
        // SAFETY: the memory is larger than any of the tensors.
        unsafe { plan.execute(&handle, addresses, std::ptr::null_mut()) }.unwrap();
        found = COUNT.get() - before;
    }
    assert_eq!(memory[2].1[0], 27.0 * 0.25);
    found
}

#[test]
fn a_warm_execution_allocates_nothing() {
    let driver = Driver::load(DriverKind::Host).unwrap();
    let stream = driver.devices().unwrap().remove(0).stream().unwrap();
    let packed = Tensor::new(&[1, 3, 9, 9]);
    let with_gaps = Tensor::new(&[1, 3, 9, 9]).strides(&[800, 250, 20, 2]);
    for (what, x) in [("packed", packed.clone()), ("channels last", packed.channels_last()), ("with gaps", with_gaps)] {
        assert!(COUNT.get() > 0, "nothing is counted");
        assert_eq!(allocations(&x, None), 0, "{what}, default stream");
        assert_eq!(allocations(&x, Some(&stream)), 0, "{what}, idle stream");
    }
}
