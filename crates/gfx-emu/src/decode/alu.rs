//! Operands of operations on registers.

use super::forms;
use super::text::{Encoding, Operand, Text, number, operand};
use crate::inst::{Dst, Inst, Src, Step, reg};
use crate::ops::{self, Shape};

/// Decodes an operation on registers.
pub fn decode(text: &Text<'_>) -> Result<Inst, String> {
    let Some(entry) = ops::find(text.name) else { return Err("unknown mnemonic".to_owned()) };
    let mut inst = Inst::new(Step::Alu(entry.run));
    let mut operands = text.operands.as_slice();
    let mut parsed = [Operand::default(); 4];
    let shape = match entry.shape {
        // Since gfx10, v_cmpx writes only EXEC and does not say so.
        Shape::CompareExec if operands.len() == 2 => {
            inst.dst = Dst::S(reg::EXEC);
            Shape::Sources
        }
        Shape::CompareExec => Shape::Result,
        shape => shape,
    };
    match shape {
        Shape::Result | Shape::ResultAndCarry => {
            let (first, rest) = operands.split_first().ok_or("no result operand")?;
            let target = operand(first).ok_or_else(|| format!("operand {first}"))?;
            inst.dst = destination(first, target.src)?;
            inst.mods.sel |= u8::from(target.high) << 3;
            operands = rest;
            if shape == Shape::ResultAndCarry {
                let (second, rest) = operands.split_first().ok_or("no carry operand")?;
                let target = operand(second).ok_or_else(|| format!("operand {second}"))?;
                inst.sdst = destination(second, target.src)?;
                operands = rest;
            }
        }
        Shape::HardwareRegister => {
            // s_getreg has it last, s_setreg first.
            let at = operands.iter().position(|word| word.starts_with("hwreg")).ok_or("no hardware register")?;
            inst.imm = hardware_register(operands[at]).ok_or_else(|| format!("operand {}", operands[at]))?;
            let other = operands.get(1 - at).ok_or("one operand is missing")?;
            let found = operand(other).ok_or_else(|| format!("operand {other}"))?;
            if at == 1 {
                inst.dst = destination(other, found.src)?;
            } else {
                inst.src[0] = found.src;
            }
            return Ok(inst);
        }
        Shape::Sources | Shape::CompareExec => {}
    }
    if operands.len() > 4 {
        return Err("more than four sources".to_owned());
    }
    for (k, word) in operands.iter().enumerate() {
        let source = operand(word).ok_or_else(|| format!("operand {word}"))?;
        parsed[k] = source;
        inst.src[k] = source.src;
        inst.mods.neg |= u8::from(source.neg) << k;
        inst.mods.abs |= u8::from(source.abs) << k;
        inst.mods.sel |= u8::from(source.high) << k;
    }
    // The text of VOPD leaves out the mask.
    if text.name == "v_cndmask_b32" && operands.len() == 2 {
        inst.src[2] = Src::S(reg::VCC);
    }
    modifiers(text, &mut inst, operands.len())?;
    match text.encoding {
        Encoding::Plain => Ok(inst),
        Encoding::Dpp => forms::dpp(inst, text),
        Encoding::Sdwa => forms::sdwa(inst, text, &parsed),
    }
}

fn modifiers(text: &Text<'_>, inst: &mut Inst, sources: usize) -> Result<(), String> {
    let packed = ops::is_packed(text.name);
    inst.mods.sel_hi = if packed { 7 } else { 0 };
    for word in &text.modifiers {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        let mask = || text.mask(name).ok_or_else(|| format!("modifier {word}"));
        match name {
            "clamp" => inst.mods.clamp = true,
            "mul" => inst.mods.omod = if value == "4" { 2 } else { 1 },
            "div" => inst.mods.omod = 3,
            "op_sel" => {
                // The result's bit follows the last source.
                let bits = mask()?;
                let below = bits & ((1 << sources) - 1);
                inst.mods.sel |= below | if packed { 0 } else { (bits >> sources & 1) << 3 };
            }
            "op_sel_hi" => inst.mods.sel_hi = mask()?,
            "neg_lo" => inst.mods.neg ^= mask()?,
            "neg_hi" => inst.mods.neg_hi = mask()?,
            "offset" => inst.imm = offset(value).ok_or_else(|| format!("modifier {word}"))?,
            "bitop3" | "cbsz" | "abid" | "blgp" | "byte_sel" | "wait_exp" | "index_key" => {
                let value = number(value).ok_or_else(|| format!("modifier {word}"))?;
                inst.imm |= (value as u32)
                    << match name {
                        "abid" => 8,
                        "blgp" => 16,
                        _ => 0,
                    };
            }
            // Read by the forms.
            "row_mask" | "bank_mask" | "bound_ctrl" | "fi" | "dpp8" | "quad_perm" | "row_shl" | "row_shr"
            | "row_ror" | "row_mirror" | "row_half_mirror" | "row_bcast" | "row_share" | "row_xmask"
            | "row_newbcast" | "wave_shl" | "wave_shr" | "wave_rol" | "wave_ror" | "dst_sel" | "dst_unused"
            | "src0_sel" | "src1_sel" => {}
            // Only hints.
            "gds" => return Err("global data share".to_owned()),
            _ => return Err(format!("modifier {word}")),
        }
    }
    Ok(())
}

