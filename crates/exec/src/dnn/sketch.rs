//! A hipDNN graph under construction, and how views become its tensors.
use graph::{DType, Declined, View};
use hipdnn::sys::DataType;
use hipdnn::{Graph, Pointwise, Scalar, Tensor, TensorId};

/// Whether an operand may be broadcast along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// Along any axis; the tensor then has extent 1 there.
    Anywhere,
    /// Along the first axis, the batch of matrices.
    InBatch,
    /// Nowhere.
    Never,
}

/// A graph under construction, with the tensors that need addresses.
pub(super) struct Sketch {
    pub graph: Graph,
    is_double: bool,
    /// The step's view (inputs first) that each tensor stands for.
    pub operands: Vec<(usize, TensorId)>,
}

impl Sketch {
    /// An empty graph for a step that reads this type.
    pub fn new(name: &str, dtype: DType) -> Result<Self, Declined> {
        let is_double = dtype == DType::F64;
        let compute = if is_double { DataType::DOUBLE } else { DataType::FLOAT };
        let graph = Graph::new(data_type(dtype)?, compute).named(name);
        Ok(Self { graph, is_double, operands: Vec::new() })
    }

    /// True if it computes in double precision, false if in single.
    pub fn is_double(&self) -> bool {
        self.is_double
    }

    /// A view that the step reads, as a tensor of at least `axes` axes. Missing axes come first, with extent 1.
    pub fn read(&mut self, at: usize, view: &View, axes: usize, repeats: Repeats) -> Result<TensorId, Declined> {
        let tensor = describe(view, axes, repeats)?;
        Ok(self.bring(at, tensor))
    }

    /// A vector that the step reads, as a tensor along the second of `axes` axes.
    pub fn read_channels(&mut self, at: usize, view: &View, axes: usize) -> Result<TensorId, Declined> {
        let channels = describe(view, 1, Repeats::Never)?;
        if !view.is_dense() {
            return Err(Declined::new("its bias is not contiguous"));
        }
        let mut dims = vec![1; axes];
        dims[1] = view.elems() as i64;
        let strides = packed(&dims, &(0..axes).collect::<Vec<_>>());
        Ok(self.bring(at, Described { dims, strides, ..channels }))
    }

    fn bring(&mut self, at: usize, described: Described) -> TensorId {
        let id = self.graph.tensor(described.into());
        self.operands.push((at, id));
        id
    }

    /// Marks a result as the output that the step writes.
    pub fn write(&mut self, at: usize, made: TensorId, view: &View, axes: usize) -> Result<(), Declined> {
        let tensor = describe(view, axes, Repeats::Never)?;
        let id = self.graph.output(made, tensor.into());
        self.operands.push((at, id));
        Ok(())
    }

    /// A number in the compute type.
    pub fn number(&mut self, value: f64) -> TensorId {
        let scalar = if self.is_double { Scalar::F64(value) } else { Scalar::F32(value as f32) };
        self.graph.tensor(Tensor::scalar(scalar))
    }

    /// A pointwise operation.
    pub fn pointwise(&mut self, what: impl Into<Pointwise>, inputs: &[TensorId]) -> TensorId {
        self.graph.pointwise(what, inputs)
    }
}

/// The alignment that hipDNN promises engines unless a tensor says otherwise.
const USUAL_ALIGNMENT: usize = 16;

/// The alignment of a view's first element in a buffer with the usual alignment.
pub(super) fn alignment(view: &View) -> usize {
    let bytes = view.offset.unsigned_abs().wrapping_mul(view.dtype.bytes());
    USUAL_ALIGNMENT.min(1 << bytes.trailing_zeros().min(4))
}

/// A tensor's extents, strides, type and alignment.
struct Described {
    dims: Vec<i64>,
    strides: Vec<i64>,
    data_type: DataType,
    alignment: usize,
}

impl From<Described> for Tensor {
    fn from(described: Described) -> Self {
        let Described { dims, strides, data_type, alignment } = described;
        let tensor = Tensor::new(&dims).strides(&strides).typed(data_type);
        // Set only where it matters: older libraries do not know the attribute.
        if alignment < USUAL_ALIGNMENT { tensor.aligned(alignment as i64) } else { tensor }
    }
}

