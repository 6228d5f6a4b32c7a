//! Forms that change operands or results: DPP, SDWA, and VOPD's two operations in one.

use super::text::{Operand, Text};
use super::{Context, decode};
use crate::inst::{Dst, Inst, Src, Step};
use crate::ops::forms::{Dpp, Form, Sdwa, Select, Shuffle};

/// Two operations that read before either writes.
pub fn dual(first: &str, second: &str, context: Context) -> Result<Inst, String> {
    let half = |text: &str| decode(&text.trim().replacen("v_dual_", "v_", 1), context);
    let (first, second) = (half(first)?, half(second)?);
    let crossed =
        matches!(first.dst, Dst::V(register) if second.src.contains(&Src::V(register)) || second.dst == first.dst);
    let mut inst = Inst::new(Step::Unsupported);
    (inst.dst, inst.src) = (first.dst, first.src);
    inst.step = Step::Form(Box::new(Form::Dual { first, second, crossed }));
    Ok(inst)
}

/// Lanes of the first source come from other lanes.
pub fn dpp(inst: Inst, text: &Text<'_>) -> Result<Inst, String> {
    let number = |name: &str| text.number(name).and_then(|value| u8::try_from(value).ok());
    let list = |name: &str, count: usize| -> Option<Vec<u8>> {
        let inner = text.value(name)?.strip_prefix('[')?.strip_suffix(']')?;
        let list: Vec<u8> = inner.split(',').map(|word| word.trim().parse().ok()).collect::<Option<_>>()?;
        (list.len() == count).then_some(list)
    };
    let shuffle = if let Some(list) = list("dpp8", 8) {
        Shuffle::Eight(std::array::from_fn(|k| list[k] & 7))
    } else if let Some(list) = list("quad_perm", 4) {
        Shuffle::Quad(std::array::from_fn(|k| list[k] & 3))
    } else if let Some(by) = number("row_shl") {
        Shuffle::RowShl(by)
    } else if let Some(by) = number("row_shr") {
        Shuffle::RowShr(by)
    } else if let Some(by) = number("row_ror") {
        Shuffle::RowRor(by)
    } else if text.has("row_mirror") {
        Shuffle::RowMirror
    } else if text.has("row_half_mirror") {
        Shuffle::RowHalfMirror
    } else if let Some(lane) = number("row_share").or_else(|| number("row_newbcast")) {
        Shuffle::RowShare(lane)
    } else if let Some(mask) = number("row_xmask") {
        Shuffle::RowXor(mask)
    } else if let Some(lane) = number("row_bcast") {
        Shuffle::RowBroadcast(lane)
    } else if number("wave_shl").is_some() {
        Shuffle::WaveShl
    } else if number("wave_shr").is_some() {
        Shuffle::WaveShr
    } else if number("wave_rol").is_some() {
        Shuffle::WaveRol
    } else if number("wave_ror").is_some() {
        Shuffle::WaveRor
    } else {
        return Err("unknown DPP control".to_owned());
    };
    let Src::V(_) = inst.src[0] else { return Err("DPP on an operand that is not a vector register".to_owned()) };
    let dpp = Dpp {
        shuffle,
        row_mask: number("row_mask").unwrap_or(0xf),
        bank_mask: number("bank_mask").unwrap_or(0xf),
        // Older assemblers print the bit inverted.
        bound_zero: text.value("bound_ctrl").is_some(),
        fetch_inactive: number("fi") == Some(1),
    };
    let mut outer = inst.clone();
    outer.step = Step::Form(Box::new(Form::Dpp { inner: inst, dpp }));
    Ok(outer)
}

/// Parts of registers are read and written.
pub fn sdwa(inst: Inst, text: &Text<'_>, operands: &[Operand; 4]) -> Result<Inst, String> {
    let select = |name: &str| match text.value(name) {
        None | Some("DWORD") => Ok(Select::Dword),
        Some("BYTE_0") => Ok(Select::Byte(0)),
        Some("BYTE_1") => Ok(Select::Byte(1)),
        Some("BYTE_2") => Ok(Select::Byte(2)),
        Some("BYTE_3") => Ok(Select::Byte(3)),
        Some("WORD_0") => Ok(Select::Word(0)),
        Some("WORD_1") => Ok(Select::Word(1)),
        Some(other) => Err(format!("modifier {name}:{other}")),
    };
    let sources = [select("src0_sel")?, select("src1_sel")?];
    let unused = match text.value("dst_unused") {
        None | Some("UNUSED_PAD") => 0,
        Some("UNUSED_SEXT") => 1,
        Some("UNUSED_PRESERVE") => 2,
        Some(other) => return Err(format!("modifier dst_unused:{other}")),
    };
    let sdwa = Sdwa {
        sources,
        sext: [operands[0].sext, operands[1].sext],
        result: select("dst_sel")?,
        sign_extend: unused == 1,
        preserve: unused == 2,
    };
    let mut outer = inst.clone();
    outer.step = Step::Form(Box::new(Form::Sdwa { inner: inst, sdwa }));
    Ok(outer)
}