/// Where a result goes.
pub fn destination(text: &str, src: Src) -> Result<Dst, String> {
    match src {
        Src::V(index) => Ok(Dst::V(index)),
        Src::S(index) => Ok(Dst::S(index)),
        Src::Int(0) if text == "null" => Ok(Dst::S(reg::NULL)),
        _ => Err(format!("result {text}")),
    }
}

/// `hwreg(NAME, offset, width)`: number | offset << 6 | width - 1 << 11, as it is encoded.
fn hardware_register(text: &str) -> Option<u32> {
    let inner = text.strip_prefix("hwreg(")?.strip_suffix(')')?;
    let mut parts = inner.split(',').map(str::trim);
    let name = parts.next()?;
    let known = [
        ("HW_REG_MODE", 1),
        ("HW_REG_STATUS", 2),
        ("HW_REG_WAVE_MODE", 1),
        ("HW_REG_WAVE_STATUS", 2),
        ("HW_REG_HW_ID", 4),
        ("HW_REG_HW_ID1", 23),
        ("HW_REG_HW_ID2", 24),
        ("HW_REG_WAVE_HW_ID1", 23),
        ("HW_REG_WAVE_HW_ID2", 24),
        ("HW_REG_SH_MEM_BASES", 15),
        ("HW_REG_XCC_ID", 20),
        ("HW_REG_FLAT_SCR_LO", 20),
        ("HW_REG_FLAT_SCR_HI", 21),
        ("HW_REG_SHADER_CYCLES", 29),
        ("HW_REG_SHADER_CYCLES_LO", 29),
        ("HW_REG_SHADER_CYCLES_HI", 30),
    ];
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let index = found.or_else(|| number(name).and_then(|index| u32::try_from(index).ok()))?;
    let mut next = |default| parts.next().map_or(Some(default), |text| u32::try_from(number(text)?).ok());
    let (offset, width) = (next(0)?, next(32)?);
    (index < 64 && offset < 32 && (1..=32).contains(&width)).then_some(index | offset << 6 | (width - 1) << 11)
}

/// A plain offset, or the pattern of `ds_swizzle_b32`.
fn offset(text: &str) -> Option<u32> {
    let Some(inner) = text.strip_prefix("swizzle(").and_then(|inner| inner.strip_suffix(')')) else {
        return number(text).and_then(|value| u32::try_from(value).ok());
    };
    let words: Vec<&str> = inner.split(',').map(str::trim).collect();
    let at = |k: usize| words.get(k).and_then(|word| number(word)).and_then(|value| u32::try_from(value).ok());
    match *words.first()? {
        "QUAD_PERM" => Some(0x8000 | at(1)? | at(2)? << 2 | at(3)? << 4 | at(4)? << 6),
        "SWAP" => Some(0x1f | at(1)? << 10),
        "REVERSE" => Some(0x1f | at(1)?.checked_sub(1)? << 10),
        "BROADCAST" => Some(0x1f & !at(1)?.checked_sub(1)? | at(2)? << 5),
        "BITMASK_PERM" => {
            // Five letters from the highest bit: 0, 1, p (keep), i (invert).
            let pattern = words.get(1)?.trim_matches('"');
            let (mut and, mut or, mut xor) = (0, 0, 0);
            for (letter, bit) in pattern.chars().zip((0..5u32).rev()) {
                match letter {
                    '0' => {}
                    '1' => or |= 1 << bit,
                    'p' => and |= 1 << bit,
                    'i' => (and, xor) = (and | 1 << bit, xor | 1 << bit),
                    _ => return None,
                }
            }
            Some(and | or << 5 | xor << 10)
        }
        _ => None,
    }
}
