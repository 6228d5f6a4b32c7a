//! Element types in memory, including small floats, which the engine processes as single precision.

use graph::DType;
use hipdnn::sys::DataType;

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As one of the engine's types.
    Plain(DType),
    /// In a byte or half a byte; decoded to single precision for the engine.
    Small(Small),
}

/// A format of eight bits or fewer that is not one of the engine's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Small {
    /// Signed floats.
    Float {
        /// Bits of the exponent.
        exponent: u32,
        /// Bits of the fraction.
        fraction: u32,
        /// Subtracted from the exponent.
        bias: i32,
        /// The meaning of the largest codes.
        end: End,
    },
    /// Unsigned powers of two: 2 to the power of the code minus 127.
    Power,
    /// Integers from -8 to 7.
    Int4,
}

/// The meaning of the codes above a small float's largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Infinity, then NaN, as in the IEEE types.
    Infinity,
    /// NaN, in the last code only.
    Nan,
    /// Numbers: the code of minus zero is NaN instead.
    NegativeZero,
    /// Numbers: there is no NaN.
    Nothing,
}

const fn float(exponent: u32, fraction: u32, bias: i32, end: End) -> Format {
    Format::Small(Small::Float { exponent, fraction, bias, end })
}

impl Format {
    /// The format of one of hipDNN's types; `None` for those that the engine does not support.
    pub fn of(code: DataType) -> Option<Self> {
        Some(match code {
            DataType::FLOAT => Self::Plain(DType::F32),
            DataType::DOUBLE => Self::Plain(DType::F64),
            DataType::HALF => Self::Plain(DType::F16),
            DataType::BFLOAT16 => Self::Plain(DType::Bf16),
            DataType::INT8 => Self::Plain(DType::I8),
            DataType::UINT8 => Self::Plain(DType::U8),
            DataType::INT32 => Self::Plain(DType::I32),
            DataType::INT64 => Self::Plain(DType::I64),
            DataType::BOOLEAN => Self::Plain(DType::Bool),
            DataType::FP8_E4M3 => float(4, 3, 7, End::Nan),
            DataType::FP8_E5M2 => float(5, 2, 15, End::Infinity),
            DataType::FP8_E4M3_FNUZ => float(4, 3, 8, End::NegativeZero),
            DataType::FP8_E5M2_FNUZ => float(5, 2, 16, End::NegativeZero),
            DataType::FP4_E2M1 => float(2, 1, 1, End::Nothing),
            DataType::FP8_E8M0 => Self::Small(Small::Power),
            DataType::INT4 => Self::Small(Small::Int4),
            _ => return None,
        })
    }

    /// The type that the engine reads and writes.
    pub fn dtype(self) -> DType {
        match self {
            Self::Plain(dtype) => dtype,
            Self::Small(_) => DType::F32,
        }
    }

    /// Bits of one element in memory.
    pub fn bits(self) -> usize {
        match self {
            Self::Plain(dtype) => dtype.bytes() * 8,
            Self::Small(small) => small.bits(),
        }
    }

    /// The largest number that quantised data may reach; `None` for types that are not quantisation targets.
    pub fn largest(self) -> Option<f64> {
        match self {
            Self::Plain(DType::I8) => Some(127.0),
            Self::Small(Small::Int4) => Some(7.0),
            Self::Small(Small::Power) | Self::Plain(_) => None,
            Self::Small(small) => Some(small.largest().into()),
        }
    }
}

impl Small {
    /// Bits of one element.
    pub fn bits(self) -> usize {
        match self {
            Self::Float { exponent, fraction, .. } => (1 + exponent + fraction) as usize,
            Self::Power => 8,
            Self::Int4 => 4,
        }
    }

    /// The largest finite number.
    pub fn largest(self) -> f32 {
        match self {
            Self::Int4 => 7.0,
            Self::Power => 127f32.exp2(),
            Self::Float { .. } => {
                let codes = (0..=self.sign_bit() - 1).rev();
                codes.map(|code| self.decode(code)).find(|value| value.is_finite()).unwrap_or(0.0)
            }
        }
    }

    fn sign_bit(self) -> u8 {
        1 << (self.bits() - 1)
    }

    /// The number of a code. Four-bit codes are in the lower half of the byte.
    pub fn decode(self, code: u8) -> f32 {
        match self {
            Self::Int4 => f32::from(((code << 4) as i8) >> 4),
            Self::Power if code == u8::MAX => f32::NAN,
            Self::Power => (f32::from(code) - 127.0).exp2(),
            Self::Float { fraction, bias, end, .. } => {
                let sign = self.sign_bit();
                if end == End::NegativeZero && code == sign {
                    return f32::NAN;
                }
                let magnitude = code & (sign - 1);
                let (power, part) = (i32::from(magnitude >> fraction), f32::from(magnitude & ((1 << fraction) - 1)));
                let step = 2f32.powi(power.max(1) - bias - fraction as i32);
                let whole = if power == 0 { 0.0 } else { (1u32 << fraction) as f32 };
                let is_last_power = (magnitude >> fraction) == (sign - 1) >> fraction;
                let value = match end {
                    End::Infinity if is_last_power && part == 0.0 => f32::INFINITY,
                    End::Infinity if is_last_power => f32::NAN,
                    End::Nan if magnitude == sign - 1 => f32::NAN,
                    _ => (whole + part) * step,
                };
                if code & sign == 0 { value } else { -value }
            }
        }
    }

