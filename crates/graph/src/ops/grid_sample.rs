//! Sampling at given positions: GridSample.
//!
//! The positions become pixel coordinates, which are stored, so that the steps that read them agree on every rounding.
//! One gather then reads all neighbours of all positions, and maps weigh them.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Shape, Val, shape};

/// The number of neighbours whose weighted sum one map computes.
const TAPS_PER_MAP: usize = 4;
/// Coordinates are cut off here, far outside every image, so that their integers do not overflow.
pub(super) const FAR: f64 = 1e9;
/// The usual parameter of cubic convolution.
const CUBIC: f64 = -0.75;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

impl Mode {
    /// Neighbours along one axis.
    fn taps(self) -> usize {
        match self {
            Self::Nearest => 1,
            Self::Linear => 2,
            Self::Cubic => 4,
        }
    }
}

/// What is read outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

#[derive(Debug)]
pub(super) struct GridSample {
    mode: Mode,
    padding: Padding,
    /// -1 and 1 are the centres of the outermost pixels, not their outer edges.
    align_corners: bool,
}

impl Op for GridSample {
    fn name(&self) -> &'static str {
        "GridSample"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, grid) = (cx.required(inputs, 0)?.clone(), cx.required(inputs, 1)?.clone());
        let rank = x.rank().saturating_sub(2);
        let fits = rank >= 1 && grid.rank() == rank + 2 && grid.shape()[rank + 1] == rank;
        if !fits || grid.shape()[0] != x.shape()[0] {
            return Err(cx.invalid(format!(
                "a grid of shape {:?} for an image of shape {:?}",
                grid.shape(),
                x.shape()
            )));
        }
        if self.mode == Mode::Cubic && rank != 2 {
            return Err(cx.invalid(format!("cubic sampling needs two spatial axes, found {rank}")));
        }
        let to: Shape = x.shape()[..2].iter().chain(&grid.shape()[1..=rank]).copied().collect();
        let image = Image { extents: x.shape()[2..].into(), op: self };
        let pixels = image.extents.iter().product::<usize>();
        let points = shape::elems(&grid.shape()[1..=rank]).unwrap_or_default();
        if pixels == 0 && to.iter().all(|&extent| extent != 0) {
            return Err(cx.invalid(format!("an empty image of shape {:?} cannot be sampled", x.shape())));
        }
        if to.contains(&0) {
            return Ok(vec![cx.full(x.dtype(), &to, Scalar::Float(0.0))?]);
        }
        let [batch, channels] = [x.shape()[0], x.shape()[1]];
        let coordinates = image.coordinates(cx, &grid, &[batch, 1, points])?;
        let flat = cx.reshape(&x, &[batch, channels, pixels])?;
        let sum = image.sample(cx, &flat, &coordinates)?;
        Ok(vec![cx.reshape(&sum, &to)?])
    }
}

/// Linear interpolation with zeros outside of the image.
pub(super) const BILINEAR: GridSample = GridSample { mode: Mode::Linear, padding: Padding::Zeros, align_corners: true };

/// The spatial extents of an image that is sampled.
pub(super) struct Image<'a> {
    pub extents: Shape,
    pub op: &'a GridSample,
}

