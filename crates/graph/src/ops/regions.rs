//! Regions of images at a fixed size: `RoiAlign`, and com.microsoft's `CropAndResize`.
//!
//! Each samples a grid of points in every region. Their coordinates are stored, so that the steps that read them agree on
//! every rounding. A gather of pixels then reads one neighbour of all points, and a map weighs it.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::gather::is_index;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Val, shape};

/// Stands for a coordinate outside of the image.
const OUTSIDE: f64 = -1.0;
/// More points than this along an axis of a region make no sense, and would overflow products of extents.
const MAX_POINTS: i64 = 1 << 16;

/// Images `[batch, channels, height, width]`, and the regions in them.
struct Regions<'a> {
    images: &'a Val,
    /// The image of each region.
    numbers: &'a Val,
    /// Coordinates in pixels `[regions, points]`: rows, then columns. They are within the image, or [`OUTSIDE`].
    points: [Val; 2],
    nearest: bool,
    /// The result for points outside.
    outside: f32,
}

/// Whether a number, in its own type, is at least 0 and below `end`.
fn within(expr: &mut Expr, number: Ref, end: usize) -> Ref {
    let dtype = expr.dtype(number);
    let [least, end] = [0, end as i64].map(|bound| expr.constant(Scalar::Int(bound), dtype));
    let [above, below] =
        [(Binary::Ge, least), (Binary::Lt, end)].map(|(compare, bound)| expr.binary(compare, number, bound));
    expr.binary(Binary::And, above, below)
}

impl Regions<'_> {
    /// The values `[regions, rows, columns, channels]` at all points.
    fn sample(&self, cx: &mut Lower<'_>) -> Result<Val, LowerError> {
        let (&[batch, channels, height, width], dtype) = (self.images.shape(), self.images.dtype()) else {
            return Err(cx.invalid(format!("images of shape {:?}, expected four axes", self.images.shape())));
        };
        let [rows, columns] = &self.points;
        let (regions, down, across) = (rows.shape()[0], rows.shape()[1], columns.shape()[1]);
        let to = [regions, down, across, channels];
        if shape::elems(&to) == Some(0) {
            return cx.full(dtype, &to, Scalar::Float(0.0));
        }
        let pixels = shape::elems(&[batch, height, width]).filter(|&pixels| pixels > 0);
        let pixels = pixels.ok_or_else(|| cx.invalid(format!("images of shape {:?}", self.images.shape())))?;
        let flat = cx.reshape(&self.images.permuted(&[0, 2, 3, 1]), &[pixels, channels])?;
        let (y, x) = (rows.unsqueezed(2), columns.unsqueezed(1));
        let number = cx.reshape(self.numbers, &[regions, 1, 1])?;
        let index = if i32::try_from(pixels).is_ok() { DType::I32 } else { DType::I64 };
        let taps: &[[bool; 2]] =
            if self.nearest { &[[false; 2]] } else { &[[false, false], [false, true], [true, false], [true, true]] };
        let compute = dtype.compute();
        let mut sum: Option<Val> = None;
        for (at, &[lower, right]) in taps.iter().enumerate() {
            let places = cx.map_to(&[&y, &x, &number], index, &to[..3], |expr, operands| {
                let int = |expr: &mut Expr, value: usize| expr.constant(Scalar::Int(value as i64), index);
                let exists = within(expr, operands[2], batch);
                let number = expr.cast(operands[2], index);
                let (height, width) = (int(expr, height), int(expr, width));
                let y = self.neighbour(expr, operands[0], lower, index);
                let x = self.neighbour(expr, operands[1], right, index);
                let first = expr.binary(Binary::Mul, number, height);
                let row = expr.binary(Binary::Add, first, y);
                let row = expr.binary(Binary::Mul, row, width);
                let place = expr.binary(Binary::Add, row, x);
                // The gather reports the place behind the last pixel as an error.
                let none = int(expr, pixels);
                expr.select(exists, place, none)
            })?;
            let read = cx.gather(&flat, &places, 0)?;
            let (y, x) = (y.unsqueezed(3), x.unsqueezed(3));
            let operands: Vec<&Val> = [&y, &x, &read].into_iter().chain(&sum).collect();
            let is_last = at + 1 == taps.len();
            let stored = if is_last { dtype } else { compute };
            sum = Some(cx.map_to(&operands, stored, &to, |expr, operands| {
                let mut value = expr.cast(operands[2], compute);
                if !self.nearest {
                    for (coordinate, far) in [(operands[0], lower), (operands[1], right)] {
                        let share = weight(expr, coordinate, far);
                        let share = expr.cast(share, compute);
                        value = expr.binary(Binary::Mul, value, share);
                    }
                }
                let total = operands.get(3).map_or(value, |&sum| expr.binary(Binary::Add, sum, value));
                if !is_last {
                    return total;
                }
                let other = expr.constant(Scalar::Float(self.outside.into()), compute);
                [operands[0], operands[1]].into_iter().fold(total, |total, coordinate| {
                    let zero = expr.constant(Scalar::Float(0.0), expr.dtype(coordinate));
                    let beyond = expr.binary(Binary::Lt, coordinate, zero);
                    expr.select(beyond, other, total)
                })
            })?);
        }
        sum.ok_or_else(|| cx.invalid("a sample without neighbours"))
    }

    /// The pixel before or behind a coordinate, or the nearest one. It is in the image even if the point is not.
    fn neighbour(&self, expr: &mut Expr, coordinate: Ref, behind: bool, index: DType) -> Ref {
        let dtype = expr.dtype(coordinate);
        let zero = expr.constant(Scalar::Float(0.0), dtype);
        let inside = expr.binary(Binary::Max, coordinate, zero);
        let floor = expr.unary(Unary::Floor, inside);
        let ceil = expr.unary(Unary::Ceil, inside);
        let place = if self.nearest {
            // Halves go up.
            let fraction = expr.binary(Binary::Sub, inside, floor);
            let half = expr.constant(Scalar::Float(0.5), dtype);
            let goes_up = expr.binary(Binary::Ge, fraction, half);
            expr.select(goes_up, ceil, floor)
        } else if behind {
            ceil
        } else {
            floor
        };
        expr.cast(place, index)
    }
}

