//! Loads, stores and atomics.

use super::text::{Operand, Text, operand};
use crate::access::{Access, Action, Address, AtomicOp, Data, Space};
use crate::inst::{Dst, Inst, Src, Step, reg};

/// Names of data in memory: those of gfx11 and later, and the older ones.
const LOADS: [(&str, Data); 34] = [
    ("u8", Data::U8),
    ("ubyte", Data::U8),
    ("i8", Data::I8),
    ("sbyte", Data::I8),
    ("u16", Data::U16),
    ("ushort", Data::U16),
    ("i16", Data::I16),
    ("sshort", Data::I16),
    ("d16_u8", Data::HalfU8(false)),
    ("ubyte_d16", Data::HalfU8(false)),
    ("d16_i8", Data::HalfI8(false)),
    ("sbyte_d16", Data::HalfI8(false)),
    ("d16_b16", Data::Half(false)),
    ("short_d16", Data::Half(false)),
    ("d16_hi_u8", Data::HalfU8(true)),
    ("ubyte_d16_hi", Data::HalfU8(true)),
    ("d16_hi_i8", Data::HalfI8(true)),
    ("sbyte_d16_hi", Data::HalfI8(true)),
    ("d16_hi_b16", Data::Half(true)),
    ("short_d16_hi", Data::Half(true)),
    // LDS has these orders of the words.
    ("u8_d16", Data::HalfU8(false)),
    ("i8_d16", Data::HalfI8(false)),
    ("u16_d16", Data::Half(false)),
    ("u8_d16_hi", Data::HalfU8(true)),
    ("i8_d16_hi", Data::HalfI8(true)),
    ("u16_d16_hi", Data::Half(true)),
    ("b32", Data::Words(1)),
    ("dword", Data::Words(1)),
    ("b64", Data::Words(2)),
    ("dwordx2", Data::Words(2)),
    ("b96", Data::Words(3)),
    ("dwordx3", Data::Words(3)),
    ("b128", Data::Words(4)),
    ("dwordx4", Data::Words(4)),
];

const STORES: [(&str, Data); 18] = [
    ("b8", Data::U8),
    ("byte", Data::U8),
    ("b16", Data::U16),
    ("short", Data::U16),
    ("d16_hi_b8", Data::HalfU8(true)),
    ("byte_d16_hi", Data::HalfU8(true)),
    ("b8_d16_hi", Data::HalfU8(true)),
    ("d16_hi_b16", Data::Half(true)),
    ("short_d16_hi", Data::Half(true)),
    ("b16_d16_hi", Data::Half(true)),
    ("b32", Data::Words(1)),
    ("dword", Data::Words(1)),
    ("b64", Data::Words(2)),
    ("dwordx2", Data::Words(2)),
    ("b96", Data::Words(3)),
    ("dwordx3", Data::Words(3)),
    ("b128", Data::Words(4)),
    ("dwordx4", Data::Words(4)),
];

const SCALAR: [(&str, Data); 15] = [
    ("b32", Data::Words(1)),
    ("dword", Data::Words(1)),
    ("b64", Data::Words(2)),
    ("dwordx2", Data::Words(2)),
    ("b96", Data::Words(3)),
    ("b128", Data::Words(4)),
    ("dwordx4", Data::Words(4)),
    ("b256", Data::Words(8)),
    ("dwordx8", Data::Words(8)),
    ("b512", Data::Words(16)),
    ("dwordx16", Data::Words(16)),
    ("u8", Data::U8),
    ("i8", Data::I8),
    ("u16", Data::U16),
    ("i16", Data::I16),
];

/// Atomics by name, without the ending for the width.
const ATOMICS: [(&str, AtomicOp); 37] = [
    ("swap", AtomicOp::Swap),
    ("storexchg", AtomicOp::Swap),
    ("wrxchg", AtomicOp::Swap),
    ("cmpswap", AtomicOp::CompareSwap),
    ("cmpstore", AtomicOp::CompareSwap),
    ("add_u", AtomicOp::Add),
    ("add", AtomicOp::Add),
    ("sub_u", AtomicOp::Sub),
    ("sub", AtomicOp::Sub),
    ("rsub_u", AtomicOp::RevSub),
    ("min_i", AtomicOp::MinI),
    ("smin", AtomicOp::MinI),
    ("max_i", AtomicOp::MaxI),
    ("smax", AtomicOp::MaxI),
    ("min_u", AtomicOp::MinU),
    ("umin", AtomicOp::MinU),
    ("max_u", AtomicOp::MaxU),
    ("umax", AtomicOp::MaxU),
    ("and", AtomicOp::And),
    ("or", AtomicOp::Or),
    ("xor", AtomicOp::Xor),
    ("inc_u", AtomicOp::Inc),
    ("inc", AtomicOp::Inc),
    ("dec_u", AtomicOp::Dec),
    ("dec", AtomicOp::Dec),
    ("csub_u", AtomicOp::SubClamp),
    ("sub_clamp_u", AtomicOp::SubClamp),
    ("add_f", AtomicOp::AddF),
    ("fmin", AtomicOp::MinF),
    ("min_f", AtomicOp::MinF),
    ("min_num_f", AtomicOp::MinF),
    ("fmax", AtomicOp::MaxF),
    ("max_f", AtomicOp::MaxF),
    ("max_num_f", AtomicOp::MaxF),
    ("pk_add_f16", AtomicOp::AddPkF16),
    ("pk_add_bf16", AtomicOp::AddPkBf16),
    // The name before gfx11, where the operands are in the other order.
    ("cmpst", AtomicOp::CompareSwap),
];

