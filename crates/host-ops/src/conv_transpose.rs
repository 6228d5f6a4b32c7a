//! Transposed convolutions.
//!
//! Output elements whose indices are equal modulo the stride use the same taps. So each remainder of the stride is an
//! ordinary convolution with some of the taps, and no element is written twice.
use graph::DType;
use graph::prim::Conv;
use smallvec::{SmallVec, smallvec};

use crate::conv::typed;
use crate::convolve::{Job, Lattice, convolve};
use crate::epilogue::Epilogue;
use crate::planes::{AXES, Axis, Planes, Tap, spatial};
use crate::{Context, OpError, Tensor, TensorMut};

/// x `[n, c, spatial…]`, w `[c, m/groups, kernel…]`, bias `[m]` if there is one.
pub(crate) fn run(
    prim: &Conv,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    if out.shape().len() > 2 + AXES {
        return Err(OpError::Unsupported { prim: "conv_transpose over more than three axes", dtype: out.dtype() });
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let output = spatial(&out.shape()[2..], 1);
    let (planes, lattices) = layout(prim, output, spatial(&w.shape()[2..], 1));
    let bias = prim.bias.then(|| &inputs[2]);
    let job = Job { x, w, bias, out, epilogue, groups: prim.groups, planes, lattices, transposed: true, zeros: [0; 2] };
    typed!("conv_transpose", convolve, &job, cx);
    Ok(())
}

/// The taps for one remainder of the stride: the kernel index and its distance to the input element.
struct Reach {
    taps: SmallVec<[(usize, isize); 8]>,
    count: usize,
}

fn layout(prim: &Conv, output: [usize; AXES], kernel: [usize; AXES]) -> (Planes, SmallVec<[Lattice; 4]>) {
    let strides = spatial(&prim.strides, 1);
    let dilations = spatial(&prim.dilations, 1);
    let pads = spatial(&prim.pads, 0);
    let reaches: [SmallVec<[Reach; 4]>; AXES] = std::array::from_fn(|axis| {
        let stride = strides[axis] as isize;
        (0..strides[axis].min(output[axis]))
            .map(|first| {
                let taps = (0..kernel[axis])
                    .map(|tap| (tap, first as isize + pads[axis] - (tap * dilations[axis]) as isize))
                    .filter(|&(_, distance)| distance.rem_euclid(stride) == 0)
                    .map(|(tap, distance)| (tap, distance.div_euclid(stride)))
                    .collect();
                Reach { taps, count: (output[axis] - first).div_ceil(strides[axis]) }
            })
            .collect()
    });
    let axes: [Axis; AXES] = std::array::from_fn(|axis| {
        let shifts =
            || reaches[axis].iter().flat_map(|reach| reach.taps.iter().map(|&(_, shift)| (shift, reach.count)));
        let lead = shifts().map(|(shift, _)| -shift).max().unwrap_or(0);
        let end = shifts().map(|(shift, count)| shift + count as isize).max().unwrap_or(0);
        let most = reaches[axis].iter().map(|reach| reach.count).max().unwrap_or(1);
        Axis { step: 1, first: smallvec![-lead], extent: ((end + lead).max(0) as usize).max(most) }
    });
    let planes = Planes { axes };
    let taps = |axis: usize, reach: &Reach| -> SmallVec<[Tap; 8]> {
        let lead = -planes.axes[axis].first[0];
        let offset = |shift: isize| (shift + lead) as usize * planes.stride(axis);
        reach.taps.iter().map(|&(kernel, shift)| Tap { kernel, offset: offset(shift) }).collect()
    };
    let mut lattices = SmallVec::new();
    for (z, outer) in reaches[0].iter().enumerate() {
        for (y, middle) in reaches[1].iter().enumerate() {
            for (x, inner) in reaches[2].iter().enumerate() {
                lattices.push(Lattice {
                    first: [z, y, x],
                    step: strides,
                    count: [outer.count, middle.count, inner.count],
                    taps: [taps(0, outer), taps(1, middle), taps(2, inner)],
                });
            }
        }
    }
    (planes, lattices)
}