/// The weight of the pixel before or behind a coordinate.
fn weight(expr: &mut Expr, coordinate: Ref, behind: bool) -> Ref {
    let floor = expr.unary(Unary::Floor, coordinate);
    let fraction = expr.binary(Binary::Sub, coordinate, floor);
    if behind {
        return fraction;
    }
    let one = expr.constant(Scalar::Float(1.0), expr.dtype(coordinate));
    expr.binary(Binary::Sub, one, fraction)
}

/// `kept` if a coordinate is within a range, else [`OUTSIDE`].
fn if_within(expr: &mut Expr, coordinate: Ref, range: [f64; 2], kept: Ref) -> Ref {
    let dtype = expr.dtype(coordinate);
    let [low, high, outside] = [range[0], range[1], OUTSIDE].map(|value| expr.constant(Scalar::Float(value), dtype));
    let above = expr.binary(Binary::Ge, coordinate, low);
    let below = expr.binary(Binary::Le, coordinate, high);
    let inside = expr.binary(Binary::And, above, below);
    expr.select(inside, kept, outside)
}

/// Start and end of regions `[regions, 4]` along an axis, from two of the columns.
fn sides(cx: &Lower<'_>, regions: &Val, numbers: &Val, columns: [usize; 2]) -> Result<[Val; 2], LowerError> {
    if regions.rank() != 2 || regions.shape()[1] != 4 || numbers.shape() != [regions.shape()[0]] {
        let (regions, numbers) = (regions.shape(), numbers.shape());
        return Err(cx.invalid(format!("regions of shape {regions:?} in images {numbers:?}")));
    }
    Ok(columns.map(|column| regions.sliced(1, column, 1, 1)))
}

/// The extents of images along both spatial axes.
fn extents(cx: &Lower<'_>, images: &Val) -> Result<[usize; 2], LowerError> {
    match *images.shape() {
        [_, _, height, width] => Ok([height, width]),
        ref other => Err(cx.invalid(format!("images of shape {other:?}, expected four axes"))),
    }
}

