//! hipDNN's operations as the engine's operators, which the engine plans, fuses and runs.
//!
//! Every operation reads its tensors in the compute type and writes them in their own: the casts melt into the steps
//! around them.

mod attention;
mod convolution;
mod norm;
mod pointwise;
mod resample;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Scalar, Tensor, ValueId};
use hipdnn::sys::{AttributeName as A, DescriptorType as D, ReduceOp};
use hipdnn_abi::{Descriptor, Value, uid_of};

use crate::program::dtype_of;

/// A tensor that the caller brings.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub uid: i64,
    /// Its element type.
    pub dtype: DType,
    /// Its extents.
    pub dims: Vec<usize>,
    /// Its strides in elements.
    pub strides: Vec<usize>,
}

/// A graph in the engine's terms.
pub struct Lowered {
    /// The graph.
    pub graph: Graph,
    /// Its inputs.
    pub inputs: Vec<Port>,
    /// Its outputs.
    pub outputs: Vec<Port>,
}

/// A graph in the making.
#[derive(Default)]
struct Lowering {
    graph: Graph,
    inputs: Vec<(ValueId, Port)>,
    outputs: Vec<(ValueId, Port)>,
    /// What stands for each tensor so far.
    made: HashMap<i64, Made>,
    /// The compute type of the operation at hand.
    compute: Option<DType>,
    names: usize,
}

/// A value with what is known of it.
#[derive(Clone, Debug)]
struct Made {
    id: ValueId,
    dtype: DType,
    dims: Vec<i64>,
}

type Answer<T = ()> = Result<T, String>;