    /// The code of the nearest number. The engine's results are already rounded to the format, so ties and numbers
    /// beyond the largest one do not occur.
    pub fn encode(self, value: f32, numbers: &Numbers) -> u8 {
        let known = &numbers.by_code[..numbers.ascending];
        let sign = match self {
            Self::Power => 0,
            _ if value.is_sign_negative() => self.sign_bit(),
            _ => 0,
        };
        match self {
            Self::Int4 => (value.clamp(-8.0, 7.0) as i8 as u8) & 0xF,
            _ if value.is_nan() => numbers.nan,
            Self::Power | Self::Float { .. } => {
                let size = value.abs();
                let above = known.partition_point(|&number| number < size);
                let nearest = match (above.checked_sub(1).map(|below| size - known[below]), known.get(above)) {
                    (Some(down), Some(next)) if down < next - size => above - 1,
                    (Some(_), None) => above - 1,
                    _ => above,
                } as u8;
                // A format that uses minus zero for NaN has only one zero.
                if nearest == 0 && matches!(self, Self::Float { end: End::NegativeZero, .. }) {
                    return 0;
                }
                nearest | sign
            }
        }
    }

    /// All numbers of the format.
    pub fn numbers(self) -> Numbers {
        let positive = if self == Self::Power { 0xFF } else { usize::from(self.sign_bit()) };
        let by_code: Vec<f32> = (0..=u8::MAX >> (8 - self.bits())).map(|code| self.decode(code)).collect();
        let nan = by_code.iter().position(|value| value.is_nan()).unwrap_or(positive - 1) as u8;
        let ascending = by_code[..positive].iter().take_while(|value| value.is_finite()).count();
        Numbers { by_code, ascending, nan }
    }
}

/// The numbers of a small format.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The number of each code.
    pub by_code: Vec<f32>,
    /// The number of leading codes whose numbers ascend from zero to the largest.
    ascending: usize,
    /// A code for NaN; if there is none, that of the largest number.
    nan: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(code: DataType) -> Small {
        match Format::of(code) {
            Some(Format::Small(small)) => small,
            other => panic!("{code:?} is {other:?}"),
        }
    }

    #[test]
    fn the_formats_have_their_published_limits() {
        for (code, largest, least) in [
            (DataType::FP8_E4M3, 448.0, 2f32.powi(-9)),
            (DataType::FP8_E5M2, 57344.0, 2f32.powi(-16)),
            (DataType::FP8_E4M3_FNUZ, 240.0, 2f32.powi(-10)),
            (DataType::FP8_E5M2_FNUZ, 57344.0, 2f32.powi(-17)),
            (DataType::FP4_E2M1, 6.0, 0.5),
        ] {
            assert_eq!(small(code).largest(), largest, "{code:?}");
            assert_eq!(small(code).decode(1), least, "{code:?}");
        }
        assert_eq!(small(DataType::FP8_E8M0).decode(127), 1.0);
        assert!(small(DataType::FP8_E8M0).decode(255).is_nan());
        assert!(small(DataType::FP8_E4M3).decode(0x7F).is_nan());
        assert_eq!(small(DataType::FP8_E5M2).decode(0x7C), f32::INFINITY);
        assert!(small(DataType::FP8_E4M3_FNUZ).decode(0x80).is_nan());
        assert_eq!(small(DataType::INT4).decode(0xF), -1.0);
    }

    #[test]
    fn every_code_survives_decoding_and_encoding() {
        for code in [
            DataType::FP8_E4M3,
            DataType::FP8_E5M2,
            DataType::FP8_E4M3_FNUZ,
            DataType::FP8_E5M2_FNUZ,
            DataType::FP4_E2M1,
            DataType::FP8_E8M0,
            DataType::INT4,
        ] {
            let small = small(code);
            let numbers = small.numbers();
            for byte in 0..=u8::MAX >> (8 - small.bits()) {
                let value = small.decode(byte);
                if value.is_finite() {
                    assert_eq!(small.encode(value, &numbers), byte, "{code:?} {byte:#x}");
                }
            }
            if code != DataType::INT4 && code != DataType::FP4_E2M1 {
                assert!(small.decode(small.encode(f32::NAN, &numbers)).is_nan(), "{code:?}");
            }
        }
    }
}
