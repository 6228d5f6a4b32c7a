//! Entry points for the fuzz targets.
use graph::ops::{Attribute, Attributes};
use graph::{DType, Tensor};

use super::read::read;
use super::write::{seal, write};
use super::{HEADER_BYTES, compatibility};
use crate::record::{NodeRecord, Record, ValueRecord};

/// Reads the bytes as a saved partition, as a body with a valid checksum, and as a compatibility string.
pub fn saved_partition(bytes: &[u8]) {
    let sealed = seal([&[0; HEADER_BYTES], bytes].concat());
    for blob in [bytes, &sealed] {
        if let Ok(record) = read(blob) {
            // Writing a record and reading it again must give the same record.
            assert_eq!(read(&write(&record)).as_ref().map(|again| again.nodes.len()), Ok(record.nodes.len()));
            if let Err(reason) = record.into_graph() {
                assert!(!reason.is_empty());
            }
        }
    }
    compatibility(&String::from_utf8_lossy(bytes));
}

/// The bodies of small partitions, as a seed corpus.
pub fn saved_partitions() -> Vec<Vec<u8>> {
    let value = |name: &str, dtype, constant| ValueRecord { name: name.to_owned(), dtype, rank: Some(2), constant };
    let node = |op_type: &str, since_version, attributes: &[(&str, Attribute)]| NodeRecord {
        name: "node".to_owned(),
        domain: String::new(),
        op_type: op_type.to_owned(),
        since_version,
        attributes: Attributes(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        inputs: vec![Some(0), Some(1)],
        outputs: vec![Some(2)],
    };
    let nodes = [
        node("MatMul", 13, &[]),
        node("Gather", 13, &[("axis", Attribute::Int(1))]),
        node("Conv", 11, &[("pads", Attribute::Ints(vec![0, 1])), ("auto_pad", Attribute::Text("NOTSET".to_owned()))]),
    ];
    let records = nodes.into_iter().map(|node| {
        let is_index = node.op_type == "Gather";
        let dtype = if is_index { DType::I64 } else { DType::F32 };
        let constant = if is_index { Some(Tensor::from_i64s(&[0, 1])) } else { None };
        let values = vec![value("x", DType::F32, None), value("w", dtype, constant), value("y", DType::F32, None)];
        Record { values, nodes: vec![node], inputs: if is_index { vec![0] } else { vec![0, 1] }, outputs: vec![2] }
    });
    records.map(|record| write(&record).split_off(HEADER_BYTES)).collect()
}
