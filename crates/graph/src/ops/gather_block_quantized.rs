//! Rows of a quantised table: gathers the wanted rows packed, then dequantises only those.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::gather::is_index;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Shape, Val};

/// `GatherBlockQuantized` over the last axis: inputs data, indices, scales, zero points.
#[derive(Debug)]
struct GatherBlockQuantized {
    bits: usize,
    block: usize,
    gather_axis: i64,
    quantize_axis: i64,
}

impl GatherBlockQuantized {
    /// Whether each byte holds several numbers, and how many numbers a row has.
    ///
    /// A 4-bit tensor arrives with one byte per number, a tensor of bytes as it is. The scales tell which: with more
    /// than one block only one of the two matches.
    fn packing(&self, dtype: DType, width: usize, blocks: usize) -> Result<(bool, usize), String> {
        let fits = |extent: usize| extent.div_ceil(self.block) == blocks;
        let packed = width * 8 / self.bits;
        match (dtype == DType::U8 && fits(packed), fits(width)) {
            (true, false) => Ok((true, packed)),
            (false, true) => Ok((false, width)),
            (true, true) if self.bits == 8 => Ok((true, width)),
            (true, true) => Err("cannot tell whether rows of one block hold bytes or 4-bit numbers".to_owned()),
            (false, false) => {
                let block = self.block;
                Err(format!("rows of {width} bytes do not match {blocks} scales for blocks of {block}"))
            }
        }
    }

    /// Unpacks bytes `[…, width]` to one byte per number, `[…, width · 8 / bits]`.
    fn unpacked(&self, cx: &mut Lower<'_>, bytes: &Val) -> Result<Val, LowerError> {
        let (rank, each) = (bytes.rank(), 8 / self.bits);
        if each == 1 {
            return Ok(bytes.clone());
        }
        let mut to: Shape = bytes.shape().into();
        to.push(each);
        let apart = cx.map_to(&[&bytes.unsqueezed(rank)], DType::U8, &to, |expr, arguments| {
            let index = expr.index(rank as u16);
            let place = expr.cast(index, DType::U8);
            let bits = expr.constant(Scalar::Uint(self.bits as u64), DType::U8);
            let shift = expr.binary(Binary::Mul, place, bits);
            let moved = expr.binary(Binary::Shr, arguments[0], shift);
            let mask = expr.constant(Scalar::Uint((1 << self.bits) - 1), DType::U8);
            expr.binary(Binary::And, moved, mask)
        })?;
        to.pop();
        to[rank - 1] *= each;
        cx.reshape(&apart, &to)
    }

    /// Repeats one number per block `[…, blocks]` to one per element `[…, width]`.
    fn repeated(&self, cx: &mut Lower<'_>, value: &Val, width: usize) -> Result<Val, LowerError> {
        let (last, mut to) = (value.rank() - 1, Shape::from(value.shape()));
        to.push(self.block);
        let each = cx.expand(&value.unsqueezed(last + 1), &to)?;
        to.pop();
        to[last] *= self.block;
        Ok(cx.reshape(&each, &to)?.sliced(last, 0, 1, width))
    }
}

