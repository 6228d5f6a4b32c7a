//! What a library implements.

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use hipdnn::engine_id_of;
use hipdnn::sys::BehaviorNote;

use crate::descriptor::Descriptor;
use crate::fault::Outcome;
use crate::registry::Handle;

/// How a library identifies itself.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// `major.minor.patch.tweak` of the interface it implements.
    pub version: &'static CStr,
    /// The plugin name of its engines.
    pub plugin: &'static str,
    /// The plugin's version.
    pub plugin_version: &'static str,
}

/// An engine of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The name; the id is a hash of it.
    pub name: &'static str,
    /// The behaviour notes for callers.
    pub notes: &'static [BehaviorNote],
}

impl Engine {
    /// The engine's id.
    pub fn id(&self) -> i64 {
        engine_id_of(self.name)
    }
}

/// A library behind the C ABI.
///
/// Attributes have been checked against the table of kinds: types, counts, references and required ones. The library
/// checks what they mean together.
pub trait Implementation: Sync {
    /// How the library identifies itself.
    fn identity(&self) -> Identity;

    /// All engines of the library, sorted by name.
    fn engines(&self) -> &'static [Engine];

    /// The library's data for a new handle; see [`Handle::own`].
    ///
    /// # Errors
    /// Nothing can run on this machine.
    fn open(&self) -> Outcome<Box<dyn Any + Send + Sync>>;

    /// Prepares a graph for engines. The operations are in the order in which they were given.
    ///
    /// # Errors
    /// Why no engine runs it. This is a result, not a failure.
    fn compile(&self, handle: &Handle, operations: &[Arc<Descriptor>]) -> Result<Arc<dyn CompiledGraph>, String>;
}

/// A graph, and the engines that run it.
pub trait CompiledGraph: Send + Sync {
    /// The engines, best first.
    fn engines(&self) -> Vec<Engine>;

    /// An upper bound on the workspace that the engine needs.
    fn workspace_bytes(&self, engine: &Engine) -> usize;

    /// A plan for the graph on an engine.
    ///
    /// # Errors
    /// The engine does not support it.
    fn plan(self: Arc<Self>, engine: &Engine) -> Outcome<Arc<dyn Plan>>;
}

/// A graph on one engine, ready to run.
pub trait Plan: Send + Sync {
    /// The workspace that it needs, in bytes.
    fn workspace_bytes(&self) -> usize;

    /// The tensors that the caller provides.
    fn uids(&self) -> Vec<i64>;

    /// Enqueues the work on the handle's stream.
    ///
    /// # Errors
    /// A tensor is missing, or the work could not be enqueued.
    ///
    /// # Safety
    /// The addresses are valid for the graph's tensors, and the workspace is large enough, until the stream has
    /// executed this work; the handle's stream is alive.
    unsafe fn execute(&self, handle: &Handle, arguments: &Arguments<'_>) -> Outcome;
}

/// The contents of a variant pack.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// The tensors' uids.
    pub uids: &'a [i64],
    /// An address for each tensor.
    pub addresses: &'a [usize],
    /// The address of the workspace; 0 if there is none.
    pub workspace: usize,
}

impl Arguments<'_> {
    /// The address of a tensor, unless it is missing or null.
    pub fn address(&self, uid: i64) -> Option<usize> {
        let at = self.uids.iter().position(|&known| known == uid)?;
        self.addresses.get(at).copied().filter(|&address| address != 0)
    }
}
