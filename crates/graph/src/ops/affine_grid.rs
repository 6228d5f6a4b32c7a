//! Positions of an affine transformation, for sampling: AffineGrid.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::{Entry, Op};
use crate::{DType, LowerError, Scalar, Shape, Val};

#[derive(Debug)]
struct AffineGrid {
    /// -1 and 1 are the centres of the outermost pixels, not their outer edges.
    align_corners: bool,
}

impl Op for AffineGrid {
    fn name(&self) -> &'static str {
        "AffineGrid"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let theta = cx.required(inputs, 0)?.clone();
        let size = cx.extents(&cx.known(inputs, 1)?.to_i64s())?;
        let rank = size.len().saturating_sub(2);
        if !(2..=3).contains(&rank) || theta.shape() != [size[0], rank, rank + 1] {
            return Err(cx.invalid(format!("theta of shape {:?} for size {size:?}", theta.shape())));
        }
        let (batch, extents) = (size[0], &size[2..]);
        let to: Shape = std::iter::once(batch).chain(extents.iter().copied()).chain([rank]).collect();
        // Column c of every matrix, with axes for the positions between batch and row.
        let columns: Vec<Val> = (0..=rank)
            .map(|column| {
                let column = theta.sliced(2, column, 1, 1).squeezed(2);
                (0..rank).fold(column, |column, _| column.unsqueezed(1))
            })
            .collect();
        let columns: Vec<&Val> = columns.iter().collect();
        let compute = theta.dtype().compute();
        let grid = cx.map_to(&columns, theta.dtype(), &to, |expr, columns| {
            let mut sum = expr.cast(columns[rank], compute);
            // The first column is for the last axis.
            for (axis, &extent) in extents.iter().enumerate() {
                let position = self.position(expr, 1 + axis, extent, compute);
                let factor = expr.cast(columns[rank - 1 - axis], compute);
                let product = expr.binary(Binary::Mul, factor, position);
                sum = expr.binary(Binary::Add, sum, product);
            }
            sum
        })?;
        Ok(vec![grid])
    }
}

impl AffineGrid {
    /// The position between -1 and 1 of the current index along an axis.
    fn position(&self, expr: &mut Expr, axis: usize, extent: usize, compute: DType) -> Ref {
        let index = expr.index(axis as u16);
        let index = expr.cast(index, compute);
        let (step, start) = match (self.align_corners, extent) {
            // As ONNX defines it: a single position counts as the first one.
            (true, 0..=1) => (0.0, -1.0),
            (true, _) => (2.0 / (extent - 1) as f64, -1.0),
            (false, _) => (2.0 / extent as f64, 1.0 / extent as f64 - 1.0),
        };
        let [step, start] = [step, start].map(|value| expr.constant(Scalar::Float(value), compute));
        let distance = expr.binary(Binary::Mul, index, step);
        expr.binary(Binary::Add, distance, start)
    }
}

pub(super) const OPS: &[Entry] = &[Entry {
    domain: "",
    op_type: "AffineGrid",
    parse: |node| {
        node.accept(0, DType::is_float)?;
        Ok(Box::new(AffineGrid { align_corners: node.attributes.flag("align_corners")? }))
    },
}];