fn describe(view: &View, axes: usize, repeats: Repeats) -> Result<Described, Declined> {
    let data_type = data_type(view.dtype)?;
    let missing = axes.saturating_sub(view.shape.len());
    let mut dims = vec![1; missing];
    let mut strides = vec![1; missing];
    for (axis, (&extent, &stride)) in view.shape.iter().zip(&view.strides).enumerate() {
        let repeated = extent > 1 && stride == 0;
        let may_repeat = repeats == Repeats::Anywhere || (repeats == Repeats::InBatch && axis == 0);
        match stride {
            _ if extent == 0 => return Err(Declined::new("an operand is empty")),
            ..0 if extent > 1 => return Err(Declined::new("an operand has a negative stride")),
            _ if repeated && !may_repeat => return Err(Declined::new("an operand is broadcast along an axis")),
            _ => {}
        }
        dims.push(if repeated { 1 } else { extent as i64 });
        strides.push(stride as i64);
    }
    settle(&dims, &mut strides);
    Ok(Described { dims, strides, data_type, alignment: alignment(view) })
}

/// Gives axes of extent 1 the strides they have in the usual layouts. No element depends on them, but engines recognise
/// layouts by their strides.
fn settle(dims: &[i64], strides: &mut [i64]) {
    let rows: Vec<usize> = (0..dims.len()).collect();
    let channels_last: Vec<usize> = rows.iter().copied().filter(|&axis| axis != 1).chain([1]).collect();
    for order in [rows, channels_last] {
        if order.len() != dims.len() {
            continue;
        }
        let usual = packed(dims, &order);
        if dims.iter().zip(&*strides).zip(&usual).all(|((&extent, had), usual)| extent == 1 || had == usual) {
            strides.copy_from_slice(&usual);
            return;
        }
    }
    let whole = dims.iter().zip(&*strides).map(|(extent, stride)| extent * stride).max().unwrap_or(1).max(1);
    for (stride, _) in strides.iter_mut().zip(dims).filter(|(_, extent)| **extent == 1) {
        *stride = whole;
    }
}

/// Strides of a packed tensor with its axes in this order, the last innermost.
fn packed(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut step) = (vec![1; dims.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

fn data_type(dtype: DType) -> Result<DataType, Declined> {
    match dtype {
        DType::F32 => Ok(DataType::FLOAT),
        DType::F64 => Ok(DataType::DOUBLE),
        DType::F16 => Ok(DataType::HALF),
        DType::Bf16 => Ok(DataType::BFLOAT16),
        other => Err(Declined::new(format!("hipDNN cannot compute in {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use graph::Shape;
    use graph::prim::BufferId;
    use graph::shape::Strides;

    use super::*;

    fn settled(dims: &[i64], strides: &[i64]) -> Vec<i64> {
        let mut strides = strides.to_vec();
        settle(dims, &mut strides);
        strides
    }

    #[test]
    fn a_view_has_the_alignment_of_its_first_element() {
        let at = |dtype, offset| {
            alignment(&View { buffer: BufferId(0), dtype, shape: Shape::new(), strides: Strides::new(), offset })
        };
        assert_eq!([0, 4, 8, -4].map(|offset| at(DType::F32, offset)), [16; 4]);
        assert_eq!([1, 2, 3, 6].map(|offset| at(DType::F32, offset)), [4, 8, 4, 8]);
        assert_eq!([1, 2, 12].map(|offset| at(DType::F16, offset)), [2, 4, 8]);
    }

    #[test]
    fn axes_of_one_element_get_the_strides_of_the_layout() {
        assert_eq!(settled(&[1, 3, 4, 5], &[0, 20, 5, 1]), [60, 20, 5, 1]);
        assert_eq!(settled(&[1, 3, 4, 5], &[7, 1, 15, 3]), [60, 1, 15, 3], "channels last");
        assert_eq!(settled(&[2, 1, 4, 4], &[16, 0, 4, 1]), [16, 16, 4, 1]);
        assert_eq!(settled(&[1, 3, 4, 5], &[0, 200, 50, 2]), [600, 200, 50, 2], "no packed layout");
        assert_eq!(settled(&[1], &[0]), [1]);
    }
}
