//! A common form for matrix products and convolutions: `hip/product.h`.
use std::fmt::Write;

use graph::expr::Expr;
use graph::prim::{Conv, Epilogue, Gate, Norm, ProductKind};
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::layout::Layout;
use crate::{Args, Kernel, expr};

/// Strides, in elements, of a tensor with the output's shape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputStrides {
    pub high: i64,
    pub low: i64,
    pub row: i64,
    pub image: i64,
    /// Of positions; a matrix product's column is the last.
    pub at: [i64; 3],
}

/// An operand: strides along the batch, its own axis (rows or columns) and the summed one.
#[derive(Clone, Debug)]
pub(crate) struct Side<'a> {
    pub number: usize,
    pub view: &'a View,
    pub high: i64,
    pub low: i64,
    pub across: i64,
    /// Of channels, if there are taps.
    pub k: i64,
    pub zero: i32,
}

impl Side<'_> {
    pub fn bytes(&self) -> usize {
        self.view.dtype.bytes()
    }

    /// True if the first element and all these strides are multiples of `elems`.
    pub fn is_aligned(&self, elems: usize, strides: &[i64]) -> bool {
        let fits = |stride: i64| stride % elems as i64 == 0;
        fits(self.view.offset as i64) && fits(self.high) && fits(self.low) && strides.iter().all(|&stride| fits(stride))
    }
}

/// A norm of the left operand's rows: they are scaled, and divided by the root of the mean of their squares.
#[derive(Clone, Debug)]
pub(crate) struct Prologue<'a> {
    pub epsilon: f32,
    /// The index of the scale among the inputs.
    pub number: usize,
    pub scale: &'a View,
}

impl<'a> Prologue<'a> {
    fn new(norm: &Norm, number: usize, step: &'a Step) -> Result<Self, Declined> {
        let (left, scale) = (&step.inputs[0], &step.inputs[number]);
        let plain = !norm.centre && norm.scale && !norm.bias && norm.axes == 1;
        if !plain || left.strides.last() != Some(&1) || scale.dtype != left.dtype || !scale.is_dense() {
            return Err(Declined::new("an unsupported kind of norm as part of a product"));
        }
        Ok(Self { epsilon: norm.epsilon, number, scale })
    }
}

/// The parameters of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct Spatial {
    pub transposed: bool,
    pub images: u32,
    pub out: [u32; 3],
    pub right: [u32; 3],
    pub taps: [u32; 3],
    pub stride: [i32; 3],
    pub pad: [i32; 3],
    pub dilation: [i32; 3],
    pub image: i64,
    pub right_at: [i64; 3],
    pub left_tap: [i64; 3],
}

impl Spatial {
    /// A window of one element on an image of one element.
    pub const ONE: Self = Self {
        transposed: false,
        images: 1,
        out: [1; 3],
        right: [1; 3],
        taps: [1; 3],
        stride: [1; 3],
        pad: [0; 3],
        dilation: [1; 3],
        image: 0,
        right_at: [0; 3],
        left_tap: [0; 3],
    };

    /// The distance between taps that contribute to one phase of a transposed convolution.
    fn tap_step(&self, axis: usize) -> u32 {
        let (stride, dilation) = (self.stride[axis] as u32, self.dilation[axis] as u32);
        let (mut a, mut b) = (stride, dilation % stride);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        stride / a
    }

    fn phases_along(&self, axis: usize) -> u32 {
        if self.transposed { (self.stride[axis] as u32).min(self.out[axis]) } else { 1 }
    }

    /// The number of phases: sets of output positions that use the same taps.
    pub fn phases(&self) -> u64 {
        (0..3).map(|axis| u64::from(self.phases_along(axis))).product()
    }

    /// Columns of the largest phase.
    pub fn columns(&self) -> u64 {
        let along = |axis: usize| {
            let step = if self.transposed { self.stride[axis] as u32 } else { 1 };
            u64::from(self.out[axis].div_ceil(step))
        };
        u64::from(self.images) * along(0) * along(1) * along(2)
    }
}

