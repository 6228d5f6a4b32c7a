//! Sends the requests of a measurement: from clients that wait for their answers, or at random times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, sleep_until};

use super::Body;
use super::answer::Answer;
use super::client::{Client, Failure};
use super::prompts::Prompts;
use crate::random::Random;

/// The load of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Closed loop: this many clients, each with one request at a time.
    Clients(usize),
    /// Open loop: requests per second, whether or not earlier ones were answered.
    Rate(f64),
}

impl Load {
    /// The number of clients in a closed loop.
    pub fn clients(self) -> Option<usize> {
        match self {
            Load::Clients(clients) => Some(clients),
            Load::Rate(_) => None,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Clients(1) => write!(f, "1 client"),
            Load::Clients(clients) => write!(f, "{clients} clients"),
            Load::Rate(rate) => write!(f, "{rate} requests/s"),
        }
    }
}

/// How a request ended.
pub type Outcome = Result<Answer, Failure>;

/// What all measurements share.
pub struct Plan {
    pub client: Client,
    pub body: Body,
    pub prompts: Prompts,
    pub seed: u64,
}

impl Plan {
    /// Sends this many requests, and returns how they ended and how long all of them took.
    pub async fn run(self: &Arc<Self>, load: Load, requests: usize) -> (Vec<Outcome>, Duration) {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        match load {
            Load::Clients(clients) => {
                let next = Arc::new(AtomicUsize::new(0));
                for _ in 0..clients {
                    let (plan, next) = (self.clone(), next.clone());
                    tasks.spawn(async move {
                        let mut outcomes = Vec::new();
                        loop {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            if index >= requests {
                                return outcomes;
                            }
                            outcomes.push(plan.request(load, index, Instant::now()).await);
                        }
                    });
                }
            }
            Load::Rate(rate) => {
                for (index, arrival) in arrivals(self.seed, rate).take(requests).enumerate() {
                    let (plan, at) = (self.clone(), start + arrival);
                    tasks.spawn(async move {
                        sleep_until(Deadline::from_std(at)).await;
                        // Times count from the arrival, so that a late start of the client is not hidden.
                        vec![plan.request(load, index, at).await]
                    });
                }
            }
        }
        let outcomes = tasks.join_all().await.into_iter().flatten().collect();
        (outcomes, start.elapsed())
    }

    async fn request(&self, load: Load, index: usize, start: Instant) -> Outcome {
        // A prompt that an earlier measurement has sent would be in the server's prefix cache.
        let prompt = self.prompts.text(&format!("{} {load} {index}", self.seed));
        self.client.answer(self.body.endpoint.path(), &self.body.with(&prompt), start).await
    }
}

/// The times of a Poisson process: the gaps are exponentially distributed.
fn arrivals(seed: u64, rate: f64) -> impl Iterator<Item = Duration> {
    let (mut random, mut seconds) = (Random::new(seed), 0.0);
    std::iter::repeat_with(move || {
        seconds -= (1.0 - random.share()).ln() / rate;
        // Far beyond any measurement, but within the range of a clock.
        Duration::from_secs_f64(seconds.min(1e9))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_a_poisson_process() {
        let times: Vec<f64> = arrivals(1, 20.0).take(50_000).map(|time| time.as_secs_f64()).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        // In a Poisson process, the number of arrivals in a second has the mean and the variance of the rate.
        let seconds = times.last().unwrap().floor() as usize;
        let mut counts = vec![0.0; seconds];
        for time in times.iter().filter(|time| **time < seconds as f64) {
            counts[*time as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / seconds as f64;
        let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / seconds as f64;
        assert!((mean - 20.0).abs() < 0.5, "mean {mean}");
        assert!((variance - 20.0).abs() < 2.5, "variance {variance}");
    }

    #[test]
    fn arrivals_follow_the_seed() {
        let first = |seed| arrivals(seed, 3.0).take(9).collect::<Vec<_>>();
        assert_eq!(first(5), first(5));
        assert_ne!(first(5), first(6));
    }
}
