//! Interpolation: `hip/resize.hip`.
use graph::prim::{Coordinates, Interpolation, Nearest, Resize};
use graph::{DType, Declined, Step};

use crate::kernel::type_name;
use crate::team::{THREADS, grid};
use crate::walk::{HEADER, Walk, pack};
use crate::{Args, Kernel, Launch, Launches};

/// Axes that one launch resizes.
const RESIZED: usize = 3;

/// The type elements are computed in, and the bounds of integers.
fn compute(prim: &Resize, dtype: DType) -> Result<(DType, Option<[&'static str; 2]>), Declined> {
    let is_nearest = matches!(prim.interpolation, Interpolation::Nearest(_));
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok((DType::F32, None)),
        DType::F64 => Ok((DType::F64, None)),
        DType::I8 => Ok((DType::F32, Some(["(-128)", "127"]))),
        DType::U8 => Ok((DType::F32, Some(["0", "255"]))),
        DType::Bool if is_nearest => Ok((DType::F32, None)),
        DType::I32 => Ok((DType::F64, Some(["((i32)0x80000000)", "0x7fffffff"]))),
        DType::I64 => Ok((DType::F64, Some(["((i64)0x8000000000000000)", "0x7fffffffffffffff"]))),
        other => Err(Declined::new(format!("resizing of {other}"))),
    }
}

/// An axis as in the table: `ResizeAxis` in the source.
#[derive(Clone, Copy)]
struct Axis {
    input: u32,
    output: u32,
    taps: u32,
    first: i32,
    is_cropped: bool,
    place: IndexMap,
    stretch: f32,
}

/// The positions of output indices in the input.
#[derive(Clone, Copy)]
struct IndexMap {
    pre: f32,
    shift: f32,
    factor: f32,
    factor2: f32,
    divisor: f32,
    post: f32,
}

const SAME: IndexMap = IndexMap { pre: 0.0, shift: 0.0, factor: 1.0, factor2: 1.0, divisor: 1.0, post: 0.0 };

fn region(prim: &Resize, axis: usize) -> (f32, f32) {
    prim.roi.get(axis).copied().unwrap_or((0.0, 1.0))
}

fn is_copied(prim: &Resize, axis: usize, input: usize, output: usize) -> bool {
    let crops = prim.coordinates == Coordinates::TfCropAndResize && region(prim, axis) != (0.0, 1.0);
    prim.scales[axis] == 1.0 && input == output && !crops
}

impl IndexMap {
    fn new(prim: &Resize, axis: usize, input: usize, output: usize) -> Self {
        let (scale, length) = (prim.scales[axis], input as f32);
        let half_pixel = Self { shift: 0.5, divisor: scale, post: -0.5, ..SAME };
        // Every index at the same position.
        let constant = |pre| Self { pre, factor: 0.0, ..SAME };
        match prim.coordinates {
            Coordinates::HalfPixel => half_pixel,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = output as f32 / (scale * length);
                Self { pre: length / 2.0 * (1.0 - adjustment), ..half_pixel }
            }
            Coordinates::PytorchHalfPixel if output > 1 => half_pixel,
            Coordinates::PytorchHalfPixel => constant(0.0),
            Coordinates::AlignCorners => {
                let last = scale * length - 1.0;
                if output == 1 || last == 0.0 {
                    constant(0.0)
                } else {
                    Self { factor: length - 1.0, divisor: last, ..SAME }
                }
            }
            Coordinates::Asymmetric => Self { divisor: scale, ..SAME },
            Coordinates::TfHalfPixelForNn => Self { shift: 0.5, divisor: scale, ..SAME },
            Coordinates::TfCropAndResize => {
                let (start, end) = region(prim, axis);
                if output > 1 {
                    let pre = start * (length - 1.0);
                    Self { pre, factor: end - start, factor2: length - 1.0, divisor: output as f32 - 1.0, ..SAME }
                } else {
                    constant(0.5 * (start + end) * (length - 1.0))
                }
            }
        }
    }
}

impl Axis {
    fn new(prim: &Resize, axis: usize, input: usize, output: usize) -> Result<Self, Declined> {
        let too_long = |_| Declined::new("resizing of an axis of 2^31 elements or more");
        let (place, is_cropped) =
            (IndexMap::new(prim, axis, input, output), prim.coordinates == Coordinates::TfCropAndResize);
        let (input, output) = (i32::try_from(input).map_err(too_long)?, i32::try_from(output).map_err(too_long)?);
        let (input, output) = (input as u32, output as u32);
        let stretch = if prim.antialias { prim.scales[axis].min(1.0) } else { 1.0 };
        let reach = match prim.interpolation {
            Interpolation::Nearest(_) => {
                return Ok(Self { input, output, taps: 1, first: 0, is_cropped, place, stretch });
            }
            Interpolation::Linear => 1.0,
            Interpolation::Cubic { .. } => 2.0,
        };
        // A filter stretched by the scale reaches further.
        let first = (-reach / stretch).floor() as i32 + 1;
        Ok(Self { input, output, taps: (2 - 2 * first) as u32, first, is_cropped, place, stretch })
    }

    /// An axis that is not resized.
    fn copied() -> Self {
        Self { input: 1, output: 1, taps: 1, first: 0, is_cropped: false, place: SAME, stretch: 1.0 }
    }

    fn entries(&self) -> u64 {
        u64::from(self.output) * u64::from(self.taps)
    }

