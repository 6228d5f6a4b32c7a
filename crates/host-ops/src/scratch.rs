//! Scratch memory that is kept between steps.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::OpError;

/// Memory kept from step to step: it grows to the largest request and is not freed until drop.
#[derive(Default)]
pub struct Scratch {
    words: Vec<u128>,
}

impl Scratch {
    /// The current size.
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u128>()
    }

    /// At least `count` elements of a plain type, with arbitrary contents. If the allocation fails, it unwinds to
    /// `or_no_memory`.
    pub fn get<T: Plain>(&mut self, count: usize) -> &mut [T] {
        let words = count.saturating_mul(size_of::<T>()).div_ceil(16);
        if self.words.len() < words {
            // A failed allocation in `resize` would abort the host's process.
            if self.words.try_reserve_exact(words - self.words.len()).is_err() {
                resume_unwind(Box::new(NoMemory { bytes: words.saturating_mul(16) }));
            }
            self.words.resize(words, 0);
        }
        // SAFETY: the words hold at least that many bytes, 16-byte alignment is enough for any plain type, and every
        // bit pattern is valid for it.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), count) }
    }
}

/// The size of the failed request.
struct NoMemory {
    bytes: usize,
}

/// Runs a step's work; returns an error if its scratch memory cannot be allocated.
pub(crate) fn or_no_memory(work: impl FnOnce() -> Result<(), OpError>) -> Result<(), OpError> {
    // An abandoned step leaves only its outputs incomplete, and nothing reads them after an error.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|thrown| match thrown.downcast::<NoMemory>() {
        Ok(missing) => Err(OpError::OutOfMemory { bytes: missing.bytes }),
        Err(panic) => resume_unwind(panic),
    })
}

/// Types for which every bit pattern is valid and 16-byte alignment is enough.
///
/// # Safety
/// Both must hold for the type.
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
    fn a_request_beyond_memory_is_an_error() {
        let mut scratch = Scratch::default();
        for count in [usize::MAX, usize::MAX / 8, 1 << 60] {
            let done = or_no_memory(|| {
                scratch.get::<u64>(count);
                Ok(())
            });
            let sentence = done.unwrap_err().to_string();
            assert!(sentence.contains("bytes of scratch memory"), "{sentence}");
        }
        assert_eq!(scratch.get::<u64>(3).len(), 3);
    }

    #[test]
    fn other_panics_propagate() {
        let caught = catch_unwind(|| or_no_memory(|| resume_unwind(Box::new("mine")))).unwrap_err();
        assert_eq!(caught.downcast_ref(), Some(&"mine"));
    }
}
