use std::collections::BTreeMap;

use graph::ops::{Attribute, Attributes};
use graph::{DType, Tensor};
use proptest::prelude::*;

use super::read::read;
use super::write::{seal, write};
use super::{ARCH, FORMAT, HEADER_BYTES, MAGIC, SavedError, VERSION, checksum};
use crate::record::{NodeRecord, Record, ValueRecord};

fn value(name: &str, dtype: DType, rank: Option<usize>, constant: Option<Tensor>) -> ValueRecord {
    ValueRecord { name: name.to_owned(), dtype, rank, constant }
}

/// One node with an attribute of every kind.
fn record() -> Record {
    let attributes = [
        ("int", Attribute::Int(-1)),
        ("ints", Attribute::Ints(vec![i64::MIN, 0, i64::MAX])),
        ("float", Attribute::Float(-0.0)),
        ("floats", Attribute::Floats(vec![1.5, f32::INFINITY])),
        ("text", Attribute::Text("größe\0".to_owned())),
        ("texts", Attribute::Texts(vec![String::new(), "x".to_owned()])),
        ("tensor", Attribute::Tensor(Tensor::from_i64s(&[1, -2, 3]))),
        ("other", Attribute::Other),
    ];
    let weight = Tensor::from_bytes(DType::F16, &[3], &[0, 1, 2, 3, 4, 5]).unwrap();
    Record {
        values: vec![
            value("x", DType::F16, Some(2), None),
            value("w", DType::F16, Some(1), Some(weight)),
            value("", DType::F16, None, None),
        ],
        nodes: vec![NodeRecord {
            name: "sum".to_owned(),
            domain: String::new(),
            op_type: "Add".to_owned(),
            since_version: 14,
            attributes: Attributes(attributes.map(|(name, value)| (name.to_owned(), value)).into()),
            inputs: vec![Some(0), Some(1), None],
            outputs: vec![Some(2), None],
        }],
        inputs: vec![0],
        outputs: vec![2],
    }
}

#[test]
fn a_partition_reads_back_as_it_was_saved() {
    assert_eq!(read(&write(&record())).unwrap(), record());
    assert_eq!(read(&write(&Record::default())).unwrap(), Record::default());
}

#[test]
fn a_partition_read_back_becomes_the_same_graph() {
    let mut simple = record();
    simple.nodes[0].inputs.pop();
    let graph = simple.clone().into_graph().unwrap();
    let again = read(&write(&simple)).unwrap().into_graph().unwrap();
    assert_eq!(graph.to_string(), again.to_string());
}

#[test]
fn every_element_type_reads_back() {
    for dtype in DType::ALL.into_iter().chain(DType::FLOAT8) {
        let tensor = Tensor::from_bytes(dtype, &[1, 2], &vec![1; 2 * dtype.bytes()]).unwrap();
        let record = Record { values: vec![value("v", dtype, Some(2), Some(tensor))], ..Record::default() };
        assert_eq!(read(&write(&record)).unwrap(), record, "{dtype}");
    }
}

#[test]
fn errors_say_what_is_wrong_with_a_blob() {
    let blob = write(&record());
    assert!(matches!(read(b""), Err(SavedError::Foreign { .. })));
    assert_eq!(read(b"\x08\x07other bytes"), Err(SavedError::Foreign { found: "\\x08\\x07other ".to_owned() }));
    let mut later = blob.clone();
    later[MAGIC.len()] = 2;
    let error = read(&later).unwrap_err();
    assert_eq!(error, SavedError::Format { found: 2 });
    assert!(error.to_string().contains("format 2, but this library (0.1.0) reads format 1"), "{error}");
    let mut flipped = blob.clone();
    flipped[HEADER_BYTES + 3] ^= 0x80;
    assert!(matches!(read(&flipped), Err(SavedError::Damaged { .. })));
    assert!(matches!(read(&blob[..blob.len() - 1]), Err(SavedError::Damaged { .. })));
    let arch_at = HEADER_BYTES + 8 + VERSION.len() + 8;
    let mut elsewhere = blob.clone();
    elsewhere[arch_at..arch_at + ARCH.len()].copy_from_slice(b"gfx");
    assert_eq!(read(&seal(elsewhere)), Err(SavedError::Arch { found: "gfx".to_owned() }));
    let mut longer = blob;
    longer.push(0);
    assert!(matches!(read(&seal(longer)), Err(SavedError::Malformed { .. })));
}

