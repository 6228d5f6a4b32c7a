//! Instructions that clang 19 does not assemble: they are executed from the disassembler's text.

use super::assembler::SETTINGS;
use super::lanes::{Case, Same, run};

/// Compares one row on a target.
pub fn each(
    target: &'static str,
    text: &'static str,
    values: &'static [u64],
    bits: u32,
    want: &'static dyn Fn([u64; 3]) -> u64,
) {
    each_as(target, text, values, (bits, Same::Bits), want);
}

/// The same with another comparison.
pub fn each_as(
    target: &'static str,
    text: &'static str,
    values: &'static [u64],
    (bits, same): (u32, Same),
    want: &'static dyn Fn([u64; 3]) -> u64,
) {
    let name = text.split(' ').next().unwrap();
    let case = Case { text: text.to_owned(), ..Case::new(name, "", (values, bits, same), want) };
    for setting in SETTINGS.into_iter().filter(|setting| setting.target == target) {
        run(&case, name, setting, &[setting.written(text)]);
    }
}
