//! A small random number generator: delays and orders need no quality, only a seed.

use std::time::Duration;

/// A `splitmix64` sequence.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// No delay, a short one or a long one, so that orders between streams vary at several time scales.
    pub(crate) fn delay(&mut self) -> Duration {
        match self.next() % 8 {
            0..3 => Duration::ZERO,
            3..7 => Duration::from_micros(self.next() % 200),
            _ => Duration::from_micros(500 + self.next() % 1500),
        }
    }
}