#[test]
fn inconsistent_records_are_rejected() {
    let broken: [fn(&mut Record); 6] = [
        |record| record.inputs = vec![7],
        |record| record.outputs = vec![u32::MAX],
        |record| record.nodes[0].inputs[0] = Some(9),
        |record| record.nodes[0].outputs[0] = Some(9),
        |record| record.nodes[0].op_type = "Nothing".to_owned(),
        |record| record.inputs.clear(),
    ];
    for (at, change) in broken.iter().enumerate() {
        let mut record = record();
        change(&mut record);
        assert!(record.into_graph().is_err(), "{at}");
    }
}

#[test]
fn swapped_and_paired_changes_are_detected() {
    let bytes: Vec<u8> = (0..64).collect();
    let mut swapped = bytes.clone();
    swapped.swap(0, 8);
    let mut signs = bytes.clone();
    signs[7] ^= 0x80;
    signs[15] ^= 0x80;
    let sums: BTreeMap<_, _> = [&bytes, &swapped, &signs].into_iter().map(|bytes| (checksum(bytes), ())).collect();
    assert_eq!(sums.len(), 3);
    assert_ne!(checksum(&[0; 8]), checksum(&[0; 9]));
}

/// A blob with a valid checksum over any body.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut blob = vec![0; HEADER_BYTES];
    blob.extend(body);
    seal(blob)
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), ours in any::<bool>()) {
        let start: &[u8] = if ours { &MAGIC } else { &[] };
        prop_assert!(read(&[start, &bytes].concat()).is_err());
    }

    #[test]
    fn any_truncation_or_flipped_bit_is_refused(cut in 0usize..1000, at in 0usize..1000, bit in 0u8..8) {
        let blob = write(&record());
        prop_assert!(read(&blob[..cut % blob.len()]).is_err());
        let mut flipped = blob.clone();
        flipped[at % blob.len()] ^= 1 << bit;
        prop_assert!(read(&flipped).is_err());
    }

    /// The checksum is not a security measure, so the reader must be robust on its own.
    #[test]
    fn a_forgery_with_a_valid_checksum_never_panics(
        changes in prop::collection::vec((0usize..1000, any::<u8>()), 1..6), cut in 0usize..1000,
    ) {
        let blob = write(&record());
        let mut body = blob[HEADER_BYTES..].to_vec();
        for (at, byte) in changes {
            let at = at % body.len();
            body[at] = byte;
        }
        for body in [&body[..], &body[..cut % body.len()]] {
            if let Ok(record) = read(&sealed(body)) {
                let _ = record.into_graph();
            }
        }
    }

    /// Lengths of up to 2⁶⁴ in a few bytes: the reader must not allocate memory for them.
    #[test]
    fn absurd_lengths_are_refused(at in 0usize..1000, length in (1u64 << 32)..) {
        let blob = write(&record());
        let mut body = blob[HEADER_BYTES..].to_vec();
        let at = at % (body.len() - 8);
        body[at..at + 8].copy_from_slice(&length.to_le_bytes());
        let _ = read(&sealed(&body));
    }

    #[test]
    fn the_format_number_is_checked(format in any::<u32>()) {
        let mut blob = write(&record());
        blob[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&format.to_le_bytes());
        prop_assert_eq!(read(&blob).is_ok(), format == FORMAT);
    }
}
