//! The execution provider of one session.
use crate::{
    AllocatorHandle, Error, MemoryDevice, Result, Stream,
    ffi::Claims,
    partition::{Compiled, FusedPartition},
    profiler::Profiling,
    view::{Graph, RunOptions},
};

/// The execution provider of one session. Concurrent runs call it from several threads.
///
/// Groups of rarely used hooks are traits of their own ([`DataLayout`], [`GraphCapture`], [`Profiling`],
/// [`CompiledModels`]): a group that is `None` when the execution provider is made leaves its slots empty, which ONNX
/// Runtime reads as "not there".
pub trait Ep: Send + Sync + 'static {
    /// Claims the nodes of a graph (subgraphs come first) that this provider runs. Must have no side effects: ONNX
    /// Runtime may ask more than once.
    ///
    /// # Errors
    /// Logged; then no node of this graph is claimed.
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

    /// A run ends; `sync` asks to wait for the device.
    ///
    /// # Errors
    /// Fails the run.
    fn on_run_end(&self, options: RunOptions<'_>, sync: bool) -> Result<()> {
        let _ = (options, sync);
        Ok(())
    }

    /// Options set while the session lives, as raw keys; every provider of the session sees them all.
    ///
    /// # Errors
    /// Given to the caller.
    fn set_dynamic_options(&self, options: &[(String, String)]) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Waits for all work of this session (API 25 and newer).
    ///
    /// # Errors
    /// Given to the caller.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// False makes ONNX Runtime run one at a time.
    fn runs_concurrently(&self) -> bool {
        true
    }

    /// The session is complete (API 27 and newer).
    ///
    /// # Errors
    /// Fails the session.
    fn on_session_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Which offered memory nodes run on, where the first device's is not meant (API 27 and newer).
    fn default_memory(&self) -> Option<MemoryDevice> {
        None
    }

    /// Bytes left on the device, for ONNX Runtime's partitioning budget (API 26 and newer).
    fn available_bytes(&self) -> Option<u64> {
        None
    }

    /// Allocators and streams of this session's own, instead of the factory's.
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
    /// As [`Factory::create_allocator`](crate::Factory::create_allocator).
    ///
    /// # Errors
    /// Fails the session.
    fn create_allocator(&self, memory: MemoryDevice) -> Result<AllocatorHandle>;

    /// As [`Factory::create_stream`](crate::Factory::create_stream).
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

/// ONNX Runtime's graph capture protocol: whole runs are repeated until [`is_captured`](Self::is_captured), then replayed
/// without any copy of inputs or outputs.
pub trait GraphCapture {
    /// True if this session wants it.
    fn enabled(&self) -> bool;
    /// True if the graph of this id is captured; the SDK never asks for −1, which means "no capture".
    fn is_captured(&self, id: i32) -> bool;
    /// Replays it.
    ///
    /// # Errors
    /// Fails the run.
    fn replay(&self, id: i32) -> Result<()>;
    /// Drops it (API 27 and newer).
    ///
    /// # Errors
    /// Given to the caller.
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
    /// What [`Factory::model_compatibility`](crate::Factory::model_compatibility) will be asked about elsewhere.
    fn compatibility_info(&self, graph: Graph<'_>) -> String;
    /// Whether weights may stay outside the compiled model (API 29 and newer).
    fn weightless(&self) -> Weightless {
        Weightless::None
    }
    /// Which of the application's blob callbacks are honoured (API 31): (read, write).
    fn data_callbacks(&self) -> (bool, bool) {
        (false, false)
    }
}

/// Whether weights may stay outside a compiled model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weightless {
    /// They may not.
    None,
    /// Those in external files may.
    ExternalOnly,
    /// All may.
    All,
}
