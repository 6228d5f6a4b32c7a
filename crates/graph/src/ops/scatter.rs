//! Writing by index: ScatterElements, Scatter, ScatterND, TensorScatter.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::gather::is_index;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ScatterKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Val};

fn kind(node: &NodeInfo<'_>) -> Result<ScatterKind, Declined> {
    let kind = match node.attributes.text("reduction", "none")? {
        "none" => ScatterKind::Replace,
        "add" => ScatterKind::Add,
        "mul" => ScatterKind::Mul,
        "max" => ScatterKind::Max,
        "min" => ScatterKind::Min,
        other => return Err(Declined::new(format!("unsupported reduction {other:?}"))),
    };
    let dtype = node.input(0)?.dtype;
    if kind != ScatterKind::Replace && dtype == DType::Bool {
        return Err(Declined::new(format!("a reduction of {dtype} is not supported")));
    }
    node.accept(1, is_index)?;
    Ok(kind)
}

#[derive(Debug)]
struct ScatterElements {
    name: &'static str,
    axis: i64,
    kind: ScatterKind,
}

impl Op for ScatterElements {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let updates = cx.required(inputs, 2)?;
        let axis = cx.axis(self.axis, data.rank())?;
        Ok(vec![cx.scatter_elements(data, indices, updates, axis, self.kind)?])
    }
}

#[derive(Debug)]
struct ScatterNd {
    kind: ScatterKind,
}

impl Op for ScatterNd {
    fn name(&self) -> &'static str {
        "ScatterND"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let updates = cx.required(inputs, 2)?;
        Ok(vec![cx.scatter_nd(data, indices, updates, self.kind)?])
    }
}

/// Writes new entries into a cache, starting at a separate position for each batch.
#[derive(Debug)]
struct TensorScatter {
    axis: i64,
    circular: bool,
}

impl TensorScatter {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        if node.optional(2).is_some() {
            node.accept(2, is_index)?;
        }
        let circular = match node.attributes.text("mode", "linear")? {
            "linear" => false,
            "circular" => true,
            other => return Err(Declined::new(format!("unsupported mode {other:?}"))),
        };
        Ok(Box::new(Self { axis: node.attributes.int("axis", -2)?, circular }))
    }
}

