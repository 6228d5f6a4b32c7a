//! A warm step allocates nothing.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Count;

use graph::prim::{
    Activation, ActivationKind, BufferId, Cell, Conv, Coordinates, Interpolation, Nearest, Pool, PoolKind, ProductKind,
    Recurrent, RecurrentInputs, Resize,
};
use graph::shape::dense_strides;
use graph::{DType, Prim, Step, View};
use host_ops::{Context, Scratch, Serial};

thread_local! {
    static ALLOCATIONS: Count<usize> = const { Count::new(0) };
}

struct Counting;

// SAFETY: everything is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn conv(groups: usize, stride: usize) -> Conv {
    Conv {
        strides: [stride; 2].into_iter().collect(),
        pads: [1; 2].into_iter().collect(),
        dilations: [1; 2].into_iter().collect(),
        groups,
        bias: true,
    }
}

fn pool(kind: PoolKind) -> Prim {
    Prim::Pool(Pool {
        kind,
        kernel: [3; 2].into_iter().collect(),
        strides: [2; 2].into_iter().collect(),
        pads: [1; 2].into_iter().collect(),
        pads_end: [1; 2].into_iter().collect(),
        dilations: [1; 2].into_iter().collect(),
    })
}

fn resize(interpolation: Interpolation) -> Prim {
    Prim::Resize(Resize {
        interpolation,
        coordinates: Coordinates::HalfPixel,
        scales: vec![1.0, 1.0, 2.0, 2.0],
        roi: Vec::new(),
        extrapolation: 0.0,
        antialias: false,
    })
}

fn recurrent(cell: Cell, count: usize) -> Prim {
    let activation = Activation { kind: ActivationKind::Tanh, alpha: 0.0, beta: 0.0 };
    Prim::Recurrent(Recurrent {
        cell,
        reverse: false,
        activations: vec![activation; count],
        clip: None,
        input_forget: false,
        has: RecurrentInputs::default(),
    })
}

/// A primitive with the shapes of its inputs and outputs.
type Case = (Prim, Vec<Vec<usize>>, Vec<Vec<usize>>);

fn cases() -> Vec<Case> {
    let image = vec![2, 12, 17, 17];
    vec![
        (Prim::matmul(1.0), vec![vec![2, 30, 300], vec![2, 300, 50]], vec![vec![2, 30, 50]]),
        (Prim::matmul(1.0), vec![vec![1, 1, 300], vec![1, 300, 50]], vec![vec![1, 1, 50]]),
        (
            ProductKind::Conv(conv(1, 1)).into(),
            vec![image.clone(), vec![40, 12, 3, 3], vec![40]],
            vec![vec![2, 40, 17, 17]],
        ),
        (
            ProductKind::Conv(conv(12, 2)).into(),
            vec![image.clone(), vec![12, 1, 3, 3], vec![12]],
            vec![vec![2, 12, 9, 9]],
        ),
        (
            ProductKind::ConvTranspose(conv(1, 2)).into(),
            vec![image.clone(), vec![12, 5, 3, 3], vec![5]],
            vec![vec![2, 5, 33, 33]],
        ),
        (pool(PoolKind::Max { column_major: false }), vec![image.clone()], vec![vec![2, 12, 9, 9]]),
        (pool(PoolKind::Average { count_pad: false }), vec![image.clone()], vec![vec![2, 12, 9, 9]]),
        (resize(Interpolation::Linear), vec![image.clone()], vec![vec![2, 12, 34, 34]]),
        (resize(Interpolation::Nearest(Nearest::Floor)), vec![image], vec![vec![2, 12, 34, 34]]),
        (
            recurrent(Cell::Lstm, 3),
            vec![vec![4, 3, 10], vec![80, 10], vec![80, 20]],
            vec![vec![4, 3, 20], vec![3, 20], vec![3, 20]],
        ),
        (
            recurrent(Cell::Gru { linear_before_reset: false }, 2),
            vec![vec![4, 1, 10], vec![60, 10], vec![60, 20]],
            vec![vec![4, 1, 20], vec![1, 20]],
        ),
    ]
}

#[test]
fn the_second_run_allocates_nothing() {
    for (prim, inputs, outputs) in cases() {
        let mut memory: Vec<Vec<f32>> =
            inputs.iter().chain(&outputs).map(|shape| vec![0.5; shape.iter().product()]).collect();
        let addresses: Vec<*mut u8> = memory.iter_mut().map(|memory| memory.as_mut_ptr().cast()).collect();
        let mut views: Vec<View> = inputs
            .iter()
            .chain(&outputs)
            .enumerate()
            .map(|(at, shape)| View {
                buffer: BufferId(at as u32),
                dtype: DType::F32,
                shape: shape.iter().copied().collect(),
                strides: dense_strides(shape),
                offset: 0,
            })
            .collect();
        let outputs = views.split_off(inputs.len());
        let step = Step { node: 0, prim, inputs: views, outputs };
        let mut scratch = Scratch::default();
        let mut cx = Context { parallel: &Serial, scratch: &mut scratch };
        let mut counts = [0; 2];
        for count in &mut counts {
            let before = ALLOCATIONS.with(Count::get);
            // SAFETY: every vector holds its view.
            unsafe { host_ops::run(&step, |buffer| addresses[buffer.0 as usize], &mut cx) }.unwrap();
            *count = ALLOCATIONS.with(Count::get) - before;
        }
        assert!(counts[0] > 0, "{} needs no scratch memory: the counter does not count", step.prim.name());
        assert_eq!(counts[1], 0, "{:?}", step.prim);
    }
}
