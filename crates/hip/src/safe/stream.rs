//! Streams: owned ones, and borrowed handles to any stream.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::device::Device;
use super::event::Event;
use super::graph::Graph;
use super::host_fn::{self, RecordedFn};
use super::report_leak;
use crate::HipError;
use crate::result::{graph, stream};
use crate::sys::{Handle, HostFn, codes};

/// A borrowed stream handle, owned by a [`Stream`] or by other code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RawStream<'a> {
    handle: Handle,
    owner: PhantomData<&'a Stream>,
}

// SAFETY: a stream handle may be used from any thread; the driver does its own locking.
unsafe impl Send for RawStream<'_> {}
// SAFETY: as above.
unsafe impl Sync for RawStream<'_> {}

impl<'a> RawStream<'a> {
    /// The device's default stream, which waits for all blocking streams of the device.
    pub const DEFAULT: RawStream<'static> = RawStream { handle: ptr::null_mut(), owner: PhantomData };

    /// Wraps a stream that other code owns; null is the default stream.
    ///
    /// # Safety
    /// The handle is a stream of the driver and device that it will be used with, and lives for `'a`.
    pub const unsafe fn from_ptr(handle: *mut c_void) -> RawStream<'a> {
        RawStream { handle, owner: PhantomData }
    }

    /// The driver's handle.
    pub const fn as_ptr(self) -> *mut c_void {
        self.handle
    }

    pub(crate) const fn handle(self) -> Handle {
        self.handle
    }
}

impl fmt::Debug for RawStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawStream({:p})", self.handle)
    }
}

/// Which calls of other threads a capture forbids, numbered as in HIP and CUDA.
///
/// A forbidden call fails *and* invalidates the capture. Some calls do so in every mode: waiting for the device or for
/// the captured stream, querying an event that was last recorded on that stream, and on AMD any work on the default
/// stream and any synchronous copy ([`Device::copy_raw`], [`DeviceBuffer`](crate::DeviceBuffer)'s copies), from any
/// thread. On AMD the first two modes also forbid querying or waiting for streams and events that are unrelated to the
/// capture. If other threads use the device too, only `Relaxed` does not disturb them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum CaptureMode {
    /// Unsafe calls from any thread fail.
    Global = 0,
    /// Unsafe calls from this thread fail.
    ThreadLocal = 1,
    /// The capture makes no other call fail.
    Relaxed = 2,
}

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// The stream runs its work.
    None,
    /// The stream records its work.
    Active,
    /// The stream recorded something that cannot be captured; ending the capture will fail.
    Invalidated,
}

/// An owned stream: ordered within itself, and not synchronised with the default stream. Its work still finishes after
/// it is dropped.
pub struct Stream {
    device: Device,
    handle: Handle,
    /// Functions recorded since the capture began; the graph will own them.
    recorded: Mutex<Vec<RecordedFn>>,
}

// SAFETY: a stream handle may be used from any thread; the rest is `Send`.
unsafe impl Send for Stream {}
// SAFETY: the driver does its own locking; `recorded` is behind a mutex.
unsafe impl Sync for Stream {}

impl Device {
    /// Creates a non-blocking stream.
    ///
    /// # Errors
    /// The driver's status.
    pub fn stream(&self) -> Result<Stream, HipError> {
        let _scope = self.enter()?;
        let handle = stream::create(self.driver().runtime(), codes::STREAM_NON_BLOCKING)?;
        self.driver().streams().add(handle);
        Ok(Stream { device: self.clone(), handle, recorded: Mutex::default() })
    }

    /// Waits for all work on a stream.
    ///
    /// # Errors
    /// The driver's status, which may be that of earlier work.
    pub fn stream_synchronize(&self, stream: RawStream<'_>) -> Result<(), HipError> {
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        unsafe { stream::synchronize(self.driver().runtime(), stream.handle()) }
    }

    /// Whether all work on a stream is done.
    ///
    /// # Errors
    /// The driver's status.
    pub fn stream_query(&self, stream: RawStream<'_>) -> Result<bool, HipError> {
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        unsafe { stream::query(self.driver().runtime(), stream.handle()) }
    }

