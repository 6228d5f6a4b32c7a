//! Adds nodes to the engine's graph, with the types and shapes of their results.

use std::collections::BTreeMap;

use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Node, Scalar, Tensor};

use super::{Answer, LoweredValue, Lowering};

/// Longer lists of constants are rejected: an operation's parameters are short.
const MAX_NUMBERS: i64 = 1 << 24;

impl Lowering {
    /// Adds a node of the ONNX domain with results of these types.
    pub(super) fn nodes(
        &mut self,
        op_type: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[&LoweredValue],
        results: &[DType],
    ) -> Answer<Vec<LoweredValue>> {
        let list = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let attributes = Attributes(list.collect::<BTreeMap<_, _>>().into_iter().collect());
        let infos: Vec<_> = inputs
            .iter()
            .map(|made| {
                let constant = self.graph.value(made.id).constant.as_ref();
                Some(InputInfo { dtype: made.dtype, rank: Some(made.dims.len()), constant })
            })
            .collect();
        let outputs: Vec<_> = results.iter().map(|&dtype| Some(dtype)).collect();
        let info = NodeInfo {
            domain: "",
            op_type,
            since_version: since_version(op_type),
            attributes: &attributes,
            inputs: &infos,
            outputs: &outputs,
        };
        let op = ops::parse(&info).map_err(|declined| format!("{op_type}: {declined}"))?;
        let made: Vec<LoweredValue> = results
            .iter()
            .map(|&dtype| {
                self.names += 1;
                let id = self.graph.add_value(format!("v{}", self.names), dtype, None);
                LoweredValue { id, dtype, dims: Vec::new() }
            })
            .collect();
        let inputs = inputs.iter().map(|made| Some(made.id)).collect();
        let outputs = made.iter().map(|made| Some(made.id)).collect();
        self.graph.add_node(Node { name: String::new(), op: op.into(), inputs, outputs });
        Ok(made)
    }

    /// Adds a node with one result, whose shape is not known yet.
    pub(super) fn node(
        &mut self,
        op_type: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[&LoweredValue],
        result: DType,
    ) -> Answer<LoweredValue> {
        let made = self.nodes(op_type, attributes, inputs, &[result])?;
        made.into_iter().next().ok_or_else(|| format!("{op_type} has no result"))
    }

    /// A node in the compute type with a known shape.
    pub(super) fn compute_node(
        &mut self,
        op: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[&LoweredValue],
        dims: &[i64],
    ) -> Answer<LoweredValue> {
        let made = self.node(op, attributes, inputs, self.compute())?;
        Ok(LoweredValue { dims: dims.to_vec(), ..made })
    }

    /// An elementwise node in the compute type; extents of 1 broadcast.
    pub(super) fn elementwise(&mut self, op: &str, inputs: &[&LoweredValue]) -> Answer<LoweredValue> {
        self.elementwise_to(op, inputs, self.compute())
    }

    /// Like [`elementwise`](Self::elementwise), with a result of another type.
    pub(super) fn elementwise_to(&mut self, op: &str, inputs: &[&LoweredValue], result: DType) -> Answer<LoweredValue> {
        let rank = inputs.iter().map(|made| made.dims.len()).max().unwrap_or(0);
        let padded = |made: &&LoweredValue, axis: usize| {
            let missing = rank - made.dims.len();
            if axis < missing { 1 } else { made.dims[axis - missing] }
        };
        let dims: Vec<i64> =
            (0..rank).map(|axis| inputs.iter().map(|made| padded(made, axis)).max().unwrap_or(1)).collect();
        let made = self.node(op, &[], inputs, result)?;
        Ok(LoweredValue { dims, ..made })
    }

    /// Converts values to another type.
    pub(super) fn cast(&mut self, made: &LoweredValue, to: DType) -> Answer<LoweredValue> {
        self.retype("Cast", made, to)
    }

    /// Reinterprets bits as another type.
    pub(super) fn bits(&mut self, made: &LoweredValue, to: DType) -> Answer<LoweredValue> {
        self.retype("BitCast", made, to)
    }

    fn retype(&mut self, op: &str, made: &LoweredValue, to: DType) -> Answer<LoweredValue> {
        if made.dtype == to {
            return Ok(made.clone());
        }
        let cast = self.node(op, &[("to", Attribute::Int(onnx_type(to)))], &[made], to)?;
        Ok(LoweredValue { dims: made.dims.clone(), ..cast })
    }

    pub(super) fn constant(&mut self, tensor: Tensor) -> LoweredValue {
        self.names += 1;
        let (dtype, dims) = (tensor.dtype(), tensor.shape().iter().map(|&extent| extent as i64).collect());
        let id = self.graph.add_value(format!("c{}", self.names), dtype, Some(tensor));
        LoweredValue { id, dtype, dims }
    }

    /// A constant in the compute type.
    pub(super) fn scalar(&mut self, value: f64) -> LoweredValue {
        let tensor = Tensor::scalar(self.compute(), Scalar::Float(value));
        self.constant(tensor)
    }

