//! Streams: work in submission order, run by the caller if the stream is idle and by a worker thread otherwise.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::capture::Capture;
use crate::config::{Config, StreamMode};
use crate::errors::raise_fault;
use crate::handles::{self, lock};
use crate::random::Random;
use crate::work::Task;

/// How long a worker waits for more work before its thread ends.
const IDLE_WORKER: Duration = Duration::from_millis(100);

/// How a stream relates to the legacy default stream of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The legacy default stream itself.
    Legacy,
    /// Ordered with the legacy default stream both ways.
    Blocking,
    /// Independent of it (`hipStreamNonBlocking`).
    NonBlocking,
}

/// An ordered queue of work on one device.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) device: usize,
    pub(crate) role: Role,
    pub(crate) priority: i32,
    siblings: Arc<StreamSet>,
    /// Present in `threads` mode: nothing runs on the calling thread, and everything is delayed.
    random: Option<Mutex<Random>>,
    /// Tasks are numbered from 1 in submission order and complete in that order.
    submitted: AtomicU64,
    completed: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The capture this stream takes part in.
    pub(crate) capture: Mutex<Option<Arc<Capture>>>,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Entry>,
    /// A task is being run, by the worker or by a submitting thread.
    running: bool,
    worker: bool,
    closed: bool,
}

struct Entry {
    after: Vec<Ticket>,
    task: Task,
}

/// A position in a stream that can be waited for.
#[derive(Clone)]
pub(crate) struct Ticket {
    stream: Arc<Stream>,
    number: u64,
}

