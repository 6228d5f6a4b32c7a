//! Counts the memory that the engine holds, by purpose. It is counted where it is allocated, for all sessions of this
//! library.
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Constants of the model in host memory. The host device reads them there. Large constants on a GPU count here
    /// only if the host needs them too.
    Constants,
    /// Constants that are read from mapped files of the model. The system drops these pages when it needs memory.
    Mapped,
    /// Constants in GPU memory.
    Weights,
    /// Values that the steps of a run pass to each other, one block for each concurrent run, and workspace for
    /// libraries.
    Arena,
    /// Scratch memory of steps on the host.
    Working,
    /// Pinned memory for uploads, freed when they are done.
    Staging,
}

/// Memory for one purpose, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Currently held.
    pub now: usize,
    /// The maximum held at one time.
    pub peak: usize,
}

static NOW: [AtomicUsize; Purpose::ALL.len()] = [const { AtomicUsize::new(0) }; Purpose::ALL.len()];
static PEAK: [AtomicUsize; Purpose::ALL.len()] = [const { AtomicUsize::new(0) }; Purpose::ALL.len()];

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 6] =
        [Self::Constants, Self::Mapped, Self::Weights, Self::Arena, Self::Working, Self::Staging];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constants => "constants",
            Self::Mapped => "mapped",
            Self::Weights => "weights",
            Self::Arena => "arena",
            Self::Working => "working",
            Self::Staging => "staging",
        }
    }

    /// How much memory is held for it.
    pub fn usage(self) -> Usage {
        let of_tensors = match self {
            Self::Constants => Some(graph::memory::held()),
            Self::Mapped => Some(graph::memory::lent()),
            _ => None,
        };
        if let Some(graph::memory::Held { now, peak }) = of_tensors {
            return Usage { now, peak };
        }
        let at = self as usize;
        Usage { now: NOW[at].load(Ordering::Relaxed), peak: PEAK[at].load(Ordering::Relaxed) }
    }

    fn change(self, from: usize, to: usize) {
        let counter = &NOW[self as usize];
        let before = if to >= from {
            counter.fetch_add(to - from, Ordering::Relaxed)
        } else {
            counter.fetch_sub(from - to, Ordering::Relaxed)
        };
        PEAK[self as usize].fetch_max(before.wrapping_add(to).wrapping_sub(from), Ordering::Relaxed);
    }
}

/// Counts bytes for as long as it lives.
#[derive(Debug)]
pub(crate) struct Share {
    purpose: Purpose,
    bytes: usize,
}

impl Share {
    pub fn new(purpose: Purpose, bytes: usize) -> Self {
        purpose.change(0, bytes);
        Self { purpose, bytes }
    }

    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.purpose.change(self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.purpose.change(self.bytes, 0);
    }
}

/// A piece of memory that is counted.
pub(crate) struct Counted<T> {
    inner: T,
    _share: Share,
}

impl<T> Counted<T> {
    pub fn new(inner: T, purpose: Purpose, bytes: usize) -> Self {
        Self { inner, _share: Share::new(purpose, bytes) }
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other unit test of this crate uploads anything.
    #[test]
    fn dropped_memory_is_subtracted_and_the_peak_stays() {
        let before = Purpose::Staging.usage();
        let mut share = Share::new(Purpose::Staging, 100);
        share.set(1000);
        share.set(10);
        let counted = Counted::new((), Purpose::Staging, 7);
        assert_eq!(Purpose::Staging.usage().now, before.now + 17);
        drop((share, counted));
        let after = Purpose::Staging.usage();
        assert_eq!(after.now, before.now);
        assert!(after.peak >= before.now + 1000);
    }
}
