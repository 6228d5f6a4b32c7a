//! Memory between steps.

/// Memory that lives from step to step: it grows to the largest request and stays.
#[derive(Default)]
pub struct Scratch {
    words: Vec<u128>,
}

impl Scratch {
    /// At least `count` elements of a plain type, with any contents.
    pub fn get<T: Plain>(&mut self, count: usize) -> &mut [T] {
        let words = (count * size_of::<T>()).div_ceil(16);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        // SAFETY: the words hold at least that many bytes, 16-byte alignment is enough for any plain type, and every bit
        // pattern is a value of it.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), count) }
    }
}

/// Types for which every bit pattern is a value and 16-byte alignment is enough.
///
/// # Safety
/// As said.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty)*) => {
        $(
            // SAFETY: a number without padding or forbidden patterns.
            unsafe impl Plain for $type {}
        )*
    };
}

plain!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 usize isize half::f16 half::bf16);