    /// An integer constant.
    pub(super) fn whole(&mut self, value: i64) -> LoweredValue {
        let tensor = Tensor::scalar(DType::I64, Scalar::Int(value));
        self.constant(tensor)
    }

    /// A constant list of integers.
    pub(super) fn numbers(&mut self, values: &[i64]) -> LoweredValue {
        self.constant(Tensor::from_i64s(values))
    }

    /// Constants along one of `rank` axes: `of` applied to each index.
    pub(super) fn along(
        &mut self,
        dtype: DType,
        rank: usize,
        axis: usize,
        extent: i64,
        of: impl Fn(i64) -> i64,
    ) -> Answer<LoweredValue> {
        if extent > MAX_NUMBERS {
            return Err(format!("{extent} constants along an axis are too many"));
        }
        let mut shape = vec![1; rank];
        shape[axis] = extent as usize;
        let values = (0..extent).map(|at| Scalar::from_i64(of(at), dtype));
        let tensor = Tensor::from_scalars(dtype, &shape, values).ok_or("an axis is too long")?;
        Ok(self.constant(tensor))
    }

    pub(super) fn reshape(&mut self, made: &LoweredValue, dims: &[i64]) -> Answer<LoweredValue> {
        if made.dims == dims {
            return Ok(made.clone());
        }
        let shape = self.numbers(dims);
        let reshaped = self.node("Reshape", &[], &[made, &shape], made.dtype)?;
        Ok(LoweredValue { dims: dims.to_vec(), ..reshaped })
    }

    pub(super) fn transpose(&mut self, made: &LoweredValue, order: &[usize]) -> Answer<LoweredValue> {
        if order.iter().enumerate().all(|(at, &axis)| at == axis) {
            return Ok(made.clone());
        }
        let dims = order.iter().map(|&axis| made.dims[axis]).collect();
        let order = Attribute::Ints(order.iter().map(|&axis| axis as i64).collect());
        let turned = self.node("Transpose", &[("perm", order)], &[made], made.dtype)?;
        Ok(LoweredValue { dims, ..turned })
    }

    /// Reduces axes and keeps them with extent 1.
    pub(super) fn reduce(&mut self, op: &str, made: &LoweredValue, axes: &[usize]) -> Answer<LoweredValue> {
        if axes.is_empty() {
            return Err(format!("{op} needs an axis"));
        }
        let mut dims = made.dims.clone();
        axes.iter().for_each(|&axis| dims[axis] = 1);
        let axes = self.numbers(&axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
        let reduced = self.node(op, &[("keepdims", Attribute::Int(1))], &[made, &axes], made.dtype)?;
        Ok(LoweredValue { dims, ..reduced })
    }

    /// Sums over the axes along which a tensor of these extents broadcasts.
    pub(super) fn sum_to(&mut self, made: &LoweredValue, dims: &[i64]) -> Answer<LoweredValue> {
        let axes: Vec<usize> = (0..dims.len()).filter(|&axis| dims[axis] == 1 && made.dims[axis] != 1).collect();
        if axes.is_empty() { Ok(made.clone()) } else { self.reduce("ReduceSum", made, &axes) }
    }

    /// A matrix product whose batch extents are equal or 1.
    pub(super) fn product(&mut self, a: &LoweredValue, b: &LoweredValue) -> Answer<LoweredValue> {
        let rank = a.dims.len();
        if rank < 2 || b.dims.len() != rank || a.dims[rank - 1] != b.dims[rank - 2] {
            return Err(format!("matrices {:?} and {:?} cannot be multiplied", a.dims, b.dims));
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

    /// Transposes the last two axes.
    pub(super) fn turned(&mut self, made: &LoweredValue) -> Answer<LoweredValue> {
        let rank = made.dims.len();
        let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.transpose(made, &order)
    }
}

/// The newest schema of each operator that this crate uses.
fn since_version(op_type: &str) -> i32 {
    match op_type {
        "BitCast" => 26,
        "ReduceMax" | "ReduceMin" | "Gelu" => 20,
        "AveragePool" => 19,
        "ReduceMean" | "ReduceL1" | "ReduceL2" | "ReduceProd" | "ReduceLogSumExp" => 18,
        "BitwiseAnd" | "ScatterElements" => 18,
        "MaxPool" => 12,
        "Round" => 11,
        "Where" | "Elu" => 9,
        "Expand" => 8,
        "And" | "Or" => 7,
        "Conv" | "ConvTranspose" | "Not" | "Tan" | "Sin" | "Softplus" => 1,
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
        DType::F8E4M3Fn => 17,
        DType::F8E4M3Fnuz => 18,
        DType::F8E5M2 => 19,
        DType::F8E5M2Fnuz => 20,
        DType::U4 => 21,
        DType::I4 => 22,
        DType::U2 => 25,
        DType::I2 => 26,
        DType::F8E8M0 => 24,
    }
}
