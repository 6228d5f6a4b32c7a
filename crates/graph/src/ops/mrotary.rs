//! Rotary position embeddings with three positions per token: com.microsoft's `MRotaryEmbedding`.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::rotary::{RotaryEmbedding, parse_contrib};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// `MRotaryEmbedding`: inputs x, positions `[3, batch, sequence]`, and the tables of cosines and sines.
#[derive(Debug)]
struct MRotaryEmbedding {
    rotary: RotaryEmbedding,
    /// How many angles follow the positions in time, height and width.
    sections: [usize; 3],
    /// Angles of the three kinds alternate, instead of following each other.
    alternate: bool,
}

impl Op for MRotaryEmbedding {
    fn name(&self) -> &'static str {
        "MRotaryEmbedding"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?.clone();
        let positions = cx.required(inputs, 1)?.clone();
        let (cosines, sines) = (cx.required(inputs, 2)?.clone(), cx.required(inputs, 3)?.clone());
        let half: usize = self.sections.iter().sum();
        let is_table = |table: &Val| table.rank() == 2 && table.shape()[1] == half;
        if positions.rank() != 3 || positions.shape()[0] != 3 || !is_table(&cosines) || !is_table(&sines) {
            let [at, cosines, sines] = [&positions, &cosines, &sines].map(Val::shape);
            return Err(cx.invalid(format!("positions {at:?} and caches {cosines:?}, {sines:?} for {half} angles")));
        }
        let (cosines, sines) = (self.angles(cx, &cosines, &positions)?, self.angles(cx, &sines, &positions)?);
        self.rotary.lower(cx, &[Some(x), None, Some(cosines), Some(sines)])
    }
}

impl MRotaryEmbedding {
    /// The cosines or sines of every token, `[batch, sequence, angles]`.
    fn angles(&self, cx: &mut Lower<'_>, table: &Val, positions: &Val) -> Result<Val, LowerError> {
        let mut kinds = Vec::new();
        for kind in 0..3 {
            kinds.push(cx.gather(table, &positions.sliced(0, kind, 1, 1).squeezed(0), 0)?);
        }
        let kinds: Vec<&Val> = kinds.iter().collect();
        cx.map(&kinds, table.dtype(), |expr, operands| {
            let column = expr.index(2);
            let [time, height, width] = self.sections;
            if self.alternate {
                let other = self.every_third(expr, column, 1, height);
                let tall = expr.select(other, operands[1], operands[0]);
                let other = self.every_third(expr, column, 2, width);
                return expr.select(other, operands[2], tall);
            }
            let [first, second] = [time, time + height].map(|end| below(expr, column, end));
            let later = expr.select(second, operands[1], operands[2]);
            expr.select(first, operands[0], later)
        })
    }

    /// Whether a column is one of `count` in steps of three from `first` on.
    fn every_third(&self, expr: &mut Expr, column: Ref, first: i64, count: usize) -> Ref {
        let (three, first) = (expr.constant(Scalar::Int(3), DType::I64), expr.constant(Scalar::Int(first), DType::I64));
        let rest = expr.binary(Binary::Mod, column, three);
        let is_own = expr.binary(Binary::Eq, rest, first);
        let is_below = below(expr, column, 3 * count);
        expr.binary(Binary::And, is_own, is_below)
    }
}

fn below(expr: &mut Expr, column: Ref, end: usize) -> Ref {
    let end = expr.constant(Scalar::Int(end as i64), DType::I64);
    expr.binary(Binary::Lt, column, end)
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(1, |dtype| dtype == DType::I64)?;
    let given = node.attributes.ints("mrope_section")?.unwrap_or_default();
    let sections: Vec<usize> = given.iter().filter_map(|&count| usize::try_from(count).ok()).collect();
    let sections = <[usize; 3]>::try_from(sections)
        .map_err(|_| Declined::new(format!("mrope_section is {given:?}, expected three counts")))?;
    if sections.iter().any(|&count| count > 1 << 16) {
        return Err(Declined::new(format!("mrope_section {given:?} has too many angles")));
    }
    let alternate = node.attributes.flag("mrope_layout")?;
    Ok(Box::new(MRotaryEmbedding { rotary: parse_contrib(node)?, sections, alternate }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "MRotaryEmbedding", parse }];
