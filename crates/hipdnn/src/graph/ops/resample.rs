//! Pooling over windows, forward and backward.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, AttributeType, DataType, DescriptorType, PaddingMode, ResampleMode};
use crate::{Error, Result};

/// The parameters of a pooling window, one number per spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resample {
    /// The operation of the window.
    pub mode: ResampleMode,
    /// Elements of the window.
    pub window: Vec<i64>,
    /// Strides of the window.
    pub strides: Vec<i64>,
    /// Elements of padding before the first one.
    pub pre_padding: Vec<i64>,
    /// Elements of padding after the last one.
    pub post_padding: Vec<i64>,
}

impl Resample {
    /// A window with a stride of its own size, without padding.
    pub fn new(mode: ResampleMode, window: &[i64]) -> Self {
        let none = vec![0; window.len()];
        let (window, strides) = (window.to_vec(), window.to_vec());
        Self { mode, window, strides, pre_padding: none.clone(), post_padding: none }
    }

    fn settings(&self) -> Vec<(A, Setting)> {
        let padding = match self.mode {
            ResampleMode::MAXPOOL => PaddingMode::NEG_INF_PAD,
            _ => PaddingMode::ZERO_PAD,
        };
        vec![
            (A::RESAMPLE_PRE_PADDINGS, Setting::I64s(self.pre_padding.clone())),
            (A::RESAMPLE_POST_PADDINGS, Setting::I64s(self.post_padding.clone())),
            (A::RESAMPLE_STRIDES, Setting::I64s(self.strides.clone())),
            (A::RESAMPLE_WINDOW_DIMS, Setting::I64s(self.window.clone())),
            (A::RESAMPLE_MODE, Setting::Mode(AttributeType::RESAMPLE_MODE, self.mode.0)),
            (A::RESAMPLE_PADDING_MODE, Setting::Mode(AttributeType::PADDING_MODE, padding.0)),
        ]
    }

    /// The extents of the pooled tensor.
    fn pooled(&self, tensors: &Tensors, x: TensorId) -> Result<Vec<i64>> {
        tensors.require_rank(x, 3)?;
        let data = tensors.dims(x);
        let spatial = data.len() - 2;
        let lists = [&self.window, &self.strides, &self.pre_padding, &self.post_padding];
        if lists.iter().any(|list| list.len() != spatial) {
            return Err(Error::invalid("resample", format!("every parameter must have {spatial} numbers")));
        }
        let is_sound = |axis: usize| {
            self.window[axis] > 0
                && self.strides[axis] > 0
                && self.pre_padding[axis] >= 0
                && self.post_padding[axis] >= 0
        };
        if let Some(axis) = (0..spatial).find(|&axis| !is_sound(axis)) {
            return Err(Error::invalid("resample", format!("a parameter of spatial axis {axis} is negative or zero")));
        }
        let mut dims = data[..2].to_vec();
        for axis in 0..spatial {
            let padded = data[axis + 2].saturating_add(self.pre_padding[axis]).saturating_add(self.post_padding[axis]);
            if padded < self.window[axis] {
                return tensors
                    .refuse(x, format!("extent {} of spatial axis {axis} is smaller than the window", data[axis + 2]));
            }
            dims.push((padded - self.window[axis]) / self.strides[axis] + 1);
        }
        Ok(dims)
    }
}

/// A pooling window over `x`; max pooling may also return the index of the maximum.
pub(in crate::graph) fn resample(what: Resample, x: TensorId, y: TensorId, index: Option<TensorId>) -> Operation {
    let mut settings = what.settings();
    if index.is_some() {
        settings.push((A::RESAMPLE_GENERATE_INDEX_EXT, Setting::Bool(true)));
    }
    let rule = move |tensors: &mut Tensors| {
        let dims = what.pooled(tensors, x)?;
        tensors.set_result(y, &dims, Some(x))?;
        let Some(index) = index else { return Ok(()) };
        if what.mode != ResampleMode::MAXPOOL {
            return tensors.refuse(index, "only a maximum has an index");
        }
        if !matches!(tensors.get(index).data_type, Some(DataType::INT8 | DataType::INT32)) {
            return tensors.refuse(index, "an index must be INT8 or INT32");
        }
        tensors.set_result(index, &dims, Some(x))
    };
    Operation {
        name: "resample",
        descriptor: DescriptorType::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
        compute_type: A::RESAMPLE_COMP_TYPE,
        reads: vec![(A::OPERATION_RESAMPLE_FWD_XDESC, x)],
        makes: [Some((A::OPERATION_RESAMPLE_FWD_YDESC, y)), index.map(|id| (A::OPERATION_RESAMPLE_FWD_IDXDESC, id))]
            .into_iter()
            .flatten()
            .collect(),
        settings,
        rule: Box::new(rule),
    }
}

/// The gradient of a pooling window; max pooling needs the indices from the forward pass.
pub(in crate::graph) fn resample_backward(
    what: Resample,
    dy: TensorId,
    index: Option<TensorId>,
    dx: TensorId,
) -> Operation {
    let settings = what.settings();
    let rule = move |tensors: &mut Tensors| {
        tensors.complete(dx, dy)?;
        let dims = what.pooled(tensors, dx)?;
        [dy].into_iter().chain(index).try_for_each(|id| tensors.require_dims(id, &dims))
    };
    Operation {
        name: "resample backward",
        descriptor: DescriptorType::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
        compute_type: A::RESAMPLE_COMP_TYPE,
        reads: [Some((A::OPERATION_RESAMPLE_BWD_DYDESC, dy)), index.map(|id| (A::OPERATION_RESAMPLE_BWD_IDXDESC, id))]
            .into_iter()
            .flatten()
            .collect(),
        makes: vec![(A::OPERATION_RESAMPLE_BWD_DXDESC, dx)],
        settings,
        rule: Box::new(rule),
    }
}
