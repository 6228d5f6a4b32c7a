//! The random numbers that ONNX Runtime GenAI draws from the same seed: mt19937, as in Matsumoto and Nishimura's paper
//! of 1998. Two outputs make one number between 0 and 1.

use std::hash::{BuildHasher, Hasher, RandomState};

const SIZE: usize = 624;
const SHIFT: usize = 397;

/// mt19937.
#[derive(Debug)]
pub(super) struct MersenneTwister {
    state: [u32; SIZE],
    next: usize,
}

impl MersenneTwister {
    pub fn new(seed: u32) -> MersenneTwister {
        let mut state = [seed; SIZE];
        for index in 1..SIZE {
            let before = state[index - 1];
            state[index] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(index as u32);
        }
        MersenneTwister { state, next: SIZE }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == SIZE {
            self.refill();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn refill(&mut self) {
        for index in 0..SIZE {
            let joined = (self.state[index] & 0x8000_0000) | (self.state[(index + 1) % SIZE] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % SIZE] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// A number from 0 to 1, made of two outputs, the low one first.
    pub fn next_unit(&mut self) -> f64 {
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        (low + high * 4_294_967_296.0) / 18_446_744_073_709_551_616.0
    }
}

/// A random seed, from the keys that the standard library draws for its hash maps.
pub(super) fn anywhere() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_is_the_one_of_the_c_plus_plus_standard() {
        let mut random = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| random.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn units_stay_between_zero_and_one() {
        let mut random = MersenneTwister::new(1);
        assert!((0..10_000).map(|_| random.next_unit()).all(|unit| (0.0..=1.0).contains(&unit)));
    }
}
