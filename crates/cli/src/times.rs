//! Statistics of repeated measurements.

use std::time::Duration;

use serde::Serialize;

/// Times of a repeated operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    pub runs: usize,
    pub median_ms: f64,
    pub p95_ms: f64,
    pub min_ms: f64,
}

impl Times {
    /// Summarises `times`, which must not be empty.
    pub fn of(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        let at = |share: f64| {
            // Nearest rank: the smallest time that at least this share of all times does not exceed.
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.clamp(1, times.len().max(1)) - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Times { runs: times.len(), median_ms: at(0.5), p95_ms: at(0.95), min_ms: at(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(times: impl IntoIterator<Item = u64>) -> Times {
        Times::of(times.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn times_are_summarised_by_rank() {
        assert_eq!(milliseconds((1..=100).rev()), Times { runs: 100, median_ms: 50.0, p95_ms: 95.0, min_ms: 1.0 });
        assert_eq!(milliseconds([7]), Times { runs: 1, median_ms: 7.0, p95_ms: 7.0, min_ms: 7.0 });
        assert_eq!(milliseconds([3, 1, 2]), Times { runs: 3, median_ms: 2.0, p95_ms: 3.0, min_ms: 1.0 });
    }
}
