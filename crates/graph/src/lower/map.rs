//! Elementwise work.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::{Lower, Val};
use crate::prim::Map;
use crate::{DType, LowerError, Prim, Scalar, Shape, shape};

impl Lower<'_> {
    /// Applies an expression to values broadcast together; the result is stored as `dtype`.
    ///
    /// # Errors
    /// The shapes cannot be broadcast together.
    pub fn map(
        &mut self,
        inputs: &[&Val],
        dtype: DType,
        build: impl FnOnce(&mut Expr, &[Ref]) -> Ref,
    ) -> Result<Val, LowerError> {
        let mut to = Shape::new();
        for value in inputs {
            to = shape::broadcast(&to, value.shape()).ok_or_else(|| {
                self.invalid(format!("shapes {to:?} and {:?} cannot be broadcast together", value.shape()))
            })?;
        }
        self.map_to(inputs, dtype, &to, build)
    }

    /// Like [`map`](Self::map), but broadcasts the inputs to a given output shape.
    ///
    /// # Errors
    /// The shapes cannot be broadcast.
    pub fn map_to(
        &mut self,
        inputs: &[&Val],
        dtype: DType,
        to: &[usize],
        build: impl FnOnce(&mut Expr, &[Ref]) -> Ref,
    ) -> Result<Val, LowerError> {
        self.map_within(self.known_limit(), inputs, dtype, to, build)
    }

    /// Like [`map_to`](Self::map_to), but with a given limit on the elements computed by the planner.
    ///
    /// # Errors
    /// The same as for [`map_to`](Self::map_to).
    pub fn map_within(
        &mut self,
        known_limit: usize,
        inputs: &[&Val],
        dtype: DType,
        to: &[usize],
        build: impl FnOnce(&mut Expr, &[Ref]) -> Ref,
    ) -> Result<Val, LowerError> {
        let mut expr = Expr::new();
        let mut read: Vec<Val> = Vec::with_capacity(inputs.len());
        let mut arguments: Vec<Ref> = Vec::with_capacity(inputs.len());
        for value in inputs {
            let expanded = self.expand(value, to)?;
            // A single known number becomes a constant of the expression instead of an operand in memory.
            arguments.push(match value.to_number() {
                Some(number) => expr.constant(number, value.dtype()),
                None => {
                    read.push(expanded);
                    expr.input(read.len() as u16 - 1, value.dtype())
                }
            });
        }
        let result = build(&mut expr, &arguments);
        // The result is stored in the last operation's type.
        let result = if expr.dtype(result) == dtype.compute() { result } else { expr.cast(result, dtype) };
        expr.finish(result);
        let known = shape::elems(to).is_some_and(|elems| elems <= known_limit) && read.iter().all(Val::is_known);
        if known {
            return Ok(Val::known(super::known::map(&expr, &read, dtype, to)));
        }
        let inputs: Vec<&Val> = read.iter().collect();
        self.apply(Prim::Map(Map { expr }), &inputs, dtype, to)
    }

    /// Applies an operation to one operand.
    ///
    /// # Errors
    /// The output is too large.
    pub fn unary(&mut self, op: Unary, a: &Val) -> Result<Val, LowerError> {
        let dtype = if matches!(op, Unary::IsNan | Unary::IsInf) { DType::Bool } else { a.dtype() };
        self.map(&[a], dtype, |expr, arguments| expr.unary(op, arguments[0]))
    }

    /// Applies an operation to two operands of one type.
    ///
    /// # Errors
    /// The types differ, or the shapes cannot be broadcast together.
    pub fn binary(&mut self, op: Binary, a: &Val, b: &Val) -> Result<Val, LowerError> {
        if a.dtype() != b.dtype() {
            return Err(self.invalid(format!("operands have different types {} and {}", a.dtype(), b.dtype())));
        }
        let dtype = if op.is_comparison() { DType::Bool } else { a.dtype() };
        self.map(&[a, b], dtype, |expr, arguments| expr.binary(op, arguments[0], arguments[1]))
    }

    /// The value converted to another type, by ONNX's rules.
    ///
    /// # Errors
    /// The output is too large.
    pub fn cast(&mut self, value: &Val, dtype: DType) -> Result<Val, LowerError> {
        if value.dtype() == dtype {
            return Ok(value.clone());
        }
        self.map(&[value], dtype, |_, arguments| arguments[0])
    }

    /// A dense copy.
    ///
    /// # Errors
    /// It is too large.
    pub fn copy(&mut self, value: &Val) -> Result<Val, LowerError> {
        let to: Shape = value.shape().into();
        self.map_to(&[value], value.dtype(), &to, |_, arguments| arguments[0])
    }

    /// Copies a value into a part of another one in a buffer.
    ///
    /// # Errors
    /// The shapes differ.
    pub fn copy_into(&mut self, value: &Val, target: &Val) -> Result<(), LowerError> {
        if value.shape() != target.shape() {
            return Err(self.invalid(format!("{:?} does not fit into {:?}", value.shape(), target.shape())));
        }
        if value.elems() > 0 {
            let expr = Expr::copy(value.dtype(), target.dtype());
            self.emit(Prim::Map(Map { expr }), &[value], &[target]);
        }
        Ok(())
    }

    /// A tensor filled with one value.
    ///
    /// # Errors
    /// It is too large.
    pub fn full(&mut self, dtype: DType, shape: &[usize], value: Scalar) -> Result<Val, LowerError> {
        let scalar = Val::scalar(dtype, value);
        self.expand(&scalar, shape)
    }
}
