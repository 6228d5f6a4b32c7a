//! The host library behind hipDNN's C ABI: one engine, which runs work in stream order.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use hip::{CaptureStatus, Device, Driver, DriverKind, HipError, RawStream, RecordedFn};
use hipdnn::sys::{BehaviorNote, Status};
use hipdnn_abi::{
    Arguments, CompiledGraph, Descriptor, Engine, Fault, Handle, Identity, Implementation, Outcome, Plan,
};
use host_ops::Pool;

use crate::host_graph::{Bindings, HostGraph};
use crate::lacks::Lacks;
use crate::run_error::RunError;

static ENGINES: [Engine; 1] = [Engine {
    name: "HOST_CPU_ENGINE",
    notes: &[BehaviorNote::SUPPORTS_GRAPH_CAPTURE, BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION],
}];

/// The library.
pub struct Host;

/// The exported library.
pub static HOST: Host = Host;

/// The state of a handle.
struct Own {
    /// The host driver's device; `None` if its library cannot be found, and then there are no streams either.
    device: Option<Device>,
    /// The threads, which end when the handle and all of its work are gone.
    pool: Arc<Pool>,
    /// The features that it pretends to lack.
    lacks: Lacks,
}

impl Implementation for Host {
    fn identity(&self) -> Identity {
        Identity { version: c"0.4.0.host", plugin: "hipdnn-host", plugin_version: env!("CARGO_PKG_VERSION") }
    }

    fn engines(&self) -> &'static [Engine] {
        &ENGINES
    }

    fn open(&self) -> Outcome<Box<dyn Any + Send + Sync>> {
        let devices = Driver::load(DriverKind::Host).ok().and_then(|driver| driver.devices().ok());
        let device = devices.and_then(|devices| devices.into_iter().next());
        Ok(Box::new(Own { device, pool: Arc::default(), lacks: Lacks::read()? }))
    }

    fn compile(&self, handle: &Handle, operations: &[Arc<Descriptor>]) -> Result<Arc<dyn CompiledGraph>, String> {
        handle.own().map_or(Ok(()), |own: &Own| own.lacks.check(operations))?;
        Ok(Arc::new(Graph(Arc::new(HostGraph::compile(operations)?))))
    }
}

/// A compiled graph.
struct Graph(Arc<HostGraph>);

impl CompiledGraph for Graph {
    fn engines(&self) -> Vec<Engine> {
        ENGINES.to_vec()
    }

    fn workspace_bytes(&self, _: &Engine) -> usize {
        0
    }

    fn plan(self: Arc<Self>, _: &Engine) -> Outcome<Arc<dyn Plan>> {
        Ok(Arc::new(HostPlan { graph: self.0.clone(), recorded: Mutex::default() }))
    }
}

/// A graph that can be executed.
struct HostPlan {
    graph: Arc<HostGraph>,
    /// Functions recorded into captures, which can be replayed while the plan lives.
    recorded: Mutex<Vec<RecordedFn>>,
}

impl Plan for HostPlan {
    fn workspace_bytes(&self) -> usize {
        0
    }

    fn uids(&self) -> Vec<i64> {
        self.graph.uids()
    }

    unsafe fn execute(&self, handle: &Handle, arguments: &Arguments<'_>) -> Outcome {
        let own: &Own = handle.own().ok_or_else(|| Fault::new(Status::INTERNAL_ERROR, "a handle without a device"))?;
        let mut bindings = self.graph.bind(arguments).map_err(Fault::bad)?;
        let Some(device) = &own.device else {
            if handle.stream() != 0 {
                let text = "the stream is not one of the host driver, whose library could not be loaded";
                return Err(Fault::new(Status::BAD_PARAM_STREAM_MISMATCH, text));
            }
            // SAFETY: upheld by the caller.
            return unsafe { self.run_now(&bindings, own) };
        };
        // SAFETY: upheld by the caller.
        let stream = unsafe { RawStream::from_ptr(std::ptr::with_exposed_provenance_mut(handle.stream())) };
        match device.capture_status(stream).map_err(driver_fault)? {
            CaptureStatus::None => {}
            CaptureStatus::Active => {
                // SAFETY: upheld by the caller.
                unsafe { self.graph.keep_scalars(&mut bindings) };
                return self.record(device, stream, bindings, own);
            }
            CaptureStatus::Invalidated => return Err(failed("the stream's capture is invalid".into())),
        }
        // A blocking stream also waits for the default stream's work. There is no way to ask whether a stream is
        // blocking.
        let is_idle = device.stream_query(stream).map_err(driver_fault)?
            && (handle.stream() == 0 || device.stream_query(RawStream::DEFAULT).unwrap_or(false));
        if is_idle {
            // SAFETY: upheld by the caller; no earlier work is pending.
            return unsafe { self.run_now(&bindings, own) };
        }
        // SAFETY: upheld by the caller.
        unsafe { self.graph.keep_scalars(&mut bindings) };
        let (graph, pool) = (self.graph.clone(), own.pool.clone());
        let work = move || {
            // SAFETY: the caller's guarantee lasts until the stream has passed this point.
            report(unsafe { graph.run(&bindings, &*pool) });
        };
        device.launch_host_fn(stream, work).map_err(driver_fault)
    }
}

impl HostPlan {
    /// # Safety
    /// As for [`Plan::execute`].
    unsafe fn run_now(&self, bindings: &Bindings, own: &Own) -> Outcome {
        // SAFETY: upheld by the caller.
        Ok(unsafe { self.graph.run(bindings, &*own.pool) }?)
    }

    /// Records the work into a capture, with its own memory, so that replays do not have to allocate.
    fn record(&self, device: &Device, stream: RawStream<'_>, bindings: Bindings, own: &Own) -> Outcome {
        let (graph, pool) = (self.graph.clone(), own.pool.clone());
        let memory = Mutex::new(graph.memory()?);
        let work = move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the caller's guarantee lasts as long as the capture is replayed.
            report(unsafe { graph.run_in(&bindings, &mut memory, &*pool) });
        };
        let function = device.record_host_fn(stream, work).map_err(driver_fault)?;
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(function);
        Ok(())
    }
}

fn failed(text: String) -> Fault {
    Fault::new(Status::EXECUTION_FAILED, text)
}

fn driver_fault(error: HipError) -> Fault {
    failed(error.to_string())
}

/// Logs a failure of work that runs after the call, since no call can return it.
fn report(outcome: Result<(), RunError>) {
    if let Err(error) = outcome {
        tracing::error!(target: "hipdnn_host", "{error}");
    }
}
