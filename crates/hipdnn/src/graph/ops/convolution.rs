//! Convolution: forward, backward to its data, and backward to its filter.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName, AttributeType, ConvolutionMode, DescriptorType};
use crate::{Error, Result};

/// The parameters of a convolution, one number per spatial axis. The filter is `[K, C / groups, spatial...]`, which
/// determines the number of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Zeros before the first element.
    pub pre_padding: Vec<i64>,
    /// Zeros after the last element.
    pub post_padding: Vec<i64>,
    /// Strides of the filter.
    pub strides: Vec<i64>,
    /// Distances between the filter's elements.
    pub dilations: Vec<i64>,
    /// Whether the filter is flipped.
    pub mode: ConvolutionMode,
}

impl Convolution {
    /// A dense convolution without padding over this many spatial axes.
    pub fn new(spatial: usize) -> Self {
        Self {
            pre_padding: vec![0; spatial],
            post_padding: vec![0; spatial],
            strides: vec![1; spatial],
            dilations: vec![1; spatial],
            mode: ConvolutionMode::CROSS_CORRELATION,
        }
    }

    /// Sets the same padding before and after.
    #[must_use]
    pub fn padding(mut self, padding: &[i64]) -> Self {
        (self.pre_padding, self.post_padding) = (padding.to_vec(), padding.to_vec());
        self
    }

    /// Sets the strides.
    #[must_use]
    pub fn strides(mut self, strides: &[i64]) -> Self {
        self.strides = strides.to_vec();
        self
    }

    /// Sets the dilations.
    #[must_use]
    pub fn dilations(mut self, dilations: &[i64]) -> Self {
        self.dilations = dilations.to_vec();
        self
    }

    fn check(&self, spatial: usize) -> Result<()> {
        let lists = [
            ("pre-padding", &self.pre_padding, 0),
            ("post-padding", &self.post_padding, 0),
            ("strides", &self.strides, 1),
            ("dilations", &self.dilations, 1),
        ];
        for (what, list, least) in lists {
            if list.len() != spatial {
                let rule = format!("{what} has {} numbers for {spatial} spatial axes", list.len());
                return Err(Error::invalid("convolution", rule));
            }
            if let Some(value) = list.iter().find(|&&value| value < least) {
                return Err(Error::invalid("convolution", format!("{what} {value} is below {least}")));
            }
        }
        Ok(())
    }

    /// The extents of the result of a forward convolution.
    fn forward(&self, tensors: &Tensors, x: TensorId, w: TensorId) -> Result<Vec<i64>> {
        tensors.require_rank(x, 3)?;
        let (input, filter) = (tensors.dims(x), tensors.dims(w));
        if filter.len() != input.len() {
            return tensors.refuse(w, format!("it has {} axes, but the data has {}", filter.len(), input.len()));
        }
        self.check(input.len() - 2)?;
        if input[1] % filter[1] != 0 {
            return tensors.refuse(w, format!("{} channels cannot be divided into groups of {}", input[1], filter[1]));
        }
        let groups = input[1] / filter[1];
        if filter[0] % groups != 0 {
            return tensors.refuse(w, format!("{} filters cannot be divided into {groups} groups", filter[0]));
        }
        let mut dims = vec![input[0], filter[0]];
        for axis in 0..input.len() - 2 {
            let (extent, taps) = (input[axis + 2], filter[axis + 2]);
            let reach = self.dilations[axis].checked_mul(taps - 1).and_then(|reach| reach.checked_add(1));
            let padded =
                extent.checked_add(self.pre_padding[axis]).and_then(|e| e.checked_add(self.post_padding[axis]));
            match (padded, reach) {
                (Some(padded), Some(reach)) if padded >= reach => dims.push((padded - reach) / self.strides[axis] + 1),
                _ => {
                    let rule = format!("extent {extent} of spatial axis {axis} is smaller than the filter's reach");
                    return tensors.refuse(x, rule);
                }
            }
        }
        Ok(dims)
    }
}

/// Which of its tensors a convolution computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::graph) enum Direction {
    Forward,
    ToData,
    ToFilter,
}

/// A convolution: `x` and `w` produce `y`; the direction determines which two of the three are inputs.
pub(in crate::graph) fn convolution(
    direction: Direction,
    x: TensorId,
    w: TensorId,
    y: TensorId,
    parameters: Convolution,
) -> Operation {
    use AttributeName as A;
    let (name, descriptor, reads, made) = match direction {
        Direction::Forward => (
            "convolution",
            DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [(A::OPERATION_CONVOLUTION_FORWARD_X, x), (A::OPERATION_CONVOLUTION_FORWARD_W, w)],
            (A::OPERATION_CONVOLUTION_FORWARD_Y, y),
        ),
        Direction::ToData => (
            "convolution backward to data",
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [(A::OPERATION_CONVOLUTION_BWD_DATA_DY, y), (A::OPERATION_CONVOLUTION_BWD_DATA_W, w)],
            (A::OPERATION_CONVOLUTION_BWD_DATA_DX, x),
        ),
        Direction::ToFilter => (
            "convolution backward to filter",
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [(A::OPERATION_CONVOLUTION_BWD_FILTER_X, x), (A::OPERATION_CONVOLUTION_BWD_FILTER_DY, y)],
            (A::OPERATION_CONVOLUTION_BWD_FILTER_DW, w),
        ),
    };
    let settings = vec![
        (A::CONVOLUTION_PRE_PADDINGS, Setting::I64s(parameters.pre_padding.clone())),
        (A::CONVOLUTION_POST_PADDINGS, Setting::I64s(parameters.post_padding.clone())),
        (A::CONVOLUTION_FILTER_STRIDES, Setting::I64s(parameters.strides.clone())),
        (A::CONVOLUTION_DILATIONS, Setting::I64s(parameters.dilations.clone())),
        (A::CONVOLUTION_CONV_MODE, Setting::Mode(AttributeType::CONVOLUTION_MODE, parameters.mode.0)),
    ];
    let rule = move |tensors: &mut Tensors| {
        if direction == Direction::Forward {
            let dims = parameters.forward(tensors, x, w)?;
            return tensors.set_result(y, &dims, Some(x));
        }
        // Several input extents of a convolution lead to the same output extents, so those of a gradient must be given.
        let (gradient, like) = if direction == Direction::ToData { (x, y) } else { (w, x) };
        tensors.complete(gradient, like)?;
        let dims = parameters.forward(tensors, x, w)?;
        tensors.require_dims(y, &dims)
    };
    Operation {
        name,
        descriptor,
        compute_type: A::CONVOLUTION_COMP_TYPE,
        reads: reads.to_vec(),
        makes: vec![made],
        settings,
        rule: Box::new(rule),
    }
}
