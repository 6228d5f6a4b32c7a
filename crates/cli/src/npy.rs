//! Numpy's `.npy` files, for arrays of numbers.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ort_client::Element;

use crate::ort::{Array, Numeric};
use crate::replace;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Reads a file.
///
/// # Errors
/// When it cannot be read, is not such a file, or its content is not supported.
pub fn read(path: &Path) -> Result<Array> {
    let mut bytes = Vec::new();
    let read = textgen::open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.with_context(|| format!("{} could not be read", path.display()))?;
    parse(&bytes).with_context(|| format!("{} could not be used", path.display()))
}

/// Writes a file. Floats that numpy lacks are written as float32, which represents them exactly.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, array: &Array) -> Result<()> {
    replace::write(path, &to_bytes(array))
}

/// The content of a file. Floats that numpy lacks are written as float32, which represents them exactly.
pub fn to_bytes(array: &Array) -> Vec<u8> {
    if array.element().numpy().is_empty() {
        return to_bytes(&array.cast(Element::F32));
    }
    let order = if array.element().bytes() == 1 { '|' } else { '<' };
    let extents: Vec<String> = array.shape().iter().map(|extent| format!("{extent},")).collect();
    let shape = extents.join(" ");
    let code = array.element().numpy();
    let mut header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data starts at a multiple of 64 bytes; a newline ends the header.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', used.next_multiple_of(64) - used));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    // A header beyond 65535 characters would need thousands of axes, more than ONNX Runtime supports.
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(array.bytes());
    bytes
}

/// Parses the content of a file.
///
/// # Errors
/// When it is not such a file, or its content is not supported.
pub fn parse(bytes: &[u8]) -> Result<Array> {
    let rest = bytes.strip_prefix(MAGIC).context("it is not a .npy file\n  help: write it with numpy.save")?;
    let cut = "it ends too early";
    let (version, rest) = rest.split_at_checked(2).context(cut)?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>().context(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk::<4>().context(cut)?;
            (usize::try_from(u32::from_le_bytes(*length))?, rest)
        }
        other => bail!("its format version {other} is not supported"),
    };
    let (header, content) = rest.split_at_checked(length).context(cut)?;
    let header = std::str::from_utf8(header).context("its header is not valid text")?;
    let (element, swap) = element(field(header, "descr")?)?;
    if field(header, "fortran_order")?.starts_with("True") {
        bail!("it is in Fortran order\n  help: save numpy.ascontiguousarray(x)");
    }
    let shape = shape(field(header, "shape")?)?;
    let mut content = content.to_vec();
    if swap {
        content.chunks_exact_mut(element.bytes()).for_each(<[u8]>::reverse);
    }
    let bytes = content.len();
    Array::new(element, shape.clone(), content)
        .with_context(|| format!("its {bytes} bytes do not fill {} {shape:?}", element.name()))
}

/// The text after a key of the header, which is a Python literal.
fn field<'h>(header: &'h str, key: &str) -> Result<&'h str> {
    let found = ['\'', '"'].iter().find_map(|quote| header.split_once(&format!("{quote}{key}{quote}")));
    let value = found.and_then(|(_, rest)| rest.trim_start().strip_prefix(':')).map(str::trim_start);
    value.with_context(|| format!("its header has no {key}"))
}

/// The element type, and whether its bytes have to be swapped.
fn element(text: &str) -> Result<(Element, bool)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
    let code = quote.and_then(|quote| text[1..].split(quote).next()).context("it holds records, not numbers")?;
    let (order, name) = match code.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), name)) => (order, name),
        _ => ("=", code),
    };
    match Element::from_numpy(name) {
        Some(element) => Ok((element, order == ">")),
        None => {
            bail!("its type {code:?} is not supported; expected float16/32/64, int8 to int64, uint8 to uint64 or bool")
        }
    }
}

fn shape(text: &str) -> Result<Vec<usize>> {
    let inner = text.strip_prefix('(').and_then(|rest| rest.split_once(')')).context("its shape is not a tuple")?.0;
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.trim_end_matches('L').parse().with_context(|| format!("its shape holds {part:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(header: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(content);
        bytes
    }

    #[test]
    fn reads_what_numpy_writes() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n";
        let array = parse(&file(header, &[1, 0, 0xff, 0xff])).unwrap();
        assert_eq!((array.element(), array.shape()), (Element::I16, &[2][..]));
        assert_eq!(array.numbers().collect::<Vec<_>>(), [1.0, -1.0]);
        let scalar = parse(&file("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", &[1])).unwrap();
        assert_eq!((scalar.element(), scalar.shape().len()), (Element::Bool, 0));
    }

    #[test]
    fn other_byte_order_is_swapped() {
        let array = parse(&file("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }", &[0, 0, 1, 2])).unwrap();
        assert_eq!(array.numbers().collect::<Vec<_>>(), [258.0]);
    }

    #[test]
    fn says_what_is_wrong() {
        let wrong = |bytes: &[u8], want: &str| {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        wrong(b"PK\x03\x04", "not a .npy file");
        wrong(MAGIC, "too early");
        wrong(&file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", &[0; 16]), "Fortran");
        wrong(&file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", &[0; 15]), "15 bytes");
        wrong(&file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]), "\"<c8\"");
        wrong(&file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", &[0; 4]), "records");
        wrong(&file("{'fortran_order': False}", &[]), "no descr");
        wrong(&file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", &[]), "\"-1\"");
    }

    #[test]
    fn bfloat16_is_written_as_float32() {
        let array = Array::new(Element::Bf16, vec![1], vec![0x80, 0x3f]).unwrap();
        let read = parse(&to_bytes(&array)).unwrap();
        assert_eq!((read.element(), read.numbers().next()), (Element::F32, Some(1.0)));
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(shape in prop::collection::vec(0usize..4, 0..5), code in 0usize..12) {
            let codes = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"];
            let element = Element::from_numpy(codes[code]).unwrap();
            let count = shape.iter().product::<usize>() * element.bytes();
            let content = (0..count).map(|at| (at % 2) as u8).collect();
            let array = Array::new(element, shape, content).unwrap();
            let bytes = to_bytes(&array);
            prop_assert_eq!((bytes.len() - array.bytes().len()) % 64, 0);
            prop_assert_eq!(parse(&bytes).unwrap(), array);
        }

        #[test]
        fn any_bytes_are_handled(header in ".*", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
            if header.len() < 60000 {
                let _ = parse(&file(&header, &bytes));
            }
        }
    }
}
