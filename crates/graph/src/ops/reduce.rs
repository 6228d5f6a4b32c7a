//! Reductions.
use crate::lower::{Lower, needs_floats};
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Val, shape};

/// A reduction over axes given by an attribute (older opsets) or an input.
#[derive(Debug)]
struct ReduceOp {
    name: &'static str,
    kind: ReduceKind,
    axes: Vec<i64>,
    axes_input: bool,
    keepdims: bool,
    /// An empty list of axes means none instead of all.
    noop_with_empty_axes: bool,
}

impl Op for ReduceOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        if self.axes_input { &[1] } else { &[] }
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Reduce { kind: self.kind, axes: &self.axes, keepdims: self.keepdims }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let list = cx.known_i64s(inputs, 1)?.unwrap_or_else(|| self.axes.clone());
        let axes = if list.is_empty() && !self.noop_with_empty_axes {
            (0..value.rank()).collect()
        } else {
            shape::axes(&list, value.rank())
                .ok_or_else(|| cx.invalid(format!("invalid axes {list:?} for rank {}", value.rank())))?
        };
        Ok(vec![cx.reduce(value, &axes, self.keepdims, self.kind)?])
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, kind: ReduceKind) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.input(0)?.dtype;
    let accepted = match dtype {
        DType::Bool => matches!(kind, ReduceKind::Max | ReduceKind::Min),
        _ => dtype.is_float() || !needs_floats(kind),
    };
    if !accepted {
        return Err(Declined::new(format!("input 0 has unsupported type {dtype}")));
    }
    Ok(Box::new(ReduceOp {
        name,
        kind,
        axes: node.attributes.ints("axes")?.unwrap_or_default().to_vec(),
        axes_input: node.optional(1).is_some(),
        keepdims: node.attributes.flag_or("keepdims", true)?,
        noop_with_empty_axes: node.attributes.flag("noop_with_empty_axes")?,
    }))
}

macro_rules! reductions {
    ($($op_type:literal => $kind:ident;)*) => {
        &[$(Entry { domain: "", op_type: $op_type, parse: |node| parse(node, $op_type, ReduceKind::$kind) }),*]
    };
}

pub(super) const OPS: &[Entry] = reductions! {
    "ReduceSum" => Sum;
    "ReduceMean" => Mean;
    "ReduceProd" => Prod;
    "ReduceMax" => Max;
    "ReduceMin" => Min;
    "ReduceSumSquare" => SumSquare;
    "ReduceL1" => L1;
    "ReduceL2" => L2;
    "ReduceLogSum" => LogSum;
    "ReduceLogSumExp" => LogSumExp;
};

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, ints, numbers};

    fn known(op_type: &str) -> Trial<'_> {
        Trial::new(op_type, 18).input(Given::I64(&[2, 3, 4, 5, 6, 7], &[2, 3]))
    }

    #[test]
    fn shape_arithmetic_takes_no_step() {
        assert_eq!(ints(known("ReduceProd").int("keepdims", 0)), (vec![5040], vec![]));
        assert_eq!(ints(known("ReduceSum").input(Given::I64(&[-1], &[1]))), (vec![9, 18], vec![2, 1]));
        assert_eq!(ints(known("ReduceMax").input(Given::I64(&[0], &[1])).int("keepdims", 0)), (vec![5, 6, 7], vec![3]));
        assert_eq!(ints(known("ReduceMean").int("keepdims", 0)), (vec![4], vec![]));
    }

    /// ONNX Runtime's CPU provider treats any number but 1 as false, other runtimes any but 0 as true.
    #[test]
    fn flags_are_zero_or_one() {
        let error = known("ReduceSum").int("keepdims", 7).shapes().unwrap_err();
        assert_eq!(error, "attribute keepdims is 7, expected 0 or 1");
    }

    #[test]
    fn known_numbers_are_reduced_without_overflow() {
        let trial = Trial::new("ReduceLogSumExp", 18).input(Given::Numbers(DType::F32, &[1000.0, 1000.0], &[2]));
        assert_eq!(numbers(trial), [f64::from((1000.0 + std::f64::consts::LN_2) as f32)]);
        let trial = Trial::new("ReduceMax", 18).input(Given::Numbers(DType::F32, &[1.0, f64::NAN], &[2]));
        assert!(numbers(trial)[0].is_nan());
    }

    #[test]
    fn reductions_of_zero_or_one_element_need_no_step() {
        let device = |shape| Given::Device(DType::F32, shape);
        let steps = |op_type, shape| Trial::new(op_type, 13).ints("axes", &[1]).input(device(shape)).steps().unwrap();
        assert_eq!(steps("ReduceMean", &[4, 1, 5]), [""; 0]);
        assert_eq!(steps("ReduceL2", &[4, 1, 5]), ["map"]);
        assert_eq!(steps("ReduceMax", &[4, 0, 5]), [""; 0]);
        assert_eq!(steps("ReduceMax", &[4, 2, 5]), ["reduce"]);
    }

    #[test]
    fn booleans_are_reduced_as_numbers() {
        let trial = Trial::new("ReduceMax", 20).input(Given::Device(DType::Bool, &[4, 2]));
        assert_eq!(trial.steps().unwrap(), ["map", "reduce", "map"]);
        let trial = Trial::new("ReduceSum", 13).input(Given::Device(DType::Bool, &[4, 2]));
        assert_eq!(trial.steps().unwrap_err(), "input 0 has unsupported type bool");
    }

    #[test]
    fn axes_that_are_out_of_range_or_repeated_are_rejected() {
        for axes in [&[2][..], &[-3], &[0, -2]] {
            let trial = Trial::new("ReduceSum", 11).ints("axes", axes).input(Given::Device(DType::F32, &[2, 3]));
            assert!(trial.steps().unwrap_err().contains("for rank 2"), "{axes:?}");
        }
    }
}
