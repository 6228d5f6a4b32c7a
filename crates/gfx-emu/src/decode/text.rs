//! The disassembler's text of one instruction, taken apart.

use crate::inst::{INLINE_FLOATS, Src, reg};
use crate::wave::{PRIVATE_APERTURE, SHARED_APERTURE};

/// How an instruction is encoded, from the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Without an ending, or `_e32` or `_e64`: operands are read as they are.
    Plain,
    /// Lanes of the first source are shuffled.
    Dpp,
    /// Parts of registers are read and written.
    Sdwa,
}

/// The parts of an instruction's text.
#[derive(Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The mnemonic without the ending for its encoding.
    pub name: &'a str,
    /// The encoding.
    pub encoding: Encoding,
    /// The operands.
    pub operands: Vec<&'a str>,
    /// What follows the operands: `glc`, `offset:16`, `op_sel:[0,1]`.
    pub modifiers: Vec<&'a str>,
}

impl<'a> Text<'a> {
    /// Splits one instruction; VOPD pairs are split before.
    pub fn new(text: &'a str) -> Text<'a> {
        let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let (name, encoding) = ending(name);
        let (mut operands, mut modifiers) = (Vec::new(), Vec::new());
        for part in split(rest, ',') {
            let mut words = split(part, ' ').into_iter().filter(|word| !word.is_empty());
            match words.next() {
                // An instruction can have modifiers and no operands.
                Some(word) if is_modifier(word) => modifiers.push(word),
                Some(word) => operands.push(word),
                None => {}
            }
            modifiers.extend(words);
        }
        Text { name, encoding, operands, modifiers }
    }

    /// Whether a modifier is there.
    pub fn has(&self, name: &str) -> bool {
        self.modifiers.contains(&name)
    }

    /// The value of a modifier `name:value`.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        self.modifiers.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
    }

    /// The value of a modifier as a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.value(name).and_then(number)
    }

    /// The value of a modifier `name:[1,0,1]` as a mask.
    pub fn mask(&self, name: &str) -> Option<u8> {
        let list = self.value(name)?.strip_prefix('[')?.strip_suffix(']')?;
        Some(list.split(',').enumerate().fold(0, |mask, (at, bit)| mask | u8::from(bit.trim() == "1") << at))
    }
}

fn ending(name: &str) -> (&str, Encoding) {
    for (ending, encoding) in [
        ("_e64_dpp", Encoding::Dpp),
        ("_e32", Encoding::Plain),
        ("_e64", Encoding::Plain),
        ("_dpp", Encoding::Dpp),
        ("_sdwa", Encoding::Sdwa),
    ] {
        if let Some(bare) = name.strip_suffix(ending) {
            return (bare, encoding);
        }
    }
    (name, Encoding::Plain)
}

fn is_modifier(word: &str) -> bool {
    word.contains(':') && word.starts_with(|first: char| first.is_ascii_lowercase()) && !word.contains('[')
        || ["op_sel", "neg_", "quad_perm:", "dpp8:"].iter().any(|start| word.starts_with(start))
}

/// Splits at a separator outside brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ if letter == separator && depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// A decimal or hexadecimal number with an optional sign.
pub fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// One source operand and its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operand {
    /// The register or constant.
    pub src: Src,
    /// How many registers it names.
    pub count: u16,
    /// Negated.
    pub neg: bool,
    /// The absolute value.
    pub abs: bool,
    /// Sign-extended (SDWA).
    pub sext: bool,
    /// The high 16 bits (`v0.h`).
    pub high: bool,
}