    /// Makes later work on a stream wait for an event, from this or another device of the driver.
    ///
    /// # Errors
    /// The driver's status.
    pub fn stream_wait(&self, stream: RawStream<'_>, event: &Event) -> Result<(), HipError> {
        self.same_driver("the event", event.device())?;
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime; the event is borrowed.
        unsafe { stream::wait_event(self.driver().runtime(), stream.handle(), event.handle()) }
    }

    /// Starts recording a stream. Work enqueued from now on is recorded, not run.
    ///
    /// # Errors
    /// The driver's status.
    pub fn begin_capture(&self, stream: RawStream<'_>, mode: CaptureMode) -> Result<(), HipError> {
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        unsafe { graph::begin_capture(self.driver().runtime(), stream.handle(), mode as c_int) }
    }

    /// Ends recording a stream.
    ///
    /// # Errors
    /// The driver's status; 900 to 908 for work that cannot be captured. In either case the stream stops recording.
    pub fn end_capture(&self, stream: RawStream<'_>) -> Result<Graph, HipError> {
        self.end_capture_with(stream, Vec::new())
    }

    /// Ends recording a stream; the graph keeps `functions`, which [`Device::record_host_fn`] recorded into it.
    ///
    /// # Errors
    /// As [`Device::end_capture`].
    pub fn end_capture_with(&self, stream: RawStream<'_>, functions: Vec<RecordedFn>) -> Result<Graph, HipError> {
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        match unsafe { graph::end_capture(self.driver().runtime(), stream.handle()) } {
            Ok(handle) => Ok(Graph::new(self.clone(), handle, functions)),
            Err(error) => {
                self.reset_invalidated(stream);
                Err(error)
            }
        }
    }

    /// Makes a stream usable again after its capture failed.
    ///
    /// AMD's runtime (seen in 7.2) leaves such a stream invalidated for good: all later work on it fails with 901, and
    /// every synchronous copy of the process with 906. But it lets a new capture begin, and ending one without work
    /// resets the stream.
    fn reset_invalidated(&self, stream: RawStream<'_>) {
        if !matches!(self.capture_status(stream), Ok(CaptureStatus::Invalidated)) {
            return;
        }
        let begun = self.begin_capture(stream, CaptureMode::Relaxed);
        // SAFETY: a `RawStream` is live for its lifetime.
        let ended = begun.and_then(|()| unsafe { graph::end_capture(self.driver().runtime(), stream.handle()) });
        match ended {
            Ok(handle) => drop(Graph::new(self.clone(), handle, Vec::new())),
            Err(error) => {
                tracing::warn!(target: "amdgpu_ep::run", %error, "a stream stays invalid after a failed capture")
            }
        }
    }

    /// Whether a stream is being captured.
    ///
    /// # Errors
    /// The driver's status.
    pub fn capture_status(&self, stream: RawStream<'_>) -> Result<CaptureStatus, HipError> {
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        Ok(match unsafe { graph::capture_status(self.driver().runtime(), stream.handle()) }? {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active,
            _ => CaptureStatus::Invalidated,
        })
    }

    /// Calls a function in stream order, on a thread of the driver; it must not call the driver.
    ///
    /// # Errors
    /// [`HipError::Invalid`] while the stream is captured, or the driver's status.
    pub fn launch_host_fn(
        &self,
        stream: RawStream<'_>,
        function: impl FnOnce() + Send + 'static,
    ) -> Result<(), HipError> {
        if self.capture_status(stream)? != CaptureStatus::None {
            return Err(HipError::Invalid {
                call: "hipLaunchHostFunc",
                reason: "the stream is being captured, but a function that runs once cannot be replayed".to_owned(),
            });
        }
        let _scope = self.enter()?;
        let id = host_fn::register_once(Box::new(function));
        host_fn::enqueue(self.driver().runtime(), stream.handle(), id).inspect_err(|_| host_fn::forget(id))
    }