fn named(table: &[(&str, Data)], name: &str) -> Option<Data> {
    table.iter().find(|(known, _)| *known == name).map(|(_, data)| *data)
}

/// The operation of an atomic, and whether it has 64 bits.
fn atomic(name: &str) -> Option<(AtomicOp, bool)> {
    let of = |name: &str| ATOMICS.iter().find(|(known, _)| *known == name).map(|(_, op)| *op);
    if let Some(op) = of(name) {
        return Some((op, false));
    }
    if let Some(bare) = name.strip_suffix("_x2") {
        return of(bare).map(|op| (op, true));
    }
    let of_bits = |name: &str| of(name).or_else(|| of(name.strip_suffix("_b")?));
    match name.strip_suffix("32") {
        Some(bare) => of_bits(bare).map(|op| (op, false)),
        None => of_bits(name.strip_suffix("64")?).map(|op| (op, true)),
    }
}

/// What an instruction does, from its name.
enum Kind {
    /// Global, flat, scratch and buffer.
    Vector(Space, bool, Action),
    Lds(Action),
    /// Two addresses in LDS and the distance between their units.
    LdsTwo(Action, i32),
    Scalar(Data, bool),
}

fn kind(name: &str) -> Option<Kind> {
    for (prefix, space, buffer) in [
        ("global_", Space::Global, false),
        ("flat_", Space::Flat, false),
        ("scratch_", Space::Scratch, false),
        ("buffer_", Space::Global, true),
    ] {
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let action = if let Some(data) = rest.strip_prefix("load_") {
            Action::Load(named(&LOADS, data)?)
        } else if let Some(data) = rest.strip_prefix("store_") {
            Action::Store(named(&STORES, data)?)
        } else {
            let (op, wide) = atomic(rest.strip_prefix("atomic_")?)?;
            Action::Atomic(op, wide)
        };
        return Some(Kind::Vector(space, buffer, action));
    }
    if let Some(rest) = name.strip_prefix("s_load_") {
        return named(&SCALAR, rest).map(|data| Kind::Scalar(data, false));
    }
    if let Some(rest) = name.strip_prefix("s_buffer_load_") {
        return named(&SCALAR, rest).map(|data| Kind::Scalar(data, true));
    }
    let rest = name.strip_prefix("ds_")?;
    for (prefix, stride) in [("read2st64_", 64), ("load_2addr_stride64_", 64), ("read2_", 1), ("load_2addr_", 1)] {
        if let Some(data) = rest.strip_prefix(prefix) {
            return named(&LOADS, data).map(|data| Kind::LdsTwo(Action::Load2(data), stride * data.bytes() as i32));
        }
    }
    for (prefix, stride) in [("write2st64_", 64), ("store_2addr_stride64_", 64), ("write2_", 1), ("store_2addr_", 1)] {
        if let Some(data) = rest.strip_prefix(prefix) {
            return named(&STORES, data).map(|data| Kind::LdsTwo(Action::Store2(data), stride * data.bytes() as i32));
        }
    }
    if let Some(data) = rest.strip_prefix("load_").or_else(|| rest.strip_prefix("read_")) {
        return named(&LOADS, data).map(|data| Kind::Lds(Action::Load(data)));
    }
    if let Some(data) = rest.strip_prefix("store_").or_else(|| rest.strip_prefix("write_")) {
        return named(&STORES, data).map(|data| Kind::Lds(Action::Store(data)));
    }
    let bare = rest.replace("_rtn", "");
    atomic(&bare).map(|(op, wide)| Kind::Lds(Action::Atomic(op, wide)))
}

