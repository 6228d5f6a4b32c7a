//! Converts FlatBuffers to documents. Nothing is trusted: every offset is checked, and no more is read than there are
//! bytes.

use serde_json::{Map, Value as Json};

use super::schema::{Field, Kind, NODES};

type Object = Map<String, Json>;
type Answer<T> = Result<T, &'static str>;

const OUTSIDE: &str = "an offset is out of bounds";

/// Reads a document of a table.
///
/// # Errors
/// The bytes are not a valid document.
pub fn document(fields: &[Field], bytes: &[u8]) -> Answer<Object> {
    let mut reader = Reader { bytes, left: bytes.len() };
    let root = reader.forward(0)?;
    reader.table(fields, root)
}

struct Reader<'b> {
    bytes: &'b [u8],
    /// Bytes that may still be read. Without this limit, a document that refers to the same bytes repeatedly could grow
    /// without bound.
    left: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, at: usize, count: usize) -> Answer<&'b [u8]> {
        self.left = self.left.checked_sub(count).ok_or("it refers to data beyond its end")?;
        let end = at.checked_add(count).ok_or(OUTSIDE)?;
        self.bytes.get(at..end).ok_or(OUTSIDE)
    }

    /// A number that does not count as read, because it may be read several times.
    fn peek<const N: usize>(&self, at: usize) -> Answer<[u8; N]> {
        let end = at.checked_add(N).ok_or(OUTSIDE)?;
        self.bytes.get(at..end).and_then(|bytes| bytes.try_into().ok()).ok_or(OUTSIDE)
    }

    fn forward(&self, at: usize) -> Answer<usize> {
        let distance = u32::from_le_bytes(self.peek(at)?) as usize;
        at.checked_add(distance).filter(|&to| distance > 0 && to < self.bytes.len()).ok_or(OUTSIDE)
    }

    fn table(&mut self, fields: &[Field], at: usize) -> Answer<Object> {
        self.take(at, 4)?;
        let back = i64::from(i32::from_le_bytes(self.peek(at)?));
        let lookup = usize::try_from(at as i64 - back).map_err(|_| OUTSIDE)?;
        let size = usize::from(u16::from_le_bytes(self.peek(lookup)?));
        let find = |reader: &Self, number: usize| -> Answer<Option<usize>> {
            let slot = 4 + 2 * number;
            if slot + 2 > size {
                return Ok(None);
            }
            let offset = usize::from(u16::from_le_bytes(reader.peek(lookup + slot)?));
            Ok((offset != 0).then_some(at + offset))
        };
        let (mut object, mut number) = (Object::new(), 0);
        for field in fields {
            if matches!(field.kind, Kind::Node | Kind::Scalar) {
                if let (Some(which), Some(place)) = (find(self, number)?, find(self, number + 1)?) {
                    let which = self.peek::<1>(which)?[0];
                    let place = self.forward(place)?;
                    let value = self.union(field.kind, which, place)?;
                    object.insert(format!("{}_type", field.name), which.into());
                    object.insert(field.name.to_owned(), value);
                }
                number += 2;
                continue;
            }
            let value = match find(self, number)? {
                Some(place) => Some(self.value(field.kind, place)?),
                None => field.default.map(Json::from),
            };
            object.extend(value.map(|value| (field.name.to_owned(), value)));
            number += 1;
        }
        Ok(object)
    }

    fn union(&mut self, kind: Kind, which: u8, place: usize) -> Answer<Json> {
        if let Kind::Node = kind {
            let node = usize::from(which).checked_sub(1).and_then(|at| NODES.get(at));
            let node = node.ok_or("an operation is of unknown kind")?;
            return Ok(Json::Object(self.table(node.fields, place)?));
        }
        Ok(match which {
            1..=3 => float(f32::from_le_bytes(self.peek(place)?).into()),
            5 => i32::from_le_bytes(self.peek(place)?).into(),
            6 => float(f64::from_le_bytes(self.peek(place)?)),
            7 => i64::from_le_bytes(self.peek(place)?).into(),
            4 | 8 => self.peek::<1>(place)?[0].into(),
            _ => return Err("a scalar is of unknown kind"),
        })
    }

    fn value(&mut self, kind: Kind, place: usize) -> Answer<Json> {
        Ok(match kind {
            Kind::Bool => (self.peek::<1>(place)?[0] != 0).into(),
            Kind::Byte(_) | Kind::DataType => self.peek::<1>(place)?[0].cast_signed().into(),
            Kind::Int => i32::from_le_bytes(self.peek(place)?).into(),
            Kind::Long | Kind::Uid => i64::from_le_bytes(self.peek(place)?).into(),
            Kind::Float => float(f32::from_le_bytes(self.peek(place)?).into()),
            Kind::Version => {
                let parts = [0, 4, 8].map(|more| self.peek(place + more).map(u32::from_le_bytes));
                Json::Array(parts.into_iter().map(|part| part.map(Json::from)).collect::<Answer<_>>()?)
            }
            Kind::Text => String::from_utf8_lossy(self.vector(place, 1)?).into(),
            Kind::Bytes => Json::Array(self.vector(place, 1)?.iter().map(|&byte| byte.into()).collect()),
            Kind::Ints => {
                let chunks = self.vector(place, 4)?.as_chunks().0;
                Json::Array(chunks.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect())
            }
            Kind::Longs | Kind::Uids => {
                let chunks = self.vector(place, 8)?.as_chunks().0;
                Json::Array(chunks.iter().map(|&bytes| i64::from_le_bytes(bytes).into()).collect())
            }
            Kind::Tables(fields) => {
                let start = self.forward(place)? + 4;
                let count = self.vector(place, 4)?.len() / 4;
                let rows = (0..count).map(|at| {
                    let table = self.forward(start + at * 4)?;
                    self.table(fields, table).map(Json::Object)
                });
                Json::Array(rows.collect::<Answer<_>>()?)
            }
            Kind::Node | Kind::Scalar => return Err("a field has two parts"),
        })
    }

    fn vector(&mut self, place: usize, size: usize) -> Answer<&'b [u8]> {
        let at = self.forward(place)?;
        let count = u32::from_le_bytes(self.peek(at)?) as usize;
        self.take(at + 4, count.checked_mul(size).ok_or(OUTSIDE)?)
    }
}

/// A number; those that JSON cannot represent become strings.
pub fn float(value: f64) -> Json {
    serde_json::Number::from_f64(value).map_or_else(|| Json::String(value.to_string()), Json::Number)
}
