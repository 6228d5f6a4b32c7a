//! Running sums and products.
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::Cumulative;
use crate::{Declined, LowerError, Prim, Shape, Val, shape};

#[derive(Debug)]
struct CumulativeOp {
    name: &'static str,
    prim: Cumulative,
}

impl Op for CumulativeOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let list = cx.known(inputs, 1)?.to_i64s();
        let axis = match list[..] {
            [axis] => shape::axis(axis, value.rank()),
            _ => None,
        };
        let axis = axis.ok_or_else(|| cx.invalid(format!("invalid axis {list:?} for rank {}", value.rank())))?;
        let full: Shape = value.shape().into();
        let count = |extents: &[usize]| shape::elems(extents).unwrap_or(0);
        let to = [count(&full[..axis]), full[axis], count(&full[axis + 1..])];
        let flat = cx.reshape(value, &to)?;
        let result = cx.apply(Prim::Cumulative(self.prim.clone()), &[&flat], value.dtype(), &to)?;
        Ok(vec![cx.reshape(&result, &full)?])
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, product: bool) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float() || dtype.is_int())?;
    let prim = Cumulative {
        product,
        exclusive: node.attributes.flag("exclusive")?,
        reverse: node.attributes.flag("reverse")?,
    };
    Ok(Box::new(CumulativeOp { name, prim }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "CumSum", parse: |node| parse(node, "CumSum", false) },
    Entry { domain: "", op_type: "CumProd", parse: |node| parse(node, "CumProd", true) },
];
