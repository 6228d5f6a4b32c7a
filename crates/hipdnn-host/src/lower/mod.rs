//! Lowers hipDNN's operations to the engine's operators, which the engine plans, fuses and runs.
//!
//! Every operation reads its tensors in the compute type and writes them in their own: the casts are fused into
//! neighbouring steps.

mod attention;
mod attention_backward;
mod block_scale;
mod build;
mod convolution;
mod matmul;
mod norm;
mod pointwise;
mod reduce;
mod resample;
mod rounding;

use std::collections::HashMap;
use std::sync::Arc;

use graph::{DType, Graph, Tensor, ValueId};
use hipdnn::sys::{AttributeName as A, AttributeType, DataType, DescriptorType as D};
use hipdnn_abi::{Descriptor, Value, uid_of};

use crate::format::Format;
use crate::port::Port;

/// A graph of the engine's operators.
pub struct Lowered {
    /// The graph.
    pub graph: Graph,
    /// The inputs.
    pub inputs: Vec<Port>,
    /// The outputs.
    pub outputs: Vec<Port>,
}

/// A graph under construction.
#[derive(Default)]
struct Lowering {
    graph: Graph,
    inputs: Vec<(ValueId, Port)>,
    outputs: Vec<(ValueId, Port)>,
    /// The value of each tensor so far, by uid.
    made: HashMap<i64, LoweredValue>,
    /// The compute type of the current operation.
    compute: Option<DType>,
    names: usize,
}

/// A value with its type and dimensions.
#[derive(Clone, Debug)]
struct LoweredValue {
    id: ValueId,
    dtype: DType,
    dims: Vec<i64>,
}

type Answer<T = ()> = Result<T, String>;

/// Lowers operations, which must be in dependency order.
pub fn lower(operations: &[Arc<Descriptor>]) -> Answer<Lowered> {
    let mut lowering = Lowering::default();
    for operation in operations {
        lowering.operation(operation)?;
    }
    let Lowering { mut graph, inputs, outputs, .. } = lowering;
    graph.set_inputs(inputs.iter().map(|(id, _)| *id).collect());
    graph.set_outputs(outputs.iter().map(|(id, _)| *id).collect());
    graph.verify()?;
    let ports = |list: Vec<(ValueId, Port)>| list.into_iter().map(|(_, port)| port).collect();
    Ok(Lowered { graph, inputs: ports(inputs), outputs: ports(outputs) })
}

impl Lowering {
    fn operation(&mut self, operation: &Descriptor) -> Answer {
        self.compute = Some(compute_type(operation)?);
        match operation.kind.descriptor {
            D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR => self.convolution(operation),
            D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR => self.convolution_to_data(operation),
            D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => self.convolution_to_filter(operation),
            D::OPERATION_MATMUL_DESCRIPTOR => self.matmul(operation),
            D::OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR => self.moe_matmul(operation),
            D::OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR => self.moe_matmul_backward(operation),
            D::OPERATION_POINTWISE_DESCRIPTOR => self.pointwise(operation),
            D::OPERATION_REDUCTION_DESCRIPTOR => self.reduction(operation),
            D::OPERATION_LAYERNORM_DESCRIPTOR_EXT => self.layer_norm(operation),
            D::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT => self.layer_norm_backward(operation),
            D::OPERATION_RMSNORM_DESCRIPTOR_EXT => self.rms_norm(operation),
            D::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT => self.rms_norm_backward(operation),
            D::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT => self.batch_norm_inference(operation),
            D::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT => self.batch_norm_inference_variance(operation),
            D::OPERATION_BATCHNORM_DESCRIPTOR_EXT => self.batch_norm_training(operation),
            D::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT => self.batch_norm_backward(operation),
            D::OPERATION_RESAMPLE_FWD_DESCRIPTOR => self.resample(operation),
            D::OPERATION_RESAMPLE_BWD_DESCRIPTOR => self.resample_backward(operation),
            D::OPERATION_SDPA_FWD_DESCRIPTOR => self.attention(operation),
            D::OPERATION_SDPA_BWD_DESCRIPTOR_EXT => self.attention_backward(operation),
            D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR => self.block_scale_quantize(operation),
            D::OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR => self.block_scale_dequantize(operation),
            D::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT => Err(custom(operation)),
            other => Err(format!("{other:?} is not supported")),
        }
    }

    fn compute(&self) -> DType {
        self.compute.unwrap_or(DType::F32)
    }