/// Lowers operations that are in the order of their dependence.
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
        let rows = operation.kind.rows.iter();
        let compute = rows.filter(|row| row.is_required).find_map(|row| {
            (row.kind == hipdnn::sys::AttributeType::DATA_TYPE).then(|| operation.number(row.name)).flatten()
        });
        let compute = compute.and_then(dtype_of).filter(|dtype| matches!(dtype, DType::F32 | DType::F64));
        self.compute = Some(compute.ok_or("the engine computes in FLOAT or DOUBLE")?);
        match operation.kind.descriptor {
            D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR => self.convolution(operation),
            D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR => self.convolution_to_data(operation),
            D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => self.convolution_to_filter(operation),
            D::OPERATION_MATMUL_DESCRIPTOR => self.matmul(operation),
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
            other => Err(format!("the engine has no {other:?}")),
        }
    }

    fn compute(&self) -> DType {
        self.compute.unwrap_or(DType::F32)
    }

    /// Adds a node of ONNX's own domain.
    fn node(&mut self, op_type: &str, attributes: &[(&str, Attribute)], inputs: &[&Made], out: DType) -> Answer<Made> {
        let list = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let attributes = Attributes(list.collect::<BTreeMap<_, _>>().into_iter().collect());
        let infos: Vec<_> = inputs
            .iter()
            .map(|made| {
                let constant = self.graph.value(made.id).constant.as_ref();
                Some(InputInfo { dtype: made.dtype, rank: Some(made.dims.len()), constant })
            })
            .collect();
        let info = NodeInfo {
            domain: "",
            op_type,
            since_version: since_version(op_type),
            attributes: &attributes,
            inputs: &infos,
            outputs: &[Some(out)],
        };
        let op = ops::parse(&info).map_err(|declined| format!("{op_type}: {declined}"))?;
        self.names += 1;
        let id = self.graph.add_value(format!("v{}", self.names), out, None);
        let inputs_ids = inputs.iter().map(|made| Some(made.id)).collect();
        self.graph.add_node(Node { name: String::new(), op: op.into(), inputs: inputs_ids, outputs: vec![Some(id)] });
        Ok(Made { id, dtype: out, dims: Vec::new() })
    }

    /// A node in the compute type with a known shape.
    fn compute_node(
        &mut self,
        op: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[&Made],
        dims: &[i64],
    ) -> Answer<Made> {
        let made = self.node(op, attributes, inputs, self.compute())?;
        Ok(Made { dims: dims.to_vec(), ..made })
    }

    /// An elementwise node; operands of equal rank repeat where an extent is 1.
    fn elementwise(&mut self, op: &str, inputs: &[&Made]) -> Answer<Made> {
        self.elementwise_to(op, inputs, self.compute())
    }

    fn elementwise_to(&mut self, op: &str, inputs: &[&Made], out: DType) -> Answer<Made> {
        let rank = inputs.iter().map(|made| made.dims.len()).max().unwrap_or(0);
        let padded = |made: &&Made, axis: usize| {
            let missing = rank - made.dims.len();
            if axis < missing { 1 } else { made.dims[axis - missing] }
        };
        let dims: Vec<i64> =
            (0..rank).map(|axis| inputs.iter().map(|made| padded(made, axis)).max().unwrap_or(1)).collect();
        let made = self.node(op, &[], inputs, out)?;
        Ok(Made { dims, ..made })
    }

    fn cast(&mut self, made: &Made, to: DType) -> Answer<Made> {
        if made.dtype == to {
            return Ok(made.clone());
        }
        let code = Attribute::Int(onnx_type(to));
        let cast = self.node("Cast", &[("to", code)], &[made], to)?;
        Ok(Made { dims: made.dims.clone(), ..cast })
    }

    fn constant(&mut self, tensor: Tensor) -> Made {
        self.names += 1;
        let (dtype, dims) = (tensor.dtype(), tensor.shape().iter().map(|&extent| extent as i64).collect());
        let id = self.graph.add_value(format!("c{}", self.names), dtype, Some(tensor));
        Made { id, dtype, dims }
    }

    /// A number in the compute type.
    fn scalar(&mut self, value: f64) -> Made {
        let tensor = Tensor::scalar(self.compute(), Scalar::Float(value));
        self.constant(tensor)
    }

    fn numbers(&mut self, values: &[i64]) -> Made {
        self.constant(Tensor::from_i64s(values))
    }

    fn reshape(&mut self, made: &Made, dims: &[i64]) -> Answer<Made> {
        if made.dims == dims {
            return Ok(made.clone());
        }
        let shape = self.numbers(dims);
        let reshaped = self.node("Reshape", &[], &[made, &shape], made.dtype)?;
        Ok(Made { dims: dims.to_vec(), ..reshaped })
    }

    fn transpose(&mut self, made: &Made, order: &[usize]) -> Answer<Made> {
        let dims = order.iter().map(|&axis| made.dims[axis]).collect();
        let order = Attribute::Ints(order.iter().map(|&axis| axis as i64).collect());
        let turned = self.node("Transpose", &[("perm", order)], &[made], made.dtype)?;
        Ok(Made { dims, ..turned })
    }

    /// Reduces axes and keeps them with extent 1.
    fn reduce(&mut self, op: &str, made: &Made, axes: &[usize]) -> Answer<Made> {
        let mut dims = made.dims.clone();
        axes.iter().for_each(|&axis| dims[axis] = 1);
        let axes = self.numbers(&axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
        let reduced = self.node(op, &[("keepdims", Attribute::Int(1))], &[made, &axes], made.dtype)?;
        Ok(Made { dims, ..reduced })
    }

    /// A tensor that an operation reads, in its own type.
    fn read_as_is(&mut self, tensor: &Descriptor) -> Answer<Made> {
        let uid = uid_of(tensor);
        if let Some(made) = self.made.get(&uid) {
            return Ok(made.clone());
        }
        let port = port_of(tensor)?;
        let dims = tensor.i64s(A::TENSOR_DIMENSIONS);
        if let Some(Value::Bytes(bytes)) = tensor.value(A::TENSOR_VALUE_EXT) {
            let value = Tensor::from_bytes(port.dtype, &port.dims, &bytes).ok_or("a value must be one element")?;
            let made = self.constant(value);
            self.made.insert(uid, made.clone());
            return Ok(made);
        }
        if tensor.flag(A::TENSOR_IS_VIRTUAL) {
            return Err(format!("virtual tensor {uid} is read before it is made"));
        }
        let id = self.graph.add_value(format!("t{uid}"), port.dtype, None);
        let made = Made { id, dtype: port.dtype, dims };
        self.inputs.push((id, port));
        self.made.insert(uid, made.clone());
        Ok(made)
    }

    /// A tensor that an operation reads, in the compute type.
    fn read(&mut self, operation: &Descriptor, name: A) -> Answer<Made> {
        let tensor = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
        let made = self.read_as_is(&tensor)?;
        self.cast(&made, self.compute())
    }

    fn read_optional(&mut self, operation: &Descriptor, name: A) -> Answer<Option<Made>> {
        operation.descriptor(name).is_some().then(|| self.read(operation, name)).transpose()
    }

    /// Gives an operation's result to its tensor.
    fn write(&mut self, operation: &Descriptor, name: A, made: &Made) -> Answer {
        let tensor = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
        let (port, uid, dims) = (port_of(&tensor)?, uid_of(&tensor), tensor.i64s(A::TENSOR_DIMENSIONS));
        if made.dims != dims {
            return Err(format!("tensor {uid} has dimensions {dims:?}, and its operation makes {:?}", made.dims));
        }
        let typed = self.cast(made, port.dtype)?;
        if self.made.insert(uid, typed.clone()).is_some() {
            return Err(format!("tensor {uid} is made twice or read before it is made"));
        }
        if !tensor.flag(A::TENSOR_IS_VIRTUAL) {
            self.outputs.push((typed.id, port));
        }
        Ok(())
    }

    fn write_optional(&mut self, operation: &Descriptor, name: A, made: &Made) -> Answer {
        if operation.descriptor(name).is_some() { self.write(operation, name, made) } else { Ok(()) }
    }

    fn matmul(&mut self, operation: &Descriptor) -> Answer {
        let a = self.read(operation, A::OPERATION_MATMUL_ADESC)?;
        let b = self.read(operation, A::OPERATION_MATMUL_BDESC)?;
        let c = self.product(&a, &b)?;
        self.write(operation, A::OPERATION_MATMUL_CDESC, &c)
    }

    /// A product of matrices whose batches are equal or 1.
    fn product(&mut self, a: &Made, b: &Made) -> Answer<Made> {
        let rank = a.dims.len();
        if rank < 2 || b.dims.len() != rank {
            return Err(format!("matrices of {:?} and {:?}", a.dims, b.dims));
        }
        let mut dims = Vec::with_capacity(rank);
        for axis in 0..rank - 2 {
            let (left, right) = (a.dims[axis], b.dims[axis]);
            if left != right && left != 1 && right != 1 {
                return Err(format!("batches of {left} and {right}: one must be 1 or both equal"));
            }
            dims.push(left.max(right));
        }
        dims.extend([a.dims[rank - 2], b.dims[rank - 1]]);
        self.compute_node("MatMul", &[], &[a, b], &dims)
    }

    fn reduction(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_REDUCTION_XDESC)?;
        let y = operation.descriptor(A::OPERATION_REDUCTION_YDESC).ok_or("no result")?.i64s(A::TENSOR_DIMENSIONS);
        if y.len() != x.dims.len() {
            return Err(format!("{:?} can't be reduced to {y:?}", x.dims));
        }
        let axes: Vec<usize> = (0..y.len()).filter(|&axis| y[axis] == 1).collect();
        let mode = ReduceOp(operation.number(A::REDUCTION_OPERATOR).unwrap_or(0));
        let reduced = match mode {
            ReduceOp::ADD => self.reduce("ReduceSum", &x, &axes)?,
            ReduceOp::MUL => self.reduce("ReduceProd", &x, &axes)?,
            ReduceOp::MIN => self.reduce("ReduceMin", &x, &axes)?,
            ReduceOp::MAX => self.reduce("ReduceMax", &x, &axes)?,
            ReduceOp::AVG => self.reduce("ReduceMean", &x, &axes)?,
            ReduceOp::NORM1 => self.reduce("ReduceL1", &x, &axes)?,
            ReduceOp::NORM2 => self.reduce("ReduceL2", &x, &axes)?,
            ReduceOp::AMAX => {
                let size = self.elementwise("Abs", &[&x])?;
                self.reduce("ReduceMax", &size, &axes)?
            }
            ReduceOp::MUL_NO_ZEROS => {
                let (zero, one) = (self.scalar(0.0), self.scalar(1.0));
                let is_zero = self.elementwise_to("Equal", &[&x, &zero], DType::Bool)?;
                let kept = self.elementwise("Where", &[&is_zero, &one, &x])?;
                self.reduce("ReduceProd", &kept, &axes)?
            }
            other => return Err(format!("no reduction {other:?}")),
        };
        self.write(operation, A::OPERATION_REDUCTION_YDESC, &reduced)
    }
}

