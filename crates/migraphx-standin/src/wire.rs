//! Protobuf's wire format, read only.

/// A field of a message.
pub(crate) enum Field<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a message with their numbers.
pub(crate) fn fields(mut rest: &[u8]) -> Result<Vec<(u64, Field<'_>)>, String> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let field = match tag & 7 {
            0 => Field::Int(varint(&mut rest)?.cast_signed()),
            1 => Field::Bytes(take(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| CUT)?;
                Field::Bytes(take(&mut rest, length)?)
            }
            5 => {
                let bytes = take(&mut rest, 4)?;
                Field::Fixed32(u32::from_le_bytes(bytes.try_into().map_err(|_| CUT)?))
            }
            kind => return Err(format!("unsupported wire type {kind}")),
        };
        fields.push((tag >> 3, field));
    }
    Ok(fields)
}

const CUT: &str = "the model is truncated";

/// A protobuf varint.
pub(crate) fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a varint of more than 64 bits".into())
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], String> {
    let (head, tail) = rest.split_at_checked(length).ok_or(CUT)?;
    *rest = tail;
    Ok(head)
}
