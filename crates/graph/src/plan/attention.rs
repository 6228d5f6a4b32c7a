//! Merges two products with a softmax between them into one step, on devices that support it.
//!
//! Lowered attention operators and models that spell attention out contain the same steps: a product of queries and
//! keys, elementwise work on it (a scale, a mask, a limit on visible keys), softmax, a product with the values, and
//! often a copy that joins the heads. The scores in between are the largest tensor, and only this step uses them.
use crate::expr::{Binary, Expr, Node, Ref};
use crate::plan::Draft;
use crate::plan::epilogue::{dense_order, reordered};
use crate::plan::uses::Uses;
use crate::prim::{Attention, MatMul, Prim, ProductKind, Softmax};
use crate::{DType, Scalar, Shape, Step, View};

/// What every device with this stage supports: operands of the scores, axes of their shape, size of heads.
const MAX_OPERANDS: usize = 4;
const MAX_AXES: usize = 4;
const MAX_SIZE: usize = 256;
/// Larger heads, and single precision, pay off for few rows only: for many, separate products are faster.
const MANY_SIZE: usize = 128;
const FEW_ROWS: usize = 16;

/// Merges everything that computes attention.
pub(super) fn merge(draft: &mut Draft) {
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    for at in 0..steps.len() {
        let finder = Finder { steps: &steps, uses: &uses, draft };
        let Some((made, inner)) = finder.attention(at) else { continue };
        let (place, made) = finder.without_copy(at, made);
        inner.into_iter().chain([at]).for_each(|gone| steps[gone] = None);
        steps[place] = Some(made);
    }
    draft.steps = steps.into_iter().flatten().collect();
}

struct Finder<'a> {
    steps: &'a [Option<Step>],
    uses: &'a Uses,
    draft: &'a Draft,
}

