//! Drivers take code objects without a length. These checks make sure that everything the headers refer to is present.

use std::borrow::Cow;

use crate::DriverKind;

const ELF: &[u8] = b"\x7fELF";
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const FATBIN: u32 = 0xba55_ed50;

/// The image in a form that the driver can read without a length, or the reason why that is impossible.
pub(super) fn checked(kind: DriverKind, image: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if image.starts_with(ELF) {
        return check_elf(image).map(|()| Cow::Borrowed(image)).ok_or_else(|| truncated("ELF", image));
    }
    if image.starts_with(BUNDLE) {
        return check_bundle(image).map(|()| Cow::Borrowed(image)).ok_or_else(|| truncated("offload bundle", image));
    }
    if kind == DriverKind::Nvidia {
        if number(image, 0, 4) == Some(u64::from(FATBIN)) {
            return check_fatbin(image).map(|()| Cow::Borrowed(image)).ok_or_else(|| truncated("fat binary", image));
        }
        // The rest is PTX: text that the driver reads up to a NUL.
        if image.contains(&0) {
            return Ok(Cow::Borrowed(image));
        }
        if image.trim_ascii_start().starts_with(b".") || image.trim_ascii_start().starts_with(b"//") {
            return Ok(Cow::Owned([image, b"\0"].concat()));
        }
    }
    Err(format!("{} bytes that are not a code object", image.len()))
}

fn truncated(form: &str, image: &[u8]) -> String {
    format!("the {form} is truncated: its headers extend past its {} bytes", image.len())
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(width)?)?;
    Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

fn inside(bytes: &[u8], offset: u64, length: u64) -> Option<()> {
    (offset.checked_add(length)? <= bytes.len() as u64).then_some(())
}

/// A 64-bit little-endian ELF file: both header tables and everything they point to.
fn check_elf(bytes: &[u8]) -> Option<()> {
    const SECTION_WITHOUT_BYTES: u64 = 8;
    if bytes.get(4..6)? != [2, 1] {
        return None;
    }
    let (segments, sections) = (number(bytes, 32, 8)?, number(bytes, 40, 8)?);
    let (segment_size, segment_count) = (number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let (section_size, section_count) = (number(bytes, 58, 2)?, number(bytes, 60, 2)?);
    inside(bytes, segments, segment_size * segment_count)?;
    inside(bytes, sections, section_size * section_count)?;
    for index in 0..segment_count {
        let at = usize::try_from(segments + index * segment_size).ok()?;
        inside(bytes, number(bytes, at + 8, 8)?, number(bytes, at + 32, 8)?)?;
    }
    for index in 0..section_count {
        let at = usize::try_from(sections + index * section_size).ok()?;
        if number(bytes, at + 4, 4)? != SECTION_WITHOUT_BYTES {
            inside(bytes, number(bytes, at + 24, 8)?, number(bytes, at + 32, 8)?)?;
        }
    }
    Some(())
}

/// clang's bundle: a count, then the offset, size, name length and name of each entry.
fn check_bundle(bytes: &[u8]) -> Option<()> {
    let count = number(bytes, BUNDLE.len(), 8)?;
    let mut at = BUNDLE.len() + 8;
    for _ in 0..count {
        inside(bytes, number(bytes, at, 8)?, number(bytes, at + 8, 8)?)?;
        let name = usize::try_from(number(bytes, at + 16, 8)?).ok()?;
        at = at.checked_add(24)?.checked_add(name)?;
        inside(bytes, at as u64, 0)?;
    }
    Some(())
}

/// CUDA's fat binary: magic, version, header size, payload size.
fn check_fatbin(bytes: &[u8]) -> Option<()> {
    inside(bytes, number(bytes, 6, 2)?, number(bytes, 8, 8)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn whole_elf_passes_and_a_truncated_one_does_not() {
        // This test binary is a complete ELF file of the same class.
        let elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(checked(DriverKind::Amd, &elf).is_ok());
        assert!(checked(DriverKind::Nvidia, &elf).is_ok());
        for kept in [4, 63, 64, 4096, elf.len() - 1] {
            let reason = checked(DriverKind::Amd, &elf[..kept]).unwrap_err();
            assert!(reason.contains("truncated"), "{kept}: {reason}");
        }
    }

    #[test]
    fn ptx_text_gains_its_nul_on_the_twin_only() {
        let image = checked(DriverKind::Nvidia, b"\n.version 8.0").unwrap();
        assert_eq!(image.last(), Some(&0));
        assert!(checked(DriverKind::Amd, b".version 8.0\0").is_err());
    }

    #[test]
    fn text_is_not_a_code_object() {
        let reason = checked(DriverKind::Amd, b"hello").unwrap_err();
        assert_eq!(reason, "5 bytes that are not a code object");
        assert!(checked(DriverKind::Amd, b"").is_err());
    }

    proptest! {
        #[test]
        fn headers_of_any_content_are_handled(tail in proptest::collection::vec(any::<u8>(), 0..512), form in 0..3) {
            let head: &[u8] = match form {
                0 => b"\x7fELF\x02\x01",
                1 => BUNDLE,
                _ => &[0x50, 0xed, 0x55, 0xba],
            };
            let _ = checked(DriverKind::Nvidia, &[head, &tail].concat());
        }
    }
}
