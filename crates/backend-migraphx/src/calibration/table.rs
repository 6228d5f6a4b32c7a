//! The two table formats: MIGraphX's text, and the FlatBuffers file written by ONNX Runtime's tools.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::CalibrationError;

/// The largest magnitude of each value, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ranges(BTreeMap<String, f32>);

impl Ranges {
    /// Reads a table: MIGraphX's (and TensorRT's) text format if `native`, otherwise ONNX Runtime's.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn read(file: &Path, native: bool) -> Result<Self, CalibrationError> {
        let bytes = fs::read(file)
            .map_err(|error| CalibrationError::Unreadable { file: file.to_owned(), reason: error.to_string() })?;
        let read = if native { native_text(&bytes) } else { flatbuffer(&bytes) };
        let all = read.map_err(|reason| CalibrationError::Broken { file: file.to_owned(), reason })?;
        // Tools write a zero range for values they never saw.
        Ok(Self(all.into_iter().filter(|(_, range)| range.is_finite() && *range > 0.0).collect()))
    }

    pub fn get(&self, name: &str) -> Option<f32> {
        self.0.get(name).copied()
    }

    /// The number of values with a range.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Identifies the content.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for (name, range) in &self.0 {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(&range.to_le_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, f32); N]> for Ranges {
    fn from(ranges: [(&str, f32); N]) -> Self {
        Self(ranges.into_iter().map(|(name, range)| (name.to_owned(), range)).collect())
    }
}

/// The text format: a header that names its writer, then lines with a name and the bits of a scale. The range is 127
/// times the scale.
fn native_text(bytes: &[u8]) -> Result<BTreeMap<String, f32>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    if !head.split(':').next().is_some_and(|writer| writer.contains("MGX-") || writer.contains("TRT-")) {
        return Err("its first line starts with neither MGX- nor TRT-");
    }
    let mut ranges = BTreeMap::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        // Names may contain colons, numbers may not.
        let (name, bits) = line.rsplit_once(':').ok_or("a line has no colon")?;
        let bits = u32::from_str_radix(bits.trim(), 16).map_err(|_| "a scale is not a hexadecimal number")?;
        ranges.insert(name.trim().to_owned(), f32::from_bits(bits) * 127.0);
    }
    Ok(ranges)
}

/// The FlatBuffers format: a table with one list of string pairs.
fn flatbuffer(bytes: &[u8]) -> Result<BTreeMap<String, f32>, &'static str> {
    const CUT: &str = "an offset is beyond the end of the file";
    let buffer = Buffer(bytes);
    let pairs = buffer.reference(0).and_then(|root| buffer.field(root, 0)).ok_or(CUT)?;
    let mut ranges = BTreeMap::new();
    let Some(pairs) = pairs else { return Ok(ranges) };
    let list = buffer.reference(pairs).ok_or(CUT)?;
    for index in 0..buffer.u32(list).ok_or(CUT)? as usize {
        let pair = index.checked_mul(4).and_then(|at| buffer.reference(list.checked_add(4)?.checked_add(at)?));
        let pair = pair.ok_or(CUT)?;
        let text = |field| buffer.field(pair, field).and_then(|place| buffer.text(place?)).ok_or(CUT);
        let range = text(1)?.trim().parse().map_err(|_| "a range is not a number")?;
        ranges.insert(text(0)?.to_owned(), range);
    }
    Ok(ranges)
}

/// Reads the FlatBuffers layout. Any offset may be invalid.
struct Buffer<'a>(&'a [u8]);

impl<'a> Buffer<'a> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..)?.first_chunk().copied()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..)?.first_chunk().copied()?))
    }

    /// Follows the offset at `at`.
    fn reference(&self, at: usize) -> Option<usize> {
        at.checked_add(self.u32(at)? as usize)
    }

    /// The position of a table's field; the inner `None` is an omitted field.
    fn field(&self, table: usize, number: usize) -> Option<Option<usize>> {
        let back = i64::from(self.u32(table)?.cast_signed());
        let layout = usize::try_from(i64::try_from(table).ok()? - back).ok()?;
        let entry = 4 + 2 * number;
        if entry >= usize::from(self.u16(layout)?) {
            return Some(None);
        }
        let offset = self.u16(layout.checked_add(entry)?)?;
        Some((offset != 0).then_some(table.checked_add(usize::from(offset))?))
    }

    fn text(&self, at: usize) -> Option<&'a str> {
        let start = self.reference(at)?;
        let length = self.u32(start)? as usize;
        std::str::from_utf8(self.0.get(start.checked_add(4)?..)?.get(..length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_tables_hold_scales_of_names_with_colons() {
        let text = b"MGX-2014-EntropyCalibration: 1\nx: 3c010204\n main:0 : 3f800000\n\nnever: 00000000\n";
        let ranges = native_text(text).unwrap();
        assert!((ranges["x"] - 1.0).abs() < 1e-6, "{ranges:?}");
        assert_eq!(ranges["main:0"], 127.0);
        assert!(native_text(b"x: 3c010204\n").is_err(), "the head is missing");
        assert!(native_text(b"TRT-1\nx 3c\n").is_err() && native_text(b"TRT-1\nx: zz\n").is_err());
    }

    /// `{dict: [{key: "x", value: "2.5"}]}`, laid out by hand.
    fn one_pair() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut words = |words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        words(&[12]); // the root table is at 12
        words(&[0x0008_0006, 4]); // its vtable at 4: 6 bytes long, tables of 8, the only field at 4
        words(&[8, 4]); // the root: vtable 8 bytes back, its list at 16 + 4
        words(&[1, 16]); // the list at 20: one pair, at 24 + 16
        words(&[0x000c_0008, 0x0008_0004]); // the pair's vtable at 28: 8 bytes long, tables of 12, fields at 4 and 8
        words(&[0]); // padding
        words(&[12, 8, 12]); // the pair at 40: vtable 12 bytes back, strings at 44 + 8 and 48 + 12
        words(&[1, u32::from(b'x')]); // the key at 52
        words(&[3, u32::from_le_bytes(*b"2.5\0")]); // the value at 60
        bytes
    }

    #[test]
    fn flatbuffers_tables_hold_ranges() {
        assert_eq!(flatbuffer(&one_pair()), Ok(BTreeMap::from([("x".to_owned(), 2.5)])));
    }

    #[test]
    fn values_never_observed_have_no_range() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table");
        fs::write(&file, "TRT-1\nx: 00000000\ny: 7fc00000\nz: 3f800000\n").unwrap();
        assert_eq!(Ranges::read(&file, true), Ok(Ranges::from([("z", 127.0)])));
        let error = Ranges::read(&folder.path().join("none"), true).unwrap_err();
        assert!(error.to_string().contains("could not read"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_an_error(bytes: Vec<u8>, at in 0..68_usize, byte: u8) {
            let _ = flatbuffer(&bytes);
            let _ = native_text(&bytes);
            let mut damaged = one_pair();
            damaged[at] = byte;
            let _ = flatbuffer(&damaged);
            for length in 0..damaged.len() {
                let _ = flatbuffer(&damaged[..length]);
            }
        }
    }
}
