//! Protobuf's wire format, write only.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Negative numbers take ten bytes, both for protobuf's `int64` and `int32`.
    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.tag(field, VARINT);
        self.varint(value.cast_unsigned());
    }

    pub(super) fn float(&mut self, field: u32, value: f32) {
        self.tag(field, FIXED32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend(value);
    }

    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Proto2 readers distinguish an absent string from an empty one; ONNX means "default" by both.
    pub(super) fn text_unless_empty(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.text(field, value);
        }
    }

    pub(super) fn message(&mut self, field: u32, value: Self) {
        self.bytes(field, &value.bytes);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::default();
        write(&mut message);
        message.into_bytes()
    }

    /// The examples from protobuf's own description of its encoding.
    #[test]
    fn known_encodings() {
        assert_eq!(written(|m| m.int(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.text(2, "testing")), *b"\x12\x07testing");
        assert_eq!(written(|m| m.int(1, -2)), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(written(|m| m.float(2, 1.0)), [0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(written(|m| m.int(16, 0)), [0x80, 0x01, 0], "a field number above 15 takes two bytes");
    }

    proptest! {
        #[test]
        fn any_integer_decodes_to_itself(value: i64) {
            let bytes = written(|m| m.int(1, value));
            let mut decoded = 0u64;
            for (index, byte) in bytes[1..].iter().enumerate() {
                decoded |= u64::from(byte & 0x7f) << (7 * index);
                prop_assert_eq!(byte & 0x80 == 0, index + 2 == bytes.len());
            }
            prop_assert_eq!(decoded.cast_signed(), value);
        }
    }
}
