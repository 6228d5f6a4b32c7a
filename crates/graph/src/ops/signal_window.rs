//! Windows of signal processing: HannWindow, HammingWindow, BlackmanWindow.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::cast::dtype_attribute;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// A sum of cosines: `c0 - c1 · cos(t) + c2 · cos(2t)`.
#[derive(Debug)]
struct SignalWindow {
    name: &'static str,
    coefficients: [f64; 3],
    dtype: DType,
    /// The window continues after its end, as spectra need it; otherwise it is symmetric.
    periodic: bool,
}

impl Op for SignalWindow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let size = cx.known(inputs, 0)?;
        if size.elems() != 1 {
            return Err(cx.invalid(format!("the size has shape {:?}, expected one number", size.shape())));
        }
        let to = cx.extents(&size.to_i64s())?;
        let intervals = if self.periodic { to[0] } else { to[0].saturating_sub(1) };
        let step = std::f64::consts::TAU / intervals.max(1) as f64;
        let window = cx.map_to(&[], self.dtype, &to, |expr, _| {
            // In double precision, since the angle grows with the index.
            let index = expr.index(0);
            let index = expr.cast(index, DType::F64);
            let mut number = |value: f64| expr.constant(Scalar::Float(value), DType::F64);
            let (step, two, [first, second, third]) = (number(step), number(2.0), self.coefficients.map(&mut number));
            let angle = expr.binary(Binary::Mul, index, step);
            let twice = expr.binary(Binary::Mul, angle, two);
            let (once, twice) = (expr.unary(Unary::Cos, angle), expr.unary(Unary::Cos, twice));
            let (second, third) = (expr.binary(Binary::Mul, second, once), expr.binary(Binary::Mul, third, twice));
            let sum = expr.binary(Binary::Sub, first, second);
            expr.binary(Binary::Add, sum, third)
        })?;
        Ok(vec![window])
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, coefficients: [f64; 3]) -> Result<Box<dyn Op>, Declined> {
    let dtype = dtype_attribute(node, "output_datatype")?.unwrap_or(DType::F32);
    if !dtype.is_float() {
        return Err(Declined::new(format!("output_datatype {dtype} is not supported")));
    }
    Ok(Box::new(SignalWindow { name, coefficients, dtype, periodic: node.attributes.flag_or("periodic", true)? }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "HannWindow", parse: |node| parse(node, "HannWindow", [0.5, 0.5, 0.0]) },
    Entry {
        domain: "",
        op_type: "HammingWindow",
        parse: |node| parse(node, "HammingWindow", [25.0 / 46.0, 21.0 / 46.0, 0.0]),
    },
    Entry { domain: "", op_type: "BlackmanWindow", parse: |node| parse(node, "BlackmanWindow", [0.42, 0.5, 0.08]) },
];
