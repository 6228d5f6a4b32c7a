//! Pooling over windows.

use graph::ops::Attribute;
use graph::{DType, Scalar, Tensor};
use hipdnn::sys::{AttributeName as A, PaddingMode, ResampleMode};
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

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
        let window = Self {
            mode: ResampleMode(operation.number(A::RESAMPLE_MODE).unwrap_or(0)),
            size: list(A::RESAMPLE_WINDOW_DIMS, 1)?,
            strides: list(A::RESAMPLE_STRIDES, 1)?,
            pre: list(A::RESAMPLE_PRE_PADDINGS, 0)?,
            post: list(A::RESAMPLE_POST_PADDINGS, 0)?,
        };
        let padding = PaddingMode(operation.number(A::RESAMPLE_PADDING_MODE).unwrap_or(0));
        let odd = match window.mode {
            ResampleMode::MAXPOOL => PaddingMode::ZERO_PAD,
            _ => PaddingMode::NEG_INF_PAD,
        };
        if padding == odd && window.pre.iter().chain(&window.post).any(|&pad| pad > 0) {
            return Err(format!("{:?} with {padding:?} is not supported", window.mode));
        }
        Ok(window)
    }

    /// The stride of each axis in a row-major index over these extents.
    fn steps(extents: &[i64]) -> Vec<i64> {
        (0..extents.len()).map(|axis| extents[axis + 1..].iter().product()).collect()
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
            return Err(format!("windows over a tensor {:?} are not supported", x.dims));
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
            other => return Err(format!("the resampling mode {other:?} is not supported")),
        };
        if operation.descriptor(A::OPERATION_RESAMPLE_FWD_IDXDESC).is_none() {
            let y = self.compute_node(op, &attributes, &[&x], &dims)?;
            return self.write(operation, A::OPERATION_RESAMPLE_FWD_YDESC, &y);
        }
        if window.mode != ResampleMode::MAXPOOL {
            return Err(format!("indices of {:?} are not supported", window.mode));
        }
        let made = self.nodes(op, &attributes, &[&x], &[self.compute(), DType::I64])?;
        let [y, found] = <[LoweredValue; 2]>::try_from(made)
            .map_err(|_| "no places")?
            .map(|made| LoweredValue { dims: dims.clone(), ..made });
        self.write(operation, A::OPERATION_RESAMPLE_FWD_YDESC, &y)?;
        let places = self.places_in_windows(&window, &found, &x.dims[2..])?;
        self.write(operation, A::OPERATION_RESAMPLE_FWD_IDXDESC, &places)
    }

    /// Converts the indices of maxima in the data to indices over the extents of their windows.
    fn places_in_windows(&mut self, window: &Window, found: &LoweredValue, data: &[i64]) -> Answer<LoweredValue> {
        let (outer, inner) = (Window::steps(data), Window::steps(&window.size));
        let mut place = self.whole(0);
        for axis in 0..data.len() {
            let at = self.coordinate(found, outer[axis], data[axis])?;
            let first = self.first_of_window(window, axis, found.dims[axis + 2])?;
            let tap = self.elementwise_to("Sub", &[&at, &first], DType::I64)?;
            place = self.step_on(&place, &tap, inner[axis])?;
        }
        Ok(place)
    }

    /// The coordinate of an index along an axis.
    fn coordinate(&mut self, index: &LoweredValue, step: i64, extent: i64) -> Answer<LoweredValue> {
        let (step, extent) = (self.whole(step), self.whole(extent));
        let steps = self.elementwise_to("Div", &[index, &step], DType::I64)?;
        self.elementwise_to("Mod", &[&steps, &extent], DType::I64)
    }

    /// The start of each window along an axis, for `[n, c, spatial…]`.
    fn first_of_window(&mut self, window: &Window, axis: usize, pooled: i64) -> Answer<LoweredValue> {
        let (stride, pre) = (window.strides[axis], window.pre[axis]);
        self.along(DType::I64, window.size.len() + 2, axis + 2, pooled, |at| at * stride - pre)
    }

    fn step_on(&mut self, index: &LoweredValue, by: &LoweredValue, step: i64) -> Answer<LoweredValue> {
        let step = self.whole(step);
        let way = self.elementwise_to("Mul", &[by, &step], DType::I64)?;
        self.elementwise_to("Add", &[index, &way], DType::I64)
    }

    /// Adds each gradient at the position of its maximum.
    fn maximum_backward(&mut self, operation: &Descriptor, window: &Window, dy: &LoweredValue, dims: &[i64]) -> Answer {
        let name = A::OPERATION_RESAMPLE_BWD_IDXDESC;
        let index = operation.descriptor(name).ok_or("the gradient of a maximum needs its indices")?;
        let index = self.read_as_is(&index)?;
        if index.dims != dy.dims {
            return Err(format!("indices {:?} do not match results {:?}", index.dims, dy.dims));
        }
        let index = self.cast(&index, DType::I64)?;
        let (outer, inner) = (Window::steps(&dims[2..]), Window::steps(&window.size));
        let mut place = self.whole(0);
        for axis in 0..window.size.len() {
            let tap = self.coordinate(&index, inner[axis], window.size[axis])?;
            let first = self.first_of_window(window, axis, dy.dims[axis + 2])?;
            let at = self.elementwise_to("Add", &[&first, &tap], DType::I64)?;
            place = self.step_on(&place, &at, outer[axis])?;
        }
        let flat = |dims: &[i64]| [dims[0] * dims[1], dims[2..].iter().product::<i64>()];
        let (place, dy) = (self.reshape(&place, &flat(&dy.dims))?, self.reshape(dy, &flat(&dy.dims))?);
        let (zero, shape) = (self.scalar(0.0), self.numbers(&flat(dims)));
        let zeros = self.compute_node("Expand", &[], &[&zero, &shape], &flat(dims))?;
        let attributes = [("axis", Attribute::Int(1)), ("reduction", Attribute::Text("add".into()))];
        let made = self.compute_node("ScatterElements", &attributes, &[&zeros, &place, &dy], &flat(dims))?;
        let dx = self.reshape(&made, dims)?;
        self.write(operation, A::OPERATION_RESAMPLE_BWD_DXDESC, &dx)
    }

    /// The gradient of an average distributes each upstream gradient, divided by the number of averaged elements, over
    /// its window.
    pub(super) fn resample_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_RESAMPLE_BWD_DYDESC)?;
        let dx = operation.descriptor(A::OPERATION_RESAMPLE_BWD_DXDESC).ok_or("no result")?;
        let dims = dx.i64s(A::TENSOR_DIMENSIONS);
        if dims.len() < 3 || dims.len() != dy.dims.len() {
            return Err(format!("windows over a tensor {dims:?} are not supported"));
        }
        let window = Window::of(operation, dims.len() - 2)?;
        if window.pooled(&dims[2..])? != dy.dims[2..] {
            return Err(format!("a gradient {dims:?} does not match results {:?}", dy.dims));
        }
        if window.mode == ResampleMode::MAXPOOL {
            return self.maximum_backward(operation, &window, &dy, &dims);
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

    /// The number of elements that each result averages.
    fn window_counts(&mut self, window: &Window, data: &[i64], pooled: &[i64]) -> Answer<LoweredValue> {
        let along = |axis: usize, at: i64| match window.mode {
            ResampleMode::AVGPOOL_INCLUDE_PADDING => Ok(window.size[axis]),
            ResampleMode::AVGPOOL_EXCLUDE_PADDING => {
                let first = at * window.strides[axis] - window.pre[axis];
                Ok((first + window.size[axis]).min(data[axis]) - first.max(0))
            }
            other => Err(format!("the gradient of {other:?} is not supported")),
        };
        let mut counts = vec![1i64];
        for (axis, &extent) in pooled.iter().enumerate() {
            let line = (0..extent).map(|at| along(axis, at)).collect::<Answer<Vec<_>>>()?;
            counts = counts.iter().flat_map(|&count| line.iter().map(move |&along| count * along)).collect();
        }
        let shape: Vec<usize> = [1, 1].into_iter().chain(pooled.iter().map(|&extent| extent as usize)).collect();
        let values = counts.into_iter().map(|count| Scalar::Float(count.max(1) as f64));
        let tensor = Tensor::from_scalars(self.compute(), &shape, values).ok_or("there are too many results")?;
        Ok(self.constant(tensor))
    }
}
