//! Writing by index.
use crate::expr::{Binary, Expr};
use crate::lower::val::Indices;
use crate::lower::{Lower, Val};
use crate::prim::{Scatter, ScatterKind};
use crate::shape::{self, dense_strides};
use crate::{DType, LowerError, Prim, Scalar, Shape, Tensor};

impl Lower<'_> {
    /// Data with updates written at indices along an axis; indices and updates have the same shape.
    ///
    /// # Errors
    /// Ranks or extents do not match, or a known index is out of range.
    pub fn scatter_elements(
        &mut self,
        data: &Val,
        indices: &Val,
        updates: &Val,
        axis: usize,
        kind: ScatterKind,
    ) -> Result<Val, LowerError> {
        self.check_elements(data, indices, axis)?;
        self.check_updates(data, updates, indices.shape())?;
        if indices.elems() == 0 {
            return Ok(data.clone());
        }
        if self.are_small_and_known(&[data, indices, updates]) {
            let places = self.places_along(data, indices, axis)?;
            let updates = Indices::new(updates.shape()).filter_map(|index| updates.get(&index));
            return self.put(data, places.into_iter().zip(updates), kind);
        }
        let prim = Prim::ScatterElements(Scatter { kind, axis });
        self.apply(prim, &[data, indices, updates], data.dtype(), &Shape::from(data.shape()))
    }

    /// Data with slices of updates written at index tuples along the indices' last axis.
    ///
    /// # Errors
    /// Ranks or extents do not match, or a known index is out of range.
    pub fn scatter_nd(
        &mut self,
        data: &Val,
        indices: &Val,
        updates: &Val,
        kind: ScatterKind,
    ) -> Result<Val, LowerError> {
        let Some((&depth, outer)) = indices.shape().split_last().filter(|(depth, _)| **depth <= data.rank()) else {
            return Err(self.invalid(format!(
                "indices of shape {:?} do not match data of shape {:?}",
                indices.shape(),
                data.shape()
            )));
        };
        let want: Shape = outer.iter().chain(&data.shape()[depth..]).copied().collect();
        self.check_updates(data, updates, &want)?;
        if updates.elems() == 0 {
            return Ok(data.clone());
        }
        if data.elems() == 0 {
            return Err(
                self.invalid(format!("data of shape {:?} is empty, so there is nothing to update", data.shape()))
            );
        }
        if self.are_small_and_known(&[data, indices, updates]) {
            let tuples = self.tuples(data, indices, 0)?;
            let slice = shape::elems(&want[outer.len()..]).unwrap_or(1);
            let places = Indices::new(&want).enumerate().map(|(at, index)| {
                let mut place = tuples[at / slice].clone();
                place.extend_from_slice(&index[outer.len()..]);
                place
            });
            let updates = Indices::new(&want).filter_map(|index| updates.get(&index));
            return self.put(data, places.zip(updates), kind);
        }
        let prim = Prim::ScatterNd(Scatter { kind, axis: 0 });
        self.apply(prim, &[data, indices, updates], data.dtype(), &Shape::from(data.shape()))
    }

    fn are_small_and_known(&self, values: &[&Val]) -> bool {
        values.iter().all(|value| value.is_known() && value.elems() <= self.known_limit())
    }

    fn check_updates(&self, data: &Val, updates: &Val, want: &[usize]) -> Result<(), LowerError> {
        if updates.dtype() == data.dtype() && updates.shape() == want {
            return Ok(());
        }
        Err(self.invalid(format!(
            "the updates are {}{:?}, expected {}{want:?}",
            updates.dtype(),
            updates.shape(),
            data.dtype()
        )))
    }

    /// Known data with known updates written one after the other.
    fn put(
        &self,
        data: &Val,
        updates: impl Iterator<Item = (Shape, Scalar)>,
        kind: ScatterKind,
    ) -> Result<Val, LowerError> {
        let not_known = || self.invalid("the planner needs a value that is not known");
        let dtype = data.dtype();
        let mut scalars: Vec<Scalar> = data.to_tensor().ok_or_else(not_known)?.scalars().collect();
        let strides = dense_strides(data.shape());
        let meet = meeting(kind, dtype);
        for (place, update) in updates {
            let at: usize = place.iter().zip(&strides).map(|(&index, &stride)| index * stride as usize).sum();
            scalars[at] = meet.as_ref().map_or(update, |expr| expr.eval(&[scalars[at], update], &[]));
        }
        Tensor::from_scalars(dtype, data.shape(), scalars).map(Val::known).ok_or_else(not_known)
    }
}

/// How an update combines with the existing element; `None` if it replaces it.
fn meeting(kind: ScatterKind, dtype: DType) -> Option<Expr> {
    let op = match kind {
        ScatterKind::Replace => return None,
        ScatterKind::Add => Binary::Add,
        ScatterKind::Mul => Binary::Mul,
        ScatterKind::Max => Binary::Max,
        ScatterKind::Min => Binary::Min,
    };
    let mut expr = Expr::new();
    let (old, update) = (expr.input(0, dtype), expr.input(1, dtype));
    let result = expr.binary(op, old, update);
    expr.finish(result);
    Some(expr)
}
