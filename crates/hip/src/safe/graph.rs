//! Captures: recordings of a stream, and their launchable form.

use std::ffi::c_int;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;
use super::event::Event;
use super::host_fn::RecordedFn;
use super::report_leak;
use super::stream::RawStream;
use crate::HipError;
use crate::result::graph;
use crate::sys::Handle;

/// A recording of a stream.
pub struct Graph {
    device: Device,
    handle: Handle,
    functions: Arc<Vec<RecordedFn>>,
}

/// An instantiated recording that can be launched any number of times.
pub struct GraphExec {
    device: Device,
    handle: Handle,
    host_work: Mutex<HostWork>,
}

/// The host functions of a recording must stay registered while a launch is in progress.
struct HostWork {
    functions: Arc<Vec<RecordedFn>>,
    /// Recorded after the last launch; only created if there are functions.
    last_launch: Option<Event>,
}

// SAFETY: graph handles may be used from any thread one at a time, and every use below is either exclusive or a call
// that the drivers document as safe for concurrent readers.
unsafe impl Send for Graph {}
// SAFETY: shared access only reads the recording.
unsafe impl Sync for Graph {}
// SAFETY: as for `Graph`.
unsafe impl Send for GraphExec {}
// SAFETY: launches and updates are serialised by `host_work`.
unsafe impl Sync for GraphExec {}

/// The outcome of [`GraphExec::update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// Later launches use the new parameters.
    Updated,
    /// The new recording is incompatible; instantiate it instead. The old one is unchanged.
    Refused(UpdateRefusal),
}

/// Why an update was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRefusal {
    /// The nodes or their dependencies differ.
    Topology,
    /// A node changed its type.
    NodeType,
    /// A kernel changed in a way that cannot be updated.
    Function,
    /// Parameters changed in a way that cannot be updated.
    Parameters,
    /// The driver cannot update this node.
    NotSupported,
    /// Another code.
    Other(i32),
}

impl UpdateResult {
    fn from_number(number: c_int) -> UpdateResult {
        UpdateResult::Refused(match number {
            0 => return UpdateResult::Updated,
            2 => UpdateRefusal::Topology,
            3 => UpdateRefusal::NodeType,
            4 | 7 => UpdateRefusal::Function,
            5 => UpdateRefusal::Parameters,
            6 => UpdateRefusal::NotSupported,
            other => UpdateRefusal::Other(other),
        })
    }
}

impl Graph {
    pub(super) fn new(device: Device, handle: Handle, functions: Vec<RecordedFn>) -> Graph {
        Graph { device, handle, functions: Arc::new(functions) }
    }

    /// The device it was recorded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of recorded operations.
    ///
    /// # Errors
    /// The driver's status.
    pub fn node_count(&self) -> Result<usize, HipError> {
        let _scope = self.device.enter()?;
        // SAFETY: the handle is ours and live.
        unsafe { graph::node_count(self.device.driver().runtime(), self.handle) }
    }

    /// Instantiates the recording for launching.
    ///
    /// # Errors
    /// The driver's status.
    pub fn instantiate(&self) -> Result<GraphExec, HipError> {
        let _scope = self.device.enter()?;
        // SAFETY: the handle is ours and live.
        let handle = unsafe { graph::instantiate(self.device.driver().runtime(), self.handle) }?;
        let host_work = Mutex::new(HostWork { functions: self.functions.clone(), last_launch: None });
        Ok(GraphExec { device: self.device.clone(), handle, host_work })
    }
}

impl GraphExec {
    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the recorded work in stream order. Launches of one `GraphExec` never overlap.
    ///
    /// # Errors
    /// The driver's status.
    pub fn launch(&self, stream: RawStream<'_>) -> Result<(), HipError> {
        let mut host_work = self.host_work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = &host_work.last_launch {
            self.device.stream_wait(stream, event)?;
        }
        let _scope = self.device.enter()?;
        // SAFETY: the handle is ours and live, a `RawStream` is live for its lifetime, and the unsafe calls that
        // recorded the work vouched for every launch.
        unsafe { graph::launch(self.device.driver().runtime(), self.handle, stream.handle()) }?;
        if host_work.functions.is_empty() {
            return Ok(());
        }
        if host_work.last_launch.is_none() {
            host_work.last_launch = Some(self.device.event()?);
        }
        host_work.last_launch.as_ref().map_or(Ok(()), |event| event.record(stream))
    }

    /// Updates the parameters from a recording with the same topology. Launches in progress keep the old ones.
    ///
    /// # Errors
    /// [`HipError::Foreign`], or the driver's status. An incompatible recording is not an error, see [`UpdateResult`].
    pub fn update(&self, new: &Graph) -> Result<UpdateResult, HipError> {
        self.device.same_device("the new recording", &new.device)?;
        let mut host_work = self.host_work.lock().unwrap_or_else(PoisonError::into_inner);
        let _scope = self.device.enter()?;
        // SAFETY: both handles are ours and live.
        let number = unsafe { graph::update(self.device.driver().runtime(), self.handle, new.handle) }?;
        let result = UpdateResult::from_number(number);
        if result == UpdateResult::Updated {
            host_work.finish()?;
            host_work.functions = new.functions.clone();
        }
        Ok(result)
    }
}

impl HostWork {
    /// Waits until no launch in progress can call the functions.
    fn finish(&self) -> Result<(), HipError> {
        self.last_launch.as_ref().map_or(Ok(()), Event::synchronize)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        // SAFETY: the handle came from `end_capture` on this driver and is destroyed only here.
        let destroyed = self.device.enter().and_then(|_scope| unsafe { graph::destroy(runtime, self.handle) });
        if let Err(error) = destroyed {
            report_leak("graph", &error);
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        let host_work = self.host_work.get_mut().unwrap_or_else(PoisonError::into_inner);
        let destroyed = host_work.finish().and_then(|()| {
            let _scope = self.device.enter()?;
            // SAFETY: the handle came from `instantiate` on this driver and is destroyed only here.
            unsafe { graph::exec_destroy(runtime, self.handle) }
        });
        if let Err(error) = destroyed {
            report_leak("instantiated graph", &error);
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:p}, {})", self.handle, self.device)
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphExec({:p}, {})", self.handle, self.device)
    }
}
