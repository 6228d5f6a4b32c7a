//! The dynamic symbols of a 64-bit ELF image as a loader leaves it in memory: sections and debug information are missing.

use object::elf::{DT_HASH, DT_STRTAB, DT_SYMTAB, PT_DYNAMIC};

/// The most symbols of an image, and the longest name.
const MOST_SYMBOLS: u64 = 100_000;
const LONGEST_NAME: usize = 4096;

/// Bytes of a program header, of an entry of the dynamic table, and of a symbol.
const PROGRAM_HEADER: u64 = 56;
const DYNAMIC_ENTRY: u64 = 16;
const SYMBOL: u64 = 24;

/// Names and addresses, or `None` if the image is not an ELF file with a table of symbols.
pub(super) fn symbols(image: &[u8]) -> Option<Vec<(String, u64)>> {
    if !image.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (headers, count) = (word(image, 32)?, u64::from(half(image, 56)?));
    let header = |at: u64| headers.checked_add(at * PROGRAM_HEADER);
    let dynamic = (0..count).filter_map(header).find(|at| word32(image, *at) == Some(u64::from(PT_DYNAMIC.0)))?;
    let (first, bytes) = (word(image, dynamic.checked_add(16)?)?, word(image, dynamic.checked_add(40)?)?);
    let entry = |tag: i64| {
        let entries = (0..bytes / DYNAMIC_ENTRY).map_while(|at| first.checked_add(at * DYNAMIC_ENTRY));
        let found = entries.take(256).find(|at| word(image, *at) == Some(tag.cast_unsigned()));
        found.and_then(|at| word(image, at.checked_add(8)?))
    };
    let (table, names) = (entry(DT_SYMTAB.0)?, entry(DT_STRTAB.0)?);
    // The second word of the hash table is the number of symbols.
    let count = word32(image, entry(DT_HASH.0)?.checked_add(4)?)?.min(MOST_SYMBOLS);
    let symbol = |at: u64| {
        let at = table.checked_add(at * SYMBOL)?;
        let name = names.checked_add(word32(image, at)?)?;
        let text = image.get(usize::try_from(name).ok()?..)?;
        let end = text.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?;
        Some((String::from_utf8_lossy(&text[..end]).into_owned(), word(image, at.checked_add(8)?)?))
    };
    Some((0..count).filter_map(symbol).collect())
}

fn bytes<const N: usize>(image: &[u8], at: u64) -> Option<[u8; N]> {
    image.get(usize::try_from(at).ok()?..)?.first_chunk().copied()
}

fn word(image: &[u8], at: u64) -> Option<u64> {
    bytes(image, at).map(u64::from_le_bytes)
}

fn word32(image: &[u8], at: u64) -> Option<u64> {
    bytes(image, at).map(u32::from_le_bytes).map(u64::from)
}

fn half(image: &[u8], at: u64) -> Option<u16> {
    bytes(image, at).map(u16::from_le_bytes)
}
