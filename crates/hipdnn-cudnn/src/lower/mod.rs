//! Lowers hipDNN's operations to cuDNN's, which have separate descriptors for some parameters and support fewer
//! operations.
//!
//! cuDNN requires that all tensors of a graph have the same number of axes: scalars and matrices get leading axes of
//! extent 1, and data with one spatial axis gets a second one.

mod attention;
mod convolution;
mod matmul;
mod norm;
mod pointwise;
mod reduction;
mod resample;

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn::sys::{AttributeName as H, AttributeType, DescriptorType};
use hipdnn_abi::{Descriptor, Value, uid_of};

use crate::graph::{Graph, Operation, Scalar, Storage, View};
use crate::safe::Setting;
use crate::sys::{AttributeName as A, DataType, PointwiseMode};
use crate::translate;

/// What the operations are lowered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// For engines that run the graph as a whole: in the patterns that cuDNN recognises.
    Whole,
    /// For pieces: operations that cuDNN runs alone.
    Apart,
}

/// Why an operation cannot be expressed in cuDNN's terms.
type Answer<T = ()> = Result<T, String>;

/// Lowers operations in topological order.
///
/// # Errors
/// The graph contains something that cuDNN does not support.
pub fn lower(operations: &[Arc<Descriptor>], variant: Variant) -> Answer<Graph> {
    let mut lowering = Lowering::new(operations, variant);
    for operation in operations {
        lowering.operation(operation)?;
    }
    let is_attention =
        |operation: &Arc<Descriptor>| operation.kind.descriptor == DescriptorType::OPERATION_SDPA_FWD_DESCRIPTOR;
    lowering.graph.is_attention =
        variant == Variant::Whole && operations.len() == 1 && operations.iter().all(is_attention);
    Ok(lowering.graph)
}

struct Lowering {
    graph: Graph,
    variant: Variant,
    /// The graph's tensors by the caller's uid.
    known: HashMap<i64, usize>,
    /// The highest rank of a given tensor.
    widest: usize,
    /// The rank of every tensor after lowering.
    rank: usize,
    /// Whether data with three axes gets another one, between the channels and the last.
    inserts_axis: bool,
    /// The compute type of the current operation.
    compute: DataType,
}

/// The lowest rank that cuDNN's engines support.
const LEAST_RANK: usize = 3;

impl Lowering {
    fn new(operations: &[Arc<Descriptor>], variant: Variant) -> Self {
        let is_spatial = |operation: &Arc<Descriptor>| {
            [
                DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                DescriptorType::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                DescriptorType::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
            ]
            .contains(&operation.kind.descriptor)
        };
        let tensors = operations.iter().flat_map(|operation| {
            let rows = operation.kind.rows.iter().filter(|row| row.kind == AttributeType::BACKEND_DESCRIPTOR);
            rows.flat_map(|row| operation.descriptors(row.name))
        });
        let widest = tensors.map(|tensor| tensor.i64s(H::TENSOR_DIMENSIONS).len()).max().unwrap_or(0);
        let inserts_axis = widest == 3 && operations.iter().any(is_spatial);
        let rank = if inserts_axis { 4 } else { widest.max(LEAST_RANK) };
        let (graph, known) = (Graph::default(), HashMap::new());
        Self { graph, variant, known, widest, rank, inserts_axis, compute: DataType::FLOAT }
    }

    fn operation(&mut self, operation: &Descriptor) -> Answer {
        let rows = operation.kind.rows.iter().filter(|row| row.is_required && row.kind == AttributeType::DATA_TYPE);
        let compute = rows.filter_map(|row| operation.number(row.name)).next();
        let compute = compute.and_then(|code| translate::data_type(hipdnn::sys::DataType(code)));
        self.compute = compute.ok_or("cuDNN does not compute in this type")?;
        match operation.kind.descriptor {
            DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR => {
                self.convolution(operation, &convolution::FORWARD)
            }
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR => {
                self.convolution(operation, &convolution::TO_DATA)
            }
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => {
                self.convolution(operation, &convolution::TO_FILTER)
            }
            DescriptorType::OPERATION_MATMUL_DESCRIPTOR => self.matmul(operation),
            DescriptorType::OPERATION_POINTWISE_DESCRIPTOR => self.pointwise(operation),
            DescriptorType::OPERATION_REDUCTION_DESCRIPTOR => self.reduction(operation),
            DescriptorType::OPERATION_RESAMPLE_FWD_DESCRIPTOR => self.resample(operation),
            DescriptorType::OPERATION_RESAMPLE_BWD_DESCRIPTOR => self.resample_backward(operation),
            DescriptorType::OPERATION_LAYERNORM_DESCRIPTOR_EXT => self.layer_norm(operation),
            DescriptorType::OPERATION_RMSNORM_DESCRIPTOR_EXT => self.rms_norm(operation),
            DescriptorType::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT => self.layer_norm_backward(operation),
            DescriptorType::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT => self.rms_norm_backward(operation),
            DescriptorType::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT => self.batch_norm_inference(operation),
            DescriptorType::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT => {
                self.batch_norm_inference_variance(operation)
            }
            DescriptorType::OPERATION_BATCHNORM_DESCRIPTOR_EXT => self.batch_norm_training(operation),
            DescriptorType::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT => self.batch_norm_backward(operation),
            DescriptorType::OPERATION_SDPA_FWD_DESCRIPTOR => self.attention(operation),
            DescriptorType::OPERATION_SDPA_BWD_DESCRIPTOR_EXT => self.attention_backward(operation),
            other => Err(format!("the cuDNN bridge does not support {other}")),
        }
    }