/// `CropAndResize`: inputs X, regions as shares of the image, their images, and the size.
#[derive(Debug)]
struct CropAndResize {
    nearest: bool,
    outside: f32,
}

impl Op for CropAndResize {
    fn name(&self) -> &'static str {
        "CropAndResize"
    }

    fn host_inputs(&self) -> &[usize] {
        &[3]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (images, regions, numbers) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let size = cx.known(inputs, 3)?.to_i64s();
        if size.len() != 2 || size.iter().any(|extent| !(1..=MAX_POINTS).contains(extent)) {
            return Err(cx.invalid(format!("crops of size {size:?}")));
        }
        let (extents, compute) = (extents(cx, images)?, images.dtype().compute());
        let mut points = Vec::new();
        for (axis, extent) in extents.into_iter().enumerate() {
            let [start, end] = sides(cx, regions, numbers, [axis, axis + 2])?;
            let to = [regions.shape()[0], size[axis] as usize];
            points.push(cx.map_to(&[&start, &end], compute, &to, |expr, sides| {
                let [start, end] = [0, 1].map(|at| expr.cast(sides[at], compute));
                let number = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), compute);
                let last = number(expr, extent as f64 - 1.0);
                let at = if size[axis] == 1 {
                    let (sum, half) = (expr.binary(Binary::Add, start, end), number(expr, 0.5));
                    let middle = expr.binary(Binary::Mul, half, sum);
                    expr.binary(Binary::Mul, middle, last)
                } else {
                    let span = expr.binary(Binary::Sub, end, start);
                    let span = expr.binary(Binary::Mul, span, last);
                    let steps = number(expr, size[axis] as f64 - 1.0);
                    let step = expr.binary(Binary::Div, span, steps);
                    let index = expr.index(1);
                    let index = expr.cast(index, compute);
                    let distance = expr.binary(Binary::Mul, index, step);
                    let first = expr.binary(Binary::Mul, start, last);
                    let at = expr.binary(Binary::Add, first, distance);
                    // The last point is exact, so that rounding does not move it out of the image.
                    let is_last = expr.binary(Binary::Ge, index, steps);
                    let final_point = expr.binary(Binary::Mul, end, last);
                    expr.select(is_last, final_point, at)
                };
                if_within(expr, at, [0.0, extent as f64 - 1.0], at)
            })?);
        }
        let [rows, columns] = <[Val; 2]>::try_from(points).map_err(|_| cx.invalid("expected two axes"))?;
        let points = [rows, columns];
        let regions = Regions { images, numbers, points, nearest: self.nearest, outside: self.outside };
        Ok(vec![regions.sample(cx)?.permuted(&[0, 3, 1, 2])])
    }
}

fn parse_crop(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, DType::is_float)?;
    for (at, wanted) in [(1, dtype), (2, DType::I32), (3, DType::I32)] {
        node.input(at).and_then(|input| match input.dtype {
            found if found == wanted => Ok(()),
            found => Err(Declined::new(format!("input {at} has type {found}, expected {wanted}"))),
        })?;
    }
    let nearest = match node.attributes.text("mode", "bilinear")? {
        "bilinear" => false,
        "nearest" => true,
        other => return Err(Declined::new(format!("unsupported mode {other}"))),
    };
    Ok(Box::new(CropAndResize { nearest, outside: node.attributes.float("extrapolation_value", 0.0)? }))
}

/// `RoiAlign`: inputs X, regions in pixels of another scale, and their images. The mean of some points in each cell.
#[derive(Debug)]
struct RoiAlign {
    /// Cells along both axes.
    cells: [usize; 2],
    /// Points in a cell along each axis.
    points: usize,
    scale: f32,
    /// Pixels have their centres at halves.
    half_pixel: bool,
}

