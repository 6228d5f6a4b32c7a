//! Products of matrices.

use hipdnn::sys::AttributeName as H;
use hipdnn_abi::Descriptor;

use super::convolution::FORWARD;
use super::{Answer, Lowering, Variant};
use crate::graph::{Operation, Parameters, View};
use crate::safe::Setting;
use crate::sys::{AttributeName as A, AttributeType as T, DataType, DescriptorType as D, PointwiseMode};

impl Lowering {
    pub(super) fn matmul(&mut self, operation: &Descriptor) -> Answer {
        let a = self.view(operation, H::OPERATION_MATMUL_ADESC)?;
        let b = self.view(operation, H::OPERATION_MATMUL_BDESC)?;
        let c = self.view(operation, H::OPERATION_MATMUL_CDESC)?;
        self.product(a, b, c);
        Ok(())
    }

    /// A product. In pieces it becomes a 1×1 convolution: cuDNN convolves all types and shapes, but multiplies matrices
    /// on tensor cores only.
    pub(super) fn product(&mut self, a: View, b: View, c: View) {
        if self.variant == Variant::Apart && self.convolved(&a, &b, &c).is_some() {
            return;
        }
        self.push(Operation {
            kind: D::OPERATION_MATMUL_DESCRIPTOR,
            parameters: Some(Parameters {
                kind: D::MATMUL_DESCRIPTOR,
                held_by: A::OPERATION_MATMUL_DESC,
                settings: vec![(A::MATMUL_COMP_TYPE, Setting::Code(T::DATA_TYPE, self.compute.0))],
            }),
            settings: Vec::new(),
            reads: vec![(A::OPERATION_MATMUL_ADESC, a), (A::OPERATION_MATMUL_BDESC, b)],
            writes: vec![(A::OPERATION_MATMUL_CDESC, c)],
        });
    }

    /// `c = a b` over rows without gaps: `b`'s rows are channels, its columns are positions, and `a`'s rows are
    /// filters.
    fn convolved(&mut self, a: &View, b: &View, c: &View) -> Option<()> {
        let rank = c.dims.len();
        let batch = |view: &View| view.dims[..rank - 2].iter().product::<i64>();
        let (of_a, of_b, of_c) = (batch(a), batch(b), batch(c));
        let (m, k, n) = (a.dims[rank - 2], a.dims[rank - 1], b.dims[rank - 1]);
        let same = |one: &View, other: &View| one.dims[..rank - 2] == other.dims[..rank - 2];
        // How filters, data and groups share the batches.
        let (filters, data, groups) = if of_b == 1 && of_a == of_c {
            (of_a, 1, 1)
        } else if of_a == 1 && of_b == of_c {
            (1, of_b, 1)
        } else if same(a, b) {
            (of_a, 1, of_a)
        } else {
            return None;
        };
        // Convolutions write the type they read, and numbers must not lose bits before the product.
        let wanted = self.data_type(c);
        let is_single = |view: &View| self.data_type(view) == DataType::FLOAT;
        if wanted != DataType::FLOAT && (is_single(a) || is_single(b)) {
            return None;
        }
        let [a, b] = [a, b].map(|view| {
            if self.data_type(view) == wanted {
                return self.in_rows(view);
            }
            let order: Vec<usize> = (0..rank).collect();
            let rows = self.graph.add_inside(wanted, &view.dims, &order);
            let view = self.in_rows(view);
            self.map(PointwiseMode::IDENTITY, &[&view], &rows);
            rows
        });
        let product = self.rows(c);
        let channels = if groups > 1 { groups * k } else { k };
        let x = shaped(&b, [data, channels, n, 1]);
        let w = shaped(&a, [filters * m, k, 1, 1]);
        let y = shaped(product.as_ref().unwrap_or(c), [data, filters * m, n, 1]);
        self.push_convolution(&FORWARD, vec![x, w], y, [vec![0; 2], vec![0; 2], vec![1; 2], vec![1; 2]], 1);
        if let Some(product) = product {
            self.map(PointwiseMode::IDENTITY, &[&product], c);
        }
        Some(())
    }

    /// The same numbers in contiguous rows.
    pub(super) fn in_rows(&mut self, view: &View) -> View {
        match self.rows(view) {
            Some(rows) => {
                self.map(PointwiseMode::IDENTITY, &[view], &rows);
                rows
            }
            None => view.clone(),
        }
    }

    /// A new tensor with contiguous rows, unless the tensor already has them.
    pub(super) fn rows(&mut self, view: &View) -> Option<View> {
        let order: Vec<usize> = (0..view.dims.len()).collect();
        let packed = self.graph.add_inside(self.data_type(view), &view.dims, &order);
        let differs = |axis: &usize| view.dims[*axis] > 1 && view.strides[*axis] != packed.strides[*axis];
        order.iter().any(differs).then_some(packed)
    }
}

/// Packed numbers with other extents.
fn shaped(view: &View, dims: [i64; 4]) -> View {
    let strides = (0..4).map(|axis| dims[axis + 1..].iter().product()).collect();
    View { tensor: view.tensor, dims: dims.to_vec(), strides }
}
