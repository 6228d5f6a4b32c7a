//! Memory between steps.

/// Memory that lives from step to step: it grows to the largest request and stays.
#[derive(Default)]
pub struct Scratch {
    words: Vec<u128>,
}

impl Scratch {
    /// At least `count` elements of a plain type, with any contents. Unwinds if there is not that much memory.
    pub fn get<T: Plain>(&mut self, count: usize) -> &mut [T] {
        let words = count.saturating_mul(size_of::<T>()).div_ceil(16);
        if self.words.len() < words {
            // Running out of memory in `resize` would end the host's process. Unwinding ends at the plugin's border, as a
            // status with this sentence.
            if self.words.try_reserve_exact(words - self.words.len()).is_err() {
                let sentence = format!("{} bytes of working memory could not be had", words.saturating_mul(16));
                std::panic::resume_unwind(Box::new(sentence));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_beyond_memory_unwinds_with_a_sentence() {
        for count in [usize::MAX, usize::MAX / 8, 1 << 60] {
            let caught = std::panic::catch_unwind(|| Scratch::default().get::<u64>(count).len()).unwrap_err();
            let sentence = caught.downcast::<String>().unwrap();
            assert!(sentence.ends_with("bytes of working memory could not be had"), "{sentence}");
        }
        assert_eq!(Scratch::default().get::<u64>(3).len(), 3);
    }
}
