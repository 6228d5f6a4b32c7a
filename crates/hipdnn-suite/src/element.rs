//! Element types: how numbers are stored in memory.

use hipdnn::sys::DataType;

use crate::draw::Draw;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    U8,
    I32,
    Bool,
    E4m3,
    E5m2,
    E4m3Fnuz,
    E5m2Fnuz,
    E8m0,
    E2m1,
    I4,
}

impl Element {
    /// Every element type.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::I8,
        Self::U8,
        Self::I32,
        Self::Bool,
        Self::E4m3,
        Self::E5m2,
        Self::E4m3Fnuz,
        Self::E5m2Fnuz,
        Self::E8m0,
        Self::E2m1,
        Self::I4,
    ];

    /// The common floating-point types, with single precision twice as likely as the others.
    pub fn draw(draw: &mut Draw) -> Self {
        draw.choose(&[Self::F32, Self::F32, Self::F64, Self::F16, Self::Bf16])
    }

    /// hipDNN's number for it.
    pub fn code(self) -> DataType {
        match self {
            Self::F32 => DataType::FLOAT,
            Self::F64 => DataType::DOUBLE,
            Self::F16 => DataType::HALF,
            Self::Bf16 => DataType::BFLOAT16,
            Self::I8 => DataType::INT8,
            Self::U8 => DataType::UINT8,
            Self::I32 => DataType::INT32,
            Self::Bool => DataType::BOOLEAN,
            Self::E4m3 => DataType::FP8_E4M3,
            Self::E5m2 => DataType::FP8_E5M2,
            Self::E4m3Fnuz => DataType::FP8_E4M3_FNUZ,
            Self::E5m2Fnuz => DataType::FP8_E5M2_FNUZ,
            Self::E8m0 => DataType::FP8_E8M0,
            Self::E2m1 => DataType::FP4_E2M1,
            Self::I4 => DataType::INT4,
        }
    }

    /// Bits of one element.
    pub fn bits(self) -> usize {
        match self {
            Self::F64 => 64,
            Self::F32 | Self::I32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E2m1 | Self::I4 => 4,
            _ => 8,
        }
    }

    /// Bytes of this many elements.
    pub fn bytes(self, elems: usize) -> usize {
        (elems * self.bits()).div_ceil(8)
    }

    /// The tolerance for results, for numbers around 1 and sums of a few hundred terms.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::F64 => 1e-9,
            Self::F32 => 2e-4,
            Self::F16 => 2e-2,
            Self::Bf16 => 1.2e-1,
            _ => 0.0,
        }
    }

    /// A number rounded to this type: the nearest one, at most the largest.
    pub fn rounded(self, value: f64) -> f64 {
        let mut image = [0u8; 8];
        self.store(&mut image, 0, value);
        self.load(&image, 0)
    }

    /// Writes a number to the element at a position.
    pub(crate) fn store(self, image: &mut [u8], place: usize, value: f64) {
        let whole = value.round_ties_even();
        let bits: u64 = match self {
            Self::F32 => (value as f32).to_bits().into(),
            Self::F64 => value.to_bits(),
            Self::F16 => half::f16::from_f64(value).to_bits().into(),
            Self::Bf16 => half::bf16::from_f64(value).to_bits().into(),
            Self::I8 => (whole as i8 as u8).into(),
            Self::U8 => (whole as u8).into(),
            Self::I32 => (whole as i32 as u32).into(),
            Self::Bool => u8::from(value != 0.0).into(),
            Self::I4 => (whole.clamp(-8.0, 7.0) as i8 as u8 & 0xF).into(),
            _ => self.nearest(value).into(),
        };
        if self.bits() == 4 {
            let (byte, shift) = (&mut image[place / 2], place % 2 * 4);
            *byte = (*byte & !(0xF << shift)) | (bits as u8) << shift;
        } else {
            let size = self.bits() / 8;
            image[place * size..][..size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }

    /// Reads the number of the element at a position.
    pub(crate) fn load(self, image: &[u8], place: usize) -> f64 {
        let mut bytes = [0u8; 8];
        let bits = if self.bits() == 4 {
            u64::from(image[place / 2] >> (place % 2 * 4) & 0xF)
        } else {
            let size = self.bits() / 8;
            bytes[..size].copy_from_slice(&image[place * size..][..size]);
            u64::from_le_bytes(bytes)
        };
        match self {
            Self::F32 => f32::from_bits(bits as u32).into(),
            Self::F64 => f64::from_bits(bits),
            Self::F16 => half::f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
            Self::I8 => (bits as u8 as i8).into(),
            Self::U8 => (bits as u8).into(),
            Self::I32 => (bits as u32 as i32).into(),
            Self::Bool => f64::from(u8::from(bits != 0)),
            Self::I4 => (((bits as u8) << 4) as i8 >> 4).into(),
            _ => self.small(bits as u8),
        }
    }

    /// The number for a small float's code, by the definition of its format.
    fn small(self, code: u8) -> f64 {
        let (fraction, bias) = match self {
            Self::E8m0 => return if code == 255 { f64::NAN } else { f64::from(i32::from(code) - 127).exp2() },
            Self::E4m3 => (3, 7),
            Self::E4m3Fnuz => (3, 8),
            Self::E5m2 => (2, 15),
            Self::E5m2Fnuz => (2, 16),
            _ => (1, 1),
        };
        let (size, is_negative) = if self == Self::E2m1 { (code & 7, code & 8 != 0) } else { (code & 127, code > 127) };
        let is_nan = match self {
            Self::E4m3 => size == 127,
            Self::E5m2 => size > 0x7C,
            Self::E4m3Fnuz | Self::E5m2Fnuz => code == 128,
            _ => false,
        };
        if is_nan {
            return f64::NAN;
        }
        let power = i32::from(size >> fraction);
        let part = f64::from(size & ((1 << fraction) - 1)) / f64::from(1 << fraction);
        let value = match (self, power) {
            (Self::E5m2, 31) => f64::INFINITY,
            (_, 0) => part * f64::from(1 - bias).exp2(),
            _ => (1.0 + part) * f64::from(power - bias).exp2(),
        };
        if is_negative { -value } else { value }
    }

    /// The code of the nearest finite number, ties to even; powers of two are rounded up.
    fn nearest(self, value: f64) -> u8 {
        let codes = || (0..=u8::MAX >> (8 - self.bits())).filter(|&code| self.small(code).is_finite());
        if self == Self::E8m0 {
            return codes().find(|&code| self.small(code) >= value).unwrap_or(254);
        }
        let mut best = 0;
        for code in codes() {
            let (far, best_far) = ((self.small(code) - value).abs(), (self.small(best) - value).abs());
            let same_sign = (code > 127 || (self == Self::E2m1 && code > 7)) == value.is_sign_negative();
            if far < best_far || (far == best_far && same_sign && (code % 2 == 0 || self.small(code) == 0.0)) {
                best = code;
            }
        }
        best
    }
}
