//! The main graph of an ONNX file: its nodes, and its constants of one integer. Everything else is skipped, so a file of
//! any size takes little memory.

use std::io::{self, BufRead, Seek, SeekFrom};

/// Receives what a file holds, in its order.
pub(crate) trait Visitor {
    /// A node.
    fn node(&mut self, op: String, inputs: Vec<String>, outputs: Vec<String>);
    /// A constant of one element, of type int32 or int64.
    fn integer(&mut self, name: String, value: i64);
    /// Another initializer, with the number of its rows, if it has two axes.
    fn table(&mut self, _name: String, _rows: u64) {}
}

/// Field numbers of the messages.
mod field {
    pub const MODEL_GRAPH: u64 = 7;
    pub const GRAPH_NODE: u64 = 1;
    pub const GRAPH_INITIALIZER: u64 = 5;
    pub const NODE_INPUT: u64 = 1;
    pub const NODE_OUTPUT: u64 = 2;
    pub const NODE_OP_TYPE: u64 = 4;
    pub const NODE_ATTRIBUTE: u64 = 5;
    pub const ATTRIBUTE_NAME: u64 = 1;
    pub const ATTRIBUTE_TENSOR: u64 = 5;
    pub const TENSOR_DIMS: u64 = 1;
    pub const TENSOR_TYPE: u64 = 2;
    pub const TENSOR_INT32S: u64 = 5;
    pub const TENSOR_INT64S: u64 = 7;
    pub const TENSOR_NAME: u64 = 8;
    pub const TENSOR_RAW: u64 = 9;
}

const INT32: u64 = 6;
const INT64: u64 = 7;

/// The largest message that the format allows.
const MAX_BYTES: u64 = i32::MAX as u64;

/// More inputs and outputs than a node has.
const MAX_NAMES: usize = 1 << 16;

/// Names are short; longer ones are damage.
const MAX_NAME: u64 = 1 << 16;

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is not an ONNX file.
pub(crate) fn visit<R: BufRead + Seek, V: Visitor>(source: &mut R, visitor: &mut V) -> io::Result<()> {
    let end = source.seek(SeekFrom::End(0))?;
    if end > MAX_BYTES {
        return Err(damaged());
    }
    source.rewind()?;
    let mut wire = Wire { source, at: 0 };
    while let Some((number, value)) = wire.field(end)? {
        match value {
            Value::Bytes(end) if number == field::MODEL_GRAPH => wire.graph(end, visitor)?,
            other => wire.skip(other)?,
        }
    }
    Ok(())
}

/// A field's contents.
enum Value {
    Number(u64),
    /// They end here.
    Bytes(u64),
}

struct Wire<'r, R> {
    source: &'r mut R,
    at: u64,
}

/// A tensor of at most one element.
#[derive(Default)]
struct Tensor {
    name: String,
    kind: u64,
    elements: Option<u64>,
    axes: usize,
    /// The first extent.
    rows: Option<u64>,
    value: Option<i64>,
}

impl Tensor {
    /// The element, if it is the only one and an integer.
    fn integer(&self) -> Option<i64> {
        self.value.filter(|_| matches!(self.kind, INT32 | INT64) && self.elements.unwrap_or(1) == 1)
    }
}

