//! Outcomes of asynchronous work.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{ExecError, ThreadId};

/// Queued work, until its outcome has been collected. All runs of a session share one ledger.
#[derive(Default)]
pub struct Ledger {
    /// The number of entries: a run that was not queued checks only this.
    count: AtomicUsize,
    entries: Mutex<Entries>,
    changed: Condvar,
}

#[derive(Default)]
struct Entries {
    next: u64,
    pending: Vec<Entry>,
    /// Work that is polled for its outcome.
    watched: Vec<Watched>,
    failed: Vec<(ThreadId, ExecError)>,
}

/// Queued work that can be polled for its outcome. The same work may be queued again after it.
pub(crate) trait Pending: Send + Sync {
    /// The error that occurred since the last call, if any.
    fn failure(&self) -> Option<ExecError>;

    /// Waits until all queued work is done.
    fn wait(&self);
}

struct Watched {
    /// The number of the last time it was queued.
    number: u64,
    thread: ThreadId,
    work: Arc<dyn Pending>,
}

impl Entries {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Polls all watched work.
    fn poll(&mut self) {
        let failures = self.watched.iter().filter_map(|watched| Some((watched.thread, watched.work.failure()?)));
        self.failed.extend(failures);
    }
}

struct Entry {
    number: u64,
    thread: ThreadId,
}

impl Ledger {
    /// Registers work that this thread queues.
    pub(crate) fn enter(self: &Arc<Self>) -> Ticket {
        let mut entries = self.lock();
        let number = entries.number();
        entries.pending.push(Entry { number, thread: ThreadId::current() });
        self.recount(&entries);
        Ticket { ledger: self.clone(), number, is_open: true }
    }

    /// Registers work that this thread queued, possibly again, and that can be polled.
    pub(crate) fn watch(&self, work: Arc<dyn Pending>) {
        let mut entries = self.lock();
        let (number, thread) = (entries.number(), ThreadId::current());
        match entries.watched.iter_mut().find(|known| Arc::ptr_eq(&known.work, &work)) {
            Some(known) => (known.number, known.thread) = (number, thread),
            None => {
                entries.watched.push(Watched { number, thread, work });
                entries = self.without_left(entries);
            }
        }
        self.recount(&entries);
    }

    /// Waits for work that has no other owner, collects its failure and removes it: it cannot be queued again. If runs
    /// are never waited for, it would stay here forever.
    fn without_left<'a>(&'a self, mut entries: MutexGuard<'a, Entries>) -> MutexGuard<'a, Entries> {
        let left: Vec<_> = entries.watched.extract_if(.., |watched| Arc::strong_count(&watched.work) == 1).collect();
        if left.is_empty() {
            return entries;
        }
        drop(entries);
        left.iter().for_each(|watched| watched.work.wait());
        let mut entries = self.lock();
        entries.failed.extend(left.iter().filter_map(|watched| Some((watched.thread, watched.work.failure()?))));
        entries
    }

    /// True if no work is pending and no failure is unreported.
    pub fn is_clear(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits for all work entered so far.
    pub fn wait(&self) {
        let mut entries = self.lock();
        let end = entries.next;
        while entries.pending.iter().any(|entry| entry.number < end) {
            entries = self.changed.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
        let watched: Vec<_> = entries.watched.iter().map(|watched| watched.work.clone()).collect();
        drop(entries);
        watched.iter().for_each(|work| work.wait());
        let mut entries = self.lock();
        entries.poll();
        // Work that was queued again in the meantime was not waited for.
        entries.watched.retain(|watched| watched.number >= end);
        self.recount(&entries);
    }

    /// The first failure of work queued by threads for which `is_asked` is true. All their failures are cleared.
    pub fn take_failure(&self, is_asked: impl Fn(ThreadId) -> bool) -> Option<ExecError> {
        let mut entries = self.lock();
        entries.poll();
        let mut taken = entries.failed.extract_if(.., |(thread, _)| is_asked(*thread)).map(|(_, error)| error);
        let first = taken.next();
        taken.for_each(drop);
        self.recount(&entries);
        first
    }

    fn close(&self, number: u64, outcome: Result<(), ExecError>) {
        let mut entries = self.lock();
        if let Some(at) = entries.pending.iter().position(|entry| entry.number == number) {
            let entry = entries.pending.remove(at);
            entries.failed.extend(outcome.err().map(|error| (entry.thread, error)));
        }
        self.recount(&entries);
        self.changed.notify_all();
    }

    fn recount(&self, entries: &Entries) {
        self.count.store(entries.pending.len() + entries.watched.len() + entries.failed.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of queued work. If it is dropped without an outcome, it counts as failed.
pub(crate) struct Ticket {
    ledger: Arc<Ledger>,
    number: u64,
    is_open: bool,
}

impl Ticket {
    /// Reports that the work has ended.
    pub fn close(mut self, outcome: Result<(), ExecError>) {
        self.is_open = false;
        self.ledger.close(self.number, outcome);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_open {
            self.ledger.close(self.number, Err(ExecError::Abandoned));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_failure_is_reported_once_and_to_the_thread_it_belongs_to() {
        let ledger = Arc::new(Ledger::default());
        let here = ThreadId::current();
        let (good, bad) = (ledger.enter(), ledger.enter());
        assert!(!ledger.is_clear());
        good.close(Ok(()));
        bad.close(Err(ExecError::OutOfMemory { bytes: 1 }));
        assert_eq!(ledger.take_failure(|thread| thread != here), None);
        assert_eq!(ledger.take_failure(|thread| thread == here), Some(ExecError::OutOfMemory { bytes: 1 }));
        assert_eq!(ledger.take_failure(|_| true), None);
        assert!(ledger.is_clear());
    }

    #[test]
    fn work_that_was_dropped_has_failed() {
        let ledger = Arc::new(Ledger::default());
        drop(ledger.enter());
        ledger.wait();
        assert_eq!(ledger.take_failure(|_| true), Some(ExecError::Abandoned));
    }

    #[test]
    fn waiting_covers_only_work_registered_before() {
        let ledger = Arc::new(Ledger::default());
        let ticket = ledger.enter();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| ledger.wait());
            let later = ledger.enter();
            ticket.close(Ok(()));
            // `later` may have been registered before the wait began, so its work ends too.
            later.close(Ok(()));
            waiter.join().unwrap();
        });
        assert!(ledger.is_clear());
    }

    /// Work that fails once it is waited for.
    #[derive(Default)]
    struct Failing(AtomicUsize);

    impl Pending for Failing {
        fn failure(&self) -> Option<ExecError> {
            let waited = self.0.swap(0, Ordering::Relaxed);
            (waited > 0).then_some(ExecError::OutOfMemory { bytes: waited })
        }

        fn wait(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn work_of_dropped_plans_is_removed() {
        let ledger = Ledger::default();
        let kept = Arc::new(Failing::default());
        ledger.watch(kept.clone());
        for _ in 0..100 {
            let plan = Arc::new(Failing::default());
            ledger.watch(plan.clone());
        }
        assert_eq!(ledger.lock().watched.len(), 2, "one that is kept, and the last");
        assert_eq!(ledger.lock().failed.len(), 99, "failures of the others are still reported");
        assert_eq!(ledger.take_failure(|_| true), Some(ExecError::OutOfMemory { bytes: 1 }));
        assert_eq!(kept.0.load(Ordering::Relaxed), 0, "work that may be queued again is not waited for");
    }
}
