//! Elements moved within images and matrices: DepthToSpace, SpaceToDepth, Trilu.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

fn block(node: &NodeInfo<'_>) -> Result<usize, Declined> {
    let block = node.attributes.int("blocksize", 0)?;
    usize::try_from(block).ok().filter(|&block| block > 0).ok_or_else(|| Declined::new(format!("blocksize {block}")))
}

/// The extents of an image batch.
fn image(cx: &Lower<'_>, value: &Val) -> Result<[usize; 4], LowerError> {
    value.shape().try_into().map_err(|_| cx.invalid(format!("shape {:?} is not [n, c, h, w]", value.shape())))
}

#[derive(Debug)]
struct DepthToSpace {
    block: usize,
    /// The block's coordinates are the inner part of the channel index, not the outer.
    block_inside: bool,
}

impl DepthToSpace {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        let block_inside = match node.attributes.text("mode", "DCR")? {
            "DCR" => false,
            "CRD" => true,
            other => return Err(Declined::new(format!("unsupported mode {other:?}"))),
        };
        Ok(Box::new(Self { block: block(node)?, block_inside }))
    }
}

impl Op for DepthToSpace {
    fn name(&self) -> &'static str {
        "DepthToSpace"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let ([n, c, h, w], b) = (image(cx, data)?, self.block);
        let depth = b.checked_mul(b).and_then(|area| (c % area == 0).then_some(c / area));
        let depth =
            depth.ok_or_else(|| cx.invalid(format!("{c} channels cannot be split into blocks of {b} by {b}")))?;
        let spread = if self.block_inside {
            cx.reshape(data, &[n, depth, b, b, h, w])?.permuted(&[0, 1, 4, 2, 5, 3])
        } else {
            cx.reshape(data, &[n, b, b, depth, h, w])?.permuted(&[0, 3, 4, 1, 5, 2])
        };
        Ok(vec![cx.reshape(&spread, &[n, depth, h.saturating_mul(b), w.saturating_mul(b)])?])
    }
}

#[derive(Debug)]
struct SpaceToDepth {
    block: usize,
}

impl Op for SpaceToDepth {
    fn name(&self) -> &'static str {
        "SpaceToDepth"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let ([n, c, h, w], b) = (image(cx, data)?, self.block);
        if h % b != 0 || w % b != 0 {
            return Err(cx.invalid(format!("an image of {h} by {w} cannot be split into blocks of {b} by {b}")));
        }
        let cut = cx.reshape(data, &[n, c, h / b, b, w / b, b])?.permuted(&[0, 3, 5, 1, 2, 4]);
        let depth = c.saturating_mul(b).saturating_mul(b);
        Ok(vec![cx.reshape(&cut, &[n, depth, h / b, w / b])?])
    }
}

#[derive(Debug)]
struct Trilu {
    upper: bool,
}

impl Trilu {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        if node.optional(1).is_some() {
            node.accept(1, |dtype| dtype == DType::I64)?;
        }
        Ok(Box::new(Self { upper: node.attributes.flag_or("upper", true)? }))
    }
}

impl Op for Trilu {
    fn name(&self) -> &'static str {
        "Trilu"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        if data.rank() < 2 {
            return Err(cx.invalid(format!("shape {:?} has fewer than two axes", data.shape())));
        }
        let diagonal = match inputs.get(1).and_then(Option::as_ref) {
            Some(diagonal) => cx.reshape(diagonal, &[])?,
            None => Val::scalar(DType::I64, Scalar::Int(0)),
        };
        let (row_axis, column_axis) = (data.rank() - 2, data.rank() - 1);
        let result = cx.map_to(&[data, &diagonal], data.dtype(), data.shape(), |expr, arguments| {
            let (row, column) = (expr.index(row_axis as u16), expr.index(column_axis as u16));
            let distance = expr.binary(Binary::Sub, column, row);
            let side = if self.upper { Binary::Ge } else { Binary::Le };
            let keep = expr.binary(side, distance, arguments[1]);
            let zero = expr.constant(Scalar::zero(data.dtype()), data.dtype());
            expr.select(keep, arguments[0], zero)
        })?;
        Ok(vec![result])
    }
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "DepthToSpace", parse: DepthToSpace::parse },
    Entry { domain: "", op_type: "SpaceToDepth", parse: |node| Ok(Box::new(SpaceToDepth { block: block(node)? })) },
    Entry { domain: "", op_type: "Trilu", parse: Trilu::parse },
    // From before ONNX had it.
    Entry { domain: "com.microsoft", op_type: "Trilu", parse: Trilu::parse },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::trial::{Given, Trial, ints};

    const EIGHT: Given<'_> = Given::I64(&[0, 1, 2, 3, 4, 5, 6, 7], &[1, 8, 1, 1]);

    #[test]
    fn depth_moves_to_space_in_either_mode_and_back() {
        let to_space = |mode| ints(Trial::new("DepthToSpace", 13).int("blocksize", 2).text("mode", mode).input(EIGHT));
        assert_eq!(to_space("DCR"), (vec![0, 2, 4, 6, 1, 3, 5, 7], vec![1, 2, 2, 2]));
        assert_eq!(to_space("CRD"), (vec![0, 1, 2, 3, 4, 5, 6, 7], vec![1, 2, 2, 2]));
        let image = Given::I64(&[0, 2, 4, 6, 1, 3, 5, 7], &[1, 2, 2, 2]);
        let back = Trial::new("SpaceToDepth", 13).int("blocksize", 2).input(image);
        assert_eq!(ints(back), (vec![0, 1, 2, 3, 4, 5, 6, 7], vec![1, 8, 1, 1]));
    }

    #[test]
    fn mismatched_blocks_are_rejected() {
        assert!(Trial::new("DepthToSpace", 13).int("blocksize", 3).input(EIGHT).shapes().is_err());
        assert!(Trial::new("SpaceToDepth", 13).int("blocksize", 2).input(EIGHT).shapes().is_err());
        assert!(Trial::new("DepthToSpace", 13).int("blocksize", 0).input(EIGHT).shapes().is_err());
        assert!(Trial::new("DepthToSpace", 13).int("blocksize", i64::MAX).input(EIGHT).shapes().is_err());
    }

    #[test]
    fn triangles_keep_their_side_of_the_diagonal() {
        let six = Given::I64(&[1, 2, 3, 4, 5, 6], &[2, 3]);
        let trilu = |upper| Trial::new("Trilu", 14).int("upper", upper).input(six);
        assert_eq!(ints(trilu(1)).0, [1, 2, 3, 0, 5, 6]);
        assert_eq!(ints(trilu(0)).0, [1, 0, 0, 4, 5, 0]);
        assert_eq!(ints(trilu(1).input(Given::I64(&[1], &[]))).0, [0, 2, 3, 0, 0, 6]);
        assert_eq!(ints(trilu(0).input(Given::I64(&[-1], &[]))).0, [0, 0, 0, 4, 0, 0]);
        assert_eq!(trilu(1).input(Given::Device(DType::I64, &[])).steps().unwrap(), ["map"]);
    }
}
