//! What a library brings.

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use hipdnn::engine_id_of;
use hipdnn::sys::BehaviorNote;

use crate::descriptor::Descriptor;
use crate::fault::Outcome;
use crate::registry::Handle;

/// How a library calls itself.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// `major.minor.patch.tweak` of the interface it speaks.
    pub version: &'static CStr,
    /// The name its engines' plugin goes by.
    pub plugin: &'static str,
    /// The plugin's version.
    pub plugin_version: &'static str,
}

/// An engine of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its name, which its id is the hash of.
    pub name: &'static str,
    /// What a caller should know of it.
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
/// # Contract
/// Attributes have been checked against the table of kinds: types, counts, references and what is required. What they
/// mean together is the library's to check.
pub trait Implementation: Sync {
    /// How it calls itself.
    fn identity(&self) -> Identity;

    /// Every engine it has, in the order of their names.
    fn engines(&self) -> &'static [Engine];

    /// What a new handle keeps; see [`Handle::own`].
    ///
    /// # Errors
    /// Nothing can run on this machine.
    fn open(&self) -> Outcome<Box<dyn Any + Send + Sync>>;

    /// Makes a graph ready for engines. The operations stand in the order they were given.
    ///
    /// # Errors
    /// Why no engine runs it, which is an answer and no failure.
    fn compile(&self, handle: &Handle, operations: &[Arc<Descriptor>]) -> Result<Arc<dyn Program>, String>;
}

/// A graph, and the engines that run it.
pub trait Program: Send + Sync {
    /// The engines, the best first.
    fn engines(&self) -> Vec<Engine>;

    /// A bound on the device memory that the engine will want for itself.
    fn workspace_bytes(&self, engine: &Engine) -> usize;

    /// The graph on an engine.
    ///
    /// # Errors
    /// The engine refuses.
    fn plan(self: Arc<Self>, engine: &Engine) -> Outcome<Arc<dyn Plan>>;
}

/// A graph on one engine, ready to run.
pub trait Plan: Send + Sync {
    /// Device memory that it wants for itself.
    fn workspace_bytes(&self) -> usize;

    /// The tensors that the caller brings.
    fn uids(&self) -> Vec<i64>;

    /// Enqueues the work on the handle's stream.
    ///
    /// # Errors
    /// A tensor is missing, or the work could not be enqueued.
    ///
    /// # Safety
    /// The addresses are valid for the graph's tensors, and the workspace as large as wanted, until the stream has passed
    /// this point; the handle's stream is alive.
    unsafe fn execute(&self, handle: &Handle, arguments: &Arguments<'_>) -> Outcome;
}

/// What a variant pack holds.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// The tensors' numbers.
    pub uids: &'a [i64],
    /// An address for each.
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