/// All mnemonics that the tables compose. No chip has some of them.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    let mut all = |prefix: &str, table: &[(&str, Data)]| {
        names.extend(table.iter().map(|(data, _)| format!("{prefix}{data}")));
    };
    for space in ["global", "flat", "scratch", "buffer"] {
        all(&format!("{space}_load_"), &LOADS);
        all(&format!("{space}_store_"), &STORES);
    }
    for prefix in ["s_load_", "s_buffer_load_"] {
        all(prefix, &SCALAR);
    }
    for count in ["_", "2_", "2st64_"] {
        all(&format!("ds_read{count}"), &LOADS);
        all(&format!("ds_write{count}"), &STORES);
    }
    for prefix in ["", "2addr_", "2addr_stride64_"] {
        all(&format!("ds_load_{prefix}"), &LOADS);
        all(&format!("ds_store_{prefix}"), &STORES);
    }
    for (op, _) in ATOMICS {
        for ending in ["", "_x2", "32", "64", "_b32", "_b64"] {
            names.extend(["global", "flat", "buffer", "scratch"].map(|space| format!("{space}_atomic_{op}{ending}")));
            let (bare, with_return) = (format!("ds_{op}{ending}"), format!("ds_{op}_rtn{ending}"));
            names.extend([bare, with_return]);
        }
    }
    names.retain(|name| knows(name));
    names
}

/// Whether the mnemonic is one of these.
pub fn knows(name: &str) -> bool {
    kind(name).is_some()
}

/// Decodes the instruction, if it is one of these.
pub fn decode(text: &Text<'_>) -> Result<Option<Inst>, String> {
    let Some(kind) = kind(text.name) else { return Ok(None) };
    known_modifiers(text)?;
    let operands = text.operands.iter().map(|word| operand(word).ok_or_else(|| format!("operand {word}")));
    let operands: Vec<Operand> = operands.collect::<Result<_, _>>()?;
    let access = match kind {
        Kind::Vector(space, false, action) => vector(text, space, action, &operands),
        Kind::Vector(_, true, action) => buffer(text, action, &operands),
        Kind::Lds(action) => lds(text, action, &operands),
        Kind::LdsTwo(action, unit) => lds_two(text, action, unit, &operands),
        Kind::Scalar(data, buffer) => scalar(text, data, buffer, &operands),
    };
    access.map(|access| Some(Inst::new(Step::Access(access)))).ok_or_else(|| "unknown form of operands".to_owned())
}

/// Cache hints change nothing here; anything else might.
fn known_modifiers(text: &Text<'_>) -> Result<(), String> {
    const HINTS: [&str; 18] = [
        "glc", "slc", "dlc", "sc0", "sc1", "nt", "scc", "scope", "th", "offset", "offset0", "offset1", "offen",
        "idxen", "nv", "off", "r128", "a16",
    ];
    match text.modifiers.iter().find(|word| !HINTS.contains(&word.split(':').next().unwrap_or(word))) {
        Some(word) => Err(format!("modifier {word}")),
        None => Ok(()),
    }
}

fn blank(space: Space, action: Action, address: Address, text: &Text<'_>) -> Access {
    let offset = text.number("offset").unwrap_or(0) as i32;
    let scope = text.value("scope").is_some_and(|scope| scope == "SCOPE_DEV" || scope == "SCOPE_SYS");
    Access {
        space,
        action,
        address,
        offset,
        offset2: 0,
        dst: Dst::None,
        data: reg::TEMPORARY,
        data2: reg::TEMPORARY,
        coherent: scope || ["glc", "sc0", "sc1"].iter().any(|hint| text.has(hint)),
    }
}

fn vgpr(operand: &Operand) -> Option<u16> {
    match operand.src {
        Src::V(index) => Some(index),
        _ => None,
    }
}

/// `dst, address, data, base`: which of them are there depends on the action.
fn vector(text: &Text<'_>, space: Space, action: Action, operands: &[Operand]) -> Option<Access> {
    let mut rest = operands;
    let mut dst = Dst::None;
    let with_base =
        space != Space::Flat || text.operands.last().is_some_and(|last| *last == "off" || last.starts_with('s'));
    let wanted = match action {
        Action::Atomic(..) => 2 + usize::from(with_base),
        _ => 0,
    };
    if matches!(action, Action::Load(_)) || (wanted > 0 && operands.len() == wanted + 1) {
        dst = Dst::V(vgpr(rest.first()?)?);
        rest = &rest[1..];
    }
    let (at, mut rest) = rest.split_first()?;
    let mut data = reg::TEMPORARY;
    if !matches!(action, Action::Load(_)) {
        let (first, after) = rest.split_first()?;
        data = vgpr(first)?;
        rest = after;
    }
    let base = rest.first();
    let index = vgpr(at);
    let address = match (space, base.map(|base| base.src)) {
        (Space::Scratch, base) => Address::Scratch(index, base.unwrap_or(Src::Int(0))),
        (_, Some(Src::S(base))) => Address::Base(base, index),
        _ if at.count == 2 => Address::Vector(index?),
        _ => return None,
    };
    let mut access = Access { dst, data, ..blank(space, action, address, text) };
    if let Action::Atomic(AtomicOp::CompareSwap, wide) = action {
        access.data2 = data + 1 + u16::from(wide);
    }
    Some(access)
}