/// A product: `out[b, r, n]` is the sum of `left[b, r, k] · right[b, k, n]`.
#[derive(Clone, Debug)]
pub(crate) struct Product<'a> {
    pub left: Side<'a>,
    pub right: Side<'a>,
    pub bias: Option<(usize, &'a View)>,
    /// Strides of the bias along low, rows and columns.
    pub bias_strides: [i64; 3],
    /// The two batch extents, high and low.
    pub batch: [u64; 2],
    pub rows: u64,
    pub columns: u64,
    pub channels: u64,
    pub spatial: Option<Spatial>,
    pub out: (&'a View, OutputStrides),
    pub operands: Vec<(usize, &'a View, OutputStrides)>,
    pub norm: Option<Prologue<'a>>,
    /// Combines two columns, `columns` apart, into one element.
    pub gate: Option<&'a Gate>,
    pub alpha: f32,
    pub epilogue: Option<&'a Epilogue>,
    /// The element type of the sums.
    pub sum: DType,
}

impl<'a> Product<'a> {
    /// The product of a step.
    ///
    /// # Errors
    /// No kernel supports its types or extents.
    pub fn new(step: &'a Step) -> Result<Self, Declined> {
        let declined = || Declined::new(format!("{} is not a product of numbers", step.prim.name()));
        let fused = step.prim.product().ok_or_else(declined)?;
        let norm = fused.prologue.as_ref();
        let norm = norm.map(|norm| Prologue::new(norm, step.own_inputs() - 1, step)).transpose()?;
        let mut product = match &fused.kind {
            ProductKind::MatMul(prim) => Self::of_matrices(prim.alpha, step, [0; 2]),
            ProductKind::IntegerMatMul { zeros } => Self::of_matrices(1.0, step, *zeros),
            ProductKind::Conv(prim) => Self::of_windows(prim, false, step, [0; 2])?,
            ProductKind::IntegerConv { conv, zeros } => Self::of_windows(conv, false, step, *zeros)?,
            ProductKind::ConvTranspose(prim) => Self::of_windows(prim, true, step, [0; 2])?,
            ProductKind::QuantMatMul(_) => return Err(declined()),
        };
        if let Some(epilogue) = &fused.epilogue {
            product.fuse(epilogue, step);
        }
        (product.norm, product.gate) = (norm, fused.gate.as_ref());
        product.check_types()?;
        product.flatten();
        let large = |extent: u64| extent >= 1 << 31;
        if large(product.rows) || large(product.columns) || large(product.depth()) || large(product.batches()) {
            return Err(Declined::new("an axis of 2^31 elements or more"));
        }
        Ok(product)
    }

    /// The product of a step with packed weights: they are the right operand, whose columns are `across` bytes apart.
    ///
    /// # Errors
    /// No kernel supports its types or extents.
    pub fn packed(step: &'a Step, across: usize) -> Result<Self, Declined> {
        let mut product = Self::of_matrices(1.0, step, [0; 2]);
        product.right = Side { across: across as i64, k: 0, ..product.right };
        if let Some(epilogue) = step.prim.product().and_then(|product| product.epilogue.as_ref()) {
            product.fuse(epilogue, step);
        }
        let dtype = product.left.view.dtype;
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        let stored = product.epilogue.is_some() || product.out.0.dtype == dtype;
        if !is_float || product.sum != dtype || !stored {
            return Err(Declined::new(format!("a product of {dtype} and packed weights as {}", product.sum)));
        }
        let large = |extent: u64| extent >= 1 << 31;
        if large(product.rows) || large(product.columns) || large(product.channels) {
            return Err(Declined::new("an axis of 2^31 elements or more"));
        }
        Ok(product)
    }

    /// Adds an epilogue.
    fn fuse(&mut self, epilogue: &'a Epilogue, step: &'a Step) {
        self.sum = epilogue.dtype;
        let groups_rows = self.rows as i64;
        let is_conv = self.spatial.is_some();
        let place = |view: &View| if is_conv { window_place(view, groups_rows) } else { matrix_place(view) };
        self.operands = (epilogue.operands..step.inputs.len())
            .map(|number| (number, &step.inputs[number], place(&step.inputs[number])))
            .collect();
        self.epilogue = Some(epilogue);
    }

    fn of_matrices(alpha: f32, step: &'a Step, zeros: [i32; 2]) -> Self {
        let (a, b, out) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
        let [batch, rows, columns] = [out.shape[0], out.shape[1], out.shape[2]];
        let stride = |view: &View, axis: usize| if view.shape[axis] == 1 { 0 } else { view.strides[axis] as i64 };
        let side = |number, view: &'a View, across, k| {
            let low = if batch == 1 { 0 } else { view.strides[0] as i64 };
            Side { number, view, high: 0, low, across: stride(view, across), k: stride(view, k), zero: zeros[number] }
        };
        Self {
            left: side(0, a, 1, 2),
            right: side(1, b, 2, 1),
            bias: None,
            bias_strides: [0; 3],
            batch: [1, batch as u64],
            rows: rows as u64,
            columns: columns as u64,
            channels: a.shape[2] as u64,
            spatial: None,
            out: (out, matrix_place(out)),
            operands: Vec::new(),
            norm: None,
            gate: None,
            alpha,
            epilogue: None,
            sum: out.dtype,
        }
    }

    fn of_windows(prim: &Conv, transposed: bool, step: &'a Step, zeros: [i32; 2]) -> Result<Self, Declined> {
        let (x, w, out) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
        if out.shape.len() > 5 {
            return Err(Declined::new(format!("a convolution over {} axes", out.shape.len() - 2)));
        }
        let groups = prim.groups.max(1);
        let (channels, rows) = (x.shape[1] / groups, out.shape[1] / groups);
        let small = |extent: i64| {
            i32::try_from(extent).map_err(|_| Declined::new(format!("a window with {extent} along an axis")))
        };
        let aligned = |values: &[usize], missing: usize| -> Result<[i32; 3], Declined> {
            let mut made = [small(missing as i64)?; 3];
            for (to, &value) in made.iter_mut().rev().zip(values.iter().rev()) {
                *to = small(value as i64)?;
            }
            Ok(made)
        };
        let mut pad = [0; 3];
        for (to, &value) in pad.iter_mut().rev().zip(prim.pads.iter().rev()) {
            *to = small(value as i64)?;
        }
        let unsigned = |values: [i32; 3]| values.map(|value| value as u32);
        // Weights are [m, c/groups, taps…], or [c, m/groups, taps…] of a transposed convolution.
        let w_stride = |axis: usize| w.strides[axis] as i64;
        let (across, k) = if transposed { (w_stride(1), w_stride(0)) } else { (w_stride(0), w_stride(1)) };
        let left_low = w_stride(0) * if transposed { channels as i64 } else { rows as i64 };
        let left = Side { number: 1, view: w, high: 0, low: left_low, across, k, zero: zeros[1] };
        let x_channel = x.strides[1] as i64;
        let right = Side {
            number: 0,
            view: x,
            high: 0,
            low: x_channel * channels as i64,
            across: 0,
            k: x_channel,
            zero: zeros[0],
        };
        let spatial = Spatial {
            transposed,
            images: small(x.shape[0] as i64)? as u32,
            out: unsigned(aligned(&out.shape[2..], 1)?),
            right: unsigned(aligned(&x.shape[2..], 1)?),
            taps: unsigned(aligned(&w.shape[2..], 1)?),
            stride: aligned(&prim.strides, 1)?,
            pad,
            dilation: aligned(&prim.dilations, 1)?,
            image: x.strides[0] as i64,
            right_at: spatial_strides(x),
            left_tap: spatial_strides(w),
        };
        let bias = prim.bias.then(|| (2, &step.inputs[2]));
        let bias_row = bias.map_or(0, |(_, view)| view.strides[0] as i64);
        let columns = out.elems() / (out.shape[1]).max(1);
        Ok(Self {
            left,
            right,
            bias,
            bias_strides: [bias_row * rows as i64, bias_row, 0],
            batch: [1, groups as u64],
            rows: rows as u64,
            columns: columns as u64,
            channels: channels as u64,
            spatial: Some(spatial),
            out: (out, window_place(out, rows as i64)),
            operands: Vec::new(),
            norm: None,
            gate: None,
            alpha: 1.0,
            epilogue: None,
            sum: out.dtype,
        })
    }

    fn check_types(&self) -> Result<(), Declined> {
        use DType::{Bf16, F16, F32, F64, I8, I32, I64, U8};
        let (left, right) = (self.left.view.dtype, self.right.view.dtype);
        let bytes = |dtype| matches!(dtype, I8 | U8);
        let fits = match (left, right) {
            _ if bytes(left) && bytes(right) => self.sum == I32 || left == right && self.sum == left,
            (F16 | Bf16, _) => left == right && (self.sum == left || self.sum == F32),
            (F32 | F64 | I32 | I64, _) => left == right && self.sum == left,
            _ => left == right && left.is_int() && self.sum == left,
        };
        let stored = self.epilogue.is_some() || self.out.0.dtype == self.sum;
        if fits && stored {
            Ok(())
        } else {
            Err(Declined::new(format!("a product of {left} and {right} as {}", self.sum)))
        }
    }

    /// All views with the output's shape.
    fn places(&mut self) -> impl Iterator<Item = &mut OutputStrides> {
        std::iter::once(&mut self.out.1).chain(self.operands.iter_mut().map(|(_, _, place)| place))
    }

    /// Merges axes if strides allow it.
    fn flatten(&mut self) {
        self.flatten_windows();
        // Matrices that share the right operand are one matrix with more rows.
        let shared = self.spatial.is_none() && self.batch[0] == 1 && self.bias.is_none() && self.right.low == 0;
        if !shared || self.batch[1] == 1 {
            return;
        }
        let rows = self.rows as i64;
        if rows == 1 {
            self.left.across = self.left.low;
            self.places().for_each(|place| place.row = place.low);
        }
        if self.left.low == self.left.across * rows && self.places().all(|place| place.low == place.row * rows) {
            self.rows *= self.batch[1];
            self.batch = [1, 1];
        }
    }

    /// A convolution with one tap on every element is a matrix product.
    fn flatten_windows(&mut self) {
        let Some(spatial) = &self.spatial else { return };
        let pointwise =
            spatial.taps == [1; 3] && spatial.stride == [1; 3] && spatial.pad == [0; 3] && spatial.out == spatial.right;
        if !pointwise {
            return;
        }
        let (out, x) = (self.out.0, self.right.view);
        let views: Vec<&View> = [x, out].into_iter().chain(self.operands.iter().map(|(_, view, _)| *view)).collect();
        let without_channels = |view: &View, axes: &[usize]| View {
            shape: axes.iter().map(|&axis| view.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| view.strides[axis]).collect(),
            ..view.clone()
        };
        let positions: Vec<usize> = (2..out.shape.len()).collect();
        let all: Vec<usize> = std::iter::once(0).chain(positions.iter().copied()).collect();
        for (axes, images) in [(all, 1), (positions, u64::from(spatial.images))] {
            let parts: Vec<View> = views.iter().map(|view| without_channels(view, &axes)).collect();
            let parts: Vec<&View> = parts.iter().collect();
            let Ok(layout) = Layout::new(&parts, 0, 1) else { continue };
            let image = spatial.image;
            self.columns = u64::from(layout.extents::<1>()[0]);
            self.batch = [images, self.batch[1]];
            self.right.high = if images == 1 { 0 } else { image };
            self.right.across = layout.strides::<1>(0)[0];
            for (number, place) in self.places().enumerate() {
                place.high = if images == 1 { 0 } else { place.image };
                place.at = [0, 0, layout.strides::<1>(number + 1)[0]];
                place.image = 0;
            }
            self.spatial = None;
            return;
        }
    }

    /// The transposed product. Convolutions cannot be transposed.
    pub fn turned(mut self) -> Self {
        std::mem::swap(&mut self.left, &mut self.right);
        std::mem::swap(&mut self.rows, &mut self.columns);
        self.bias_strides.swap(1, 2);
        for place in self.places() {
            std::mem::swap(&mut place.row, &mut place.at[2]);
        }
        self
    }

    pub const fn batches(&self) -> u64 {
        self.batch[0] * self.batch[1]
    }

    /// The number of summands.
    pub fn depth(&self) -> u64 {
        let taps =
            self.spatial.as_ref().map_or(1, |spatial| spatial.taps.iter().map(|&taps| u64::from(taps)).product());
        self.channels * taps
    }

    /// The type of sums in kernel sources, unsigned if they wrap.
    pub const fn sum_type(&self) -> (&'static str, &'static str, usize) {
        match self.left.view.dtype {
            DType::F64 => ("f64", "f64", 8),
            DType::I64 | DType::U64 => ("u64", "i64", 8),
            dtype if dtype.is_float() => ("f32", "f32", 4),
            _ => ("u32", "i32", 4),
        }
    }

    /// A kernel of this product; `partial` if it stores sums for a second pass.
    pub fn kernel(&self, name: &'static str, family: &'static str, partial: bool) -> Kernel {
        let bias = self.bias.map_or(self.out.0.dtype, |(_, view)| view.dtype);
        let conv = self.spatial.as_ref().map_or(0, |spatial| 1 + u8::from(spatial.transposed));
        let (sum, signed, _) = self.sum_type();
        let epilogue = self.epilogue.filter(|_| !partial);
        let mut kernel = Kernel::new(name, family)
            .set("LEFT_T", type_name(self.left.view.dtype))
            .set("RIGHT_T", type_name(self.right.view.dtype))
            .set("OUT_T", type_name(self.out.0.dtype))
            .set("BIAS_T", type_name(bias))
            .set("SUM", sum)
            .set("SIGNED", signed)
            .set("CONV", conv)
            .set("BIAS", u8::from(self.bias.is_some()))
            .set("PARTIAL", u8::from(partial))
            .set("OPERANDS", self.operands.len())
            .set("FUSED", u8::from(epilogue.is_some()));
        let Some(epilogue) = epilogue else { return kernel };
        kernel = kernel.with(expr::headers([&epilogue.expr]));
        kernel.generated = self.epilogue_text(&epilogue.expr);
        kernel
    }

    /// The function that `finish` of `hip/product.h` calls.
    fn epilogue_text(&self, epilogue: &Expr) -> String {
        let mut text = expr::function("stored_of", epilogue, self.out.0.dtype);
        let read = |(number, _): (u16, DType)| {
            let Some(at) = usize::from(number).checked_sub(1) else { return "sum".to_owned() };
            let dtype = type_name(self.operands[at].1.dtype);
            format!("get(((const {dtype}*)a.operand[{at}])[s.operand[{at}] + (i64)row * a.operand_place[{at}].row])")
        };
        let values: Vec<String> = expr::inputs(epilogue).into_iter().map(read).collect();
        text.push_str(
            "template <class A, class S> DEV OUT_T epilogue(const A& a, SIGNED sum, u32 row, const S& s) {\n",
        );
        let _ = writeln!(text, "  return put<OUT_T>(stored_of({}));\n}}", values.join(", "));
        text
    }

    /// The structure that all kernels of a product take.
    pub fn args(&self, choice: &Choice) -> Args {
        let mut args = Args::new().input("left", self.left.number, self.left.view);
        args = args.input("right", self.right.number, self.right.view);
        args = match self.bias {
            Some((number, view)) => args.input("bias", number, view),
            None => args.null("bias"),
        };
        args = args.output("out", 0, self.out.0);
        args = if choice.splits > 1 { args.scratch("partial", 0) } else { args.null("partial") };
        for (number, view, _) in &self.operands {
            args = args.input("operand", *number, view);
        }
        let place = |args: Args, name, place: &OutputStrides| {
            let [first, second, third] = place.at;
            args.i64s(name, &[place.high, place.low, place.row, place.image, first, second, third])
        };
        args = place(args, "out_place", &self.out.1);
        for (_, _, of) in &self.operands {
            args = place(args, "operand_place", of);
        }
        let one = [1; 3];
        let spatial = self.spatial.as_ref();
        let taps = spatial.map_or([0; 3], |spatial| spatial.left_tap);
        let right_at = spatial.map_or([0, 0, self.right.across], |spatial| spatial.right_at);
        let (left, right) = (&self.left, &self.right);
        let u32s = |args: Args, name, of: &dyn Fn(&Spatial) -> [u32; 3]| args.u32s(name, &spatial.map_or(one, of));
        let i32s = |args: Args, name, of: &dyn Fn(&Spatial) -> [i32; 3]| {
            args.u32s(name, &spatial.map_or(one, |spatial| of(spatial).map(|value| value as u32)))
        };
        args = args
            .i64s("bias_low", &self.bias_strides)
            .i64s("left_high", &[left.high, left.low, left.across, left.k])
            .i64s("left_tap", &taps)
            .i64("left_step", choice.left_step)
            .i64s("right_high", &[right.high, right.low, spatial.map_or(0, |spatial| spatial.image), right.k])
            .i64s("right_at", &right_at)
            .f32("alpha", self.alpha)
            .u32("left_zero", left.zero as u32)
            .u32("right_zero", right.zero as u32)
            .u32s("batches", &[self.batches() as u32, self.batch[1] as u32])
            .u32s("rows", &[self.rows as u32, self.columns as u32, self.depth() as u32, self.channels as u32])
            .u32s("splits", &[choice.splits, choice.split_depth])
            .u32s("tiles_down", &choice.tiles)
            .u32s("images", &[spatial.map_or(1, |spatial| spatial.images), u32::from(choice.taps_inside)]);
        args = u32s(args, "out_extent", &|spatial| spatial.out);
        args = u32s(args, "right_extent", &|spatial| spatial.right);
        args = u32s(args, "taps", &|spatial| spatial.taps);
        args = i32s(args, "stride", &|spatial| spatial.stride);
        args = i32s(args, "pad", &|spatial| spatial.pad);
        args = i32s(args, "dilation", &|spatial| spatial.dilation);
        args = u32s(args, "tap_step", &|spatial| std::array::from_fn(|axis| spatial.tap_step(axis)));
        u32s(args, "phases", &|spatial| std::array::from_fn(|axis| spatial.phases_along(axis)))
    }
}

/// How a product is split.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub splits: u32,
    pub split_depth: u32,
    /// Tiles vertically and horizontally.
    pub tiles: [u32; 2],
    pub taps_inside: bool,
    pub left_step: i64,
}

impl Choice {
    /// Not split.
    pub fn whole(product: &Product<'_>) -> Self {
        let depth = product.depth() as u32;
        Self { splits: 1, split_depth: depth.max(1), tiles: [1, 1], taps_inside: true, left_step: product.left.k }
    }
}

fn matrix_place(view: &View) -> OutputStrides {
    let stride = |axis: usize| if view.shape[axis] == 1 { 0 } else { view.strides[axis] as i64 };
    OutputStrides { low: stride(0), row: stride(1), at: [0, 0, stride(2)], ..OutputStrides::default() }
}

fn window_place(view: &View, rows: i64) -> OutputStrides {
    let channel = view.strides[1] as i64;
    OutputStrides {
        high: 0,
        low: channel * rows,
        row: channel,
        image: view.strides[0] as i64,
        at: spatial_strides(view),
    }
}

fn spatial_strides(view: &View) -> [i64; 3] {
    let mut strides = [0; 3];
    for (to, &stride) in strides.iter_mut().rev().zip(view.strides[2..].iter().rev()) {
        *to = stride as i64;
    }
    strides
}
