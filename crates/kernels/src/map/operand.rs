//! The operands of a map, and how its axes are walked.
use graph::expr::Expr;
use graph::{DType, Declined, View};

use super::AXES;
use crate::expr;
use crate::layout::Layout;

/// Names of inputs in sources and arguments; maps with more inputs are declined.
const NAMES: [&str; 24] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23",
];

/// An input, or the index along an axis: a view in which an element is its own offset.
pub(super) struct Operand {
    /// The input's index, or the axis.
    pub number: usize,
    /// The type of the value in the expression.
    pub value: DType,
    pub view: View,
    /// The offset of the first element, in addition to the view's own: the start of an index.
    pub first: i64,
    is_index: bool,
}

impl Operand {
    /// Everything the expression reads, in the order of its function's parameters.
    pub fn all(expr: &Expr, inputs: &[View], y: &View, start: &[usize]) -> Result<Vec<Self>, Declined> {
        let mut operands = Vec::new();
        for (number, value) in expr::inputs(expr) {
            let number = usize::from(number);
            if number >= NAMES.len() {
                return Err(Declined::new(format!("a map of more than {} inputs", NAMES.len())));
            }
            operands.push(Self { number, value, view: inputs[number].clone(), first: 0, is_index: false });
        }
        for axis in expr::axes(expr) {
            let number = usize::from(axis);
            let mut view = View { dtype: DType::I64, offset: 0, ..y.clone() };
            view.strides.iter_mut().enumerate().for_each(|(at, stride)| *stride = isize::from(at == number));
            operands.push(Self { number, value: DType::I64, view, first: start[number] as i64, is_index: true });
        }
        Ok(operands)
    }

    pub const fn is_index(&self) -> bool {
        self.is_index
    }

    /// The input's name in texts.
    pub fn name(&self) -> &'static str {
        NAMES.get(self.number).copied().unwrap_or_default()
    }

    /// The operand's field name in generated code.
    pub fn field(&self) -> String {
        if self.is_index { format!("index{}", self.number) } else { self.name().to_owned() }
    }

    fn bytes(&self) -> u32 {
        self.view.dtype.bytes() as u32
    }
}

/// The merged axes, innermost first.
pub(super) struct Walk {
    pub extents: [u32; AXES],
    /// The number of axes; the rest have extent 1.
    pub axes: u32,
    /// Strides of the operands, then of the output.
    pub strides: Vec<[i64; AXES]>,
    /// True if offsets need 64 bits.
    pub wide: bool,
}

/// Inputs that are contiguous along axis 1.
pub(super) struct Across {
    /// Whether each operand is one of them.
    pub operands: Vec<bool>,
    pub how: Turn,
}

/// How they are transposed.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// In registers, in squares of packs of this many elements.
    Packs(u32),
    /// In LDS, in square tiles of this many elements per side.
    Tile(u32),
}

impl Across {
    /// Elements along each side of a block's part.
    pub const fn side(&self) -> u32 {
        match self.how {
            Turn::Packs(pack) => pack * 16,
            Turn::Tile(side) => side,
        }
    }
}

impl Walk {
    pub fn new(layout: &Layout, operands: &[Operand], y: &View) -> Self {
        let reversed = |mut values: [i64; AXES]| {
            values.reverse();
            values
        };
        let mut extents = layout.extents::<AXES>();
        extents.reverse();
        let strides: Vec<_> = (0..=operands.len()).map(|view| reversed(layout.strides::<AXES>(view))).collect();
        let axes = AXES - extents.iter().rev().take_while(|&&extent| extent == 1).count();
        // The last axis is counted in whole packs, so offsets slightly past the last one may be computed.
        let reach = |strides: &[i64; AXES]| -> i64 {
            strides
                .iter()
                .zip(extents)
                .map(|(&stride, extent)| stride.abs().saturating_mul(i64::from(extent) + 64))
                .sum()
        };
        let starts = operands.iter().map(|operand| operand.first.saturating_add(operand.view.elems() as i64));
        let furthest = strides.iter().map(reach).chain(starts).chain([y.elems() as i64]).max().unwrap_or(0);
        Self { extents, axes: axes.max(1) as u32, strides, wide: furthest >= 1 << 31 }
    }

