//! Pooling over windows and over whole spatial extents.
use crate::lower::Lower;
use crate::ops::window::{AutoPad, Window};
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{self, PoolKind, ReduceKind};
use crate::shape::Strides;
use crate::{DType, Declined, LowerError, Prim, Shape, Val};

/// `MaxPool`, `AveragePool` and `LpPool`.
#[derive(Debug)]
pub(super) struct Pool {
    name: &'static str,
    kind: PoolKind,
    window: Window,
    kernel: Shape,
    /// Whether the indices of the maxima are requested too.
    indices: bool,
}

impl Op for Pool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        self.emit(cx, x)
    }
}

impl Pool {
    /// Emits the pool of `x`.
    pub(super) fn emit(&self, cx: &mut Lower<'_>, x: &Val) -> Result<Vec<Val>, LowerError> {
        let spatial = spatial(cx, x)?;
        let placed = self.window.place(cx, spatial, &self.kernel)?;
        let mut to: Shape = x.shape()[..2].into();
        to.extend_from_slice(&placed.output);
        let prim = Prim::Pool(prim::Pool {
            kind: self.kind,
            kernel: self.kernel.clone(),
            strides: placed.strides,
            pads: placed.pads,
            pads_end: placed.pads_end,
            dilations: placed.dilations,
        });
        if !self.indices {
            return Ok(vec![cx.apply(prim, &[x], x.dtype(), &to)?]);
        }
        let (values, places) = (cx.fresh(x.dtype(), &to)?, cx.fresh(DType::I64, &to)?);
        if values.elems() > 0 {
            cx.emit(prim, &[x], &[&values, &places]);
        }
        Ok(vec![values, places])
    }
}

/// The spatial extents of `[n, c, spatial…]`.
fn spatial<'v>(cx: &Lower<'_>, x: &'v Val) -> Result<&'v [usize], LowerError> {
    match x.shape() {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial),
        other => Err(cx.invalid(format!("{other:?} has no spatial axes"))),
    }
}

fn pool(
    name: &'static str,
    node: &NodeInfo<'_>,
    kind: PoolKind,
    accepted: fn(DType) -> bool,
) -> Result<Pool, Declined> {
    node.accept(0, accepted)?;
    let window = Window::parse(node.attributes)?;
    let kernel = window.kernel().ok_or_else(|| Declined::new("attribute kernel_shape is missing"))?;
    if kernel.len() > 3 {
        return Err(Declined::new(format!("{} spatial axes are not supported", kernel.len())));
    }
    if window.crops() {
        return Err(Declined::new("negative pads are not supported"));
    }
    if window.is_dilated() && matches!(window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
        return Err(Declined::new("ONNX does not define dilations with auto_pad"));
    }
    Ok(Pool { name, kind, window, kernel, indices: node.wants(1) })
}

pub(super) fn parse_max_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let column_major = node.attributes.flag("storage_order")?;
    let accepted = |dtype: DType| dtype.is_float() || matches!(dtype, DType::I8 | DType::U8);
    Ok(Box::new(pool("MaxPool", node, PoolKind::Max { column_major }, accepted)?))
}

fn parse_average_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    Ok(Box::new(average_pool("AveragePool", node, DType::is_float)?))
}

pub(super) fn average_pool(
    name: &'static str,
    node: &NodeInfo<'_>,
    accepted: fn(DType) -> bool,
) -> Result<Pool, Declined> {
    let count_pad = node.attributes.flag("count_include_pad")?;
    pool(name, node, PoolKind::Average { count_pad }, accepted)
}

fn parse_lp_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    Ok(Box::new(pool("LpPool", node, PoolKind::Lp { p: p(node)? }, DType::is_float)?))
}

/// The order p of a norm.
fn p(node: &NodeInfo<'_>) -> Result<f32, Declined> {
    match node.attributes.int("p", 2)? {
        p @ 1..=1000 => Ok(p as f32),
        other => Err(Declined::new(format!("unsupported p {other}"))),
    }
}

/// `GlobalMaxPool`, `GlobalAveragePool` and `GlobalLpPool`.
#[derive(Debug)]
struct GlobalPool {
    name: &'static str,
    kind: GlobalKind,
}

#[derive(Debug)]
enum GlobalKind {
    Reduce(ReduceKind),
    Lp(f32),
}

impl Op for GlobalPool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let spatial = spatial(cx, x)?;
        let result = match self.kind {
            GlobalKind::Reduce(kind) => {
                let axes: Vec<usize> = (2..x.rank()).collect();
                cx.reduce(x, &axes, true, kind)?
            }
            GlobalKind::Lp(p) => {
                // One window per channel, along one axis.
                let (n, c) = (x.shape()[0], x.shape()[1]);
                let elems = spatial.iter().product::<usize>();
                let flat = cx.reshape(x, &[n, c, elems])?;
                let prim = Prim::Pool(prim::Pool {
                    kind: PoolKind::Lp { p },
                    kernel: Shape::from_slice(&[elems]),
                    strides: Shape::from_slice(&[1]),
                    pads: Strides::from_slice(&[0]),
                    pads_end: Strides::from_slice(&[0]),
                    dilations: Shape::from_slice(&[1]),
                });
                let result = cx.apply(prim, &[&flat], x.dtype(), &[n, c, 1])?;
                let mut to: Shape = Shape::from_slice(&[n, c]);
                to.resize(x.rank(), 1);
                cx.reshape(&result, &to)?
            }
        };
        Ok(vec![result])
    }
}

fn parse_global_max_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    global("GlobalMaxPool", node, GlobalKind::Reduce(ReduceKind::Max))
}

fn parse_global_average_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    global("GlobalAveragePool", node, GlobalKind::Reduce(ReduceKind::Mean))
}

fn parse_global_lp_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let kind = match p(node)? {
        1.0 => GlobalKind::Reduce(ReduceKind::L1),
        2.0 => GlobalKind::Reduce(ReduceKind::L2),
        p => GlobalKind::Lp(p),
    };
    global("GlobalLpPool", node, kind)
}

fn global(name: &'static str, node: &NodeInfo<'_>, kind: GlobalKind) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    Ok(Box::new(GlobalPool { name, kind }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "MaxPool", parse: parse_max_pool },
    Entry { domain: "", op_type: "AveragePool", parse: parse_average_pool },
    Entry { domain: "", op_type: "LpPool", parse: parse_lp_pool },
    Entry { domain: "", op_type: "GlobalMaxPool", parse: parse_global_max_pool },
    Entry { domain: "", op_type: "GlobalAveragePool", parse: parse_global_average_pool },
    Entry { domain: "", op_type: "GlobalLpPool", parse: parse_global_lp_pool },
];
