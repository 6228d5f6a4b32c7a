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
        let at = |share| ranked(&times, share).unwrap_or(f64::NAN);
        Times { runs: times.len(), median_ms: at(0.5), p95_ms: at(0.95), min_ms: at(0.0) }
    }
}

/// Percentiles of the times that users wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl Percentiles {
    /// Summarises `times`; `None` if there are none.
    pub fn of(mut times: Vec<Duration>) -> Option<Percentiles> {
        times.sort_unstable();
        let at = |share| ranked(&times, share);
        Some(Percentiles { p50_ms: at(0.5)?, p90_ms: at(0.9)?, p99_ms: at(0.99)? })
    }
}

/// Nearest rank: the smallest time that at least this share of all times does not exceed, in milliseconds.
fn ranked(sorted: &[Duration], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).map(|time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn times_are_summarised_by_rank() {
        let times = |times: &[u64]| Times::of(milliseconds(times.iter().copied()));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(times(&hundred), Times { runs: 100, median_ms: 50.0, p95_ms: 95.0, min_ms: 1.0 });
        assert_eq!(times(&[7]), Times { runs: 1, median_ms: 7.0, p95_ms: 7.0, min_ms: 7.0 });
        assert_eq!(times(&[3, 1, 2]), Times { runs: 3, median_ms: 2.0, p95_ms: 3.0, min_ms: 1.0 });
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let percentiles = |times: Vec<Duration>| Percentiles::of(times).unwrap();
        let wanted = Percentiles { p50_ms: 500.0, p90_ms: 900.0, p99_ms: 990.0 };
        assert_eq!(percentiles(milliseconds((1..=1000).rev())), wanted);
        // Ten times: the 99th percentile is the largest.
        assert_eq!(percentiles(milliseconds(1..=10)), Percentiles { p50_ms: 5.0, p90_ms: 9.0, p99_ms: 10.0 });
        assert_eq!(percentiles(milliseconds([4])), Percentiles { p50_ms: 4.0, p90_ms: 4.0, p99_ms: 4.0 });
        assert_eq!(Percentiles::of(Vec::new()), None);
    }
}
