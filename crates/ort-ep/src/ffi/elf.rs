//! Detects truncated library files.
//!
//! The loader maps what the headers describe without checking the file's size. A library truncated by an interrupted
//! copy or a full disk then crashes with a bus error at the first access to a missing page.
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Size of a 64-bit ELF header, and of one program header.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// The number of bytes missing from a library's file. Files that cannot be read or are not 64-bit little-endian ELF are
/// left to the loader, which reports them better.
pub(super) fn missing_bytes(file: &Path) -> Option<u64> {
    let mut file = File::open(file).ok()?;
    let size = file.metadata().ok().filter(|metadata| metadata.is_file())?.len();
    let promised = promised_bytes(&mut file).ok()??;
    promised.checked_sub(size).filter(|&missing| missing > 0)
}

/// The end of the last part that the headers describe.
fn promised_bytes(file: &mut impl Read) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (programs, sections) = (word(&header, 32), word(&header, 40));
    let (program_count, section_bytes, section_count) = (half(&header, 56), half(&header, 58), half(&header, 60));
    let mut end = sections.saturating_add(section_bytes * section_count);
    end = end.max(programs.saturating_add(PROGRAM_HEADER_BYTES as u64 * program_count));
    if programs == HEADER_BYTES as u64 && half(&header, 54) == PROGRAM_HEADER_BYTES as u64 {
        for _ in 0..program_count {
            let mut program = [0; PROGRAM_HEADER_BYTES];
            if file.read_exact(&mut program).is_err() {
                break;
            }
            let (offset, bytes) = (word(&program, 8), word(&program, 32));
            end = end.max(offset.saturating_add(bytes));
        }
    }
    Ok(Some(end))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 2)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, |bytes| u64::from(u16::from_le_bytes(bytes)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_library_is_detected() {
        let program = std::env::current_exe().unwrap();
        assert_eq!(missing_bytes(&program), None, "nothing is missing");
        let whole = std::fs::read(&program).unwrap();
        let cut = std::env::temp_dir().join(format!("ort-ep-cut-{}", std::process::id()));
        for kept in [HEADER_BYTES, HEADER_BYTES + 100, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&cut, &whole[..kept]).unwrap();
            assert!(missing_bytes(&cut).is_some(), "{kept} of {} bytes", whole.len());
        }
        for other in [&b""[..], b"text", &[0x7f; 200]] {
            std::fs::write(&cut, other).unwrap();
            assert_eq!(missing_bytes(&cut), None);
        }
        std::fs::remove_file(&cut).unwrap();
        assert_eq!(missing_bytes(&cut), None);
    }

    #[test]
    fn headers_of_any_content_are_handled() {
        for fill in [0, 1, 0x7f, 0xff] {
            let mut header = vec![fill; 300];
            header[..6].copy_from_slice(b"\x7fELF\x02\x01");
            let _ = promised_bytes(&mut &header[..]);
        }
    }
}
