//! The tables of mnemonics.

use gfx_emu::ops::names;

#[test]
fn each_mnemonic_has_one_entry() {
    let mut all: Vec<&str> = names().collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}
