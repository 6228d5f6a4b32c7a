//! Reads a saved partition. No count or length is trusted: memory is allocated only for bytes that are present.
use graph::ops::{Attribute, Attributes};
use graph::{DType, Shape, Tensor};

use super::{ARCH, DTYPES, FORMAT, HEADER_BYTES, MAGIC, NOTHING, SavedError, VERSION, checksum, kind};
use crate::record::{NodeRecord, Record, ValueRecord};

/// Reads the partition in a blob.
///
/// # Errors
/// The blob is not ours, has another format or device, is damaged, or is malformed.
pub(super) fn read(blob: &[u8]) -> Result<Record, SavedError> {
    if !blob.starts_with(&MAGIC) {
        let found = blob[..blob.len().min(MAGIC.len())].escape_ascii().to_string();
        return Err(SavedError::Foreign { found });
    }
    let mut bytes = Bytes { all: blob, at: MAGIC.len() };
    let format = bytes.u32()?;
    if format != FORMAT {
        return Err(SavedError::Format { found: format });
    }
    let wanted = bytes.u64()?;
    let found = checksum(&blob[HEADER_BYTES..]);
    if found != wanted {
        return Err(SavedError::Damaged { bytes: blob.len(), found, wanted });
    }
    let version = bytes.text()?;
    if version != VERSION {
        tracing::debug!(target: "amdgpu_ep::compile", %version, "the partition was saved by another version");
    }
    let arch = bytes.text()?;
    if arch != ARCH {
        return Err(SavedError::Arch { found: arch });
    }
    let record = Record {
        values: bytes.list(Bytes::value)?,
        nodes: bytes.list(Bytes::node)?,
        inputs: bytes.list(Bytes::u32)?,
        outputs: bytes.list(Bytes::u32)?,
    };
    match blob.len() - bytes.at {
        0 => Ok(record),
        rest => Err(bytes.malformed(format!("{rest} bytes follow the end"))),
    }
}

/// A read position in a blob.
struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn malformed(&self, reason: impl Into<String>) -> SavedError {
        SavedError::Malformed { at: self.at, reason: reason.into() }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], SavedError> {
        let rest = &self.all[self.at..];
        let Some((taken, _)) = rest.split_at_checked(count) else {
            return Err(self.malformed(format!("expected {count} more bytes, found {}", rest.len())));
        };
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SavedError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, SavedError> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, SavedError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SavedError> {
        self.array().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Result<usize, SavedError> {
        let size = self.u64()?;
        usize::try_from(size).map_err(|_| self.malformed(format!("{size} exceeds this machine's address space")))
    }

    fn bytes(&mut self) -> Result<&'a [u8], SavedError> {
        let count = self.size()?;
        self.take(count)
    }

    fn text(&mut self) -> Result<String, SavedError> {
        let bytes = self.bytes()?;
        let text =
            std::str::from_utf8(bytes).map_err(|error| self.malformed(format!("a string is not UTF-8: {error}")))?;
        Ok(text.to_owned())
    }

    /// Every item takes at least one byte, so a wrong count fails at the end of the blob.
    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, SavedError>) -> Result<Vec<T>, SavedError> {
        let count = self.size()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn id(&mut self) -> Result<Option<u32>, SavedError> {
        Ok(Some(self.u32()?).filter(|&id| id != NOTHING))
    }

    fn dtype(&mut self) -> Result<DType, SavedError> {
        let code = self.u8()?;
        let dtype = DTYPES.iter().find(|(known, _)| *known == code);
        dtype.map(|(_, dtype)| *dtype).ok_or_else(|| self.malformed(format!("unknown element type {code}")))
    }

    fn tensor(&mut self) -> Result<Tensor, SavedError> {
        let dtype = self.dtype()?;
        let shape: Shape = self.list(Self::size)?.into();
        let bytes = self.bytes()?;
        Tensor::from_bytes(dtype, &shape, bytes).ok_or_else(|| {
            self.malformed(format!(
                "a {dtype} tensor of shape {:?} cannot have {} bytes",
                shape.as_slice(),
                bytes.len()
            ))
        })
    }

    fn value(&mut self) -> Result<ValueRecord, SavedError> {
        Ok(ValueRecord {
            name: self.text()?,
            dtype: self.dtype()?,
            rank: self.id()?.map(|rank| rank as usize),
            constant: match self.u8()? {
                0 => None,
                1 => Some(self.tensor()?),
                other => return Err(self.malformed(format!("a flag is {other}, expected 0 or 1"))),
            },
        })
    }

    fn node(&mut self) -> Result<NodeRecord, SavedError> {
        let (name, domain, op_type) = (self.text()?, self.text()?, self.text()?);
        let since_version = self.u32()? as i32;
        let attributes = self.list(|bytes| Ok((bytes.text()?, bytes.attribute()?)))?;
        Ok(NodeRecord {
            name,
            domain,
            op_type,
            since_version,
            attributes: Attributes(attributes.into_iter().collect()),
            inputs: self.list(Self::id)?,
            outputs: self.list(Self::id)?,
        })
    }

    fn attribute(&mut self) -> Result<Attribute, SavedError> {
        Ok(match self.u8()? {
            kind::INT => Attribute::Int(self.u64()? as i64),
            kind::INTS => Attribute::Ints(self.list(|bytes| Ok(bytes.u64()? as i64))?),
            kind::FLOAT => Attribute::Float(f32::from_bits(self.u32()?)),
            kind::FLOATS => Attribute::Floats(self.list(|bytes| Ok(f32::from_bits(bytes.u32()?)))?),
            kind::TEXT => Attribute::Text(self.text()?),
            kind::TEXTS => Attribute::Texts(self.list(Self::text)?),
            kind::TENSOR => Attribute::Tensor(self.tensor()?),
            kind::OTHER => Attribute::Other,
            other => return Err(self.malformed(format!("unknown attribute kind {other}"))),
        })
    }
}
