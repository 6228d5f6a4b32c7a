//! Elementwise work: an expression over strided views.
//!
//! Views are merged into as few axes as possible ([`crate::walk`]), the expression is compiled to instructions over
//! registers of about a thousand elements ([`program`]), and each instruction is one loop that the compiler vectorises
//! ([`block`]). Pure copies have their own code ([`copy`]).
mod binary;
mod block;
mod copy;
mod lane;
mod program;
mod unary;

use graph::expr::{Binary, Expr, Node, Unary};
use graph::prim::{BufferId, Map};
use graph::{DType, View};
use smallvec::SmallVec;

use crate::walk::Walk;
use crate::{Context, OpError, Tensor, TensorMut};
use block::Job;
use program::{Program, Source};

/// Minimum number of elementary operations per task.
const GRAIN: usize = 32 * 1024;

pub(crate) fn run(
    map: &Map,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let output = outputs[0];
    let elems = output.elems();
    if elems == 0 {
        return Ok(());
    }
    let expr = &map.expr;
    let mut views: SmallVec<[&[isize]; 9]> = SmallVec::from_slice(&[output.strides()]);
    views.extend(inputs.iter().map(|input| input.strides()));
    let is_pinned = |axis: usize| expr.nodes().iter().any(|(node, _)| *node == Node::Index(axis as u16));
    let walk = Walk::new(output.shape(), &views, is_pinned);
    if let [input] = inputs
        && is_copy(expr, input.dtype(), output.dtype())
    {
        copy::copy(&walk, input, &output, cx);
        return Ok(());
    }
    let keeps_rows = block::keeps_rows(&walk);
    let sources: SmallVec<[Source; 8]> = inputs
        .iter()
        .enumerate()
        .map(|(number, input)| Source {
            dtype: input.dtype(),
            is_uniform: walk.is_uniform(number + 1),
            is_direct: keeps_rows
                && walk.row_stride(number + 1) == 1
                && input.dtype() == input.dtype().compute()
                && input.dtype() != DType::Bool
                && !overlap(
                    span(&walk, number + 1, input.start(), input.dtype()),
                    span(&walk, 0, output.start(), output.dtype()),
                ),
        })
        .collect();
    let is_direct = keeps_rows && walk.row_stride(0) == 1 && output.dtype() == output.dtype().compute();
    let program = Program::new(expr, &sources, output.dtype(), is_direct);
    let job = Job { program: &program, walk: &walk, inputs, output };
    let grain = (GRAIN / cost(expr)).max(1024);
    cx.parallel.ranges(elems, grain, |range| job.run(range));
    Ok(())
}

/// An expression over contiguous elements, compiled once for many runs.
pub(crate) struct Elementwise {
    program: Program,
    walk: Walk,
    /// Views of the inputs, then of the output.
    views: SmallVec<[View; 6]>,
}

impl Elementwise {
    /// An expression without indices, over inputs of these types, for at most `most` elements at a time.
    pub(crate) fn new(expr: &Expr, inputs: impl Iterator<Item = DType>, output: DType, most: usize) -> Self {
        let view = |dtype: DType| View {
            buffer: BufferId(0),
            dtype,
            shape: SmallVec::from_slice(&[most]),
            strides: SmallVec::from_slice(&[1]),
            offset: 0,
        };
        let views: SmallVec<[View; 6]> = inputs.chain([output]).map(view).collect();
        let strides: SmallVec<[&[isize]; 9]> = SmallVec::from_elem(&[1][..], views.len());
        let walk = Walk::new(&[most], &strides, |_| false);
        let sources: SmallVec<[Source; 8]> = views[..views.len() - 1]
            .iter()
            .map(|view| Source {
                dtype: view.dtype,
                is_uniform: false,
                is_direct: view.dtype == view.dtype.compute() && view.dtype != DType::Bool,
            })
            .collect();
        let program = Program::new(expr, &sources, output, output == output.compute());
        Self { program, walk, views }
    }

    /// Computes the first `count` elements.
    ///
    /// # Safety
    /// Every address holds that many elements of its type, aligned; the output shares no memory with an input.
    pub(crate) unsafe fn run(&self, count: usize, inputs: &[*const u8], output: *mut u8) {
        let Some((out_view, in_views)) = self.views.split_last() else { return };
        let inputs: SmallVec<[Tensor<'_>; 6]> =
            // SAFETY: guaranteed by the caller.
            in_views.iter().zip(inputs).map(|(view, &start)| unsafe { Tensor::new(view, start) }).collect();
        // SAFETY: as above.
        let output = unsafe { TensorMut::new(out_view, output) };
        Job { program: &self.program, walk: &self.walk, inputs: &inputs, output }.run(0..count);
    }
}

/// True if the expression stores its only input unchanged.
fn is_copy(expr: &Expr, from: DType, to: DType) -> bool {
    from == to
        && expr.nodes().iter().enumerate().all(|(at, (node, dtype))| match node {
            Node::Input(0) => at == 0,
            Node::Cast(_) => *dtype == from || *dtype == from.compute(),
            _ => false,
        })
}

/// The bytes between a view's lowest and highest element.
fn span(walk: &Walk, view: usize, start: *const u8, dtype: DType) -> (isize, isize) {
    let bytes = dtype.bytes() as isize;
    let (mut low, mut high) = (start as isize, start as isize + bytes);
    for (&stride, &extent) in walk.strides(view).iter().zip(walk.extents()) {
        let reach = stride * (extent as isize - 1) * bytes;
        low += reach.min(0);
        high += reach.max(0);
    }
    (low, high)
}

fn overlap(a: (isize, isize), b: (isize, isize)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// The cost of one element, in simple operations.
fn cost(expr: &Expr) -> usize {
    let costs = expr.nodes().iter().map(|(node, dtype)| match node {
        Node::Binary(Binary::Pow | Binary::Mod | Binary::Fmod | Binary::Atan2, ..) => 24,
        Node::Unary(Unary::Neg | Unary::Abs | Unary::Sign | Unary::Not | Unary::Recip | Unary::Sqrt, _) => 1,
        Node::Unary(..) if *dtype == DType::F32 => 6,
        Node::Unary(..) => 16,
        Node::Const(_) => 0,
        _ => 1,
    });
    costs.sum::<usize>().max(1)
}