    /// The tensor that an attribute refers to, with its given extents.
    fn given(&mut self, operation: &Descriptor, name: H) -> Answer<View> {
        self.given_optional(operation, name)?.ok_or_else(|| format!("{name} is not set"))
    }

    fn given_optional(&mut self, operation: &Descriptor, name: H) -> Answer<Option<View>> {
        operation.descriptor(name).map(|tensor| self.known(&tensor)).transpose()
    }

    /// The tensor that an attribute refers to, with the common rank.
    fn view(&mut self, operation: &Descriptor, name: H) -> Answer<View> {
        let given = self.given(operation, name)?;
        Ok(self.ranked(&given))
    }

    fn view_optional(&mut self, operation: &Descriptor, name: H) -> Answer<Option<View>> {
        Ok(self.given_optional(operation, name)?.map(|given| self.ranked(&given)))
    }

    fn known(&mut self, tensor: &Descriptor) -> Answer<View> {
        let uid = uid_of(tensor);
        let (dims, strides) = (tensor.i64s(H::TENSOR_DIMENSIONS), tensor.i64s(H::TENSOR_STRIDES));
        if let Some(&tensor) = self.known.get(&uid) {
            return Ok(View { tensor, dims, strides });
        }
        if tensor.descriptor(H::TENSOR_RAGGED_OFFSET_DESC).is_some() {
            return Err(format!("tensor {uid} is ragged, which the cuDNN bridge does not support"));
        }
        let code = hipdnn::sys::DataType(tensor.number(H::TENSOR_DATA_TYPE).unwrap_or(-1));
        let mut data_type = translate::data_type(code).ok_or_else(|| format!("cuDNN has no {code} (tensor {uid})"))?;
        let home = match tensor.value(H::TENSOR_VALUE_EXT) {
            Some(Value::Bytes(bytes)) => Storage::Value(Scalar::new(&bytes)),
            _ if tensor.flag(H::TENSOR_IS_VIRTUAL) => Storage::Inside,
            _ if tensor.flag(H::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT) => Storage::Host,
            _ => Storage::Device,
        };
        let is_boolean = home != Storage::Inside && data_type == DataType::BOOLEAN;
        if is_boolean {
            // In memory, cuDNN's booleans are bits and hipDNN's are bytes.
            data_type = DataType::UINT8;
        }
        let alignment = tensor.i64s(H::TENSOR_BYTE_ALIGNMENT).first().copied().unwrap_or(16);
        let view = self.graph.add(Some(uid), home, data_type, View { tensor: 0, dims, strides });
        self.graph.tensors[view.tensor].alignment = alignment;
        self.graph.tensors[view.tensor].is_boolean = is_boolean;
        self.known.insert(uid, view.tensor);
        Ok(view)
    }

    /// A new intermediate tensor, laid out like another if the extents are equal.
    fn inside(&mut self, data_type: DataType, dims: &[i64], like: &View) -> View {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        if like.dims.len() == dims.len() {
            order.sort_by_key(|&axis| std::cmp::Reverse(like.strides[axis]));
        }
        self.graph.add_inside(data_type, dims, &order)
    }

    /// A number in the compute type, with extents of 1.
    fn number(&mut self, value: f64) -> View {
        let (data_type, scalar) = match self.compute {
            DataType::DOUBLE => (DataType::DOUBLE, Scalar::new(&value.to_le_bytes())),
            _ => (DataType::FLOAT, Scalar::new(&(value as f32).to_le_bytes())),
        };
        self.scalar(data_type, scalar)
    }

