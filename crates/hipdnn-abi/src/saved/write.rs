//! Converts documents to FlatBuffers: a table first, then what it refers to.

use serde_json::{Map, Value as Json};

use super::number;
use super::schema::{Field, Kind, NODES};

type Object = Map<String, Json>;

/// A document with a root table, and an identifier after the root offset if it has one.
pub fn document(fields: &[Field], object: &Object, identifier: Option<&[u8; 4]>) -> Vec<u8> {
    let mut writer = Writer { bytes: vec![0; 4] };
    writer.bytes.extend(identifier.into_iter().flatten());
    let root = writer.table(fields, object);
    writer.point(0, root);
    writer.bytes
}

struct Writer {
    bytes: Vec<u8>,
}

/// Part of a table.
struct Slot<'o> {
    number: usize,
    align: usize,
    bytes: Vec<u8>,
    /// What the bytes will refer to.
    child: Option<(Kind, &'o Json)>,
}

impl<'o> Slot<'o> {
    fn inline<const N: usize>(number: usize, bytes: [u8; N]) -> Self {
        Self { number, align: N, bytes: bytes.to_vec(), child: None }
    }

    fn child(number: usize, kind: Kind, value: &'o Json) -> Self {
        Self { number, align: 4, bytes: vec![0; 4], child: Some((kind, value)) }
    }
}

impl Writer {
    /// Adds padding so that `before` more bytes end at a multiple of `align`.
    fn pad(&mut self, before: usize, align: usize) {
        while !(self.bytes.len() + before).is_multiple_of(align) {
            self.bytes.push(0);
        }
    }

    fn point(&mut self, from: usize, to: usize) {
        let distance = (to - from) as u32;
        self.bytes[from..from + 4].copy_from_slice(&distance.to_le_bytes());
    }

    fn table(&mut self, fields: &[Field], object: &Object) -> usize {
        let mut slots = slots(fields, object);
        // The widest first, so that no padding is needed in between.
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.align));
        let count = slots.iter().map(|slot| slot.number + 1).max().unwrap_or(0);
        let mut offsets = vec![0u16; count];
        let mut size = 4;
        for slot in &slots {
            offsets[slot.number] = size as u16;
            size += slot.bytes.len();
        }
        self.pad(0, 2);
        let lookup = self.bytes.len();
        for number in [(4 + 2 * count) as u16, size as u16].into_iter().chain(offsets.iter().copied()) {
            self.bytes.extend(number.to_le_bytes());
        }
        self.pad(4, 8);
        let table = self.bytes.len();
        self.bytes.extend(((table - lookup) as i32).to_le_bytes());
        slots.iter().for_each(|slot| self.bytes.extend(&slot.bytes));
        for slot in &slots {
            if let Some((kind, value)) = slot.child {
                let place = self.content(kind, value, object);
                self.point(table + usize::from(offsets[slot.number]), place);
            }
        }
        table
    }

    /// What a field refers to.
    fn content(&mut self, kind: Kind, value: &Json, owner: &Object) -> usize {
        match (kind, value) {
            (Kind::Text, _) => {
                let text = value.as_str().unwrap_or_default().as_bytes();
                let place = self.vector(text.len(), 4, text);
                self.bytes.push(0);
                place
            }
            (Kind::Tables(fields), Json::Array(rows)) => {
                let place = self.vector(rows.len(), 4, &vec![0; rows.len() * 4]);
                for (at, row) in rows.iter().enumerate() {
                    let table = self.table(fields, row.as_object().unwrap_or(&Object::new()));
                    self.point(place + 4 + at * 4, table);
                }
                place
            }
            (Kind::Node, Json::Object(node)) => {
                let which = number(owner.get("attributes_type")).unwrap_or(0);
                let known = usize::try_from(which - 1).ok().and_then(|at| NODES.get(at));
                self.table(known.map_or(&[], |node| node.fields), node)
            }
            (Kind::Scalar, _) => {
                let bytes = scalar(number(owner.get("value_type")).unwrap_or(0), value);
                self.pad(0, bytes.len().max(1));
                let place = self.bytes.len();
                self.bytes.extend(bytes);
                place
            }
            _ => {
                let numbers: Vec<i64> =
                    value.as_array().into_iter().flatten().filter_map(|it| number(Some(it))).collect();
                let bytes: Vec<u8> = match kind {
                    Kind::Bytes => numbers.iter().map(|&number| number as u8).collect(),
                    Kind::Ints => numbers.iter().flat_map(|&number| (number as i32).to_le_bytes()).collect(),
                    _ => numbers.iter().flat_map(|&number| number.to_le_bytes()).collect(),
                };
                self.vector(numbers.len(), 8, &bytes)
            }
        }
    }

    fn vector(&mut self, count: usize, align: usize, bytes: &[u8]) -> usize {
        self.pad(4, align);
        let place = self.bytes.len();
        self.bytes.extend((count as u32).to_le_bytes());
        self.bytes.extend(bytes);
        place
    }
}

fn slots<'o>(fields: &[Field], object: &'o Object) -> Vec<Slot<'o>> {
    let mut slots = Vec::new();
    let mut at = 0;
    for field in fields {
        let is_union = matches!(field.kind, Kind::Node | Kind::Scalar);
        if let Some(value) = object.get(field.name) {
            let whole = number(Some(value)).unwrap_or(0);
            slots.push(match field.kind {
                Kind::Bool => Slot::inline(at, [u8::from(value.as_bool().unwrap_or(false))]),
                Kind::Byte(_) | Kind::DataType => Slot::inline(at, [whole as u8]),
                Kind::Int => Slot::inline(at, (whole as i32).to_le_bytes()),
                Kind::Long | Kind::Uid => Slot::inline(at, whole.to_le_bytes()),
                Kind::Float => Slot::inline(at, (float(value) as f32).to_le_bytes()),
                Kind::Version => {
                    let parts = value.as_array().into_iter().flatten().filter_map(|part| number(Some(part)));
                    let bytes = parts.flat_map(|part| (part as u32).to_le_bytes()).collect();
                    Slot { number: at, align: 4, bytes, child: None }
                }
                kind => Slot::child(at + usize::from(is_union), kind, value),
            });
            if is_union {
                let which = number(object.get(&format!("{}_type", field.name))).unwrap_or(0);
                slots.push(Slot::inline(at, [which as u8]));
            }
        }
        at += if is_union { 2 } else { 1 };
    }
    slots
}

/// A number; those that JSON cannot represent are strings.
pub fn float(value: &Json) -> f64 {
    match value {
        Json::String(word) => word.parse().unwrap_or(f64::NAN),
        other => other.as_f64().unwrap_or(f64::NAN),
    }
}

fn scalar(kind: i64, value: &Json) -> Vec<u8> {
    let whole = number(Some(value)).unwrap_or(0);
    match kind {
        1..=3 => (float(value) as f32).to_le_bytes().to_vec(),
        5 => (whole as i32).to_le_bytes().to_vec(),
        6 => float(value).to_le_bytes().to_vec(),
        7 => whole.to_le_bytes().to_vec(),
        _ => vec![whole as u8],
    }
}
