//! Lower bounds for a step's cost: the bytes it has to move and the operations it has to do.
use crate::expr::{Expr, Node};
use crate::prim::ProductKind;
use crate::{Prim, Step, View};

/// A step's bytes and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read and written, each counted once however often the step accesses it.
    pub bytes: u64,
    /// Arithmetic operations; a multiply-add counts as two.
    pub flops: u64,
}

impl Step {
    /// A lower bound for the step's cost. Operations are exact for products and elementwise work. Other steps count one
    /// operation per element of their largest input or output.
    pub fn cost(&self) -> Cost {
        // The attention dominates: it reads the cache once, and the append adds little.
        if let Prim::AppendAttention(both) = &self.prim
            && let Some([_, attention]) = both.parts(self)
        {
            return attention.cost();
        }
        let written: u64 = self.outputs.iter().map(bytes).sum();
        let read = self.inputs.iter().enumerate().map(|(at, view)| {
            // A gather reads no more of its data than it writes.
            if at == 0 && gathers(&self.prim) { bytes(view).min(written) } else { bytes(view) }
        });
        Cost { bytes: read.sum::<u64>() + written, flops: flops(&self.prim, self) }
    }

    /// True if the step is a product, for which chips with matrix instructions have a higher peak.
    pub fn is_product(&self) -> bool {
        matches!(self.prim, Prim::Product(_) | Prim::Attention(_))
    }
}

fn gathers(prim: &Prim) -> bool {
    matches!(prim, Prim::Gather | Prim::GatherElements(_) | Prim::GatherNd(_))
}

/// Bytes of the elements that a view shows; repeated elements count once.
fn bytes(view: &View) -> u64 {
    if view.elems() == 0 {
        return 0;
    }
    let extents = view.shape.iter().zip(&view.strides);
    let elems: u64 = extents.map(|(&extent, &stride)| if stride == 0 { 1 } else { extent as u64 }).product();
    elems * view.dtype.bytes() as u64
}

fn elems(view: Option<&View>) -> u64 {
    view.map_or(0, |view| view.elems() as u64)
}

/// The last extents of a view, counted from the end.
fn extent(view: Option<&View>, from_end: usize) -> u64 {
    let shape = view.map_or(&[][..], |view| &view.shape);
    shape.len().checked_sub(from_end).map_or(1, |at| shape[at] as u64)
}

fn flops(prim: &Prim, step: &Step) -> u64 {
    let (inputs, out) = (&step.inputs, elems(step.outputs.first()));
    let (first, second) = (inputs.first(), inputs.get(1));
    match prim {
        Prim::Product(product) => {
            let plain = match &product.kind {
                ProductKind::MatMul(_) | ProductKind::QuantMatMul(_) | ProductKind::IntegerMatMul { .. } => {
                    2 * out * extent(first, 1)
                }
                ProductKind::Conv(_) | ProductKind::IntegerConv { .. } => {
                    2 * out * elems(second) / first_extent(second)
                }
                ProductKind::ConvTranspose(_) => 2 * elems(first) * elems(second) / first_extent(second),
            };
            let finish = product.epilogue.as_ref().map(|epilogue| &epilogue.expr);
            let finish = finish.or(product.gate.as_ref().map(|gate| &gate.expr)).map_or(0, operations);
            // With a gate, the product has twice as many columns as the output.
            plain * if product.gate.is_some() { 2 } else { 1 } + out * finish
        }
        // Each token updates and reads the state `[…, size, width]` of its heads.
        Prim::LinearAttention(_) => 4 * elems(first) * extent(inputs.get(2), 1),
        Prim::CausalConv(_) => 2 * out * extent(second, 1),
        Prim::ExpertProduct(_) => 2 * out * extent(first, 1),
        // Queries `[batch, rows, size]`, and values `[batch, keys, width]`.
        Prim::Attention(_) => {
            let values = inputs.get(2);
            2 * elems(first) * extent(values, 2)
                + 2 * elems(first) / extent(first, 1) * extent(values, 2) * extent(values, 1)
        }
        Prim::Map(map) => out * operations(&map.expr),
        // Time steps × sequences, each multiplied with the weights of input and state.
        Prim::Recurrent(_) => 2 * elems(first) / extent(first, 1) * (elems(second) + elems(inputs.get(2))),
        prim if gathers(prim) => out,
        _ => inputs.iter().chain(&step.outputs).map(|view| view.elems() as u64).max().unwrap_or(0),
    }
}

