//! The global state of the library.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use crate::calls::Calls;
use crate::capture::Captures;
use crate::code::{Function, Module};
use crate::config::{Config, Feature};
use crate::device::Device;
use crate::errors::Status;
use crate::event::Event;
use crate::graph::{Exec, Graph};
use crate::handles::Handles;
use crate::memory::Memory;
use crate::stream::{Role, Stream, Ticket};
use crate::thread;
use crate::work::{Pins, Step, Task};

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

pub(crate) struct Runtime {
    /// The record of calls, if enabled.
    pub(crate) calls: Option<Calls>,
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: Memory,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) execs: Handles<Exec>,
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    pub(crate) captures: Captures,
}

/// Sets the settings of this process instead of reading the environment, for Rust code that links the crate.
///
/// # Errors
/// Returns the configuration if a HIP function was called before, which has read the environment.
pub fn configure(config: Config) -> Result<(), Config> {
    let mut config = Some(config);
    RUNTIME.get_or_init(|| Runtime::new(config.take().unwrap_or_default()));
    config.map_or(Ok(()), Err)
}

/// The instance, created at first use.
pub(crate) fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| Runtime::new(Config::from_env()))
}

impl Runtime {
    fn new(config: Config) -> Self {
        Runtime {
            devices: (0..config.devices).map(|index| Device::new(&config, index)).collect(),
            memory: Memory::new(config.poison),
            calls: config.calls.as_deref().and_then(Calls::open),
            config,
            streams: Handles::default(),
            events: Handles::default(),
            graphs: Handles::default(),
            execs: Handles::default(),
            modules: Handles::default(),
            functions: Handles::default(),
            captures: Captures::default(),
        }
    }

    /// Fails while a test pretends that the devices are lost.
    pub(crate) fn check_lost(&self) -> Result<(), Status> {
        let is_lost = self.config.lost.as_ref().is_some_and(|file| file.exists());
        if is_lost { Err(Status::LaunchFailure) } else { Ok(()) }
    }

    /// Fails if the settings say that the driver lacks the feature.
    pub(crate) fn need(&self, feature: Feature) -> Result<(), Status> {
        if self.lacks(feature) { Err(Status::NotSupported) } else { Ok(()) }
    }

    pub(crate) fn lacks(&self, feature: Feature) -> bool {
        self.config.lacks.contains(&feature)
    }

    pub(crate) fn device(&self, ordinal: c_int) -> Result<&Device, Status> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(Status::InvalidDevice)
    }

    /// The calling thread's device.
    pub(crate) fn current_device(&self) -> Result<&Device, Status> {
        self.devices.get(thread::device()).ok_or(Status::InvalidDevice)
    }

    /// The stream behind a handle; NULL and 1 are the legacy default stream, 2 is the thread's own.
    pub(crate) fn stream(&self, handle: *mut c_void) -> Result<Arc<Stream>, Status> {
        match handle.addr() {
            0 | 1 => Ok(Arc::clone(&self.current_device()?.legacy)),
            2 => {
                let device = self.current_device()?;
                let create = || Stream::create(&self.config, device.index, Role::Blocking, 0, &device.streams);
                thread::default_stream(device.index, create)
            }
            _ => self.streams.get(handle),
        }
    }

    pub(crate) fn create_stream(&self, role: Role, priority: i32) -> Result<usize, Status> {
        let device = self.current_device()?;
        let stream = Stream::create(&self.config, device.index, role, priority, &device.streams);
        let handle = stream.handle;
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    /// Runs `step` in the order of `stream`, or captures it if the stream is capturing (then returns `None`).
    pub(crate) fn enqueue(&self, stream: &Arc<Stream>, step: Step) -> Result<Option<Ticket>, Status> {
        let mut pins = Pins::new();
        step.pin(&self.memory, &mut pins)?;
        if let Some(capture) = self.captures.of(stream) {
            capture.record(stream, step)?;
            return Ok(None);
        }
        self.captures.refuse_legacy_work(stream)?;
        Ok(Some(stream.run(Task::Step(step, pins))))
    }

    /// Runs `step` in the order of the legacy default stream and waits for it.
    pub(crate) fn run_and_wait(&self, step: Step) -> Result<(), Status> {
        self.captures.refuse_unsafe_call()?;
        let legacy = Arc::clone(&self.current_device()?.legacy);
        self.run_and_wait_on(&legacy, step)
    }

    /// Runs `step` in the order of `stream` and waits for it.
    pub(crate) fn run_and_wait_on(&self, stream: &Arc<Stream>, step: Step) -> Result<(), Status> {
        thread::may_block()?;
        if let Some(capture) = self.captures.of(stream) {
            return capture.refuse();
        }
        if let Some(ticket) = self.enqueue(stream, step)? {
            ticket.wait();
        }
        Ok(())
    }
}
