//! Convolutions: forward as Conv, to data as ConvTranspose, to filter as a Conv with batch and channels swapped.

use graph::ops::Attribute;
use hipdnn::sys::{AttributeName as A, ConvolutionMode};
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

/// The parameters of a convolution.
struct Parameters {
    pre: Vec<i64>,
    post: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    flips: bool,
}

impl Parameters {
    fn of(operation: &Descriptor, spatial: usize) -> Answer<Self> {
        let list = |name| {
            let values = operation.i64s(name);
            if values.len() == spatial { Ok(values) } else { Err(format!("{name} must have {spatial} numbers")) }
        };
        let parameters = Self {
            pre: list(A::CONVOLUTION_PRE_PADDINGS)?,
            post: list(A::CONVOLUTION_POST_PADDINGS)?,
            strides: list(A::CONVOLUTION_FILTER_STRIDES)?,
            dilations: list(A::CONVOLUTION_DILATIONS)?,
            flips: operation.number(A::CONVOLUTION_CONV_MODE) == Some(ConvolutionMode::CONVOLUTION.0),
        };
        let is_sound = parameters.strides.iter().chain(&parameters.dilations).all(|&value| value > 0)
            && parameters.pre.iter().chain(&parameters.post).all(|&value| value >= 0);
        if is_sound { Ok(parameters) } else { Err("negative padding, or strides or dilations below 1".into()) }
    }

    fn attributes(&self, strides: &[i64], dilations: &[i64], groups: i64) -> Vec<(&'static str, Attribute)> {
        let pads = self.pre.iter().chain(&self.post).copied().collect();
        vec![
            ("pads", Attribute::Ints(pads)),
            ("strides", Attribute::Ints(strides.to_vec())),
            ("dilations", Attribute::Ints(dilations.to_vec())),
            ("group", Attribute::Int(groups)),
        ]
    }

    /// The extents of a Conv's result over the spatial axes.
    fn spatial(&self, data: &[i64], filter: &[i64], strides: &[i64], dilations: &[i64]) -> Answer<Vec<i64>> {
        (0..data.len())
            .map(|axis| {
                let room = data[axis] + self.pre[axis] + self.post[axis] - dilations[axis] * (filter[axis] - 1) - 1;
                if room < 0 { Err("the filter extends beyond the data".into()) } else { Ok(room / strides[axis] + 1) }
            })
            .collect()
    }
}

fn groups_of(channels: i64, filter: &[i64]) -> Answer<i64> {
    let groups = channels / filter[1];
    if channels % filter[1] != 0 || filter[0] % groups != 0 {
        return Err(format!("{channels} channels do not match filters {filter:?}"));
    }
    Ok(groups)
}

fn require_ranks(one: &LoweredValue, other: &LoweredValue) -> Answer {
    if one.dims.len() < 3 || one.dims.len() != other.dims.len() {
        return Err(format!(
            "the tensors of a convolution, {:?} and {:?}, must have the same rank of at least 3",
            one.dims, other.dims
        ));
    }
    Ok(())
}

