//! A request that was accepted: its client, and the choices that have not ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::TextFinish;
use crate::caught::caught;

use super::sequence::Sequence;
use super::{Event, Usage};

/// Where events go.
pub(super) type Sink = Box<dyn FnMut(Event) + Send>;

/// What ends a request early.
#[derive(Clone, Debug)]
pub(super) struct Interruption {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Interruption {
    pub fn new(deadline: Option<Instant>) -> Interruption {
        Interruption { cancelled: Arc::new(AtomicBool::new(false)), deadline }
    }

    /// Why the request must end now, if it must.
    pub fn at(&self, now: Instant) -> Option<TextFinish> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Some(TextFinish::Cancelled);
        }
        self.deadline.is_some_and(|deadline| deadline <= now).then_some(TextFinish::Deadline)
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// The part of a request that the choices share.
pub(super) struct Live {
    pub priority: i32,
    pub interruption: Interruption,
    /// Choices that start when the first one has run the prompt.
    pub followers: Vec<Sequence>,
    /// Choices that have not ended.
    open: usize,
    pub usage: Usage,
    submitted: Instant,
    was_cancelled: bool,
    /// `None` after it panicked.
    sink: Option<Sink>,
}

impl Live {
    pub fn new(priority: i32, interruption: Interruption, followers: Vec<Sequence>, sink: Sink) -> Live {
        Live {
            priority,
            interruption,
            open: followers.len() + 1,
            followers,
            usage: Usage::default(),
            submitted: Instant::now(),
            was_cancelled: false,
            sink: Some(sink),
        }
    }

    /// Passes an event on. A client that panics is treated as one that has gone away.
    pub fn send(&mut self, event: Event) {
        let Some(mut sink) = self.sink.take() else { return };
        match caught(|| {
            sink(event);
            sink
        }) {
            Some(sink) => self.sink = Some(sink),
            None => self.interruption.cancel(),
        }
    }

    /// Reports the end of a choice, and returns whether it was the last one.
    pub fn end_choice(&mut self, choice: usize, text: String, finish: TextFinish) -> bool {
        if !text.is_empty() {
            self.send(Event::Text { choice, text });
        }
        self.was_cancelled |= finish == TextFinish::Cancelled;
        self.send(Event::Finished { choice, finish });
        self.open -= 1;
        self.open == 0
    }

    /// Whether it was cancelled, or its client broke.
    pub fn was_cancelled(&self) -> bool {
        self.was_cancelled || self.sink.is_none()
    }

    /// Reports the end of all choices.
    pub fn done(mut self) {
        self.usage.total = self.elapsed();
        self.send(Event::Done(self.usage));
        self.close();
    }

    pub fn elapsed(&self) -> Duration {
        self.submitted.elapsed()
    }

    /// Drops the sink, which is foreign code too.
    pub fn close(mut self) {
        let sink = self.sink.take();
        let _ = caught(|| drop(sink));
    }
}