/// Parses an operand; `None` if its form is unknown.
pub fn operand(text: &str) -> Option<Operand> {
    let mut rest = text.trim();
    let mut result = Operand { count: 1, ..Operand::default() };
    loop {
        if let Some(inner) = rest.strip_prefix('|').and_then(|inner| inner.strip_suffix('|')) {
            (result.abs, rest) = (true, inner);
        } else if let Some(inner) = call(rest, "abs") {
            (result.abs, rest) = (true, inner);
        } else if let Some(inner) = call(rest, "neg") {
            (result.neg, rest) = (true, inner);
        } else if let Some(inner) = call(rest, "sext") {
            (result.sext, rest) = (true, inner);
        } else if let Some(inner) = call(rest, "lit").or_else(|| call(rest, "lit64")) {
            rest = inner;
        } else if let Some(inner) =
            rest.strip_prefix('-').filter(|inner| !inner.starts_with(|c: char| c.is_ascii_digit()))
        {
            (result.neg, rest) = (true, inner);
        } else {
            break;
        }
    }
    if let Some(bare) = rest.strip_suffix(".h") {
        (result.high, rest) = (true, bare);
    } else if let Some(bare) = rest.strip_suffix(".l") {
        rest = bare;
    }
    if let Some((src, count)) = register(rest) {
        return Some(Operand { src, count, ..result });
    }
    let src = match rest {
        "null" | "off" | "src_pops_exiting_wave_id" => Src::Int(0),
        "src_scc" | "scc" => Src::Scc,
        "src_vccz" | "vccz" => Src::VccZ,
        "src_execz" | "execz" => Src::ExecZ,
        "src_shared_base" => Src::Aperture(SHARED_APERTURE),
        "src_private_base" => Src::Aperture(PRIVATE_APERTURE),
        "src_shared_limit" | "src_private_limit" => return None,
        other => constant(other)?,
    };
    Some(Operand { src, ..result })
}

fn constant(text: &str) -> Option<Src> {
    let inline = INLINE_FLOATS.iter().position(|(name, ..)| {
        // The number of digits of 1 / (2 pi) depends on the operand's width.
        *name == text || (name.starts_with("0.159") && text.starts_with("0.159"))
    });
    if let Some(index) = inline {
        return Some(Src::Float(index as u8));
    }
    let value = number(text)?;
    if text.contains("0x") {
        return u32::try_from(value).ok().or_else(|| i32::try_from(value).ok().map(|value| value as u32)).map(Src::Lit);
    }
    i32::try_from(value).ok().map(Src::Int).or_else(|| u32::try_from(value).ok().map(Src::Lit))
}

fn call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

/// A register or a range of registers, and how many.
fn register(text: &str) -> Option<(Src, u16)> {
    for (name, index, count) in [
        ("vcc", reg::VCC, 2),
        ("vcc_lo", reg::VCC, 1),
        ("vcc_hi", reg::VCC + 1, 1),
        ("exec", reg::EXEC, 2),
        ("exec_lo", reg::EXEC, 1),
        ("exec_hi", reg::EXEC + 1, 1),
        ("m0", reg::M0, 1),
        ("flat_scratch", reg::FLAT_SCRATCH, 2),
        ("flat_scratch_lo", reg::FLAT_SCRATCH, 1),
        ("flat_scratch_hi", reg::FLAT_SCRATCH + 1, 1),
        ("xnack_mask", reg::XNACK_MASK, 2),
        ("xnack_mask_lo", reg::XNACK_MASK, 1),
        ("xnack_mask_hi", reg::XNACK_MASK + 1, 1),
    ] {
        if text == name {
            return Some((Src::S(index), count));
        }
    }
    let (range, make): (&str, fn(u16) -> Src) = if let Some(range) = text.strip_prefix("ttmp") {
        (range, |index| Src::S(reg::TTMP + index))
    } else if let Some(range) = text.strip_prefix('v') {
        (range, Src::V)
    } else if let Some(range) = text.strip_prefix('a') {
        (range, |index| Src::V(reg::ACCUMULATOR + index))
    } else {
        (text.strip_prefix('s')?, Src::S)
    };
    let (first, last) = match range.strip_prefix('[').and_then(|range| range.strip_suffix(']')) {
        Some(range) => range.split_once(':').unwrap_or((range, range)),
        None => (range, range),
    };
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    let limit = if matches!(make(0), Src::V(_)) { 256 } else { 106 };
    (first <= last && last < limit).then(|| (make(first), last - first + 1))
}
