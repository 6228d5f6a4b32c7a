//! Rate limits for each API key: requests and tokens per minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limits, and what every key has left.
#[derive(Debug, Default)]
pub struct Rates {
    requests_per_minute: Option<u32>,
    tokens_per_minute: Option<u32>,
    /// By the name of the key; there are no more entries than keys.
    left: Mutex<HashMap<String, Left>>,
}

/// What a key has left. It is refilled steadily, up to the limit of a minute.
#[derive(Debug)]
struct Left {
    requests: f64,
    /// Below zero after an answer that was longer than what was left.
    tokens: f64,
    at: Instant,
}

impl Rates {
    pub fn new(requests_per_minute: Option<u32>, tokens_per_minute: Option<u32>) -> Rates {
        Rates { requests_per_minute, tokens_per_minute, left: Mutex::default() }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The time until it may be repeated, when the key has nothing left.
    pub fn admit(&self, key: &str, now: Instant) -> Result<(), Duration> {
        self.with(key, now, |left| {
            let wait = |limit: Option<u32>, has: f64, needs: f64| match limit {
                Some(limit) if has < needs => (needs - has) * 60.0 / f64::from(limit),
                _ => 0.0,
            };
            let requests = wait(self.requests_per_minute, left.requests, 1.0);
            let tokens = wait(self.tokens_per_minute, left.tokens, 1.0);
            let seconds = requests.max(tokens);
            if seconds > 0.0 {
                return Err(Duration::from_secs_f64(seconds));
            }
            left.requests -= 1.0;
            Ok(())
        })
    }

    /// Takes back a request that was admitted, but did not run.
    pub fn refund(&self, key: &str, now: Instant) {
        self.with(key, now, |left| left.requests += 1.0);
    }

    /// Counts tokens of a prompt or of an answer.
    pub fn spend(&self, key: &str, tokens: usize, now: Instant) {
        self.with(key, now, |left| left.tokens -= tokens as f64);
    }

    fn with<T>(&self, key: &str, now: Instant, then: impl FnOnce(&mut Left) -> T) -> T {
        let full = |limit: Option<u32>| f64::from(limit.unwrap_or(0));
        let (requests, tokens) = (full(self.requests_per_minute), full(self.tokens_per_minute));
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.entry(key.to_owned()).or_insert(Left { requests, tokens, at: now });
        let minutes = now.saturating_duration_since(left.at).as_secs_f64() / 60.0;
        left.requests = (left.requests + requests * minutes).min(requests);
        left.tokens = (left.tokens + tokens * minutes).min(tokens);
        left.at = now;
        then(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_are_refilled_steadily() {
        let (rates, start) = (Rates::new(Some(2), None), Instant::now());
        assert_eq!(rates.admit("a", start), Ok(()));
        assert_eq!(rates.admit("a", start), Ok(()));
        assert_eq!(rates.admit("a", start), Err(30 * SECOND));
        assert_eq!(rates.admit("b", start), Ok(()), "keys do not share their limits");
        assert_eq!(rates.admit("a", start + 31 * SECOND), Ok(()));
        assert!(rates.admit("a", start + 31 * SECOND).is_err());
    }

    #[test]
    fn a_refunded_request_does_not_count() {
        let (rates, start) = (Rates::new(Some(1), None), Instant::now());
        for _ in 0..3 {
            assert_eq!(rates.admit("a", start), Ok(()));
            rates.refund("a", start);
        }
        assert_eq!(rates.admit("a", start), Ok(()));
        assert!(rates.admit("a", start).is_err());
    }

    #[test]
    fn a_long_answer_delays_the_next_request() {
        let (rates, start) = (Rates::new(None, Some(60)), Instant::now());
        assert_eq!(rates.admit("a", start), Ok(()));
        rates.spend("a", 50, start);
        rates.spend("a", 40, start);
        assert_eq!(rates.admit("a", start), Err(31 * SECOND), "30 tokens too many, and one to begin with");
        assert_eq!(rates.admit("a", start + 32 * SECOND), Ok(()));
    }

    #[test]
    fn without_limits_everything_is_admitted() {
        let (rates, now) = (Rates::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(rates.admit("a", now), Ok(()));
            rates.spend("a", 1_000_000, now);
        }
    }
}