    /// An integer with extents of 1.
    fn whole_number(&mut self, value: i64) -> View {
        self.scalar(DataType::INT32, Scalar::new(&(value as i32).to_le_bytes()))
    }

    fn scalar(&mut self, data_type: DataType, value: Scalar) -> View {
        let view = View { tensor: 0, dims: vec![1; self.rank], strides: vec![1; self.rank] };
        self.graph.add(None, Storage::Value(value), data_type, view)
    }

    fn data_type(&self, view: &View) -> DataType {
        self.graph.tensors[view.tensor].data_type
    }

    /// A view with the common rank: given axes come first, as hipDNN aligns them.
    fn ranked(&self, view: &View) -> View {
        let mut view = view.clone();
        view.dims.resize(view.dims.len().max(self.widest), 1);
        view.strides.resize(view.dims.len(), 1);
        if self.inserts_axis && view.dims.len() == 3 {
            let step = view.dims[2] * view.strides[2];
            view.dims.insert(2, 1);
            view.strides.insert(2, step);
        }
        let reach = view.dims.iter().zip(&view.strides).map(|(extent, stride)| extent * stride).max().unwrap_or(1);
        while view.dims.len() < self.rank {
            view.dims.insert(0, 1);
            view.strides.insert(0, reach);
        }
        view
    }

    /// The new position of a caller's axis.
    fn axis(&self, axis: i64) -> i64 {
        axis + if self.inserts_axis { i64::from(axis >= 2) } else { (self.rank - self.widest) as i64 }
    }

    fn push(&mut self, operation: Operation) {
        self.graph.operations.push(operation);
    }

    /// One elementwise operation of cuDNN's in the compute type.
    fn map(&mut self, mode: PointwiseMode, reads: &[&View], to: &View) {
        self.map_with(mode, reads, to, self.compute, Vec::new());
    }

    fn map_with(
        &mut self,
        mode: PointwiseMode,
        reads: &[&View],
        to: &View,
        compute: DataType,
        further: Vec<(A, Setting)>,
    ) {
        self.push(Operation::pointwise(mode, reads, to, compute, further));
    }

    /// Like `map`, but into a new tensor of the compute type.
    fn mapped(&mut self, mode: PointwiseMode, reads: &[&View]) -> View {
        let rank = reads.iter().map(|view| view.dims.len()).max().unwrap_or(0);
        let extent = |axis: usize| reads.iter().filter_map(|view| view.dims.get(axis)).copied().max().unwrap_or(1);
        let dims: Vec<i64> = (0..rank).map(extent).collect();
        let widest = reads.iter().max_by_key(|view| view.dims.iter().product::<i64>());
        let like = (*widest.unwrap_or(&reads[0])).clone();
        let to = self.inside(self.compute, &dims, &like);
        self.map(mode, reads, &to);
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowering(widest: usize, inserts_axis: bool) -> Lowering {
        let (graph, known, variant) = (Graph::default(), HashMap::new(), Variant::Whole);
        let rank = if inserts_axis { 4 } else { widest.max(LEAST_RANK) };
        Lowering { graph, variant, known, widest, rank, inserts_axis, compute: DataType::FLOAT }
    }

    fn dims(lowering: &Lowering, dims: &[i64]) -> Vec<i64> {
        let view = View { tensor: 0, dims: dims.to_vec(), strides: vec![1; dims.len()] };
        lowering.ranked(&view).dims
    }

    #[test]
    fn fewer_axes_are_the_first_ones() {
        let four = lowering(4, false);
        assert_eq!(dims(&four, &[1, 3]), [1, 3, 1, 1]);
        assert_eq!(dims(&four, &[2, 3, 4, 5]), [2, 3, 4, 5]);
        assert_eq!(dims(&four, &[1]), [1, 1, 1, 1]);
    }

    #[test]
    fn graphs_of_few_axes_get_more_in_front() {
        let two = lowering(2, false);
        assert_eq!(dims(&two, &[5, 7]), [1, 5, 7]);
        assert_eq!(dims(&two, &[5]), [1, 5, 1]);
        assert_eq!(two.axis(1), 2);
    }

    #[test]
    fn a_single_spatial_axis_gets_another_before_it() {
        let one = lowering(3, true);
        assert_eq!(dims(&one, &[2, 3, 9]), [2, 3, 1, 9]);
        assert_eq!(dims(&one, &[1, 3, 1]), [1, 3, 1, 1]);
        assert_eq!([0, 1, 2].map(|axis| one.axis(axis)), [0, 1, 3]);
    }
}
