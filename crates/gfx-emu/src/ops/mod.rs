//! What each instruction does, one file for each family.
//!
//! A file has a table of entries: a mnemonic, and a function on the wave that is made from a closure on one lane's
//! values. [`lane`] holds what is common: reading operands with their modifiers, the loop over lanes, writing the
//! active ones. Mnemonics of different generations with the same meaning have an entry each, next to each other.

pub mod float;
pub mod forms;
pub mod lane;

mod ds;
mod matrix;
mod mixed;
mod packed;
mod scalar;
mod scalar_compare;
mod scalar_float;
mod vector_compare;
mod vector_convert;
mod vector_cross;
mod vector_divide;
mod vector_f16;
mod vector_f32;
mod vector_f64;
mod vector_int;
mod vector_int16;
mod vector_int64;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::inst::Inst;
use crate::wave::Wave;

/// Which operands an instruction's text has, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A result, then sources.
    Result,
    /// A result, a mask for carries or conditions, then sources.
    ResultAndCarry,
    /// Only sources.
    Sources,
    /// A comparison that writes EXEC, with or without naming it.
    CompareExec,
    /// A hardware register and one more.
    HardwareRegister,
}

/// One instruction on registers.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The mnemonic without `_e32` and the like.
    pub name: &'static str,
    /// Its operands.
    pub shape: Shape,
    /// What it does.
    pub run: fn(&mut Wave, &Inst),
}

/// An instruction with a result and sources.
const fn op(name: &'static str, run: fn(&mut Wave, &Inst)) -> Entry {
    Entry { name, shape: Shape::Result, run }
}

/// An instruction with two results.
const fn op_carry(name: &'static str, run: fn(&mut Wave, &Inst)) -> Entry {
    Entry { name, shape: Shape::ResultAndCarry, run }
}

/// An instruction with sources only.
const fn op_sources(name: &'static str, run: fn(&mut Wave, &Inst)) -> Entry {
    Entry { name, shape: Shape::Sources, run }
}

const TABLES: [&[Entry]; 20] = [
    ds::TABLE,
    matrix::TABLE,
    mixed::TABLE,
    packed::TABLE,
    scalar::TABLE,
    scalar_compare::TABLE,
    scalar_float::TABLE,
    scalar_float::COMPARES,
    vector_compare::TABLE,
    vector_compare::FLOATS,
    vector_compare::CLASSES,
    vector_convert::TABLE,
    vector_cross::TABLE,
    vector_divide::TABLE,
    vector_f16::TABLE,
    vector_f32::TABLE,
    vector_f64::TABLE,
    vector_int::TABLE,
    vector_int16::TABLE,
    vector_int64::TABLE,
];

/// The entry of a mnemonic.
pub fn find(name: &str) -> Option<Entry> {
    static ALL: OnceLock<HashMap<&'static str, Entry>> = OnceLock::new();
    let all =
        ALL.get_or_init(|| TABLES.iter().flat_map(|table| table.iter()).map(|entry| (entry.name, *entry)).collect());
    all.get(name).copied()
}

/// All mnemonics of operations on registers.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|entry| entry.name)
}

/// Whether `op_sel` picks halves for two results, as in packed operations; their `op_sel_hi` is all ones by default.
pub(crate) fn is_packed(name: &str) -> bool {
    name.starts_with("v_pk_") || name.starts_with("v_dot") || name.starts_with("v_wmma") || name.starts_with("v_swmmac")
}