impl Lowering {
    pub(super) fn convolution(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_CONVOLUTION_FORWARD_X)?;
        let w = self.read(operation, A::OPERATION_CONVOLUTION_FORWARD_W)?;
        require_ranks(&x, &w)?;
        let parameters = Parameters::of(operation, x.dims.len() - 2)?;
        let w = self.flipped(&w, parameters.flips)?;
        let groups = groups_of(x.dims[1], &w.dims)?;
        let spatial = parameters.spatial(&x.dims[2..], &w.dims[2..], &parameters.strides, &parameters.dilations)?;
        let dims = [&[x.dims[0], w.dims[0]], &spatial[..]].concat();
        let attributes = parameters.attributes(&parameters.strides, &parameters.dilations, groups);
        let y = self.compute_node("Conv", &attributes, &[&x, &w], &dims)?;
        self.write(operation, A::OPERATION_CONVOLUTION_FORWARD_Y, &y)
    }

    pub(super) fn convolution_to_data(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_CONVOLUTION_BWD_DATA_DY)?;
        let w = self.read(operation, A::OPERATION_CONVOLUTION_BWD_DATA_W)?;
        require_ranks(&dy, &w)?;
        let dx = operation.descriptor(A::OPERATION_CONVOLUTION_BWD_DATA_DX).ok_or("no result")?;
        let dims = dx.i64s(A::TENSOR_DIMENSIONS);
        let parameters = Parameters::of(operation, dy.dims.len() - 2)?;
        let w = self.flipped(&w, parameters.flips)?;
        if dims.len() != dy.dims.len() {
            return Err(format!("a gradient {dims:?} does not match results {:?}", dy.dims));
        }
        let groups = groups_of(dims[1], &w.dims)?;
        let further: Vec<i64> = (0..dims.len() - 2)
            .map(|axis| {
                let reach = parameters.dilations[axis] * (w.dims[axis + 2] - 1) + 1;
                let least = (dy.dims[axis + 2] - 1) * parameters.strides[axis] + reach;
                dims[axis + 2] + parameters.pre[axis] + parameters.post[axis] - least
            })
            .collect();
        if further.iter().zip(&parameters.strides).any(|(further, stride)| further < &0 || further >= stride) {
            return Err(format!("a gradient {dims:?} does not match results {:?}", dy.dims));
        }
        let mut attributes = parameters.attributes(&parameters.strides, &parameters.dilations, groups);
        attributes.push(("output_padding", Attribute::Ints(further)));
        let made = self.compute_node("ConvTranspose", &attributes, &[&dy, &w], &dims)?;
        self.write(operation, A::OPERATION_CONVOLUTION_BWD_DATA_DX, &made)
    }

    /// A filter's gradient is the correlation of data and gradient over the batch: strides and dilations are swapped.
    pub(super) fn convolution_to_filter(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_CONVOLUTION_BWD_FILTER_X)?;
        let dy = self.read(operation, A::OPERATION_CONVOLUTION_BWD_FILTER_DY)?;
        require_ranks(&x, &dy)?;
        let dw = operation.descriptor(A::OPERATION_CONVOLUTION_BWD_FILTER_DW).ok_or("no result")?;
        let dims = dw.i64s(A::TENSOR_DIMENSIONS);
        let parameters = Parameters::of(operation, x.dims.len() - 2)?;
        if dims.len() != x.dims.len() {
            return Err(format!("a filter {dims:?} does not match data {:?}", x.dims));
        }
        let groups = groups_of(x.dims[1], &dims)?;
        let order: Vec<usize> = [1, 0].into_iter().chain(2..dims.len()).collect();
        let (x, dy) = (self.transpose(&x, &order)?, self.transpose(&dy, &order)?);
        let attributes = parameters.attributes(&parameters.dilations, &parameters.strides, 1);
        let mut parts = Vec::new();
        for group in 0..groups {
            let x = self.cut(&x, &[(0, group * dims[1], dims[1])])?;
            let filters = dims[0] / groups;
            let dy = self.cut(&dy, &[(0, group * filters, filters)])?;
            let spatial =
                parameters.spatial(&x.dims[2..], &dy.dims[2..], &parameters.dilations, &parameters.strides)?;
            let made =
                self.compute_node("Conv", &attributes, &[&x, &dy], &[&[dims[1], filters], &spatial[..]].concat())?;
            let wanted: Vec<_> = (2..dims.len()).map(|axis| (axis, 0, dims[axis])).collect();
            let made = self.cut(&made, &wanted)?;
            parts.push(self.transpose(&made, &order)?);
        }
        let parts: Vec<&LoweredValue> = parts.iter().collect();
        let whole = self.compute_node("Concat", &[("axis", Attribute::Int(0))], &parts, &dims)?;
        let whole = self.flipped(&whole, parameters.flips)?;
        self.write(operation, A::OPERATION_CONVOLUTION_BWD_FILTER_DW, &whole)
    }

    /// Slices axes: (axis, first, count).
    fn cut(&mut self, made: &LoweredValue, parts: &[(usize, i64, i64)]) -> Answer<LoweredValue> {
        let mut dims = made.dims.clone();
        for &(axis, first, count) in parts {
            if first + count > dims[axis] {
                return Err(format!("a filter's gradient extends beyond {:?}", made.dims));
            }
            dims[axis] = count;
        }
        let lists = [
            parts.iter().map(|part| part.1).collect::<Vec<_>>(),
            parts.iter().map(|part| part.1 + part.2).collect(),
            parts.iter().map(|part| part.0 as i64).collect(),
        ];
        let [starts, ends, axes] = lists.map(|list| self.numbers(&list));
        self.compute_node("Slice", &[], &[made, &starts, &ends, &axes], &dims)
    }

    /// A filter with its spatial axes reversed.
    fn flipped(&mut self, w: &LoweredValue, flips: bool) -> Answer<LoweredValue> {
        if !flips {
            return Ok(w.clone());
        }
        let spatial = w.dims.len() - 2;
        let axes: Vec<i64> = (2..w.dims.len() as i64).collect();
        let lists = [vec![-1; spatial], vec![i64::MIN; spatial], axes, vec![-1; spatial]];
        let [starts, ends, axes, steps] = lists.map(|list| self.numbers(&list));
        self.compute_node("Slice", &[], &[w, &starts, &ends, &axes, &steps], &w.dims)
    }
}