impl Finder<'_> {
    /// The step before `at` that fills all of a view's buffer, if that has this many readers.
    fn maker(&self, at: usize, view: &View, readers: u32) -> Option<(usize, &Step)> {
        let buffer = &self.draft.buffers[view.buffer.0 as usize];
        let whole = |view: &View| view.is_dense() && view.offset == 0 && view.elems() == buffer.elems;
        let made = self.uses.maker(at, view).filter(|_| self.uses.readers_of(view) == readers)?;
        let step = self.steps[made].as_ref()?;
        let fits = whole(view) && whole(step.outputs.first()?) && view.dtype == buffer.dtype;
        fits.then_some((made, step))
    }

    /// The attention whose last product is the step at `at`, and the other steps it replaces.
    fn attention(&self, at: usize) -> Option<(Step, Vec<usize>)> {
        let last = self.steps[at].as_ref()?;
        let Some(ProductKind::MatMul(MatMul { alpha: 1.0 })) = last.prim.plain_product() else { return None };
        let [weights, values] = &last.inputs[..] else { return None };
        let dtype = weights.dtype;
        let is_whole = self.is_whole(last.outputs.first()?);
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) || !is_whole {
            return None;
        }
        let mut gone = Vec::new();
        let (mut from, mut maker) = self.maker(at, weights, 1)?;
        let zero_if_hidden = matches!(maker.prim, Prim::Map(_));
        if zero_if_hidden {
            gone.push(from);
            (from, maker) = self.shown(from, maker)?;
        }
        let Prim::Softmax(Softmax { log: false }) = maker.prim else { return None };
        gone.push(from);
        let scores = maker.inputs.first()?;
        let (at_scores, made) = self.maker(from, scores, if zero_if_hidden { 2 } else { 1 })?;
        gone.push(at_scores);
        let (expr, operands, at_product, product) = match &made.prim {
            // The product is not rounded, because it is never stored.
            prim if is_matmul(prim) && !zero_if_hidden => {
                (Expr::copy(dtype, dtype.compute()), Vec::new(), at_scores, made)
            }
            Prim::Map(_) => {
                let found = self.scores(at_scores, made)?;
                gone.push(found.2);
                found
            }
            _ => return None,
        };
        let Some(&ProductKind::MatMul(MatMul { alpha })) = product.prim.plain_product() else { return None };
        let ([queries, keys], [made]) = (&product.inputs[..], &product.outputs[..]) else { return None };
        let shape = scores.shape.clone();
        let one_type = [queries, keys, values, made, &last.outputs[0]].iter().all(|view| view.dtype == dtype);
        let fits = one_type
            && made.shape == weights.shape
            && shape.last() == made.shape.last()
            && expr.result().compute() == dtype.compute();
        let (rows, size, width) = (made.shape[1], queries.shape[2].max(values.shape[2]), values.shape[2]);
        let small = size <= MAX_SIZE && operands.len() <= MAX_OPERANDS && (2..=MAX_AXES).contains(&shape.len());
        let worth = rows <= FEW_ROWS || (dtype != DType::F32 && size <= MANY_SIZE);
        if !fits || !small || !worth || shape.contains(&0) || size == 0 {
            return None;
        }
        let mut out: Shape = shape.clone();
        *out.last_mut()? = width;
        let mut output = last.outputs[0].clone();
        output.strides = crate::shape::dense_strides(&out);
        output.shape = out;
        let mut inputs = Vec::with_capacity(3 + operands.len());
        for (from, view) in [(at_product, queries), (at_product, keys), (at, values)] {
            let source = self.source(from, view, shape[0]);
            inputs.push(source.map_or_else(
                || view.clone(),
                |(copy, source)| {
                    gone.push(copy);
                    source
                },
            ));
        }
        inputs.extend(operands);
        let prim = Prim::Attention(Attention { alpha, shape, scores: expr, zero_if_hidden });
        Some((Step { node: last.node, prim, inputs, outputs: vec![output] }, gone))
    }

    /// The source of a copied view of whole heads, and the position of the copy, if only the step at `at` reads it.
    /// Heads of several sequences are side by side there: their batches are two axes, the first with this extent.
    fn source(&self, at: usize, view: &View, outer: usize) -> Option<(usize, View)> {
        let (copy, step) = self.maker(at, view, 1)?;
        let Prim::Map(map) = &step.prim else { return None };
        let ([from], [to]) = (&step.inputs[..], &step.outputs[..]) else { return None };
        let batches = view.shape[0];
        let fits = is_copy(&map.expr, from, to) && self.uses.writers[from.buffer.0 as usize] <= 1;
        if !fits || outer == 0 || !batches.is_multiple_of(outer) {
            return None;
        }
        let shape: Shape = [outer, batches / outer, view.shape[1], view.shape[2]].as_slice().into();
        Some((copy, reordered(from, &dense_order(to)?, &shape)?))
    }

    fn is_whole(&self, view: &View) -> bool {
        let buffer = &self.draft.buffers[view.buffer.0 as usize];
        view.is_dense() && view.offset == 0 && view.elems() == buffer.elems && view.dtype == buffer.dtype
    }

    /// The softmax before a map that gives zeros where scores are minus infinity, and the softmax's result elsewhere.
    fn shown(&self, at: usize, map: &Step) -> Option<(usize, &Step)> {
        let Prim::Map(work) = &map.prim else { return None };
        let [scores, weights] = &map.inputs[..] else { return None };
        let dtype = scores.dtype;
        let mut expected = Expr::new();
        let arguments = [expected.input(0, dtype), expected.input(1, dtype)];
        let never = expected.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
        let zero = expected.constant(Scalar::Float(0.0), dtype);
        let is_hidden = expected.binary(Binary::Eq, arguments[0], never);
        let value = expected.select(is_hidden, zero, arguments[1]);
        expected.finish(value);
        let made = self.maker(at, weights, 1)?;
        let same =
            made.1.inputs.first() == Some(scores) && (work.expr == expected || stored(&work.expr, &expected, dtype));
        same.then_some(made)
    }

    /// The expression of a map over a product, with the product's result as input 0; the other operands; the product.
    fn scores(&self, at: usize, map: &Step) -> Option<(Expr, Vec<View>, usize, &Step)> {
        let Prim::Map(work) = &map.prim else { return None };
        let result = map.outputs.first()?;
        let product = map.inputs.iter().find_map(|view| {
            let (from, step) = self.maker(at, view, 1)?;
            (is_matmul(&step.prim) && view.shape == result.shape).then_some((from, step, view))
        });
        let (from, step, product) = product?;
        let mut expr = Expr::new();
        let sum = expr.input(0, product.dtype);
        let mut operands: Vec<View> = Vec::new();
        let arguments: Vec<Ref> = map
            .inputs
            .iter()
            .map(|view| {
                if view == product {
                    return sum;
                }
                operands.push(view.clone());
                expr.input(operands.len() as u16, view.dtype)
            })
            .collect();
        let value = expr.inline(&work.expr, &arguments);
        expr.finish(value);
        let apart = operands.iter().all(|view| view.buffer != product.buffer);
        apart.then_some((expr, operands, from, step))
    }

    /// The attention merged with the copy after it, if there is one and the result has no other reader; and its
    /// position.
    fn without_copy(&self, at: usize, mut made: Step) -> (usize, Step) {
        let output = &made.outputs[0];
        let reads = |step: &Option<Step>| {
            step.as_ref().is_some_and(|step| step.inputs.iter().any(|view| view.buffer == output.buffer))
        };
        let copied = || -> Option<(usize, View)> {
            if self.uses.readers_of(output) != 1 {
                return None;
            }
            let place = self.steps.iter().skip(at + 1).position(reads)? + at + 1;
            let copy = self.steps[place].as_ref()?;
            let Prim::Map(map) = &copy.prim else { return None };
            let ([from], [to]) = (&copy.inputs[..], &copy.outputs[..]) else { return None };
            if !is_copy(&map.expr, from, to) || from.elems() != output.elems() {
                return None;
            }
            Some((place, reordered(to, &dense_order(from)?, &output.shape)?))
        };
        match copied() {
            Some((place, view)) => {
                made.outputs = vec![view];
                (place, made)
            }
            None => (at, made),
        }
    }
}

/// True for matrix products with nothing fused into them.
fn is_matmul(prim: &Prim) -> bool {
    matches!(prim.plain_product(), Some(ProductKind::MatMul(_)))
}

/// True if an expression only copies: half types may be cast to their compute type and back.
fn is_copy(expr: &Expr, from: &View, to: &View) -> bool {
    let dtypes = [from.dtype, from.dtype.compute()];
    let same = |(at, &(node, dtype)): (usize, &(Node, DType))| {
        dtypes.contains(&dtype)
            && match node {
                Node::Input(0) => at == 0,
                Node::Cast(from) => usize::from(from) + 1 == at,
                _ => false,
            }
    };
    from.dtype == to.dtype && expr.nodes().iter().enumerate().all(same)
}

/// True if an expression equals another one with its result stored in a type.
fn stored(found: &Expr, expected: &Expr, dtype: DType) -> bool {
    let mut with_cast = expected.clone();
    let last = (with_cast.nodes().len() - 1) as Ref;
    let cast = with_cast.cast(last, dtype);
    with_cast.finish(cast);
    *found == with_cast
}