impl Op for TensorScatter {
    fn name(&self) -> &'static str {
        "TensorScatter"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (cache, update) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let axis = cx.axis(self.axis, cache.rank())?;
        let fits = update.rank() == cache.rank()
            && (0..cache.rank()).all(|at| at == axis || update.shape()[at] == cache.shape()[at]);
        let room = cache.shape()[axis];
        if axis == 0 || !fits || update.shape()[axis] > room {
            return Err(cx.invalid(format!(
                "an update of shape {:?} does not match a cache of shape {:?} along axis {axis}",
                update.shape(),
                cache.shape()
            )));
        }
        let starts = match inputs.get(2).and_then(Option::as_ref) {
            Some(starts) if starts.shape() == &cache.shape()[..1] => cx.cast(starts, DType::I64)?,
            Some(starts) => {
                return Err(cx.invalid(format!(
                    "write indices of shape {:?} do not match a cache of shape {:?}",
                    starts.shape(),
                    cache.shape()
                )));
            }
            None => cx.full(DType::I64, &cache.shape()[..1], Scalar::Int(0))?,
        };
        let starts = (1..cache.rank()).fold(starts, |value, at| value.unsqueezed(at));
        let mut to = Shape::from_elem(1, cache.rank());
        (to[0], to[axis]) = (cache.shape()[0], update.shape()[axis]);
        let places = cx.map_to(&[&starts], DType::I64, &to, |expr, arguments| {
            let offset = expr.index(axis as u16);
            let place = expr.binary(Binary::Add, arguments[0], offset);
            let room = expr.constant(Scalar::Int(room as i64), DType::I64);
            if self.circular { expr.binary(Binary::Mod, place, room) } else { place }
        })?;
        let places = cx.expand(&places, &Shape::from(update.shape()))?;
        Ok(vec![cx.scatter_elements(cache, &places, update, axis, ScatterKind::Replace)?])
    }
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: "",
        op_type: "ScatterElements",
        parse: |node| {
            let axis = node.attributes.int("axis", 0)?;
            Ok(Box::new(ScatterElements { name: "ScatterElements", axis, kind: kind(node)? }))
        },
    },
    Entry {
        domain: "",
        op_type: "Scatter",
        parse: |node| {
            let axis = node.attributes.int("axis", 0)?;
            Ok(Box::new(ScatterElements { name: "Scatter", axis, kind: kind(node)? }))
        },
    },
    Entry { domain: "", op_type: "ScatterND", parse: |node| Ok(Box::new(ScatterNd { kind: kind(node)? })) },
    Entry { domain: "", op_type: "TensorScatter", parse: TensorScatter::parse },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::trial::{Given, Trial, ints};

    #[test]
    fn scatter_elements_combines_updates_by_kind() {
        for (reduction, want) in [
            ("none", [10, 11, 2, 21, 4, 20]),
            ("add", [10, 12, 2, 24, 4, 25]),
            ("mul", [0, 11, 2, 63, 4, 100]),
            ("max", [10, 11, 2, 21, 4, 20]),
            ("min", [0, 1, 2, 3, 4, 5]),
        ] {
            let trial = Trial::new("ScatterElements", 18).int("axis", 1).text("reduction", reduction);
            let trial =
                trial.input(Given::I64(&[0, 1, 2, 3, 4, 5], &[2, 3])).input(Given::I64(&[0, 1, -1, 0], &[2, 2]));
            let trial = trial.input(Given::I64(&[10, 11, 20, 21], &[2, 2]));
            assert_eq!(ints(trial).0, want, "{reduction}");
        }
    }

    #[test]
    fn updates_of_one_element_are_applied_in_order() {
        let scatter = |reduction| {
            let trial = Trial::new("ScatterND", 18).text("reduction", reduction).input(Given::I64(&[1, 2, 3], &[3]));
            ints(trial.input(Given::I64(&[1, 1], &[2, 1])).input(Given::I64(&[5, 6], &[2]))).0
        };
        assert_eq!(scatter("none"), [1, 6, 3]);
        assert_eq!(scatter("add"), [1, 13, 3]);
    }

    #[test]
    fn scatter_nd_writes_slices() {
        let trial =
            Trial::new("ScatterND", 13).input(Given::I64(&[0; 6], &[3, 2])).input(Given::I64(&[-1, 0], &[2, 1]));
        assert_eq!(ints(trial.clone().input(Given::I64(&[1, 2, 3, 4], &[2, 2]))).0, [3, 4, 0, 0, 1, 2]);
        assert!(trial.clone().input(Given::I64(&[1, 2], &[2])).shapes().is_err());
        assert_eq!(trial.input(Given::Device(DType::I64, &[2, 2])).steps().unwrap(), ["scatter_nd"]);
    }

    #[test]
    fn unsupported_reductions_and_mismatched_shapes_are_rejected() {
        let trial =
            |dtype| Trial::new("ScatterElements", 18).text("reduction", "add").input(Given::Device(dtype, &[3]));
        let bools = trial(DType::Bool).input(Given::I64(&[0], &[1])).input(Given::Device(DType::Bool, &[1]));
        assert_eq!(bools.shapes().unwrap_err(), "a reduction of bool is not supported");
        let longer = trial(DType::F32).input(Given::I64(&[0, 1], &[2])).input(Given::Device(DType::F32, &[1]));
        assert!(longer.shapes().unwrap_err().contains("expected f32[2]"));
        let nothing = trial(DType::F32).input(Given::I64(&[], &[0])).input(Given::Device(DType::F32, &[0]));
        assert_eq!(nothing.steps().unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn a_cache_is_updated_from_the_position_of_each_batch() {
        let trial = |mode| {
            let trial = Trial::new("TensorScatter", 24).text("mode", mode).int("axis", 1);
            trial.input(Given::I64(&[0; 6], &[2, 3])).input(Given::I64(&[1, 2, 3, 4], &[2, 2]))
        };
        assert_eq!(ints(trial("linear").input(Given::I64(&[1, 0], &[2]))).0, [0, 1, 2, 3, 4, 0]);
        assert_eq!(ints(trial("linear")).0, [1, 2, 0, 3, 4, 0]);
        assert_eq!(ints(trial("circular").input(Given::I64(&[2, 4], &[2]))).0, [2, 0, 1, 0, 3, 4]);
        assert!(trial("linear").input(Given::I64(&[2, 0], &[2])).shapes().is_err());
    }
}
