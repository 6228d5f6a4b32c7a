//! Element types.
use std::fmt;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// 8-bit floats are only stored and converted: [`stored`](Self::stored) is what devices see.
    F8E4M3Fn,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    /// Powers of two from 2^-127 to 2^127, and NaN: scales of blocks. Only `QMoE` reads them.
    F8E8M0,
    /// Integers of 4 and 2 bits are packed in the memory of callers, and bytes on a device.
    I4,
    U4,
    I2,
    U2,
}

impl DType {
    /// Every type that devices compute in.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
    ];

    /// The types that are only stored and converted, without the scales of blocks.
    pub const FLOAT8: [Self; 4] = [Self::F8E4M3Fn, Self::F8E4M3Fnuz, Self::F8E5M2, Self::F8E5M2Fnuz];

    /// True for the types of [`FLOAT8`](Self::FLOAT8) and for the scales of blocks.
    pub const fn is_float8(self) -> bool {
        matches!(self, Self::F8E4M3Fn | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F8E8M0)
    }

    /// The type that holds this one on a device: 8-bit floats and smaller integers are bytes there.
    pub const fn stored(self) -> Self {
        if self.is_float8() { Self::U8 } else { self.unpacked() }
    }

    /// True for packed integers: several of them share a byte in the memory of callers.
    pub const fn is_packed(self) -> bool {
        matches!(self, Self::I4 | Self::U4 | Self::I2 | Self::U2)
    }

    /// The type with one integer of a packed type in each byte; any other type unchanged.
    pub const fn unpacked(self) -> Self {
        match self {
            Self::I4 | Self::I2 => Self::I8,
            Self::U4 | Self::U2 => Self::U8,
            other => other,
        }
    }

    /// Bits of one element in the memory of callers.
    pub const fn bits(self) -> usize {
        match self {
            Self::I4 | Self::U4 => 4,
            Self::I2 | Self::U2 => 2,
            other => 8 * other.bytes(),
        }
    }

    /// Bytes of one element on a device.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F8E4M3Fn | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F8E8M0 => 1,
            Self::I4 | Self::U4 | Self::I2 | Self::U2 => 1,
        }
    }

    /// True for the four floating-point types that are computed in.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// True for signed and unsigned integers that are computed in; `Bool` is neither.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !self.is_float8() && !self.is_packed() && !matches!(self, Self::Bool)
    }

    /// True for types with negative values.
    pub const fn is_signed(self) -> bool {
        self.is_float() || matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// The type in which arithmetic on this one is done: half types are computed in single precision.
    pub const fn compute(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 => Self::F32,
            other => other,
        }
    }

    /// The name in dumps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
            Self::F8E4M3Fn => "f8e4m3fn",
            Self::F8E4M3Fnuz => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2Fnuz => "f8e5m2fnuz",
            Self::F8E8M0 => "f8e8m0",
            Self::I4 => "i4",
            Self::U4 => "u4",
            Self::I2 => "i2",
            Self::U2 => "u2",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value of any type, wide enough to lose nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A value of a floating-point type.
    Float(f64),
    /// A value of a signed integer type, or `Bool` as 0 and 1.
    Int(i64),
    /// A value of an unsigned integer type.
    Uint(u64),
}

impl Scalar {
    /// Zero of a type.
    pub const fn zero(dtype: DType) -> Self {
        Self::from_i64(0, dtype)
    }

    /// The number 1 in a type.
    pub const fn one(dtype: DType) -> Self {
        Self::from_i64(1, dtype)
    }

    /// A small number in a type.
    pub const fn from_i64(value: i64, dtype: DType) -> Self {
        if dtype.is_float() {
            Self::Float(value as f64)
        } else if dtype.is_signed() || matches!(dtype, DType::Bool) {
            Self::Int(value)
        } else {
            Self::Uint(value as u64)
        }
    }

    /// As a floating-point number, rounded if necessary.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::Uint(value) => value as f64,
        }
    }

    /// As a signed number: floats are truncated, large unsigned ones wrap.
    pub const fn as_i64(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Int(value) => value,
            Self::Uint(value) => value as i64,
        }
    }

    /// True unless zero; NaN is true.
    pub fn as_bool(self) -> bool {
        match self {
            Self::Float(value) => value != 0.0,
            Self::Int(value) => value != 0,
            Self::Uint(value) => value != 0,
        }
    }

    /// The value converted to `dtype` as ONNX's Cast does: integers wrap to the width, floats are truncated or rounded
    /// to the type's precision, and booleans are 0 or 1.
    pub fn cast(self, dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::Float(self.as_f64()),
            DType::F32 => Self::Float(f64::from(self.as_f64() as f32)),
            DType::F16 => Self::Float(half::f16::from_f64(self.as_f64()).to_f64()),
            DType::Bf16 => Self::Float(half::bf16::from_f64(self.as_f64()).to_f64()),
            DType::Bool => Self::Int(i64::from(self.as_bool())),
            _ => self.wrap(dtype),
        }
    }

    /// Wraps to the width of an integer type, as arithmetic of that type does.
    pub fn wrap(self, dtype: DType) -> Self {
        // Out-of-range floats saturate at 64 bits first; ONNX leaves them undefined.
        let bits = match self {
            Self::Uint(value) => value as i64,
            Self::Float(value) if !dtype.is_signed() && value >= 9.2e18 => value as u64 as i64,
            other => other.as_i64(),
        };
        match dtype {
            DType::I8 => Self::Int(i64::from(bits as i8)),
            DType::I16 => Self::Int(i64::from(bits as i16)),
            DType::I32 => Self::Int(i64::from(bits as i32)),
            DType::I64 => Self::Int(bits),
            DType::U8 => Self::Uint(u64::from(bits as u8)),
            DType::U16 => Self::Uint(u64::from(bits as u16)),
            DType::U32 => Self::Uint(u64::from(bits as u32)),
            DType::U64 => Self::Uint(bits as u64),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_as_onnx_does() {
        for (value, dtype, want) in [
            (Scalar::Float(3.9), DType::I32, Scalar::Int(3)),
            (Scalar::Float(-3.9), DType::I8, Scalar::Int(-3)),
            (Scalar::Int(300), DType::U8, Scalar::Uint(44)),
            (Scalar::Int(-1), DType::U64, Scalar::Uint(u64::MAX)),
            (Scalar::Uint(u64::MAX), DType::I64, Scalar::Int(-1)),
            (Scalar::Float(0.1), DType::F32, Scalar::Float(f64::from(0.1f32))),
            (Scalar::Float(70000.0), DType::F16, Scalar::Float(f64::INFINITY)),
            (Scalar::Float(-0.0), DType::Bool, Scalar::Int(0)),
            (Scalar::Float(f64::NAN), DType::Bool, Scalar::Int(1)),
        ] {
            assert_eq!(value.cast(dtype), want, "{value:?} to {dtype}");
        }
    }
}
