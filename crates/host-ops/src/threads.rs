//! Threads for host work outside of ONNX Runtime calls.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::Parallel;

/// A few threads that are started on first use and end with the pool.
///
/// One job uses them at a time. A second job that arrives during the first runs on its own thread alone: waiting for
/// the pool would cost more than it gains.
pub struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    workers: OnceLock<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals a job, or the end of the pool.
    wake: Condvar,
    /// Signals that the last worker has left a job.
    left: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Arc<Job>>,
    /// How many workers are inside the job.
    inside: usize,
    is_closed: bool,
}

struct Job {
    body: Body,
    tasks: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
}

/// The work of a job, with its lifetime erased: see [`Pool::run`].
struct Body(*const (dyn Fn(usize) + Sync));

// SAFETY: the function is `Sync`, and `Pool::run` keeps it alive while any worker can call it.
unsafe impl Send for Body {}
// SAFETY: as above.
unsafe impl Sync for Body {}

impl Job {
    /// Runs tasks until none are left.
    fn work(&self) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks {
                return;
            }
            // SAFETY: there was a task left, so `Pool::run` has not returned and its `body` is alive.
            let body = unsafe { &*self.body.0 };
            if catch_unwind(AssertUnwindSafe(|| body(task))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of a worker.
    fn serve(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some(job) = state.job.clone() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.inside += 1;
            drop(state);
            job.work();
            state = self.lock();
            // The job has no tasks left, so other workers need not look at it.
            state.job.take_if(|current| Arc::ptr_eq(current, &job));
            state.inside -= 1;
            if state.inside == 0 {
                self.left.notify_all();
            }
        }
    }
}

impl Pool {
    /// A pool that runs as many tasks at once as the machine has processors.
    pub fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// A pool that runs this many tasks at once, including the one on the calling thread.
    pub fn with_threads(threads: usize) -> Self {
        Self { threads: threads.max(1), shared: Arc::default(), workers: OnceLock::new() }
    }

    fn start(&self) -> Vec<JoinHandle<()>> {
        let one = |_| {
            let shared = self.shared.clone();
            // If a thread cannot be started, the others do the work.
            std::thread::Builder::new().name("amdgpu-ep host".to_owned()).spawn(move || shared.serve()).ok()
        };
        (1..self.threads).filter_map(one).collect()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Parallel for Pool {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 || self.threads == 1 {
            return (0..tasks).for_each(body);
        }
        self.workers.get_or_init(|| self.start());
        let mut state = self.shared.lock();
        if state.job.is_some() || state.inside > 0 {
            drop(state);
            return (0..tasks).for_each(body);
        }
        // SAFETY: only the lifetime changes. No worker calls `body` after this function returns: it waits until all
        // tasks are taken and every worker that took one has left the job.
        let body: &'static (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let job =
            Arc::new(Job { body: Body(body), tasks, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) });
        state.job = Some(job.clone());
        drop(state);
        self.shared.wake.notify_all();
        job.work();
        let mut state = self.shared.lock();
        state.job.take_if(|current| Arc::ptr_eq(current, &job));
        while state.inside > 0 {
            state = self.shared.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if job.panicked.load(Ordering::Relaxed) {
            resume_unwind(Box::new("a task panicked"));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_all();
        for worker in self.workers.take().into_iter().flatten() {
            // Workers catch the panics of tasks and never panic themselves.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_for_every_caller() {
        let pool = Pool::with_threads(4);
        std::thread::scope(|scope| {
            for caller in 0..3 {
                let pool = &pool;
                scope.spawn(move || {
                    for tasks in 0..200 {
                        let seen: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        pool.run(tasks, &|task| {
                            seen[task].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{caller}: {tasks}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_after_the_other_tasks() {
        let pool = Pool::with_threads(3);
        let done = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(20, &|task| {
                assert!(task != 7, "as it should");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(done.load(Ordering::Relaxed), 19);
        pool.run(2, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 21);
    }

    #[test]
    fn threads_start_on_first_use_and_end_with_the_pool() {
        let pool = Pool::with_threads(3);
        let shared = Arc::downgrade(&pool.shared);
        assert_eq!(shared.strong_count(), 1);
        pool.run(8, &|_| ());
        assert!(shared.strong_count() > 1);
        drop(pool);
        assert_eq!(shared.strong_count(), 0);
    }
}
