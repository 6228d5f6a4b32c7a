//! What callers and the engine's thread share: the waiting requests and the statistics.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::TextFinish;

use super::live::{Interruption, Live};
use super::schedule::Schedule;
use super::sequence::Sequence;
use super::{Rejected, Stats};

/// Bounds of the advice to try again.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// A sequence without a slot.
pub(super) struct Waiting {
    pub sequence: Sequence,
    pub interruption: Interruption,
    /// The request, with its first sequence.
    pub request: Option<Box<Live>>,
}

/// What the thread does next.
pub(super) struct Work {
    pub started: Vec<Waiting>,
    /// Waiting sequences that end without a slot.
    pub interrupted: Vec<(TextFinish, Waiting)>,
    /// Whether everything that runs must end, because the engine shuts down.
    pub must_end: bool,
}

pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    slots: usize,
    queue: usize,
}

struct State {
    schedule: Schedule<Waiting>,
    stats: Stats,
    /// Slots that are free, and not promised to a sequence that starts.
    idle: usize,
    /// When all requests are cancelled, once the engine is shutting down.
    closing: Option<Instant>,
    has_ended: bool,
    /// Mean duration of requests.
    duration: Duration,
}

impl Shared {
    pub fn new(slots: usize, queue: usize, stats: Stats) -> Shared {
        let state = State {
            schedule: Schedule::new(),
            stats,
            idle: slots,
            closing: None,
            has_ended: false,
            duration: Duration::ZERO,
        };
        Shared { state: Mutex::new(state), changed: Condvar::new(), slots, queue }
    }

    /// Adds a request.
    pub fn submit(&self, id: u64, request: Waiting) -> Result<(), Rejected> {
        let mut state = self.lock();
        if state.closing.is_some() || state.has_ended {
            return Err(Rejected::ShuttingDown);
        }
        let waiting = state.waiting();
        if waiting >= self.queue.saturating_add(state.idle.saturating_sub(state.followers())) {
            let turns = (waiting + 1).div_ceil(self.slots) as u32;
            let retry_after = state.duration.saturating_mul(turns).clamp(RETRY[0], RETRY[1]);
            return Err(Rejected::QueueFull { waiting, retry_after });
        }
        let priority = request.request.as_ref().map_or(0, |live| live.priority);
        state.schedule.push(id, priority, request);
        state.stats.submitted += 1;
        self.changed.notify_all();
        Ok(())
    }

    pub fn rejected(&self) {
        self.lock().stats.rejected += 1;
    }

    /// Adds choices of a request that has started.
    pub fn requeue(&self, id: u64, priority: i32, choices: Vec<Waiting>) {
        let mut state = self.lock();
        for choice in choices {
            state.schedule.push(id, priority, choice);
        }
    }

    /// Waits until there is something to do, with `idle` free slots, maybe something `running`, and maybe `room` for a
    /// sequence in the cache. `None` when the engine has been shut down.
    pub fn next_work(&self, idle: usize, running: bool, mut room: impl FnMut(&Sequence) -> bool) -> Option<Work> {
        let mut guard = self.lock();
        loop {
            let (now, state) = (Instant::now(), &mut *guard);
            let must_end = state.closing.is_some_and(|until| until <= now);
            let ended = state.schedule.extract(|waiting| must_end || waiting.interruption.at(now).is_some());
            let finish = |waiting: &Waiting| waiting.interruption.at(now).unwrap_or(TextFinish::Cancelled);
            let interrupted: Vec<_> = ended.into_iter().map(|waiting| (finish(&waiting), waiting)).collect();
            let mut started = Vec::new();
            while started.len() < idle
                && let Some(next) = state.schedule.pop_if(|waiting| room(&waiting.sequence))
            {
                started.push(next);
            }
            state.idle = idle - started.len();
            if running || !started.is_empty() || !interrupted.is_empty() {
                return Some(Work { started, interrupted, must_end });
            }
            if state.closing.is_some() {
                return None;
            }
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Counts a slot that becomes free before [`Shared::next_work`] is called again.
    pub fn freed(&self) {
        self.lock().idle += 1;
    }

    /// Changes the statistics.
    pub fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.lock().stats);
    }

    /// Counts a request that ended without an error.
    pub fn ended(&self, time: Duration, was_cancelled: bool) {
        let mut state = self.lock();
        if was_cancelled {
            state.stats.cancelled += 1;
        } else {
            state.stats.finished += 1;
            // A moving mean over about eight requests.
            state.duration = (state.duration * 7 + time) / 8;
        }
    }

    /// Counts a request that failed, and drops its waiting choices.
    pub fn failed(&self, id: u64) {
        let mut state = self.lock();
        state.stats.failed += 1;
        drop(state.schedule.extract(|waiting| waiting.sequence.request == id));
    }

    pub fn stats(&self) -> Stats {
        let state = self.lock();
        Stats { waiting: state.waiting(), ..state.stats.clone() }
    }

    /// Accepts no more requests, and cancels at `until` those that have not ended.
    pub fn close(&self, until: Instant) {
        let mut state = self.lock();
        state.closing = Some(state.closing.map_or(until, |earlier| earlier.min(until)));
        self.changed.notify_all();
    }

    /// Records that the thread has ended. Requests that still wait are dropped.
    pub fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        drop(state.schedule.extract(|_| true));
        self.changed.notify_all();
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits until the thread has ended.
    pub fn wait_for_end(&self) {
        let ended = self.changed.wait_while(self.lock(), |state| !state.has_ended);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Requests that have not started.
    fn waiting(&self) -> usize {
        self.schedule.count(|waiting| waiting.request.is_some())
    }

    /// Choices that wait for a slot while others of their request run.
    fn followers(&self) -> usize {
        self.schedule.count(|waiting| waiting.request.is_none())
    }
}
