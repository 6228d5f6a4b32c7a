//! Runs jobs in parallel, one per processor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};

/// Runs all jobs, as many at a time as there are processors; results are in the order of the jobs.
///
/// # Errors
/// When a worker thread panicked.
pub fn on_all_processors<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { break };
                    let made = work(job);
                    let Ok(mut done) = done.lock() else { break };
                    done.push((number, made));
                }
            });
        }
    });
    let mut done = done.into_inner().ok().context("a worker thread panicked")?;
    done.sort_by_key(|&(number, _)| number);
    Ok(done.into_iter().map(|(_, made)| made).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_and_results_keep_their_order() {
        let jobs: Vec<usize> = (0..100).collect();
        let counted = AtomicUsize::new(0);
        let doubled = on_all_processors(&jobs, |job| (counted.fetch_add(1, Ordering::Relaxed), 2 * job).1).unwrap();
        assert_eq!(doubled, jobs.iter().map(|job| 2 * job).collect::<Vec<_>>());
        assert_eq!(counted.into_inner(), jobs.len());
        assert!(on_all_processors(&[], |job: &usize| *job).unwrap().is_empty());
    }
}
