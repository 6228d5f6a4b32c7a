//! What the runs of a session share: the order of their work, and who is told when it fails.
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, ThreadId},
};

use exec::{Capture, Ledger, Order};
use hip::RawStream;
use ort_ep::{
    Error, Result,
    view::{KernelContext, RunOptions},
};

use crate::{
    capture::{Captures, Recording},
    ffi,
};

/// The runs of a session.
pub(crate) struct Runs {
    /// The number of the driver's device whose streams runs come with.
    ordinal: usize,
    /// Looked up when a run first brings a stream.
    device: OnceLock<hip::Device>,
    ledger: Arc<Ledger>,
    open: Mutex<Vec<OpenRun>>,
    captures: Option<Captures>,
}

/// A run under way.
struct OpenRun {
    thread: ThreadId,
    /// What it does for the capture of its graph, where captures are wanted.
    recording: Option<Recording>,
}

/// Where the work of one call goes.
pub(crate) enum Place<'a> {
    /// Nowhere but here.
    Here,
    /// Behind the work of a stream.
    Stream(&'a hip::Device, RawStream<'a>),
    /// Into a capture.
    Capture(Arc<Capture>),
}

impl Runs {
    /// The runs of a session on a device of the driver; with `captures`, ONNX Runtime asks for captures.
    pub fn new(ordinal: usize, captures: bool) -> Self {
        let captures = captures.then(Captures::default);
        Self { ordinal, device: OnceLock::new(), ledger: Arc::default(), open: Mutex::default(), captures }
    }

    /// The captures, where they are wanted.
    pub fn captures(&self) -> Option<&Captures> {
        self.captures.as_ref()
    }

    /// A run begins on this thread.
    pub fn start(&self, options: RunOptions<'_>) -> Result<()> {
        let thread = thread::current().id();
        // Only a run that ended without being ended leaves something here; a capture of it ends now.
        self.take(thread);
        let recording = self.captures.as_ref().map(|captures| captures.start(thread, options, || self.device()));
        self.lock().push(OpenRun { thread, recording: recording.transpose()? });
        Ok(())
    }

    /// A run ends on this thread; `sync` asks to wait for its work.
    pub fn end(&self, sync: bool) -> Result<()> {
        let thread = thread::current().id();
        let recording = self.take(thread).and_then(|run| run.recording);
        let captured = match (&self.captures, recording) {
            (Some(captures), Some(recording)) => captures.end(thread, recording),
            _ => Ok(()),
        };
        self.settle(thread, sync).and(captured)
    }

    /// Waits for all work that was queued.
    pub fn wait(&self) {
        if !self.ledger.is_clear() {
            self.ledger.wait();
        }
    }

    /// Reports what went wrong in queued work of a run that ends on `thread`.
    fn settle(&self, thread: ThreadId, sync: bool) -> Result<()> {
        if self.ledger.is_clear() {
            return Ok(());
        }
        if sync {
            self.ledger.wait();
        }
        // Work that a thread of ONNX Runtime's own queued belongs to some run, and this one is as good as any.
        let others: Vec<ThreadId> = self.lock().iter().map(|run| run.thread).filter(|&other| other != thread).collect();
        let failure = self.ledger.take_failure(|queued_by| !others.contains(&queued_by));
        failure.map_or(Ok(()), |error| Err(Error::ep_fail(error.to_string())))
    }

    /// Where the work of a call goes.
    pub fn place<'a>(&'a self, context: &'a KernelContext<'_>) -> Result<Place<'a>> {
        let stream = ffi::stream(context)?;
        if self.captures.is_some() {
            let thread = thread::current().id();
            let mut open = self.lock();
            let run = open.iter_mut().find(|run| run.thread == thread);
            if let Some(recording) = run.and_then(|run| run.recording.as_mut())
                && let Some(capture) = recording.enter(stream)?
            {
                return Ok(Place::Capture(capture));
            }
        }
        match stream {
            Some(stream) => Ok(Place::Stream(self.device()?, stream)),
            None => Ok(Place::Here),
        }
    }

    /// The order that a place stands for.
    pub fn order<'a>(&'a self, place: &'a Place<'a>) -> Order<'a> {
        match place {
            Place::Here => Order::Now,
            Place::Stream(device, stream) => Order::Stream { device, stream: *stream, ledger: &self.ledger },
            Place::Capture(capture) => Order::Record(capture),
        }
    }

    fn device(&self) -> Result<&hip::Device> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let failed = |error: &dyn std::fmt::Display| Error::ep_fail(error.to_string());
        let driver = hip::Driver::load(hip::DriverKind::Host).map_err(|error| failed(&error))?;
        let mut devices = driver.devices().map_err(|error| failed(&error))?;
        if self.ordinal >= devices.len() {
            let (ordinal, count) = (self.ordinal, devices.len());
            return Err(Error::ep_fail(format!("the session is on device {ordinal}, and the driver has {count}")));
        }
        Ok(self.device.get_or_init(|| devices.swap_remove(self.ordinal)))
    }

    fn take(&self, thread: ThreadId) -> Option<OpenRun> {
        let mut open = self.lock();
        let at = open.iter().position(|run| run.thread == thread)?;
        Some(open.swap_remove(at))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenRun>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