    /// How many elements are moved at once along axis 0.
    pub fn pack(&self, operands: &[Operand], y: &View) -> u32 {
        let output = &self.strides[operands.len()];
        if output[0] != 1 {
            return 1;
        }
        // Operands that are dense along axis 0.
        let dense = operands
            .iter()
            .zip(&self.strides)
            .filter(|(operand, strides)| !operand.is_index() && strides[0] == 1)
            .map(|(operand, strides)| (strides, &operand.view))
            .chain([(output, y)]);
        let widest = dense.clone().map(|(_, view)| view.dtype.bytes() as u32).max().unwrap_or(1);
        let full = 16 / widest;
        let fits = |pack: &u32| {
            let pack = *pack;
            // A row must not end within a pack, unless there is only one row.
            let whole = self.axes == 1 || self.extents[0].is_multiple_of(pack);
            whole
                && self.extents[0] >= pack
                && dense.clone().all(|(strides, view)| {
                    strides[1..].iter().chain([&(view.offset as i64)]).all(|from| from % i64::from(pack) == 0)
                })
        };
        [full, full / 2].into_iter().filter(|&pack| pack > 1).find(fits).unwrap_or(1)
    }

    /// How many elements of a dense output are moved at once although its rows are not a multiple of that, and which
    /// operands have another layout than the output.
    pub fn flat(&self, operands: &[Operand], y: &View) -> Option<(u32, Vec<bool>)> {
        let output = &self.strides[operands.len()];
        let mut step = 1;
        for (&stride, &extent) in output.iter().zip(&self.extents) {
            if extent != 1 && stride != step {
                return None;
            }
            step *= i64::from(extent);
        }
        let loose: Vec<bool> = operands
            .iter()
            .zip(&self.strides)
            .map(|(operand, strides)| operand.is_index() || strides != output)
            .collect();
        let dense =
            operands.iter().zip(&loose).filter(|(_, loose)| !**loose).map(|(operand, _)| &operand.view).chain([y]);
        let full = 16 / dense.clone().map(|view| view.dtype.bytes() as u32).max()?;
        // A pack spans at most two rows.
        let fits = |pack: &u32| {
            *pack > 1 && *pack <= self.extents[0] && dense.clone().all(|view| view.offset % *pack as isize == 0)
        };
        let pack = [full, full / 2, full / 4].into_iter().find(fits)?;
        Some((pack, loose))
    }

    /// Whether inputs are contiguous along another axis than axis 0. That axis becomes axis 1. A thread may transpose
    /// squares of up to `side` elements per side, for which its code is unrolled.
    pub fn across(&mut self, operands: &[Operand], y: &View, side: u32) -> Option<Across> {
        // Shorter sides would leave most of a block idle.
        if self.strides[operands.len()][0] != 1 || self.extents[0] < 16 {
            return None;
        }
        let is_across = |operand: &Operand, strides: &[i64; AXES], axis: usize| {
            !operand.is_index() && strides[axis] == 1 && strides[0].unsigned_abs() > 1
        };
        let reads = || operands.iter().zip(&self.strides);
        let axis = (1..AXES).find(|&axis| self.extents[axis] >= 16 && reads().any(|(o, s)| is_across(o, s, axis)))?;
        let across: Vec<bool> = reads().map(|(operand, strides)| is_across(operand, strides, axis)).collect();
        let bytes: u32 = operands.iter().zip(&across).filter(|(_, across)| **across).map(|(o, _)| o.bytes()).sum();
        let tile = match bytes {
            0..=4 => 64,
            5..=32 => 32,
            _ => return None,
        };
        self.extents.swap(1, axis);
        self.strides.iter_mut().for_each(|strides| strides.swap(1, axis));
        let how = match self.square(operands, &across, y, side) {
            Some(pack) if bytes <= 8 => Turn::Packs(pack),
            _ => Turn::Tile(tile),
        };
        Some(Across { operands: across, how })
    }

    /// The side length of the square that a thread transposes, if all of it can be moved in packs.
    fn square(&self, operands: &[Operand], across: &[bool], y: &View, most: u32) -> Option<u32> {
        let across = across.iter().copied().chain([false]);
        // Views that are moved in packs, each with the axis of the packs.
        let views = operands.iter().map(|operand| (&operand.view, operand.is_index())).chain([(y, false)]);
        let packed: Vec<_> = views
            .zip(&self.strides)
            .zip(across)
            .filter(|(((_, is_index), strides), across)| !is_index && (*across || strides[0] == 1))
            .map(|(((view, _), strides), across)| (view, strides, usize::from(across)))
            .collect();
        let widest = packed.iter().map(|(view, ..)| view.dtype.bytes() as u32).max()?;
        let narrowest = packed.iter().map(|(view, ..)| view.dtype.bytes() as u32).min()?;
        let pack = (16 / widest).min(most);
        let whole = |count: i64| pack > 0 && count % i64::from(pack) == 0;
        let fits = packed.iter().all(|(view, strides, along)| {
            whole(view.offset as i64) && (0..AXES).all(|axis| axis == *along || whole(strides[axis]))
        });
        let sides = self.extents[..2].iter().all(|&extent| whole(i64::from(extent)));
        (fits && sides && pack > 1 && pack * narrowest >= 4).then_some(pack)
    }
}
