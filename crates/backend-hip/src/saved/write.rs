//! Writes a partition.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use super::{ARCH, DTYPES, FORMAT, HEADER_BYTES, MAGIC, NOTHING, VERSION, checksum, kind};
use crate::record::{NodeRecord, Record, ValueRecord};

/// Serialises a partition to a blob.
pub(super) fn write(record: &Record) -> Vec<u8> {
    let mut blob = Blob(vec![0; HEADER_BYTES]);
    blob.text(VERSION);
    blob.text(ARCH);
    blob.list(&record.values, Blob::value);
    blob.list(&record.nodes, Blob::node);
    blob.list(&record.inputs, |blob, &id| blob.u32(id));
    blob.list(&record.outputs, |blob, &id| blob.u32(id));
    seal(blob.0)
}

/// Fills in the header in front of the body.
pub(super) fn seal(mut blob: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&blob[HEADER_BYTES..]);
    let header = MAGIC.into_iter().chain(FORMAT.to_le_bytes()).chain(sum.to_le_bytes());
    blob.splice(..HEADER_BYTES, header);
    blob
}

struct Blob(Vec<u8>);

impl Blob {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.u64(items.len() as u64);
        for item in items {
            write(self, item);
        }
    }

    fn dtype(&mut self, dtype: DType) {
        let code = DTYPES.iter().find(|(_, known)| *known == dtype);
        self.u8(code.map_or(0, |(code, _)| *code));
    }

    fn tensor(&mut self, tensor: &Tensor) {
        self.dtype(tensor.dtype());
        self.list(tensor.shape(), |blob, &extent| blob.u64(extent as u64));
        self.bytes(tensor.bytes());
    }

    fn value(&mut self, value: &ValueRecord) {
        self.text(&value.name);
        self.dtype(value.dtype);
        self.u32(value.rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(NOTHING));
        self.u8(u8::from(value.constant.is_some()));
        if let Some(constant) = &value.constant {
            self.tensor(constant);
        }
    }

    fn node(&mut self, node: &NodeRecord) {
        self.text(&node.name);
        self.text(&node.domain);
        self.text(&node.op_type);
        self.u32(node.since_version as u32);
        self.u64(node.attributes.0.len() as u64);
        for (name, attribute) in &node.attributes.0 {
            self.text(name);
            self.attribute(attribute);
        }
        self.list(&node.inputs, |blob, id| blob.u32(id.unwrap_or(NOTHING)));
        self.list(&node.outputs, |blob, id| blob.u32(id.unwrap_or(NOTHING)));
    }

    fn attribute(&mut self, attribute: &Attribute) {
        match attribute {
            Attribute::Int(value) => {
                self.u8(kind::INT);
                self.u64(*value as u64);
            }
            Attribute::Ints(values) => {
                self.u8(kind::INTS);
                self.list(values, |blob, &value| blob.u64(value as u64));
            }
            Attribute::Float(value) => {
                self.u8(kind::FLOAT);
                self.u32(value.to_bits());
            }
            Attribute::Floats(values) => {
                self.u8(kind::FLOATS);
                self.list(values, |blob, value| blob.u32(value.to_bits()));
            }
            Attribute::Text(text) => {
                self.u8(kind::TEXT);
                self.text(text);
            }
            Attribute::Texts(texts) => {
                self.u8(kind::TEXTS);
                self.list(texts, |blob, text| blob.text(text));
            }
            Attribute::Tensor(tensor) => {
                self.u8(kind::TENSOR);
                self.tensor(tensor);
            }
            Attribute::Other => self.u8(kind::OTHER),
        }
    }
}