    /// Reads a tensor in its own type.
    fn read_as_is(&mut self, tensor: &Descriptor) -> Answer<LoweredValue> {
        let uid = uid_of(tensor);
        if let Some(made) = self.made.get(&uid) {
            return Ok(made.clone());
        }
        let (port, order) = port_of(tensor)?;
        let made = if let Some(Value::Bytes(bytes)) = tensor.value(A::TENSOR_VALUE_EXT) {
            let Format::Plain(dtype) = port.format else {
                return Err(format!("tensor {uid} is a value with elements smaller than a byte"));
            };
            let value = Tensor::from_bytes(dtype, &port.dims, &bytes).ok_or("a value must be one element")?;
            self.constant(value)
        } else if tensor.flag(A::TENSOR_IS_VIRTUAL) {
            return Err(format!("virtual tensor {uid} is read before it is written"));
        } else {
            let dtype = port.format.dtype();
            let id = self.graph.add_value(format!("t{uid}"), dtype, None);
            let stored = LoweredValue { id, dtype, dims: port.dims.iter().map(|&extent| extent as i64).collect() };
            self.inputs.push((id, port));
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
            self.transpose(&stored, &back)?
        };
        self.made.insert(uid, made.clone());
        Ok(made)
    }

    /// Reads an operation's tensor in the compute type.
    fn read(&mut self, operation: &Descriptor, name: A) -> Answer<LoweredValue> {
        let tensor = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
        let made = self.read_as_is(&tensor)?;
        self.cast(&made, self.compute())
    }

    fn read_optional(&mut self, operation: &Descriptor, name: A) -> Answer<Option<LoweredValue>> {
        operation.descriptor(name).is_some().then(|| self.read(operation, name)).transpose()
    }

    /// Assigns an operation's result to its tensor.
    fn write(&mut self, operation: &Descriptor, name: A, made: &LoweredValue) -> Answer {
        let tensor = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
        let (uid, dims) = (uid_of(&tensor), tensor.i64s(A::TENSOR_DIMENSIONS));
        if made.dims != dims {
            return Err(format!("tensor {uid} has dimensions {dims:?}, but its operation produces {:?}", made.dims));
        }
        let (port, order) = port_of(&tensor)?;
        let typed = self.stored(made, port.format)?;
        if self.made.insert(uid, typed.clone()).is_some() {
            return Err(format!("tensor {uid} is written twice or read before it is written"));
        }
        if !tensor.flag(A::TENSOR_IS_VIRTUAL) {
            let repeats = port.dims.iter().zip(&port.strides).any(|(&extent, &stride)| extent > 1 && stride == 0);
            if repeats {
                return Err(format!("the elements of result tensor {uid} overlap"));
            }
            let turned = self.transpose(&typed, &order)?;
            self.outputs.push((turned.id, port));
        }
        Ok(())
    }

    fn write_optional(&mut self, operation: &Descriptor, name: A, made: &LoweredValue) -> Answer {
        if operation.descriptor(name).is_some() { self.write(operation, name, made) } else { Ok(()) }
    }
}

/// The type that an operation is computed in. Half types are computed in single precision, and integers in double
/// precision, which is exact for the sums and products of their types.
fn compute_type(operation: &Descriptor) -> Answer<DType> {
    let mut rows = operation.kind.rows.iter().filter(|row| row.is_required);
    let row = rows.find(|row| row.kind == AttributeType::DATA_TYPE).ok_or("no compute type")?;
    match DataType(operation.number(row.name).unwrap_or(-1)) {
        DataType::FLOAT | DataType::HALF | DataType::BFLOAT16 => Ok(DType::F32),
        DataType::DOUBLE | DataType::INT32 | DataType::INT8 => Ok(DType::F64),
        other => Err(format!("computing in {other:?} is not supported")),
    }
}

/// A tensor's memory layout with axes from outermost to innermost, and the original index of each axis.
fn port_of(tensor: &Descriptor) -> Answer<(Port, Vec<usize>)> {
    let uid = uid_of(tensor);
    if tensor.descriptor(A::TENSOR_RAGGED_OFFSET_DESC).is_some() {
        return Err(format!("tensor {uid} is ragged, which is not supported"));
    }
    let code = DataType(tensor.number(A::TENSOR_DATA_TYPE).unwrap_or(-1));
    let format = Format::of(code).ok_or_else(|| format!("tensor {uid} has the unsupported type {code:?}"))?;
    let (dims, strides) = (tensor.i64s(A::TENSOR_DIMENSIONS), tensor.i64s(A::TENSOR_STRIDES));
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    let list = |of: &[i64]| order.iter().map(|&axis| usize::try_from(of[axis]).unwrap_or(0)).collect();
    let is_by_value = tensor.flag(A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT);
    if is_by_value && dims.iter().any(|&extent| extent != 1) {
        return Err(format!("tensor {uid} is passed by value, but has dimensions {dims:?}"));
    }
    Ok((Port { uid, format, dims: list(&dims), strides: list(&strides), is_by_value }, order))
}

/// There are no plugins, so no custom operation is supported.
fn custom(operation: &Descriptor) -> String {
    let id = match operation.value(A::OPERATION_CUSTOM_OP_ID_EXT) {
        Some(Value::Bytes(id)) => String::from_utf8_lossy(&id).into_owned(),
        _ => String::new(),
    };
    format!("no plugin has the custom operation {id:?}")
}
