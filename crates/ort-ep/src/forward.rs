//! What a factory creates for a session: its own execution provider, or one that forwards to another plugin's.
use crate::{Ep, ForeignEp};

/// The execution provider of a new session.
pub enum NewEp {
    /// An execution provider written with this SDK.
    Own(Box<dyn Ep>),
    /// One that forwards to another plugin.
    Forwarded(Forwarded),
}

impl<E: Ep> From<E> for NewEp {
    fn from(ep: E) -> Self {
        Self::Own(Box::new(ep))
    }
}

impl From<Forwarded> for NewEp {
    fn from(forwarded: Forwarded) -> Self {
        Self::Forwarded(forwarded)
    }
}

/// A session whose work another plugin, the backend, does.
///
/// ONNX Runtime sees one execution provider under our name. If the backend has a hook, it is called there. If the
/// backend lacks it, by its own version stamp, ONNX Runtime does not see it either, except where `own` can replace it:
/// copy kernels, synchronisation, the memory that nodes run on, the available memory. Compiled partitions, profilers,
/// allocators and streams of the backend are handed out unchanged, so running them costs nothing extra.
///
/// A kernel that the backend registers must not ask ONNX Runtime for its execution provider (`KernelInfo_GetEp`) and
/// cast it to the backend's own type: the object is ours.
pub struct Forwarded {
    /// The backend's execution provider.
    pub backend: ForeignEp,
    /// Handles the hooks that the backend lacks. It sees dynamic options before the backend does, and may reject them;
    /// it is never asked to claim or compile nodes.
    pub own: Box<dyn Ep>,
    /// Who provides the memory of the tensors.
    pub memory: BackendMemory,
    /// The text before the backend's own text in compatibility infos of compiled models.
    pub compatibility_prefix: String,
}

/// Who provides the memory of the tensors of a forwarded session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendMemory {
    /// Our factory, whatever the backend offers. Use this for plugins that do not know our memory, because their hooks
    /// may always return their own.
    Ours,
    /// Our factory, unless the backend's execution provider has its own hooks for a session's allocators or streams.
    Shared,
    /// The backend: its execution provider, or its factory if that has no such hooks.
    Backend,
}
