//! Pooling windows.

use graph::ops::Attribute;
use graph::{Scalar, Tensor};
use hipdnn::sys::{AttributeName as A, ResampleMode};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};

struct Window {
    mode: ResampleMode,
    size: Vec<i64>,
    strides: Vec<i64>,
    pre: Vec<i64>,
    post: Vec<i64>,
}

impl Window {
    fn of(operation: &Descriptor, spatial: usize) -> Answer<Self> {
        let list = |name, least| {
            let values = operation.i64s(name);
            let is_sound = values.len() == spatial && values.iter().all(|&value| value >= least);
            if is_sound { Ok(values) } else { Err(format!("{name} must have {spatial} numbers of {least} or more")) }
        };
        Ok(Self {
            mode: ResampleMode(operation.number(A::RESAMPLE_MODE).unwrap_or(0)),
            size: list(A::RESAMPLE_WINDOW_DIMS, 1)?,
            strides: list(A::RESAMPLE_STRIDES, 1)?,
            pre: list(A::RESAMPLE_PRE_PADDINGS, 0)?,
            post: list(A::RESAMPLE_POST_PADDINGS, 0)?,
        })
    }

    fn pads(&self) -> Attribute {
        Attribute::Ints(self.pre.iter().chain(&self.post).copied().collect())
    }

    fn pooled(&self, data: &[i64]) -> Answer<Vec<i64>> {
        (0..self.size.len())
            .map(|axis| {
                let room = data[axis] + self.pre[axis] + self.post[axis] - self.size[axis];
                if room < 0 {
                    Err("the window is larger than the data".into())
                } else {
                    Ok(room / self.strides[axis] + 1)
                }
            })
            .collect()
    }
}

impl Lowering {
    pub(super) fn resample(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_RESAMPLE_FWD_XDESC)?;
        if x.dims.len() < 3 {
            return Err(format!("windows over {:?}", x.dims));
        }
        if operation.descriptor(A::OPERATION_RESAMPLE_FWD_IDXDESC).is_some() {
            return Err("the places of maxima".into());
        }
        let window = Window::of(operation, x.dims.len() - 2)?;
        let dims = [&x.dims[..2], &window.pooled(&x.dims[2..])?].concat();
        let mut attributes = vec![
            ("kernel_shape", Attribute::Ints(window.size.clone())),
            ("strides", Attribute::Ints(window.strides.clone())),
            ("pads", window.pads()),
        ];
        let op = match window.mode {
            ResampleMode::MAXPOOL => "MaxPool",
            ResampleMode::AVGPOOL_EXCLUDE_PADDING => "AveragePool",
            ResampleMode::AVGPOOL_INCLUDE_PADDING => {
                attributes.push(("count_include_pad", Attribute::Int(1)));
                "AveragePool"
            }
            other => return Err(format!("no resampling {other:?}")),
        };
        let y = self.compute_node(op, &attributes, &[&x], &dims)?;
        self.write(operation, A::OPERATION_RESAMPLE_FWD_YDESC, &y)
    }

    /// An average's gradient spreads each result, divided by the number of elements it came from, over its window.
    pub(super) fn resample_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_RESAMPLE_BWD_DYDESC)?;
        let dx = operation.descriptor(A::OPERATION_RESAMPLE_BWD_DXDESC).ok_or("no result")?;
        let dims = dx.i64s(A::TENSOR_DIMENSIONS);
        if dims.len() < 3 || dims.len() != dy.dims.len() {
            return Err(format!("windows over {dims:?}"));
        }
        let window = Window::of(operation, dims.len() - 2)?;
        if window.pooled(&dims[2..])? != dy.dims[2..] {
            return Err(format!("a gradient of {dims:?} does not belong to results of {:?}", dy.dims));
        }
        let counts = self.window_counts(&window, &dims[2..], &dy.dims[2..])?;
        let share = self.elementwise("Div", &[&dy, &counts])?;
        let taps = vec![1usize; 2].into_iter().chain(window.size.iter().map(|&size| size as usize));
        let shape: Vec<usize> =
            taps.enumerate().map(|(axis, size)| if axis == 0 { dims[1] as usize } else { size }).collect();
        let ones = std::iter::repeat_n(Scalar::Float(1.0), shape.iter().product());
        let ones = Tensor::from_scalars(self.compute(), &shape, ones).ok_or("a window is too large")?;
        let ones = self.constant(ones);
        let further: Vec<i64> = (0..window.size.len())
            .map(|axis| {
                let least = (dy.dims[axis + 2] - 1) * window.strides[axis] + window.size[axis];
                dims[axis + 2] + window.pre[axis] + window.post[axis] - least
            })
            .collect();
        let attributes = [
            ("strides", Attribute::Ints(window.strides.clone())),
            ("pads", window.pads()),
            ("group", Attribute::Int(dims[1])),
            ("output_padding", Attribute::Ints(further)),
        ];
        let made = self.compute_node("ConvTranspose", &attributes, &[&share, &ones], &dims)?;
        self.write(operation, A::OPERATION_RESAMPLE_BWD_DXDESC, &made)
    }

    /// How many elements each result is the average of.
    fn window_counts(&mut self, window: &Window, data: &[i64], pooled: &[i64]) -> Answer<super::Made> {
        let along = |axis: usize, at: i64| match window.mode {
            ResampleMode::AVGPOOL_INCLUDE_PADDING => Ok(window.size[axis]),
            ResampleMode::AVGPOOL_EXCLUDE_PADDING => {
                let first = at * window.strides[axis] - window.pre[axis];
                Ok((first + window.size[axis]).min(data[axis]) - first.max(0))
            }
            other => Err(format!("the gradient of {other:?} without places")),
        };
        let mut counts = vec![1i64];
        for (axis, &extent) in pooled.iter().enumerate() {
            let line = (0..extent).map(|at| along(axis, at)).collect::<Answer<Vec<_>>>()?;
            counts = counts.iter().flat_map(|&count| line.iter().map(move |&along| count * along)).collect();
        }
        let shape: Vec<usize> = [1, 1].into_iter().chain(pooled.iter().map(|&extent| extent as usize)).collect();
        let values = counts.into_iter().map(|count| Scalar::Float(count.max(1) as f64));
        let tensor = Tensor::from_scalars(self.compute(), &shape, values).ok_or("results are too many")?;
        Ok(self.constant(tensor))
    }
}