impl Op for RoiAlign {
    fn name(&self) -> &'static str {
        "RoiAlign"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (images, regions, numbers) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let (extents, compute) = (extents(cx, images)?, images.dtype().compute());
        let mut points = Vec::new();
        for (axis, extent) in extents.into_iter().enumerate() {
            // Regions have their columns first.
            let [start, end] = sides(cx, regions, numbers, [1 - axis, 3 - axis])?;
            let to = [regions.shape()[0], self.cells[axis] * self.points];
            points.push(cx.map_to(&[&start, &end], compute, &to, |expr, sides| {
                self.point(expr, [sides[0], sides[1]], self.cells[axis], extent, compute)
            })?);
        }
        let [rows, columns] = <[Val; 2]>::try_from(points).map_err(|_| cx.invalid("expected two axes"))?;
        let points = [rows, columns];
        let sampled = Regions { images, numbers, points, nearest: false, outside: 0.0 }.sample(cx)?;
        let [height, width] = self.cells;
        let (count, channels) = (sampled.shape()[0], sampled.shape()[3]);
        let split = cx.reshape(&sampled, &[count, height, self.points, width, self.points, channels])?;
        let mean = cx.reduce(&split, &[2, 4], false, ReduceKind::Mean)?;
        Ok(vec![mean.permuted(&[0, 3, 1, 2])])
    }
}

impl RoiAlign {
    /// The coordinate of the current point between two sides of a region.
    fn point(&self, expr: &mut Expr, sides: [Ref; 2], cells: usize, extent: usize, compute: DType) -> Ref {
        let number = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), compute);
        let (scale, offset) = (number(expr, self.scale.into()), number(expr, 0.5));
        let [start, end] = sides.map(|side| {
            let side = expr.cast(side, compute);
            let scaled = expr.binary(Binary::Mul, side, scale);
            if self.half_pixel { expr.binary(Binary::Sub, scaled, offset) } else { scaled }
        });
        let mut span = expr.binary(Binary::Sub, end, start);
        if !self.half_pixel {
            let one = number(expr, 1.0);
            span = expr.binary(Binary::Max, span, one);
        }
        let (of_cells, of_points) = (number(expr, cells as f64), number(expr, self.points as f64));
        let cell = expr.binary(Binary::Div, span, of_cells);
        let index = expr.index(1);
        let points = expr.constant(Scalar::Int(self.points as i64), DType::I64);
        let (whole, rest) = (expr.binary(Binary::Div, index, points), expr.binary(Binary::Mod, index, points));
        let (whole, rest) = (expr.cast(whole, compute), expr.cast(rest, compute));
        let before = expr.binary(Binary::Mul, whole, cell);
        let first = expr.binary(Binary::Add, start, before);
        let middle = expr.binary(Binary::Add, rest, offset);
        let inner = expr.binary(Binary::Mul, middle, cell);
        let inner = expr.binary(Binary::Div, inner, of_points);
        let at = expr.binary(Binary::Add, first, inner);
        // Up to a pixel beyond the image counts as its border.
        let (zero, last) = (number(expr, 0.0), number(expr, extent as f64 - 1.0));
        let raised = expr.binary(Binary::Max, at, zero);
        let bounded = expr.binary(Binary::Min, raised, last);
        if_within(expr, at, [-1.0, extent as f64], bounded)
    }
}

fn parse_roi_align(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, DType::is_float)?;
    if node.input(1)?.dtype != dtype {
        return Err(Declined::new(format!("input 1 is not {dtype}")));
    }
    node.accept(2, is_index)?;
    let attributes = node.attributes;
    match attributes.text("mode", "avg")? {
        "avg" => {}
        other => return Err(Declined::new(format!("unsupported mode {other}"))),
    }
    let centres = if node.since_version < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match attributes.text("coordinate_transformation_mode", centres)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(Declined::new(format!("unsupported coordinate_transformation_mode {other}"))),
    };
    let positive = |name: &str, default: i64| match attributes.int(name, default)? {
        value @ 1..=256 => Ok(value as usize),
        0 if name == "sampling_ratio" => {
            Err(Declined::new("sampling_ratio 0 is not supported: the number of points depends on the regions"))
        }
        value => Err(Declined::new(format!("{name} is {value}"))),
    };
    let points = positive("sampling_ratio", 0)?;
    let cells = [positive("output_height", 1)?, positive("output_width", 1)?];
    Ok(Box::new(RoiAlign { cells, points, scale: attributes.float("spatial_scale", 1.0)?, half_pixel }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "RoiAlign", parse: parse_roi_align },
    Entry { domain: "com.microsoft", op_type: "CropAndResize", parse: parse_crop },
];