    /// The words of the structure.
    fn words(&self, table: u32) -> [u32; 13] {
        let IndexMap { pre, shift, factor, factor2, divisor, post } = self.place;
        let [pre, shift, factor, factor2, divisor, post, stretch] =
            [pre, shift, factor, factor2, divisor, post, self.stretch].map(f32::to_bits);
        let (first, is_cropped) = (self.first as u32, u32::from(self.is_cropped));
        [
            self.input,
            self.output,
            self.taps,
            first,
            table,
            is_cropped,
            pre,
            shift,
            factor,
            factor2,
            divisor,
            post,
            stretch,
        ]
    }
}

pub(crate) fn work(prim: &Resize, step: &Step) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    if x.elems() == 0 || y.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let (computed, bounds) = compute(prim, x.dtype)?;
    let is_nearest = matches!(prim.interpolation, Interpolation::Nearest(_));
    let (resized, mut copied): (Vec<usize>, Vec<usize>) =
        (0..x.shape.len()).partition(|&axis| !is_copied(prim, axis, x.shape[axis], y.shape[axis]));
    if resized.len() > RESIZED {
        return Err(Declined::new(format!("resizing of {} axes at once", resized.len())));
    }
    // Adjacent elements of y are computed by adjacent threads.
    let distance = |axis: &usize| y.strides[*axis].unsigned_abs();
    let nearest = copied.iter().copied().filter(|&axis| y.shape[axis] > 1).min_by_key(distance);
    let inner =
        nearest.filter(|axis| resized.iter().all(|other| y.shape[*other] == 1 || distance(axis) < distance(other)));
    copied.retain(|&axis| Some(axis) != inner);
    let axis = |axis: usize| (y.shape[axis], [x.strides[axis], y.strides[axis]]);
    let others = Walk::in_memory_order(&copied.iter().map(|&at| axis(at)).collect::<Vec<_>>())?;
    let (extent, [x_inner, y_inner]) = inner.map_or((1, [0, 0]), axis);
    let vec = if (x_inner, y_inner) == (1, 1) {
        let near = resized.iter().flat_map(|&axis| [x.strides[axis] as i64, y.strides[axis] as i64]);
        let numbers = near.chain(others.strides(0)).chain(others.strides(1));
        pack(x.dtype, if is_nearest { 8 } else { 4 }, numbers.chain([extent as i64, x.offset as i64, y.offset as i64]))
    } else {
        1
    };
    let missing = RESIZED - resized.len();
    let strides = |of: &[isize], inner: isize| -> [i64; RESIZED + 1] {
        let stride = |at: usize| at.checked_sub(missing).map_or(0, |at| of[resized[at]]);
        [stride(0), stride(1), stride(2), inner].map(|stride| stride as i64)
    };
    let mut axes = [Axis::copied(); RESIZED];
    for (to, &axis) in axes[missing..].iter_mut().zip(&resized) {
        *to = Axis::new(prim, axis, x.shape[axis], y.shape[axis])?;
    }
    let mut order = vec![(1, []), (others.elems() as usize, [])];
    order.extend(axes.iter().map(|axis| (axis.output as usize, [])));
    order.push((extent / vec as usize, []));
    let order = Walk::<0>::separate(&order)?;
    let entries: u64 = axes.iter().map(Axis::entries).sum();
    if entries >= 1 << 31 {
        return Err(Declined::new(format!("resizing with {entries} weights")));
    }
    let (words, _) = axes.iter().fold((Vec::new(), 0), |(mut words, table), axis| {
        words.extend(axis.words(table));
        (words, table + axis.entries() as u32)
    });
    let (rounding, is_cubic, cubic, excludes) = match prim.interpolation {
        Interpolation::Nearest(rounding) => (rounding_number(rounding), false, 0.0, false),
        Interpolation::Linear => (0, false, 0.0, false),
        Interpolation::Cubic { a, exclude_outside } => (0, true, a, exclude_outside),
    };
    let args = Args::new()
        .input("x", 0, x)
        .output("y", 0, y)
        .scratch("indices", 0)
        .scratch("weights", entries as usize * 4)
        .i64s("x_others", &others.strides(0))
        .i64s("y_others", &others.strides(1))
        .i64s("x_axes", &strides(&x.strides, x_inner))
        .i64s("y_axes", &strides(&y.strides, y_inner))
        .u32s("others", &others.numbers())
        .u32s("order", &order.numbers())
        .u32("elems", order.elems())
        .u32s("axes", &words)
        .u32("rounding", rounding)
        .u32("is_cubic", u32::from(is_cubic))
        .u32("excludes", u32::from(excludes))
        .u32("normalises", u32::from(excludes || prim.antialias))
        .f32("cubic", cubic)
        .f32("extrapolation", prim.extrapolation);
    let kernel = |name, is_table: bool| {
        Kernel::new(name, include_str!("../hip/resize.hip"))
            .with([HEADER])
            .set("TABLE", u8::from(is_table))
            .set("WEIGHTS", u8::from(!is_nearest))
            // The table is the same for all types.
            .set("T", if is_table { "f32" } else { type_name(x.dtype) })
    };
    let mut main = kernel("resize", false).set("C", type_name(computed)).set("VEC", vec);
    if let Some([low, high]) = bounds {
        main = main.set("LOW", low).set("HIGH", high);
    }
    let longest = axes.iter().map(|axis| axis.output).max().unwrap_or(1);
    let launch = |kernel, grid| Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args: args.clone() };
    Ok(Launches {
        launches: vec![
            launch(kernel("resize_table", true), [longest.div_ceil(THREADS), RESIZED as u32, 1]),
            launch(main, grid(order.elems())),
        ],
        scratch_bytes: entries as usize * 8,
    })
}

/// As in the source.
const fn rounding_number(rounding: Nearest) -> u32 {
    match rounding {
        Nearest::RoundPreferFloor => 0,
        Nearest::RoundPreferCeil => 1,
        Nearest::Floor => 2,
        Nearest::Ceil => 3,
    }
}
