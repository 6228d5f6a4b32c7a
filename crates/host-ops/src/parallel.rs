//! Runs tasks on threads.

/// Runs tasks on threads.
pub trait Parallel: Sync {
    /// How many tasks can run at once.
    fn threads(&self) -> usize;

    /// Runs `body` for every index below `tasks`, in any order and on any thread, and returns when all are done.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync));
}

/// Runs tasks one after the other on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(body);
    }
}

impl dyn Parallel + '_ {
    /// Splits `0..count` into ranges of at least `grain` and runs them.
    pub fn ranges(&self, count: usize, grain: usize, body: impl Fn(std::ops::Range<usize>) + Sync) {
        let threads = self.threads();
        // Several ranges per thread even out differences in speed; a single thread needs only one.
        let most = if threads == 1 { 1 } else { threads * 4 };
        let tasks = count.div_ceil(grain.max(1)).min(most).max(1);
        if tasks == 1 {
            return body(0..count);
        }
        let length = count.div_ceil(tasks);
        self.run(tasks, &|task| {
            let start = (task * length).min(count);
            body(start..(start + length).min(count));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Four;

    impl Parallel for Four {
        fn threads(&self) -> usize {
            4
        }

        fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| (0..tasks).for_each(|task| drop(scope.spawn(move || body(task)))));
        }
    }

    #[test]
    fn a_single_thread_gets_one_range() {
        let calls = AtomicUsize::new(0);
        let parallel: &dyn Parallel = &Serial;
        parallel.ranges(1000, 1, |range| {
            assert_eq!(range, 0..1000);
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.into_inner(), 1);
    }

    #[test]
    fn ranges_cover_everything_once() {
        for count in [0, 1, 7, 100, 1001] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let parallel: &dyn Parallel = &Four;
            parallel.ranges(count, 10, |range| {
                for at in range {
                    seen[at].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{count}");
        }
    }
}
