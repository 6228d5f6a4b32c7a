//! The host as a library behind hipDNN's C ABI: one engine, and work in stream order.

use std::any::Any;
use std::sync::Arc;

use hip::{Device, Driver, DriverKind, RawStream};
use hipdnn::sys::{BehaviorNote, Status};
use hipdnn_abi::{Arguments, Descriptor, Engine, Fault, Handle, Identity, Implementation, Outcome, Plan, Program};

use crate::program;

static ENGINES: [Engine; 1] = [Engine { name: "HOST_CPU_ENGINE", notes: &[BehaviorNote::SUPPORTS_GRAPH_CAPTURE] }];

/// The library.
pub struct Host;

/// The library, as it is exported.
pub static HOST: Host = Host;

impl Implementation for Host {
    fn identity(&self) -> Identity {
        Identity { version: c"0.4.0.host", plugin: "hipdnn-host", plugin_version: env!("CARGO_PKG_VERSION") }
    }

    fn engines(&self) -> &'static [Engine] {
        &ENGINES
    }

    fn open(&self) -> Outcome<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    fn compile(&self, _: &Handle, operations: &[Arc<Descriptor>]) -> Result<Arc<dyn Program>, String> {
        Ok(Arc::new(Graph(Arc::new(program::Program::compile(operations)?))))
    }
}

/// A compiled graph: the one engine needs nothing more to run it.
struct Graph(Arc<program::Program>);

impl Program for Graph {
    fn engines(&self) -> Vec<Engine> {
        ENGINES.to_vec()
    }

    fn workspace_bytes(&self, _: &Engine) -> usize {
        0
    }

    fn plan(self: Arc<Self>, _: &Engine) -> Outcome<Arc<dyn Plan>> {
        Ok(self)
    }
}

impl Plan for Graph {
    fn workspace_bytes(&self) -> usize {
        0
    }

    fn uids(&self) -> Vec<i64> {
        self.0.uids()
    }

    unsafe fn execute(&self, handle: &Handle, arguments: &Arguments<'_>) -> Outcome {
        let program = self.0.clone();
        let bindings = program.bind(arguments).map_err(Fault::bad)?;
        let failed = |text: String| Fault::new(Status::EXECUTION_FAILED, text);
        let stream = handle.stream();
        let device = match host_device() {
            Some(device) if stream != 0 => device,
            other => {
                if let Some(device) = other {
                    // The default stream is ordered with every other one: what was enqueued before must be done.
                    device.stream_synchronize(RawStream::DEFAULT).map_err(|error| failed(error.to_string()))?;
                }
                // SAFETY: the caller's promise.
                return unsafe { program.run(&bindings) }.map_err(failed);
            }
        };
        // SAFETY: the caller's promise.
        let stream = unsafe { RawStream::from_ptr(std::ptr::with_exposed_provenance_mut(stream)) };
        let work = move || {
            // SAFETY: the caller's promise lasts until the stream has passed this point.
            if let Err(text) = unsafe { program.run(&bindings) } {
                tracing::error!(target: "hipdnn_host", "{text}");
            }
        };
        device.launch_host_fn(stream, work).map_err(|error| failed(error.to_string()))
    }
}

/// The host driver's device; `None` where its library can't be found, and then there are no streams either.
fn host_device() -> Option<Device> {
    let driver = Driver::load(DriverKind::Host).ok()?;
    driver.devices().ok()?.into_iter().next()
}
