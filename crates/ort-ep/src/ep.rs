//! The execution provider of one session.
use crate::ffi::Claims;
use crate::partition::{Compiled, FusedPartition};
use crate::profiler::Profiling;
use crate::view::{Graph, RunOptions};
use crate::{AllocatorHandle, Error, MemoryDevice, Result, Stream};

/// The execution provider of one session. Concurrent runs call it from several threads.
///
/// Groups of rarely used hooks are separate traits ([`DataLayout`], [`GraphCapture`], [`Profiling`],
/// [`CompiledModels`]). If a group is `None` when the execution provider is created, its slots stay empty, which ONNX
/// Runtime treats as "not supported".
pub trait Ep: Send + Sync + 'static {
    /// Claims the nodes of a graph that this provider runs; subgraphs come first. Must have no side effects: ONNX
    /// Runtime may call it more than once.
    ///
    /// # Errors
    /// Logged; no node of this graph is claimed.
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()>;

    /// Compiles the fused groups of one graph: one result for each, in order.
    ///
    /// # Errors
    /// Fails the session.
    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        let _ = partitions;
        Err(Error::not_implemented("nothing to compile"))
    }

    /// A run begins on this thread.
    ///
    /// # Errors
    /// Fails the run.
    fn on_run_start(&self, options: RunOptions<'_>) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// A run ends; if `sync` is true, wait for the device.
    ///
    /// # Errors
    /// Fails the run.
    fn on_run_end(&self, options: RunOptions<'_>, sync: bool) -> Result<()> {
        let _ = (options, sync);
        Ok(())
    }

    /// Options set while the session is alive, as raw keys; every provider of the session sees all of them.
    ///
    /// # Errors
    /// Returned to the caller.
    fn set_dynamic_options(&self, options: &[(String, String)]) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Waits for all work of this session (API 25 and newer).
    ///
    /// # Errors
    /// Returned to the caller.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// False makes ONNX Runtime run one request at a time.
    fn runs_concurrently(&self) -> bool {
        true
    }

    /// The session is fully initialised (API 27 and newer).
    ///
    /// # Errors
    /// Fails the session.
    fn on_session_ready(&self) -> Result<()> {
        Ok(())
    }

    /// The offered memory that nodes run on, if it is not the first device's (API 27 and newer).
    fn default_memory(&self) -> Option<MemoryDevice> {
        None
    }

    /// Bytes left on the device, for ONNX Runtime's partitioning budget (API 26 and newer).
    fn available_bytes(&self) -> Option<u64> {
        None
    }

    /// Allocators and streams for this session alone, instead of the factory's.
    fn session_resources(&self) -> Option<&dyn SessionResources> {
        None
    }

    /// Data-layout preferences.
    fn data_layout(&self) -> Option<&dyn DataLayout> {
        None
    }

    /// ONNX Runtime's graph capture protocol (API 26 and newer).
    fn graph_capture(&self) -> Option<&dyn GraphCapture> {
        None
    }

    /// Device events in ONNX Runtime's profile (API 25 and newer).
    fn profiling(&self) -> Option<&dyn Profiling> {
        None
    }

    /// Compiled models.
    fn compiled_models(&self) -> Option<&dyn CompiledModels> {
        None
    }
}

/// Allocators and streams of one session.
pub trait SessionResources {
    /// Same as [`Factory::create_allocator`](crate::Factory::create_allocator).
    ///
    /// # Errors
    /// Fails the session.
    fn create_allocator(&self, memory: MemoryDevice) -> Result<AllocatorHandle>;

    /// Same as [`Factory::create_stream`](crate::Factory::create_stream).
    ///
    /// # Errors
    /// Fails the run.
    fn create_stream(&self, device: MemoryDevice) -> Result<Box<dyn Stream>>;
}

/// How image-like tensors are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Channels before rows and columns.
    Nchw,
    /// Channels last.
    Nhwc,
}

/// Data-layout preferences.
pub trait DataLayout {
    /// The layout to convert the model to.
    fn preferred(&self) -> Layout;

    /// Whether to convert an operator; `None` lets ONNX Runtime decide.
    fn converts(&self, domain: &str, op_type: &str, layout: Layout) -> Option<bool> {
        let _ = (domain, op_type, layout);
        None
    }
}

/// ONNX Runtime's graph capture protocol: it repeats whole runs until [`is_captured`](Self::is_captured), then replays
/// them without copying inputs or outputs.
pub trait GraphCapture {
    /// True if this session uses graph capture.
    fn enabled(&self) -> bool;
    /// True if the graph with this id is captured; the SDK never passes −1, which means "no capture".
    fn is_captured(&self, id: i32) -> bool;
    /// Replays a captured graph.
    ///
    /// # Errors
    /// Fails the run.
    fn replay(&self, id: i32) -> Result<()>;
    /// Releases a captured graph (API 27 and newer).
    ///
    /// # Errors
    /// Returned to the caller.
    fn release(&self, id: i32) -> Result<()> {
        let _ = id;
        Ok(())
    }
    /// True if nodes that compute shapes may stay on the CPU.
    fn allows_cpu_shape_nodes(&self) -> bool {
        false
    }
}

/// Compiled models.
pub trait CompiledModels {
    /// The text that [`Factory::model_compatibility`](crate::Factory::model_compatibility) will be asked about on the
    /// machine that loads the model.
    fn compatibility_info(&self, graph: Graph<'_>) -> String;
    /// Whether weights may stay outside the compiled model (API 29 and newer).
    fn weightless(&self) -> Weightless {
        Weightless::None
    }
    /// Which of the application's blob callbacks are used (API 31): (read, write).
    fn data_callbacks(&self) -> (bool, bool) {
        (false, false)
    }
}

/// Whether weights may stay outside a compiled model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weightless {
    /// No weights may.
    None,
    /// Weights in external files may.
    ExternalOnly,
    /// All weights may.
    All,
}