fn first_extent(view: Option<&View>) -> u64 {
    view.and_then(|view| view.shape.first()).map_or(1, |&extent| (extent as u64).max(1))
}

fn operations(expr: &Expr) -> u64 {
    let counts = |node: &&(Node, crate::DType)| matches!(node.0, Node::Unary(..) | Node::Binary(..) | Node::Select(..));
    expr.nodes().iter().filter(counts).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Binary;
    use crate::prim::{BufferId, Conv, Epilogue, Map, MatMul, Product, Softmax};
    use crate::{DType, shape};

    fn view(extents: &[usize]) -> View {
        let strides = shape::dense_strides(extents);
        View { buffer: BufferId(0), dtype: DType::F16, shape: extents.into(), strides, offset: 0 }
    }

    fn step(prim: Prim, inputs: &[&[usize]], output: &[usize]) -> Step {
        let inputs = inputs.iter().map(|extents| view(extents)).collect();
        Step { node: 0, prim, inputs, outputs: vec![view(output)] }
    }

    fn sum() -> Expr {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, DType::F16), expr.input(1, DType::F16));
        expr.binary(Binary::Add, a, b);
        expr
    }

    #[test]
    fn products_count_multiplications_and_additions() {
        let matmul = Product::from(ProductKind::MatMul(MatMul { alpha: 1.0 }));
        let plain = step(matmul.clone().into(), &[&[3, 5, 7], &[3, 7, 11]], &[3, 5, 11]);
        assert_eq!(plain.cost(), Cost { bytes: 2 * (105 + 231 + 165), flops: 2 * 3 * 5 * 7 * 11 });
        let fused = matmul.with_epilogue(Epilogue { operands: 2, dtype: DType::F16, expr: sum() });
        let fused = step(fused.into(), &[&[3, 5, 7], &[3, 7, 11], &[3, 5, 11]], &[3, 5, 11]);
        assert_eq!(fused.cost().flops, 2 * 3 * 5 * 7 * 11 + 165);
        let strides = [1usize, 1].as_slice();
        let conv = Conv {
            strides: strides.into(),
            pads: [0isize, 0].into_iter().collect(),
            dilations: strides.into(),
            groups: 2,
            bias: false,
        };
        let conv = step(ProductKind::Conv(conv).into(), &[&[2, 6, 9, 9], &[4, 3, 3, 3]], &[2, 4, 7, 7]);
        assert_eq!(conv.cost().flops, 2 * (2 * 4 * 7 * 7) * (3 * 3 * 3));
        assert!(conv.is_product());
    }

    #[test]
    fn repeated_elements_are_read_once() {
        let mut map = step(Prim::Map(Map { expr: sum() }), &[&[4, 8], &[4, 8]], &[4, 8]);
        map.inputs[1].strides = [0isize, 1].into_iter().collect();
        assert_eq!(map.cost(), Cost { bytes: 2 * (32 + 8 + 32), flops: 32 });
        let softmax = step(Prim::Softmax(Softmax { log: false }), &[&[4, 0]], &[4, 0]);
        assert_eq!(softmax.cost(), Cost::default());
    }

    #[test]
    fn a_gather_reads_only_the_gathered_rows() {
        let mut gather = step(Prim::Gather, &[&[1, 1000, 8], &[3]], &[1, 3, 8]);
        gather.inputs[1].dtype = DType::I64;
        assert_eq!(gather.cost(), Cost { bytes: 2 * 24 + 3 * 8 + 2 * 24, flops: 24 });
        let repeated = step(Prim::Gather, &[&[1, 2, 8], &[3]], &[1, 3, 8]);
        assert_eq!(repeated.cost().bytes, 2 * (16 + 3 + 24));
    }
}
