//! Reductions. cuDNN's graphs support sums, products and extremes: the others are built from them, or use its older
//! interface, which supports all.

use hipdnn::sys::{AttributeName as H, ReduceOp as R};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering, Variant};
use crate::graph::{Operation, Parameters, View};
use crate::safe::Setting;
use crate::sys::{AttributeName as A, AttributeType as T, DescriptorType as D, PointwiseMode as C, ReduceOp};
use crate::translate;

impl Lowering {
    pub(super) fn reduction(&mut self, operation: &Descriptor) -> Answer {
        let x = self.view(operation, H::OPERATION_REDUCTION_XDESC)?;
        let y = self.view(operation, H::OPERATION_REDUCTION_YDESC)?;
        let axes: Vec<usize> = (0..y.dims.len()).filter(|&axis| y.dims[axis] == 1 && x.dims[axis] != 1).collect();
        let what = R(operation.number(H::REDUCTION_OPERATOR).unwrap_or(0));
        if self.variant == Variant::Apart {
            let what = translate::reduction(what).ok_or_else(|| format!("the cuDNN bridge does not support {what}"))?;
            self.reduced_to(what, &x, &y);
            return Ok(());
        }
        match what {
            R::ADD => self.reduced_to(ReduceOp::ADD, &x, &y),
            R::MUL => self.reduced_to(ReduceOp::MUL, &x, &y),
            R::MIN => self.reduced_to(ReduceOp::MIN, &x, &y),
            R::MAX => self.reduced_to(ReduceOp::MAX, &x, &y),
            R::AMAX => self.reduced_to(ReduceOp::AMAX, &x, &y),
            R::AVG => {
                let (sum, share) = self.sum_and_share(&x, &axes);
                self.map(C::MUL, &[&sum, &share], &y);
            }
            R::NORM1 => {
                let size = self.mapped(C::ABS, &[&x]);
                self.reduced_to(ReduceOp::ADD, &size, &y);
            }
            R::NORM2 => {
                let square = self.mapped(C::MUL, &[&x, &x]);
                let sum = self.reduced(ReduceOp::ADD, &square, &axes);
                self.map(C::SQRT, &[&sum], &y);
            }
            other => return Err(format!("cuDNN's graphs do not support {other}")),
        }
        Ok(())
    }

    /// Reduces into a tensor of any type; cuDNN itself reduces only into the compute type.
    fn reduced_to(&mut self, what: ReduceOp, from: &View, to: &View) {
        let narrow = self.variant == Variant::Apart && self.data_type(from) != self.compute;
        if narrow {
            // The older interface reduces within one type.
            let wide = self.mapped(C::IDENTITY, &[from]);
            return self.reduced_to(what, &wide, to);
        }
        if self.data_type(to) == self.compute {
            self.reduce(what, from, to);
        } else {
            let wide = self.inside(self.compute, &to.dims, to);
            self.reduce(what, from, &wide);
            self.map(C::IDENTITY, &[&wide], to);
        }
    }

    fn reduce(&mut self, what: ReduceOp, from: &View, to: &View) {
        self.push(Operation {
            kind: D::OPERATION_REDUCTION_DESCRIPTOR,
            parameters: Some(Parameters {
                kind: D::REDUCTION_DESCRIPTOR,
                held_by: A::OPERATION_REDUCTION_DESC,
                settings: vec![
                    (A::REDUCTION_OPERATOR, Setting::Code(T::REDUCTION_OPERATOR_TYPE, what.0)),
                    (A::REDUCTION_COMP_TYPE, Setting::Code(T::DATA_TYPE, self.compute.0)),
                ],
            }),
            settings: Vec::new(),
            reads: vec![(A::OPERATION_REDUCTION_XDESC, from.clone())],
            writes: vec![(A::OPERATION_REDUCTION_YDESC, to.clone())],
        });
    }

    /// Reduces axes, which keep extent 1, into a new tensor of the compute type.
    pub(super) fn reduced(&mut self, what: ReduceOp, from: &View, axes: &[usize]) -> View {
        if self.variant == Variant::Apart && self.data_type(from) != self.compute {
            let wide = self.mapped(C::IDENTITY, &[from]);
            return self.reduced(what, &wide, axes);
        }
        let mut dims = from.dims.clone();
        axes.iter().for_each(|&axis| dims[axis] = 1);
        let to = self.inside(self.compute, &dims, from);
        self.reduce(what, from, &to);
        to
    }

    /// The mean over axes, which keep extent 1.
    pub(super) fn mean(&mut self, from: &View, axes: &[usize]) -> View {
        if self.variant == Variant::Apart {
            return self.reduced(ReduceOp::AVG, from, axes);
        }
        let (sum, share) = self.sum_and_share(from, axes);
        self.mapped(C::MUL, &[&sum, &share])
    }

    fn sum_and_share(&mut self, from: &View, axes: &[usize]) -> (View, View) {
        let count: i64 = axes.iter().map(|&axis| from.dims[axis]).product();
        (self.reduced(ReduceOp::ADD, from, axes), self.number(1.0 / count as f64))
    }
}
