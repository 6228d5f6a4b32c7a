//! The disassembler's text to a typed operation.
//!
//! [`text`] takes the text apart, `alu` fills in the operands of operations on registers, `memory` those of loads,
//! stores and atomics, `control` branches, waits and barriers. What a mnemonic does is in the tables of
//! [`ops`](crate::ops).

mod alu;
mod control;
mod forms;
mod memory;
pub mod text;

use crate::Target;
use crate::inst::Inst;
use text::Text;

/// What the decoder must know besides the text.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The chip.
    pub target: Target,
    /// Lanes of a wave.
    pub wave_size: u32,
}

/// Decodes the text of one instruction. Branch targets are filled in later.
///
/// # Errors
/// The part that is unknown: the mnemonic, or an operand.
pub fn decode(text: &str, context: Context) -> Result<Inst, String> {
    if let Some((first, second)) = text.split_once("::") {
        return forms::dual(first, second, context);
    }
    let parts = Text::new(text);
    if let Some(inst) = control::decode(&parts)? {
        return Ok(inst);
    }
    if let Some(inst) = memory::decode(&parts)? {
        return Ok(inst);
    }
    alu::decode(&parts)
}

/// All mnemonics that are known: of operations on registers, of control, and those that the tables of loads, stores and
/// atomics compose.
pub fn names() -> Vec<String> {
    let operations = crate::ops::names().map(str::to_owned);
    operations.chain(control::names()).chain(memory::names()).collect()
}

/// Whether a mnemonic without its ending is known for some operands.
pub fn knows(name: &str) -> bool {
    let name = Text::new(name).name;
    let plain = name.strip_prefix("v_dual_").map(|rest| format!("v_{rest}"));
    let name = plain.as_deref().unwrap_or(name);
    control::knows(name) || memory::knows(name) || crate::ops::find(name).is_some()
}
