//! Streams for ONNX Runtime, and the fences that keep freed memory from being reused too early.
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hip::{CaptureStatus, Device, Event, HipError};
use ort_ep::view::RawStream;
use ort_ep::{Notification, Result, Stream, SyncStream};

use crate::caching_allocator::{Fence, Fences, StreamId};
use crate::context::DeviceContext;
use crate::status::hip_error;

/// The live streams of a device.
#[derive(Default)]
pub(crate) struct StreamSet(Mutex<Vec<Weak<hip::Stream>>>);

impl StreamSet {
    fn add(&self, stream: &Arc<hip::Stream>) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    fn living(&self) -> Vec<Arc<hip::Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for everything queued so far. A device-wide synchronisation would do the same, but would also end every
    /// capture that another session has in progress.
    pub fn synchronize(&self, device: &Device) -> Result<(), HipError> {
        for stream in self.living() {
            if is_captured(device, &stream) {
                continue;
            }
            match stream.synchronize() {
                // Another thread began to capture the stream after the check. Its queued work was already done, and the
                // backend repeats the capture that this call ended.
                Err(error) if error.is_capture() => {}
                done => done?,
            }
        }
        device.stream_synchronize(hip::RawStream::DEFAULT)
    }
}

/// Drivers too old to answer do not support captures either.
fn is_captured(device: &Device, stream: &hip::Stream) -> bool {
    matches!(device.capture_status(stream.raw()), Ok(CaptureStatus::Active | CaptureStatus::Invalidated))
}

/// A stream of one session and thread.
pub(crate) struct DeviceStream {
    stream: Arc<hip::Stream>,
    context: Arc<DeviceContext>,
}

impl DeviceStream {
    pub fn new(context: Arc<DeviceContext>) -> Result<Self> {
        let stream = Arc::new(context.device.stream().map_err(hip_error)?);
        context.streams.add(&stream);
        Ok(Self { stream, context })
    }
}

impl Drop for DeviceStream {
    fn drop(&mut self) {
        // The allocator relies on this: a closed stream has no work left, so memory freed under its handle needs no
        // fence.
        if let Err(error) = self.stream.synchronize() {
            tracing::warn!(target: "amdgpu_ep::run", %error, "work of a stream failed before the stream was closed");
        }
    }
}

impl Stream for DeviceStream {
    fn handle(&self) -> RawStream {
        RawStream::new(self.stream.raw().as_ptr())
    }

    fn notification(&self) -> Result<Box<dyn Notification>> {
        let event = self.context.device.event().map_err(hip_error)?;
        Ok(Box::new(StreamPoint { event, stream: self.stream.clone() }))
    }

    fn flush(&self) -> Result<()> {
        self.stream.synchronize().map_err(hip_error)
    }
}

/// A point in a stream that other streams or the host wait for.
struct StreamPoint {
    event: Event,
    stream: Arc<hip::Stream>,
}

impl Notification for StreamPoint {
    fn activate(&self) -> Result<()> {
        self.event.record(self.stream.raw()).map_err(hip_error)
    }

    fn wait_on_device(&self, consumer: Option<SyncStream<'_>>) -> Result<()> {
        match consumer.and_then(SyncStream::downcast::<DeviceStream>) {
            Some(consumer) => consumer.stream.wait(&self.event).map_err(hip_error),
            // Another provider's stream cannot wait for our events.
            None => self.wait_on_host(),
        }
    }

    fn wait_on_host(&self) -> Result<()> {
        self.event.synchronize().map_err(hip_error)
    }
}

/// Records fences on a device's streams when memory is freed.
pub(crate) struct StreamFences {
    device: Device,
    streams: Arc<StreamSet>,
}

impl StreamFences {
    pub fn new(device: Device, streams: Arc<StreamSet>) -> Self {
        Self { device, streams }
    }

    fn mark(&self, stream: &Arc<hip::Stream>) -> Option<StreamFence> {
        // A query or an event would become part of the capture, or end it.
        if is_captured(&self.device, stream) {
            return Some(StreamFence::Device(self.device.clone()));
        }
        // A stream without work needs no fence, and a query is cheaper than creating an event.
        if stream.query().unwrap_or(false) {
            return None;
        }
        let event = self.device.event().and_then(|event| event.record(stream.raw()).map(|()| event));
        Some(event.map_or_else(
            |_| StreamFence::Device(self.device.clone()),
            |event| StreamFence::Event { event, stream: Arc::downgrade(stream) },
        ))
    }
}

impl Fences for StreamFences {
    type Fence = StreamFence;

    fn record(&self, stream: Option<StreamId>, fences: &mut Vec<StreamFence>) {
        for living in self.streams.living() {
            if stream.is_none_or(|wanted| living.raw().as_ptr() as usize == wanted) {
                fences.extend(self.mark(&living));
            }
        }
    }
}

/// Work that may still use freed memory.
pub(crate) enum StreamFence {
    /// All work of a stream before an event.
    ///
    /// AMD's runtime follows an event to the stream it was recorded on, without checking whether that still exists. So
    /// the event is queried only while the stream is open; a closed stream has no work left.
    Event { event: Event, stream: Weak<hip::Stream> },
    /// All work of the device, if no event could be recorded.
    Device(Device),
}

impl Fence for StreamFence {
    fn done(&self) -> bool {
        match self {
            Self::Event { event, stream } => stream.upgrade().is_none_or(|open| {
                // While the stream is being captured, the query would invalidate the capture.
                !is_captured(event.device(), &open) && event.query().unwrap_or(false)
            }),
            Self::Device(_) => false,
        }
    }

    fn wait(&self) {
        let waited = match self {
            Self::Event { event, stream } => stream.upgrade().map_or(Ok(()), |_open| event.synchronize()),
            Self::Device(device) => device.synchronize(),
        };
        if let Err(error) = waited {
            // The device is lost or the work failed: either way nothing will access the memory any more.
            tracing::warn!(target: "amdgpu_ep::memory", %error, "could not wait for work on freed memory");
        }
    }
}