fn port_of(tensor: &Descriptor) -> Answer<Port> {
    let uid = uid_of(tensor);
    if tensor.descriptor(A::TENSOR_RAGGED_OFFSET_DESC).is_some() {
        return Err(format!("tensor {uid} is ragged, which the engine does not do"));
    }
    let code = tensor.number(A::TENSOR_DATA_TYPE).unwrap_or(-1);
    let dtype = dtype_of(code);
    let dtype = dtype.ok_or_else(|| format!("tensor {uid} is {:?}", hipdnn::sys::DataType(code)))?;
    let list = |name| tensor.i64s(name).into_iter().map(|value| usize::try_from(value).unwrap_or(0)).collect();
    Ok(Port { uid, dtype, dims: list(A::TENSOR_DIMENSIONS), strides: list(A::TENSOR_STRIDES) })
}

/// The newest schema of each operator that this crate uses.
fn since_version(op_type: &str) -> i32 {
    match op_type {
        "ReduceMax" | "ReduceMin" | "Gelu" => 20,
        "ReduceMean" | "ReduceL1" | "ReduceL2" | "ReduceProd" | "ReduceLogSumExp" => 18,
        "AveragePool" => 19,
        "Where" | "Elu" => 9,
        "Conv" | "ConvTranspose" | "Tan" | "Sin" | "Softplus" => 1,
        "MaxPool" => 12,
        "Expand" => 8,
        "And" | "Or" => 7,
        "Not" => 1,
        _ => 13,
    }
}

fn onnx_type(dtype: DType) -> i64 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::Bf16 => 16,
    }
}