impl Ticket {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stream.completed.load(Ordering::Acquire) >= self.number
    }

    pub(crate) fn wait(&self) {
        if self.is_done() {
            return;
        }
        let mut queue = lock(&self.stream.queue);
        while !self.is_done() {
            queue = self.stream.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A task with its position in the stream; [`Submission::finish`] lets it run.
#[must_use = "an unfinished submission blocks its stream"]
pub(crate) struct Submission {
    ticket: Ticket,
    inline: Option<Task>,
    /// No worker thread could be started: the submitting thread does its work.
    as_worker: bool,
}

impl Submission {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// Runs the task here if the stream is idle; otherwise its worker does.
    pub(crate) fn finish(self) -> Ticket {
        let stream = &self.ticket.stream;
        let mut as_worker = self.as_worker;
        if let Some(task) = self.inline {
            stream.execute(task);
            let mut queue = stream.complete();
            as_worker = !queue.pending.is_empty() && !stream.ensure_worker(&mut queue);
        }
        if as_worker {
            stream.work_off();
        }
        self.ticket
    }
}

impl Stream {
    pub(crate) fn create(
        config: &Config,
        device: usize,
        role: Role,
        priority: i32,
        siblings: &Arc<StreamSet>,
    ) -> Arc<Stream> {
        let handle = handles::fresh();
        let random = match config.streams {
            StreamMode::Immediate => None,
            StreamMode::Threads => Some(Mutex::new(Random::new(config.seed ^ (handle as u64).rotate_left(32)))),
        };
        let stream = Arc::new(Stream {
            handle,
            device,
            role,
            priority,
            siblings: Arc::clone(siblings),
            random,
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            queue: Mutex::default(),
            changed: Condvar::new(),
            capture: Mutex::new(None),
        });
        siblings.add(&stream);
        stream
    }

    /// Gives `task` its position: after everything submitted to this stream, after `after`, and, for blocking streams
    /// and the legacy default stream, after each other.
    pub(crate) fn submit(self: &Arc<Self>, mut after: Vec<Ticket>, task: Task) -> Submission {
        // Held until the position is taken: two threads must not miss each other's submission.
        let _order = match self.role {
            Role::NonBlocking => None,
            Role::Blocking => {
                let order = lock(&self.siblings.streams);
                after.extend(self.siblings.legacy().map(|legacy| legacy.tail()));
                Some(order)
            }
            Role::Legacy => {
                let order = lock(&self.siblings.streams);
                let blocking = order.iter().filter_map(Weak::upgrade).filter(|stream| stream.role == Role::Blocking);
                after.extend(blocking.map(|stream| stream.tail()));
                Some(order)
            }
        };
        after.retain(|ticket| !ticket.is_done() && !Arc::ptr_eq(&ticket.stream, self));
        let mut queue = lock(&self.queue);
        let number = self.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        let ticket = Ticket { stream: Arc::clone(self), number };
        let idle = queue.pending.is_empty() && !queue.running;
        if idle && after.is_empty() && self.random.is_none() {
            queue.running = true;
            return Submission { ticket, inline: Some(task), as_worker: false };
        }
        queue.pending.push_back(Entry { after, task });
        // The thread that runs a task now checks the queue again afterwards.
        let as_worker = !queue.running && !self.ensure_worker(&mut queue);
        Submission { ticket, inline: None, as_worker }
    }

    /// [`Stream::submit`] without further conditions.
    pub(crate) fn run(self: &Arc<Self>, task: Task) -> Ticket {
        self.submit(Vec::new(), task).finish()
    }

    /// The last position taken so far.
    pub(crate) fn tail(self: &Arc<Self>) -> Ticket {
        Ticket { stream: Arc::clone(self), number: self.submitted.load(Ordering::Acquire) }
    }

    /// The positions that must be reached before the stream counts as idle.
    pub(crate) fn tails(self: &Arc<Self>) -> Vec<Ticket> {
        match self.role {
            Role::Legacy => {
                let counts = |stream: &Arc<Stream>| stream.role != Role::NonBlocking;
                self.siblings.all().iter().filter(|stream| counts(stream)).map(Stream::tail).collect()
            }
            _ => vec![self.tail()],
        }
    }

    /// Lets queued work finish, then the worker ends.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }

    fn execute(&self, task: Task) {
        let mut random = self.random.as_ref().map(lock);
        if catch_unwind(AssertUnwindSafe(|| task.run(random.as_deref_mut()))).is_err() {
            raise_fault(format_args!("work on stream {:#x} panicked", self.handle));
        }
    }

    fn complete(&self) -> MutexGuard<'_, Queue> {
        let mut queue = lock(&self.queue);
        queue.running = false;
        self.completed.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        queue
    }

    /// Wakes or starts the worker; false if no thread could be started and the caller must call [`Stream::work_off`].
    fn ensure_worker(self: &Arc<Self>, queue: &mut MutexGuard<'_, Queue>) -> bool {
        if queue.worker {
            self.changed.notify_all();
            return true;
        }
        queue.worker = true;
        let stream = Arc::clone(self);
        let worker = std::thread::Builder::new().name("hip-host stream".to_owned());
        worker.spawn(move || stream.work_off()).is_ok()
    }

    fn work_off(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if !queue.running
                && let Some(Entry { after, task }) = queue.pending.pop_front()
            {
                queue.running = true;
                drop(queue);
                if let Some(random) = &self.random {
                    let delay = lock(random).delay();
                    std::thread::sleep(delay);
                }
                after.iter().for_each(Ticket::wait);
                self.execute(task);
                queue = self.complete();
                continue;
            }
            if queue.closed && !queue.running {
                break;
            }
            let (after_wait, waited) =
                self.changed.wait_timeout(queue, IDLE_WORKER).unwrap_or_else(PoisonError::into_inner);
            queue = after_wait;
            if waited.timed_out() && queue.pending.is_empty() && !queue.running {
                break;
            }
        }
        queue.worker = false;
    }
}

/// The streams of one device.
#[derive(Default)]
pub(crate) struct StreamSet {
    legacy: OnceLock<Weak<Stream>>,
    /// All streams, including destroyed ones whose work has not finished. Locked while a position is taken.
    streams: Mutex<Vec<Weak<Stream>>>,
}

impl StreamSet {
    fn add(&self, stream: &Arc<Stream>) {
        if stream.role == Role::Legacy {
            // There is one per device, created with it.
            let _ = self.legacy.set(Arc::downgrade(stream));
        }
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    fn legacy(&self) -> Option<Arc<Stream>> {
        self.legacy.get()?.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for everything submitted to any stream so far.
    pub(crate) fn synchronize(&self) {
        for stream in self.all() {
            stream.tail().wait();
        }
    }
}
