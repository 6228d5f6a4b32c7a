//! The parameters of a case, drawn from its number.

use std::ops::Range;

/// A source of random choices; the same number gives the same choices.
pub struct Draw {
    case: u64,
    state: u64,
}

impl Draw {
    /// The choices for a case.
    pub fn new(case: u64) -> Self {
        let mut draw = Self { case, state: case.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 };
        // Mixes the seed: similar seeds would give similar first numbers.
        (0..8).for_each(|_| {
            draw.bits();
        });
        draw
    }

    /// The case's number, for families that iterate over a list.
    pub fn case(&self) -> u64 {
        self.case
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number from a range.
    pub fn int(&mut self, range: Range<i64>) -> i64 {
        range.start + (self.bits() % (range.end - range.start) as u64) as i64
    }

    /// A random boolean.
    pub fn flag(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// One of several items.
    pub fn choose<T: Clone>(&mut self, things: &[T]) -> T {
        things[(self.bits() % things.len() as u64) as usize].clone()
    }

    /// A list whose length is from a range.
    pub fn list<T>(&mut self, lengths: Range<i64>, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.int(lengths)).map(|_| one(self)).collect()
    }

    /// A number between -1 and 1.
    pub fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_drawn_the_same_way_again_and_others_differ() {
        let of = |case| {
            let mut draw = Draw::new(case);
            draw.list(4..5, |draw| draw.int(0..1000))
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut draw = Draw::new(1);
        let drawn: Vec<i64> = (0..1000).map(|_| draw.int(-2..3)).collect();
        assert!((-2..3).all(|value| drawn.contains(&value)) && drawn.iter().all(|value| (-2..3).contains(value)));
        assert!((0..1000).all(|_| (-1.0..1.0).contains(&draw.number())));
    }
}
