//! Numpy's `.npz` files: zip archives of `.npy` files, stored (`savez`) or deflated (`savez_compressed`).

use std::io::{Read, Seek};
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use crate::npy;
use crate::ort::Array;

/// Reads all arrays of a file, with their names.
///
/// # Errors
/// When it cannot be read, is not such a file, or its content is not supported.
pub fn read(path: &Path) -> Result<Vec<(String, Array)>> {
    let file = textgen::open_regular(path).with_context(|| format!("{} could not be read", path.display()))?;
    arrays(file).with_context(|| format!("{} could not be used", path.display()))
}

fn arrays(file: impl Read + Seek) -> Result<Vec<(String, Array)>> {
    let archive = ZipArchive::new(file);
    let mut archive = archive.context("it is not an .npz file\n  help: write it with numpy.savez")?;
    let mut arrays = Vec::new();
    for at in 0..archive.len() {
        let name = archive.name_for_index(at).context("it ends too early")?;
        let entry = name.context("the name of an entry cannot be read")?.into_owned();
        let content = archive.by_index(at).map_err(refused).and_then(content);
        let array = content.and_then(|content| npy::parse(&content));
        // Numpy stores array `x` in the file `x.npy`.
        let name = entry.strip_suffix(".npy").unwrap_or(&entry).to_owned();
        arrays.push((name, array.with_context(|| format!("its entry {entry:?}"))?));
    }
    Ok(arrays)
}

/// Why an entry cannot be used.
fn refused(error: ZipError) -> Error {
    match error {
        ZipError::CompressionMethodNotSupported(method) => Error::msg(format!(
            "it is compressed by method {method}\n  help: numpy.savez and savez_compressed use 0 and 8"
        )),
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => Error::msg("it is encrypted"),
        ZipError::InvalidArchive(_) => Error::new(error).context("it is not at the position that the archive records"),
        other => other.into(),
    }
}

/// Reads an entry, without allocating memory for bytes that do not exist.
fn content(entry: ZipFile<'_, impl Read>) -> Result<Vec<u8>> {
    let (length, mut content) = (entry.size(), Vec::new());
    // One byte more than announced is enough to detect excess data.
    entry.take(length.saturating_add(1)).read_to_end(&mut content).map_err(|error| match error.downcast() {
        Ok(error) => refused(error),
        Err(error) => Error::new(error).context("it could not be read"),
    })?;
    if content.len() as u64 != length {
        bail!("it has {} bytes, but the archive records {length}", content.len());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;

    use super::*;
    use ort_client::Element;

    fn array(values: &[u8]) -> Array {
        Array::new(Element::U8, vec![values.len()], values.to_vec()).unwrap()
    }

    /// An archive as numpy writes it: 64-bit sizes in the local headers, 32-bit ones in the directory.
    fn archive(arrays: &[(&str, &Array)], deflate: bool) -> Vec<u8> {
        let (mut all, mut list) = (Vec::new(), Vec::new());
        for (name, array) in arrays {
            let content = npy::to_bytes(array);
            let stored = if deflate {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&content).unwrap();
                encoder.finish().unwrap()
            } else {
                content.clone()
            };
            let mut checksum = flate2::Crc::new();
            checksum.update(&content);
            let checksum = checksum.sum().to_le_bytes();
            let name = format!("{name}.npy");
            let (method, start) = (if deflate { 8u16 } else { 0 }, all.len() as u32);
            let lengths = [stored.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat();
            let name_length = (name.len() as u16).to_le_bytes();
            all.extend(b"PK\x03\x04\x2d\0\0\0");
            all.extend(method.to_le_bytes());
            all.extend([0; 4]);
            all.extend(checksum);
            all.extend([0xff; 8]);
            all.extend(name_length);
            all.extend(20u16.to_le_bytes());
            all.extend(name.as_bytes());
            all.extend([1, 0, 16, 0]);
            all.extend([content.len() as u64, stored.len() as u64].map(u64::to_le_bytes).concat());
            all.extend(&stored);
            list.extend(b"PK\x01\x02\x2d\x03\x2d\0\0\0");
            list.extend(method.to_le_bytes());
            list.extend([0; 4]);
            list.extend(checksum);
            list.extend(lengths);
            list.extend(name_length);
            list.extend([0; 12]);
            list.extend(start.to_le_bytes());
            list.extend(name.as_bytes());
        }
        let start = (all.len() as u32).to_le_bytes();
        all.extend(&list);
        all.extend(b"PK\x05\x06\0\0\0\0");
        all.extend([(arrays.len() as u16).to_le_bytes(); 2].concat());
        all.extend((list.len() as u32).to_le_bytes());
        all.extend(start);
        all.extend([0, 0]);
        all
    }

    fn parsed(bytes: &[u8]) -> Result<Vec<(String, Array)>> {
        arrays(Cursor::new(bytes))
    }

    #[test]
    fn stored_and_deflated_arrays_are_read_by_name() {
        let (x, y) = (array(&[1, 2, 3]), array(&[7; 5000]));
        for deflate in [false, true] {
            let found = parsed(&archive(&[("x", &x), ("scope/y", &y)], deflate)).unwrap();
            assert_eq!(found, [("x".to_owned(), x.clone()), ("scope/y".to_owned(), y.clone())], "{deflate}");
        }
        assert_eq!(parsed(&archive(&[], false)).unwrap(), []);
    }

    #[test]
    fn says_what_is_wrong() {
        let error = |bytes: &[u8]| format!("{:#}", parsed(bytes).unwrap_err());
        assert!(error(b"\x93NUMPY").starts_with("it is not an .npz file\n  help: write it with numpy.savez"));
        let good = archive(&[("x", &array(&[1, 2, 3]))], true);
        let at = good.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        let mut other = good.clone();
        other[at + 10] = 12;
        assert!(error(&other).contains("its entry \"x.npy\": it is compressed by method 12"), "{}", error(&other));
        let mut longer = good.clone();
        longer[at + 24] -= 1;
        assert!(error(&longer).contains("larger than its declared uncompressed size"), "{}", error(&longer));
        let mut shorter = good.clone();
        shorter[at + 24] += 1;
        assert!(error(&shorter).contains("the archive records"), "{}", error(&shorter));
        let mut damaged = archive(&[("x", &array(&[1, 2, 3]))], false);
        let end = damaged.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        damaged[end - 1] ^= 1;
        assert!(error(&damaged).contains("its entry \"x.npy\": it could not be read"), "{}", error(&damaged));
        let mut moved = good;
        moved[at + 42] = 1;
        assert!(error(&moved).contains("it is not at the position that the archive records"), "{}", error(&moved));
    }

    proptest! {
        #[test]
        fn damaged_archives_are_handled(deflate: bool, at in 0usize..400, byte: u8, cut in 0usize..500) {
            let mut bytes = archive(&[("x", &array(&[5; 100]))], deflate);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = parsed(&bytes);
            bytes.truncate(cut);
            let _ = parsed(&bytes);
        }
    }
}