impl Image<'_> {
    /// The image `[batch, channels, pixels]` at coordinates in pixels, one list for each axis `[batch, 1, points]`.
    pub(super) fn sample(&self, cx: &mut Lower<'_>, flat: &Val, coordinates: &[Val]) -> Result<Val, LowerError> {
        let (&[batch, channels, _], Some(&[_, _, points])) = (flat.shape(), coordinates.first().map(Val::shape)) else {
            return Err(cx.invalid("an image without channels"));
        };
        let taps = self.op.mode.taps().pow(self.extents.len() as u32);
        let places = self.places(cx, coordinates, &[batch, taps, points])?;
        let places = cx.reshape(&places, &[batch, 1, taps * points])?;
        let places = cx.expand(&places, &[batch, channels, taps * points])?;
        let read = cx.gather_elements(flat, &places, 2)?;
        self.weigh(cx, coordinates, &read, flat.dtype(), taps)
    }

    /// The coordinates in pixels along every axis, each of shape `to`.
    fn coordinates(&self, cx: &mut Lower<'_>, grid: &Val, to: &[usize]) -> Result<Vec<Val>, LowerError> {
        let (rank, dtype) = (self.extents.len(), grid.dtype().compute());
        let mut found = Vec::with_capacity(rank);
        for axis in 0..rank {
            // The grid has the last axis first.
            let position = grid.sliced(rank + 1, rank - 1 - axis, 1, 1);
            let position = cx.reshape(&position, to)?;
            found.push(cx.map(&[&position], dtype, |expr, arguments| {
                let position = expr.cast(arguments[0], dtype);
                let number = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), dtype);
                let (one, half) = (number(expr, 1.0), number(expr, 0.5));
                let from_start = expr.binary(Binary::Add, position, one);
                let extent = self.extents[axis] as f64;
                let x = if self.op.align_corners {
                    let halved = expr.binary(Binary::Mul, from_start, half);
                    let last = number(expr, extent - 1.0);
                    expr.binary(Binary::Mul, halved, last)
                } else {
                    let extent = number(expr, extent);
                    let scaled = expr.binary(Binary::Mul, from_start, extent);
                    let centred = expr.binary(Binary::Sub, scaled, one);
                    expr.binary(Binary::Mul, centred, half)
                };
                let x = if self.op.mode == Mode::Nearest { expr.unary(Unary::Round, x) } else { x };
                let (low, high) = (number(expr, -FAR), number(expr, FAR));
                let x = expr.binary(Binary::Max, x, low);
                expr.binary(Binary::Min, x, high)
            })?);
        }
        Ok(found)
    }

    /// The flat index of every neighbour of every point, of shape `to`.
    fn places(&self, cx: &mut Lower<'_>, coordinates: &[Val], to: &[usize]) -> Result<Val, LowerError> {
        let pixels: usize = self.extents.iter().product();
        let index = if i32::try_from(pixels).is_ok() { DType::I32 } else { DType::I64 };
        let operands: Vec<&Val> = coordinates.iter().collect();
        cx.map_to(&operands, index, to, |expr, arguments| {
            let int = |expr: &mut Expr, value: usize| expr.constant(Scalar::Int(value as i64), index);
            let tap = expr.index(1);
            let tap = expr.cast(tap, index);
            let taps = int(expr, self.op.mode.taps());
            let mut flat = int(expr, 0);
            for (axis, &extent) in self.extents.iter().enumerate() {
                let inner = int(expr, self.op.mode.taps().pow((self.extents.len() - 1 - axis) as u32));
                let digit = expr.binary(Binary::Div, tap, inner);
                let digit = expr.binary(Binary::Mod, digit, taps);
                let at = self.first(expr, arguments[axis], index);
                let at = expr.binary(Binary::Add, at, digit);
                let at = self.inside(expr, at, extent, index);
                let extent = int(expr, extent);
                let row = expr.binary(Binary::Mul, flat, extent);
                flat = expr.binary(Binary::Add, row, at);
            }
            flat
        })
    }

    /// The first neighbour along an axis, which may be outside.
    fn first(&self, expr: &mut Expr, x: Ref, index: DType) -> Ref {
        let floor = expr.unary(Unary::Floor, x);
        let floor = expr.cast(floor, index);
        let before = expr.constant(Scalar::Int(i64::from(self.op.mode == Mode::Cubic)), index);
        expr.binary(Binary::Sub, floor, before)
    }

    /// The pixel to read for the position `at`. It is always inside the image; zeros for positions outside are put in
    /// later.
    fn inside(&self, expr: &mut Expr, at: Ref, extent: usize, index: DType) -> Ref {
        let int = |expr: &mut Expr, value: i64| expr.constant(Scalar::Int(value), index);
        let last = extent as i64 - 1;
        let (zero, end) = (int(expr, 0), int(expr, last));
        let at = match self.op.padding {
            Padding::Zeros | Padding::Border => at,
            // Mirrored at the centres of the outermost pixels, or at their outer edges.
            Padding::Reflection => {
                let (period, mirror) =
                    if self.op.align_corners { (2 * last.max(1), 2 * last) } else { (2 * extent as i64, 2 * last + 1) };
                let (period, mirror) = (int(expr, period), int(expr, mirror));
                let at = expr.binary(Binary::Mod, at, period);
                let mirrored = expr.binary(Binary::Sub, mirror, at);
                let is_beyond = expr.binary(Binary::Gt, at, end);
                expr.select(is_beyond, mirrored, at)
            }
        };
        let at = expr.binary(Binary::Max, at, zero);
        expr.binary(Binary::Min, at, end)
    }

    /// The weighted sum of the neighbours `read`, `[batch, channels, taps · points]`.
    fn weigh(
        &self,
        cx: &mut Lower<'_>,
        coordinates: &[Val],
        read: &Val,
        dtype: DType,
        taps: usize,
    ) -> Result<Val, LowerError> {
        let points = read.shape()[2] / taps;
        let to = [read.shape()[0], read.shape()[1], points];
        let compute = dtype.compute();
        let mut sum: Option<Val> = None;
        for start in (0..taps).step_by(TAPS_PER_MAP) {
            let end = (start + TAPS_PER_MAP).min(taps);
            let neighbours: Vec<Val> = (start..end).map(|tap| read.sliced(2, tap * points, 1, points)).collect();
            let operands: Vec<&Val> = coordinates.iter().chain(&neighbours).chain(&sum).collect();
            let stored = if end == taps { dtype } else { compute };
            let next = cx.map_to(&operands, stored, &to, |expr, arguments| {
                let (x, rest) = arguments.split_at(coordinates.len());
                let mut total = rest.get(end - start).copied();
                for (tap, &neighbour) in (start..end).zip(rest) {
                    let value = expr.cast(neighbour, compute);
                    let value = self.weighted(expr, x, tap, value, compute);
                    total = Some(total.map_or(value, |total| expr.binary(Binary::Add, total, value)));
                }
                total.unwrap_or_default()
            })?;
            sum = Some(next);
        }
        sum.ok_or_else(|| cx.invalid("there are no neighbours"))
    }

    /// A neighbour times its weights along all axes, or zero if it is outside and the padding is zeros.
    fn weighted(&self, expr: &mut Expr, x: &[Ref], tap: usize, value: Ref, compute: DType) -> Ref {
        let taps = self.op.mode.taps();
        let (mut weight, mut outside) = (None, None);
        for (axis, &x) in x.iter().enumerate() {
            let digit = tap / taps.pow((self.extents.len() - 1 - axis) as u32) % taps;
            if let Some(own) = self.weight(expr, x, digit) {
                let own = expr.cast(own, compute);
                weight = Some(weight.map_or(own, |weight| expr.binary(Binary::Mul, weight, own)));
            }
            if self.op.padding == Padding::Zeros {
                let at = self.first(expr, x, DType::I64);
                let digit = expr.constant(Scalar::Int(digit as i64), DType::I64);
                let at = expr.binary(Binary::Add, at, digit);
                let zero = expr.constant(Scalar::Int(0), DType::I64);
                let end = expr.constant(Scalar::Int(self.extents[axis] as i64), DType::I64);
                let (before, behind) = (expr.binary(Binary::Lt, at, zero), expr.binary(Binary::Ge, at, end));
                let own = expr.binary(Binary::Or, before, behind);
                outside = Some(outside.map_or(own, |outside| expr.binary(Binary::Or, outside, own)));
            }
        }
        let value = match outside {
            Some(outside) => {
                let zero = expr.constant(Scalar::Float(0.0), compute);
                expr.select(outside, zero, value)
            }
            None => value,
        };
        weight.map_or(value, |weight| expr.binary(Binary::Mul, value, weight))
    }

    /// The weight of neighbour `digit` along an axis; `None` stands for 1.
    fn weight(&self, expr: &mut Expr, x: Ref, digit: usize) -> Option<Ref> {
        if self.op.mode == Mode::Nearest {
            return None;
        }
        let dtype = expr.dtype(x);
        let floor = expr.unary(Unary::Floor, x);
        let fraction = expr.binary(Binary::Sub, x, floor);
        let number = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), dtype);
        let one = number(expr, 1.0);
        let rest = expr.binary(Binary::Sub, one, fraction);
        if self.op.mode == Mode::Linear {
            return Some(if digit == 0 { rest } else { fraction });
        }
        // The distance of the neighbour, and the cubic for its interval.
        let distance = match digit {
            0 => expr.binary(Binary::Add, one, fraction),
            1 => fraction,
            2 => rest,
            _ => expr.binary(Binary::Add, one, rest),
        };
        let coefficients = if digit == 1 || digit == 2 {
            [CUBIC + 2.0, -(CUBIC + 3.0), 0.0, 1.0]
        } else {
            [CUBIC, -5.0 * CUBIC, 8.0 * CUBIC, -4.0 * CUBIC]
        };
        let mut value = number(expr, coefficients[0]);
        for &coefficient in &coefficients[1..] {
            let product = expr.binary(Binary::Mul, value, distance);
            let coefficient = number(expr, coefficient);
            value = expr.binary(Binary::Add, product, coefficient);
        }
        Some(value)
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    node.accept(1, DType::is_float)?;
    let mode = match node.attributes.text("mode", "linear")? {
        "nearest" => Mode::Nearest,
        // The names before opset 20 have a prefix.
        "linear" | "bilinear" => Mode::Linear,
        "cubic" | "bicubic" => Mode::Cubic,
        other => return Err(Declined::new(format!("unsupported mode {other}"))),
    };
    let padding = match node.attributes.text("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(Declined::new(format!("unsupported padding_mode {other}"))),
    };
    Ok(Box::new(GridSample { mode, padding, align_corners: node.attributes.flag("align_corners")? }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "GridSample", parse },
    Entry { domain: "com.microsoft", op_type: "GridSample", parse },
];
