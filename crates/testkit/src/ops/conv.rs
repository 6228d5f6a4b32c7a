//! Convolutions and their transposes by loops over every output and tap.

use graph::Prim;
use graph::prim::{Conv, ProductKind};

use super::view::{flat, indices};

/// A convolution. Lists have one entry for each spatial axis.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Whether it is transposed: the gradient of a convolution with respect to its input.
    pub transposed: bool,
    /// The number of images.
    pub images: usize,
    /// The channels of the input and the output.
    pub channels: [usize; 2],
    /// The number of groups of channels.
    pub groups: usize,
    /// The extents of an image.
    pub input: Vec<usize>,
    /// The extents of the weights.
    pub kernel: Vec<usize>,
    /// The distances between neighbouring windows.
    pub strides: Vec<usize>,
    /// The distances between taps.
    pub dilations: Vec<usize>,
    /// Padding before and after; negative padding crops.
    pub pads: Vec<[isize; 2]>,
    /// Whether each channel of the output has a bias.
    pub bias: bool,
}

impl Convolution {
    /// A convolution with bias of two images, without padding.
    pub fn new(channels: [usize; 2], input: &[usize], kernel: &[usize]) -> Self {
        let axes = input.len();
        Self {
            transposed: false,
            images: 2,
            channels,
            groups: 1,
            input: input.to_vec(),
            kernel: kernel.to_vec(),
            strides: vec![1; axes],
            dilations: vec![1; axes],
            pads: vec![[0, 0]; axes],
            bias: true,
        }
    }

    /// The attributes of the primitive.
    pub fn attributes(&self) -> Conv {
        Conv {
            strides: self.strides.iter().copied().collect(),
            pads: self.pads.iter().map(|pad| pad[0]).collect(),
            dilations: self.dilations.iter().copied().collect(),
            groups: self.groups,
            bias: self.bias,
        }
    }

    /// The primitive.
    pub fn prim(&self) -> Prim {
        let kind = if self.transposed { ProductKind::ConvTranspose } else { ProductKind::Conv };
        kind(self.attributes()).into()
    }

    /// The shapes of the images, the weights and, if there is one, the bias.
    pub fn inputs(&self) -> Vec<Vec<usize>> {
        let [from, to] = self.channels;
        let weights = if self.transposed { [from, to / self.groups] } else { [to, from / self.groups] };
        let mut shapes = vec![join([self.images, from], &self.input), join(weights, &self.kernel)];
        shapes.extend(self.bias.then(|| vec![to]));
        shapes
    }

    /// The shape of the output; none if an extent would not be positive.
    pub fn output(&self) -> Option<Vec<usize>> {
        let extent = |axis: usize| {
            let reach = (self.dilations[axis] * (self.kernel[axis] - 1) + 1) as isize;
            let pads = self.pads[axis][0] + self.pads[axis][1];
            let (input, stride) = (self.input[axis] as isize, self.strides[axis] as isize);
            let extent = if self.transposed {
                (input - 1) * stride + reach - pads
            } else {
                (input + pads - reach).div_euclid(stride) + 1
            };
            usize::try_from(extent).ok().filter(|&extent| extent > 0)
        };
        let spatial: Option<Vec<usize>> = (0..self.input.len()).map(extent).collect();
        Some(join([self.images, self.channels[1]], &spatial?))
    }