impl<R: BufRead + Seek> Wire<'_, R> {
    fn graph<V: Visitor>(&mut self, end: u64, visitor: &mut V) -> io::Result<()> {
        while let Some((number, value)) = self.field(end)? {
            match value {
                Value::Bytes(end) if number == field::GRAPH_NODE => self.node(end, visitor)?,
                Value::Bytes(end) if number == field::GRAPH_INITIALIZER => {
                    let tensor = self.tensor(end)?;
                    match (tensor.integer(), tensor.rows) {
                        (Some(value), _) => visitor.integer(tensor.name, value),
                        (None, Some(rows)) if tensor.axes == 2 => visitor.table(tensor.name, rows),
                        _ => {}
                    }
                }
                other => self.skip(other)?,
            }
        }
        Ok(())
    }

    fn node<V: Visitor>(&mut self, end: u64, visitor: &mut V) -> io::Result<()> {
        let (mut op, mut inputs, mut outputs, mut constant) = (String::new(), Vec::new(), Vec::new(), None);
        while let Some((number, value)) = self.field(end)? {
            match (number, value) {
                (field::NODE_INPUT | field::NODE_OUTPUT, _) if inputs.len() + outputs.len() >= MAX_NAMES => {
                    return Err(damaged());
                }
                (field::NODE_INPUT, Value::Bytes(end)) => inputs.push(self.text(end)?),
                (field::NODE_OUTPUT, Value::Bytes(end)) => outputs.push(self.text(end)?),
                (field::NODE_OP_TYPE, Value::Bytes(end)) => op = self.text(end)?,
                (field::NODE_ATTRIBUTE, Value::Bytes(end)) => constant = self.attribute(end)?.or(constant),
                (_, other) => self.skip(other)?,
            }
        }
        match (op.as_str(), outputs.first(), constant) {
            ("Constant", Some(output), Some(value)) => visitor.integer(output.clone(), value),
            _ => visitor.node(op, inputs, outputs),
        }
        Ok(())
    }

    /// The integer in an attribute called `value`.
    fn attribute(&mut self, end: u64) -> io::Result<Option<i64>> {
        let (mut name, mut found) = (String::new(), None);
        while let Some((number, value)) = self.field(end)? {
            match (number, value) {
                (field::ATTRIBUTE_NAME, Value::Bytes(end)) => name = self.text(end)?,
                (field::ATTRIBUTE_TENSOR, Value::Bytes(end)) => found = self.tensor(end)?.integer(),
                (_, other) => self.skip(other)?,
            }
        }
        Ok(found.filter(|_| name == "value"))
    }

    fn tensor(&mut self, end: u64) -> io::Result<Tensor> {
        let mut tensor = Tensor::default();
        while let Some((number, value)) = self.field(end)? {
            match (number, value) {
                (field::TENSOR_NAME, Value::Bytes(end)) => tensor.name = self.text(end)?,
                (field::TENSOR_TYPE, Value::Number(kind)) => tensor.kind = kind,
                (field::TENSOR_DIMS, Value::Number(extent)) => tensor.extent(extent),
                (field::TENSOR_DIMS, Value::Bytes(end)) => {
                    while self.at < end {
                        tensor.extent(self.varint()?);
                    }
                }
                (field::TENSOR_INT32S | field::TENSOR_INT64S, Value::Number(value)) => {
                    tensor.value = Some(value as i64)
                }
                (field::TENSOR_INT32S | field::TENSOR_INT64S, Value::Bytes(end))
                    if end > self.at && end - self.at <= 10 =>
                {
                    tensor.value = Some(self.varint()? as i64);
                    self.seek(end)?;
                }
                (field::TENSOR_RAW, Value::Bytes(end)) if end - self.at <= 8 => {
                    let mut bytes = [0; 8];
                    let size = (end - self.at) as usize;
                    self.source.read_exact(&mut bytes[..size])?;
                    self.at = end;
                    let value = i64::from_le_bytes(bytes);
                    tensor.value = Some(if size == 4 { i64::from(value as i32) } else { value });
                }
                (_, other) => self.skip(other)?,
            }
        }
        Ok(tensor)
    }

    /// The next field before `end`: its number and its contents.
    fn field(&mut self, end: u64) -> io::Result<Option<(u64, Value)>> {
        if self.at >= end {
            return Ok(None);
        }
        let key = self.varint()?;
        let sized = |size: u64, at: u64| at.checked_add(size).filter(|&to| to <= end).ok_or_else(damaged);
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(sized(8, self.at)?),
            2 => {
                let size = self.varint()?;
                Value::Bytes(sized(size, self.at)?)
            }
            5 => Value::Bytes(sized(4, self.at)?),
            _ => return Err(damaged()),
        };
        match key >> 3 {
            // No message has such a field, so reading a file of zeros ends here.
            0 => Err(damaged()),
            number => Ok(Some((number, value))),
        }
    }

    fn skip(&mut self, value: Value) -> io::Result<()> {
        match value {
            Value::Number(_) => Ok(()),
            Value::Bytes(end) => self.seek(end),
        }
    }

    fn seek(&mut self, to: u64) -> io::Result<()> {
        let by = i64::try_from(to.checked_sub(self.at).ok_or_else(damaged)?).map_err(|_| damaged())?;
        self.source.seek_relative(by)?;
        self.at = to;
        Ok(())
    }

    fn text(&mut self, end: u64) -> io::Result<String> {
        let size = end - self.at;
        if size > MAX_NAME {
            return Err(damaged());
        }
        let mut bytes = vec![0; size as usize];
        self.source.read_exact(&mut bytes)?;
        self.at = end;
        String::from_utf8(bytes).map_err(|_| damaged())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            self.source.read_exact(&mut byte)?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged())
    }
}

impl Tensor {
    fn extent(&mut self, extent: u64) {
        self.elements = Some(self.elements.unwrap_or(1).saturating_mul(extent));
        self.axes += 1;
        self.rows.get_or_insert(extent);
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not an ONNX file")
}