/// `data, address, resource, offset`.
fn buffer(text: &Text<'_>, action: Action, operands: &[Operand]) -> Option<Access> {
    let [data, at, resource, scalar] = operands else { return None };
    let (Src::S(resource), data) = (resource.src, vgpr(data)?) else { return None };
    let (index, offset) = match (text.has("idxen"), text.has("offen")) {
        (true, true) => (vgpr(at), vgpr(at).map(|register| register + 1)),
        (true, false) => (vgpr(at), None),
        (false, true) => (None, vgpr(at)),
        (false, false) => (None, None),
    };
    let address = Address::Buffer { resource, index, offset, scalar: scalar.src };
    let mut access = Access { data, ..blank(Space::Global, action, address, text) };
    let returns = text.has("glc") || text.has("sc0") || text.value("th").is_some_and(|th| th.contains("ATOMIC_RETURN"));
    if matches!(action, Action::Load(_)) || (matches!(action, Action::Atomic(..)) && returns) {
        access.dst = Dst::V(data);
    }
    if let Action::Atomic(AtomicOp::CompareSwap, wide) = action {
        access.data2 = data + 1 + u16::from(wide);
    }
    Some(access)
}

fn lds(text: &Text<'_>, action: Action, operands: &[Operand]) -> Option<Access> {
    let returns = matches!(action, Action::Load(_)) || text.name.contains("_rtn");
    let (dst, rest) = if returns {
        let (first, rest) = operands.split_first()?;
        (Dst::V(vgpr(first)?), rest)
    } else {
        (Dst::None, operands)
    };
    let (at, rest) = rest.split_first()?;
    let mut access = Access { dst, ..blank(Space::Lds, action, Address::Lds(vgpr(at)?), text) };
    match (action, rest) {
        (Action::Load(_), []) => {}
        (Action::Store(_), [data]) => access.data = vgpr(data)?,
        (Action::Atomic(AtomicOp::CompareSwap, _), [new, compare]) => {
            (access.data, access.data2) = (vgpr(new)?, vgpr(compare)?);
            if text.name.starts_with("ds_cmpst_") {
                (access.data, access.data2) = (access.data2, access.data);
            }
        }
        (Action::Atomic(..), [data]) => access.data = vgpr(data)?,
        _ => return None,
    }
    Some(access)
}

fn lds_two(text: &Text<'_>, action: Action, unit: i32, operands: &[Operand]) -> Option<Access> {
    let mut access = match (action, operands) {
        (Action::Load2(_), [dst, at]) => {
            let access = blank(Space::Lds, action, Address::Lds(vgpr(at)?), text);
            Access { dst: Dst::V(vgpr(dst)?), ..access }
        }
        (Action::Store2(_), [at, data, data2]) => {
            let access = blank(Space::Lds, action, Address::Lds(vgpr(at)?), text);
            Access { data: vgpr(data)?, data2: vgpr(data2)?, ..access }
        }
        _ => return None,
    };
    access.offset = text.number("offset0").unwrap_or(0) as i32 * unit;
    access.offset2 = text.number("offset1").unwrap_or(0) as i32 * unit;
    Some(access)
}

/// `dst, base, offset`, where the offset is a number, a register, or a register and `offset:`.
fn scalar(text: &Text<'_>, data: Data, buffer: bool, operands: &[Operand]) -> Option<Access> {
    let [dst, base, at] = operands else { return None };
    let (Src::S(base), mut access) = (base.src, blank(Space::Scalar, Action::Load(data), Address::Lds(0), text)) else {
        return None;
    };
    access.dst = match dst.src {
        Src::S(index) => Dst::S(index),
        Src::Int(0) => Dst::S(reg::NULL),
        _ => return None,
    };
    let register = match at.src {
        Src::S(index) => Src::S(index),
        Src::Int(value) => {
            access.offset = access.offset.wrapping_add(value);
            Src::Int(0)
        }
        Src::Lit(value) => {
            access.offset = access.offset.wrapping_add(value as i32);
            Src::Int(0)
        }
        _ => return None,
    };
    access.address = if buffer { Address::ScalarBuffer(base, register) } else { Address::Scalar(base, register) };
    Some(access)
}