    /// The output for dense values of the [`inputs`](Self::inputs).
    ///
    /// # Panics
    /// When an input is missing or too short, or when there is no [`output`](Self::output).
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<f64> {
        let shapes = self.inputs();
        let output = self.output().unwrap_or_else(|| unreachable!("{self:?} has no output"));
        let plane: usize = output[2..].iter().product();
        let [inputs, outputs] = self.channels.map(|channels| channels / self.groups);
        let (taps, windows) =
            (indices(&self.kernel), indices(if self.transposed { &self.input } else { &output[2..] }));
        let mut out: Vec<f64> = (0..output.iter().product())
            .map(|at: usize| if self.bias { values[2][at / plane % self.channels[1]] } else { 0.0 })
            .collect();
        for (tap_at, tap) in taps.iter().enumerate() {
            for window in &windows {
                // Where the tap of this window is: in the image, or when transposed in the output.
                let place: Option<Vec<usize>> = (0..window.len())
                    .map(|axis| {
                        let at = window[axis] * self.strides[axis] + tap[axis] * self.dilations[axis];
                        let extent = if self.transposed { output[2 + axis] } else { self.input[axis] };
                        usize::try_from(at as isize - self.pads[axis][0]).ok().filter(|&at| at < extent)
                    })
                    .collect();
                let Some(place) = place else { continue };
                let (x_at, y_at) = if self.transposed { (window, &place) } else { (&place, window) };
                let (x_at, y_at) = (flat(&self.input, x_at), flat(&output[2..], y_at));
                let each = (0..self.images).flat_map(|image| (0..self.channels[1]).map(move |to| (image, to)));
                for (image, to) in each {
                    let group = to / outputs;
                    for within in 0..inputs {
                        let from = group * inputs + within;
                        let row = if self.transposed { from * outputs + to % outputs } else { to * inputs + within };
                        let x = values[0]
                            [(image * self.channels[0] + from) * (shapes[0][2..].iter().product::<usize>()) + x_at];
                        out[(image * self.channels[1] + to) * plane + y_at] += x * values[1][row * taps.len() + tap_at];
                    }
                }
            }
        }
        out
    }
}

fn join(head: [usize; 2], tail: &[usize]) -> Vec<usize> {
    head.into_iter().chain(tail.iter().copied()).collect()
}

/// One, two and three axes, with padding, strides and dilations.
pub fn axes() -> Vec<Convolution> {
    vec![
        Convolution { pads: vec![[2, 1]], strides: vec![2], ..Convolution::new([5, 20], &[23], &[4]) },
        Convolution {
            pads: vec![[1, 1], [0, 2]],
            dilations: vec![1, 2],
            ..Convolution::new([8, 17], &[9, 10], &[3, 3])
        },
        Convolution { pads: vec![[1, 1]; 3], bias: false, ..Convolution::new([4, 12], &[4, 5, 6], &[2, 3, 2]) },
    ]
}

/// Padding that crops, and strides that skip elements.
pub fn cropped() -> Convolution {
    Convolution { pads: vec![[-1, 2], [3, -2]], strides: vec![2, 3], ..Convolution::new([6, 16], &[11, 13], &[3, 2]) }
}

/// Several groups, down to one channel each.
pub fn grouped() -> Vec<Convolution> {
    let case = |(channels, groups)| Convolution {
        groups,
        pads: vec![[1, 1]; 2],
        strides: vec![1, 2],
        ..Convolution::new(channels, &[7, 9], &[3, 3])
    };
    [([32, 48], 2), ([12, 12], 12), ([6, 12], 6), ([8, 8], 2)].map(case).to_vec()
}

/// One tap: a product of matrices.
pub fn pointwise() -> Vec<Convolution> {
    [1, 2].map(|groups| Convolution { groups, ..Convolution::new([40, 36], &[5, 8], &[1, 1]) }).to_vec()
}

/// Many terms for each of a few outputs.
pub fn deep() -> Convolution {
    Convolution { pads: vec![[1, 1]; 2], images: 1, ..Convolution::new([64, 24], &[4, 4], &[3, 3]) }
}

/// Transposed, with several relations of stride and dilation, dense and by single channels.
pub fn transposed() -> Vec<Convolution> {
    let windows =
        [([1, 1], [1, 1], [3, 3]), ([2, 3], [1, 1], [4, 2]), ([2, 2], [2, 3], [3, 3]), ([4, 1], [6, 1], [3, 1])];
    let case = |(strides, dilations, kernel): ([usize; 2], [usize; 2], [usize; 2])| {
        [([8, 20], 1), ([6, 6], 6)].map(|(channels, groups)| Convolution {
            transposed: true,
            groups,
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads: vec![[1, 0], [0, 1]],
            ..Convolution::new(channels, &[5, 4], &kernel)
        })
    };
    windows.into_iter().flat_map(case).collect()
}