impl Op for GatherBlockQuantized {
    fn name(&self) -> &'static str {
        "GatherBlockQuantized"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices, scales) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let rank = data.rank();
        let (gather_axis, axis) = (cx.axis(self.gather_axis, rank)?, cx.axis(self.quantize_axis, rank)?);
        if axis + 1 != rank || gather_axis == axis {
            return Err(cx.invalid(format!(
                "gather_axis {gather_axis} with quantize_axis {axis} is not supported for rank {rank}"
            )));
        }
        if scales.rank() != rank || scales.shape()[..axis] != data.shape()[..axis] {
            let (scales, data) = (scales.shape(), data.shape());
            return Err(cx.invalid(format!("scales of shape {scales:?} do not match data of shape {data:?}")));
        }
        let blocks = scales.shape()[axis];
        let (is_packed, width) =
            self.packing(data.dtype(), data.shape()[axis], blocks).map_err(|reason| cx.invalid(reason))?;
        let zeros = inputs.get(3).and_then(Option::as_ref);
        if let Some(zeros) = zeros {
            let bytes = if is_packed { (blocks * self.bits).div_ceil(8) } else { blocks };
            if zeros.rank() != rank || zeros.shape()[..axis] != data.shape()[..axis] || zeros.shape()[axis] != bytes {
                let (zeros, data) = (zeros.shape(), data.shape());
                return Err(cx.invalid(format!("zero points of shape {zeros:?} do not match data of shape {data:?}")));
            }
        }
        let to = scales.dtype();
        let taken = cx.gather(data, indices, gather_axis)?;
        let scales = cx.gather(scales, indices, gather_axis)?;
        let numbers = if is_packed { self.unpacked(cx, &taken)? } else { taken };
        let last = numbers.rank() - 1;
        let numbers = numbers.sliced(last, 0, 1, width);
        let mut operands = vec![numbers.clone(), self.repeated(cx, &scales, width)?];
        if let Some(zeros) = zeros {
            let zeros = cx.gather(zeros, indices, gather_axis)?;
            let zeros = if is_packed { self.unpacked(cx, &zeros)? } else { zeros };
            operands.push(self.repeated(cx, &zeros.sliced(last, 0, 1, blocks), width)?);
        }
        let operands: Vec<&Val> = operands.iter().collect();
        // Packed bytes have their zero in the middle of the range, 4-bit types at 0.
        let middle = if is_packed { (1u64 << (self.bits - 1)) as f64 } else { 0.0 };
        let result = cx.map_to(&operands, to, numbers.shape(), |expr, arguments| {
            let computed = expr.dtype(arguments[1]);
            let zero = match arguments.get(2) {
                Some(&zero) => whole(expr, zero),
                None => expr.constant(Scalar::Float(middle), DType::F32),
            };
            let number = whole(expr, arguments[0]);
            let centred = expr.binary(Binary::Sub, number, zero);
            let centred = if computed == DType::F32 { centred } else { expr.cast(centred, computed) };
            expr.binary(Binary::Mul, centred, arguments[1])
        })?;
        Ok(vec![result])
    }
}

fn whole(expr: &mut Expr, byte: Ref) -> Ref {
    expr.cast(byte, DType::F32)
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| matches!(dtype, DType::I8 | DType::U8))?;
    node.accept(1, is_index)?;
    node.accept(2, is_short_float)?;
    if node.optional(3).is_some_and(|zeros| zeros.dtype != dtype) {
        return Err(Declined::new("the zero points have another type than the data"));
    }
    let bits = match node.attributes.int("bits", 4)? {
        bits @ (2 | 4 | 8) => bits as usize,
        bits => return Err(Declined::new(format!("numbers of {bits} bits are not supported; 2, 4 and 8 are"))),
    };
    let block = node.attributes.int("block_size", 128)?;
    if block < 16 || block & (block - 1) != 0 {
        return Err(Declined::new(format!("blocks of {block} are not supported; powers of two from 16 are")));
    }
    let (gather_axis, quantize_axis) =
        (node.attributes.int("gather_axis", 0)?, node.attributes.int("quantize_axis", 1)?);
    let op = GatherBlockQuantized { bits, block: block as usize, gather_axis, quantize_axis };
    let data = node.input(0)?;
    let rank = data.rank.or(data.constant.map(|data| data.shape().len()));
    if let Some(rank) = rank {
        let from_front = |axis: i64| if axis < 0 { axis + rank as i64 } else { axis };
        if from_front(quantize_axis) + 1 != rank as i64 || from_front(gather_axis) == from_front(quantize_axis) {
            return Err(Declined::new(format!(
                "gather_axis {gather_axis} with quantize_axis {quantize_axis} is not supported"
            )));
        }
    }
    if let (Some(data), Some(scales)) = (data.constant, node.input(2)?.constant) {
        let (width, blocks) = (data.shape().last().copied(), scales.shape().last().copied());
        op.packing(data.dtype(), width.unwrap_or(0), blocks.unwrap_or(0)).map_err(Declined::new)?;
    }
    Ok(Box::new(op))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "GatherBlockQuantized", parse }];