    /// Records a function into the capture in progress. Every launch calls it while the result lives; it must not call
    /// the driver. Pass the result to [`Device::end_capture_with`] to keep it alive as long as the graph.
    ///
    /// # Errors
    /// [`HipError::Invalid`] if the stream is not being captured, or the driver's status.
    pub fn record_host_fn(
        &self,
        stream: RawStream<'_>,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<RecordedFn, HipError> {
        if self.capture_status(stream)? != CaptureStatus::Active {
            return Err(HipError::Invalid {
                call: "hipLaunchHostFunc",
                reason: "the stream is not being captured".to_owned(),
            });
        }
        let _scope = self.enter()?;
        let registration = host_fn::register_repeated(Box::new(function));
        host_fn::enqueue_captured(self.driver().runtime(), stream.handle(), registration.id())?;
        Ok(registration)
    }

    /// Calls a C function in stream order; it may be captured.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// `function` may be called with `data` on any thread until the stream has passed this point and, if it is
    /// captured, during every launch of the capture. It does not unwind and does not call the driver.
    pub unsafe fn launch_host_fn_raw(
        &self,
        stream: RawStream<'_>,
        function: HostFn,
        data: *mut c_void,
    ) -> Result<(), HipError> {
        let _scope = self.enter()?;
        // SAFETY: the caller vouches for the function; a `RawStream` is live for its lifetime.
        unsafe { stream::launch_host_fn(self.driver().runtime(), stream.handle(), function, data) }
    }
}

impl Stream {
    /// The stream's handle, for calls that take any stream.
    pub fn raw(&self) -> RawStream<'_> {
        RawStream { handle: self.handle, owner: PhantomData }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits for all its work.
    ///
    /// # Errors
    /// The driver's status, which may be that of earlier work.
    pub fn synchronize(&self) -> Result<(), HipError> {
        self.device.stream_synchronize(self.raw())
    }

    /// Whether all its work is done.
    ///
    /// # Errors
    /// The driver's status.
    pub fn query(&self) -> Result<bool, HipError> {
        self.device.stream_query(self.raw())
    }

    /// Makes its later work wait for an event.
    ///
    /// # Errors
    /// The driver's status.
    pub fn wait(&self, event: &Event) -> Result<(), HipError> {
        self.device.stream_wait(self.raw(), event)
    }

    /// Calls a function once, in stream order, on a thread of the driver; it must not call the driver.
    ///
    /// # Errors
    /// [`HipError::Invalid`] while the stream is captured (see [`Stream::capture_host_fn`]), or the driver's status.
    pub fn launch_host_fn(&self, function: impl FnOnce() + Send + 'static) -> Result<(), HipError> {
        self.device.launch_host_fn(self.raw(), function)
    }

    /// Records a function into the capture in progress. Every launch calls it; it must not call the driver.
    ///
    /// # Errors
    /// [`HipError::Invalid`] if the stream is not being captured, or the driver's status.
    pub fn capture_host_fn(&self, function: impl Fn() + Send + Sync + 'static) -> Result<(), HipError> {
        // Held to the end, so that `end_capture` cannot run between the check and the record.
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.push(self.device.record_host_fn(self.raw(), function)?);
        Ok(())
    }

    /// Starts recording this stream.
    ///
    /// # Errors
    /// The driver's status.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<(), HipError> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.begin_capture(self.raw(), mode)?;
        recorded.clear();
        Ok(())
    }

    /// Ends recording this stream.
    ///
    /// # Errors
    /// As [`Device::end_capture`].
    pub fn end_capture(&self) -> Result<Graph, HipError> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.end_capture_with(self.raw(), std::mem::take(&mut *recorded))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Drivers reject destroying a stream during a capture.
        if self.device.capture_status(self.raw()).is_ok_and(|status| status != CaptureStatus::None)
            && let Err(error) = self.end_capture()
        {
            tracing::debug!(target: "amdgpu_ep::lifetime", %error, "capture abandoned with its stream");
        }
        let runtime = self.device.driver().runtime();
        let destroyed = self.device.driver().streams().close(self.handle, || {
            let _scope = self.device.enter()?;
            // SAFETY: the handle came from `create` on this driver; every `RawStream` of ours borrows `self`.
            unsafe { stream::destroy(runtime, self.handle) }
        });
        if let Err(error) = destroyed {
            report_leak("stream", &error);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p}, {})", self.handle, self.device)
    }
}
