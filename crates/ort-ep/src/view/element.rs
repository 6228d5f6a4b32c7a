//! Rust types that a tensor's elements can be read as.
use crate::ElementType;

mod sealed {
    /// Only types without padding for which every bit pattern is valid may be elements.
    pub trait Sealed {}
}

/// A Rust type that host tensors can be read and written as.
///
/// `u8` also reads `Bool` and the fp8 types, `u16` also the bit patterns of `F16` and `Bf16`. Access elements smaller
/// than a byte through the tensor's bytes.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The Rust name, for messages.
    const NAME: &'static str;

    /// True if elements of this type can be read as `Self`.
    fn reads(element: ElementType) -> bool;
}

macro_rules! elements {
    ($($rust:ident: $($element:ident)|+;)*) => {
        $(
            impl sealed::Sealed for $rust {}

            impl Element for $rust {
                const NAME: &'static str = stringify!($rust);

                fn reads(element: ElementType) -> bool {
                    matches!(element, $(ElementType::$element)|+)
                }
            }
        )*
    };
}

elements! {
    f32: F32;
    f64: F64;
    i8: I8;
    i16: I16;
    i32: I32;
    i64: I64;
    u8: U8 | Bool | F8E4M3Fn | F8E4M3FnUz | F8E5M2 | F8E5M2FnUz | F8E8M0;
    u16: U16 | F16 | Bf16;
    u32: U32;
    u64: U64;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits_agree<T: Element>() -> usize {
        let readable: Vec<_> = ElementType::ALL.iter().filter(|element| T::reads(**element)).collect();
        for element in &readable {
            assert_eq!(element.bits(), Some(size_of::<T>() * 8), "{} as {}", T::NAME, element.bits().unwrap_or(0));
        }
        readable.len()
    }

    #[test]
    fn every_element_is_exactly_as_wide_as_the_type_it_is_read_as() {
        let counts = [
            bits_agree::<f32>(),
            bits_agree::<f64>(),
            bits_agree::<i8>(),
            bits_agree::<i16>(),
            bits_agree::<i32>(),
            bits_agree::<i64>(),
            bits_agree::<u8>(),
            bits_agree::<u16>(),
            bits_agree::<u32>(),
            bits_agree::<u64>(),
        ];
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 7, 3, 1, 1]);
    }
}
