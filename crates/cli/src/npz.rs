//! Numpy's `.npz` files: zip archives of `.npy` files, stored (`savez`) or deflated (`savez_compressed`).

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::DeflateDecoder;

use crate::npy;
use crate::ort::Array;

/// The end record of an archive is within this many bytes: 22 bytes, and a comment.
const LARGEST_END_BYTES: u64 = 22 + u16::MAX as u64;
/// A 32-bit field with this value refers to a 64-bit extra field.
const ELSEWHERE: u32 = u32::MAX;

/// Reads all arrays of a file, with their names.
///
/// # Errors
/// When it cannot be read, is not such a file, or its content is not supported.
pub fn read(path: &Path) -> Result<Vec<(String, Array)>> {
    let mut file = textgen::open_regular(path).with_context(|| format!("{} could not be read", path.display()))?;
    arrays(&mut file).with_context(|| format!("{} could not be used", path.display()))
}

fn arrays(file: &mut (impl Read + Seek)) -> Result<Vec<(String, Array)>> {
    let directory = directory(file)?;
    let mut rest = Fields(&directory);
    let mut arrays = Vec::new();
    while !rest.0.is_empty() {
        let entry = Entry::read(&mut rest)?;
        // Numpy stores array `x` in the file `x.npy`.
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
        let array = entry.content(file).and_then(|content| npy::parse(&content));
        arrays.push((name, array.with_context(|| format!("its entry {:?}", entry.name))?));
    }
    Ok(arrays)
}

/// The central directory, which lists the entries of the archive.
fn directory(file: &mut (impl Read + Seek)) -> Result<Vec<u8>> {
    let length = file.seek(SeekFrom::End(0)).context("its length could not be found")?;
    let tail_start = length.saturating_sub(LARGEST_END_BYTES);
    let tail = bytes(file, tail_start, length - tail_start)?;
    let end = tail.windows(4).rposition(|window| window == b"PK\x05\x06");
    let end = end.context("it is not an .npz file\n  help: write it with numpy.savez")?;
    let mut fields = Fields(&tail[end + 4..]);
    fields.take(8)?;
    let (size, start) = (fields.u32()?, fields.u32()?);
    if start == ELSEWHERE || size == ELSEWHERE {
        bail!("it is larger than 4 GiB\n  help: save its arrays with numpy.save, one file each");
    }
    bytes(file, start.into(), size.into())
}

/// Reads an exact number of bytes, without allocating memory for bytes that do not exist.
fn bytes(file: &mut (impl Read + Seek), start: u64, length: u64) -> Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start)).context("it could not be read")?;
    let mut found = Vec::new();
    file.take(length).read_to_end(&mut found).context("it could not be read")?;
    if found.len() as u64 != length {
        bail!("it ends too early");
    }
    Ok(found)
}

/// A file in the archive.
struct Entry {
    name: String,
    method: u16,
    stored: u64,
    length: u64,
    /// Offset of its local header, which repeats much of this.
    start: u64,
}

impl Entry {
    fn read(fields: &mut Fields<'_>) -> Result<Entry> {
        if fields.take(4)? != b"PK\x01\x02" {
            bail!("its list of entries is damaged");
        }
        fields.take(4)?;
        let flags = fields.u16()?;
        if flags & 1 != 0 {
            bail!("it is encrypted");
        }
        let method = fields.u16()?;
        fields.take(8)?;
        let (stored, length) = (fields.u32()?, fields.u32()?);
        let (name, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
        fields.take(8)?;
        let start = fields.u32()?;
        let name = String::from_utf8_lossy(fields.take(name.into())?).into_owned();
        let mut wide = wide(fields.take(extra.into())?)?;
        fields.take(comment.into())?;
        // The extra field contains only those that do not fit, in this order.
        let mut number = |field: u32| if field == ELSEWHERE { wide.u64() } else { Ok(field.into()) };
        let (length, stored, start) = (number(length)?, number(stored)?, number(start)?);
        Ok(Entry { name, method, stored, length, start })
    }

    fn content(&self, file: &mut (impl Read + Seek)) -> Result<Vec<u8>> {
        let header = bytes(file, self.start, 30)?;
        let mut fields = Fields(&header);
        if fields.take(4)? != b"PK\x03\x04" {
            bail!("it is not where the archive says");
        }
        fields.take(22)?;
        let skipped = u64::from(fields.u16()?) + u64::from(fields.u16()?);
        let stored = bytes(file, self.start + 30 + skipped, self.stored)?;
        let content = match self.method {
            0 => stored,
            8 => {
                let mut content = Vec::new();
                // One byte more than announced is enough to detect excess data.
                let mut rest = DeflateDecoder::new(stored.as_slice()).take(self.length.saturating_add(1));
                rest.read_to_end(&mut content).context("it could not be inflated")?;
                content
            }
            other => bail!("it is compressed by method {other}\n  help: numpy.savez and savez_compressed use 0 and 8"),
        };
        if content.len() as u64 != self.length {
            bail!("it has {} bytes, and {} were written", content.len(), self.length);
        }
        Ok(content)
    }
}

/// The 64-bit values among the extra fields.
fn wide(extra: &[u8]) -> Result<Fields<'_>> {
    let mut rest = Fields(extra);
    while !rest.0.is_empty() {
        let (kind, length) = (rest.u16()?, rest.u16()?);
        let content = rest.take(length.into())?;
        if kind == 1 {
            return Ok(Fields(content));
        }
    }
    Ok(Fields(&[]))
}

/// Reads consecutive little-endian numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, count: usize) -> Result<u64> {
        Ok(self.take(count)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> Result<u64> {
        self.number(8)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::{Compression, write::DeflateEncoder};
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
            let name = format!("{name}.npy");
            let (method, start) = (if deflate { 8u16 } else { 0 }, all.len() as u32);
            let lengths = [stored.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat();
            let name_length = (name.len() as u16).to_le_bytes();
            all.extend(b"PK\x03\x04\x2d\0\0\0");
            all.extend(method.to_le_bytes());
            all.extend([0; 8]);
            all.extend([0xff; 8]);
            all.extend(name_length);
            all.extend(20u16.to_le_bytes());
            all.extend(name.as_bytes());
            all.extend([1, 0, 16, 0]);
            all.extend([content.len() as u64, stored.len() as u64].map(u64::to_le_bytes).concat());
            all.extend(&stored);
            list.extend(b"PK\x01\x02\x2d\x03\x2d\0\0\0");
            list.extend(method.to_le_bytes());
            list.extend([0; 8]);
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
        arrays(&mut Cursor::new(bytes))
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
        assert!(error(&longer).contains("were written"), "{}", error(&longer));
        let mut moved = good;
        moved[at + 42] = 1;
        assert!(error(&moved).contains("it is not where the archive says"), "{}", error(&moved));
    }

    proptest! {
        #[test]
        fn damaged_archives_are_survived(deflate: bool, at in 0usize..400, byte: u8, cut in 0usize..500) {
            let mut bytes = archive(&[("x", &array(&[5; 100]))], deflate);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = parsed(&bytes);
            bytes.truncate(cut);
            let _ = parsed(&bytes);
        }
    }
}
