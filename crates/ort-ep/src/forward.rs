//! What a factory makes for a session: an execution provider of its own, or one that forwards to another plugin's.
use crate::{Ep, ForeignEp};

/// The execution provider of a new session.
pub enum NewEp {
    /// One written against this SDK.
    Own(Box<dyn Ep>),
    /// One that another plugin computes for.
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

/// A session that another plugin, the backend, computes for.
///
/// ONNX Runtime sees one execution provider under our name. A hook that the backend has is called there; one that it
/// lacks, by its own version stamp, is absent for ONNX Runtime too, except where `own` can stand in for it: copy kernels,
/// synchronisation, the memory that nodes run on, the memory that is left. Compiled partitions, profilers, allocators and
/// streams of the backend are handed out as they are, so running them costs nothing extra.
///
/// A kernel that the backend registers must not ask ONNX Runtime for its execution provider (`KernelInfo_GetEp`) and take
/// it for the backend's own object: it is ours.
pub struct Forwarded {
    /// The backend's execution provider.
    pub backend: ForeignEp,
    /// Answers what the backend has no hook for. It sees dynamic options before the backend does, and may refuse them;
    /// it is never asked to claim or compile.
    pub own: Box<dyn Ep>,
    /// Whose memory tensors lie in.
    pub memory: BackendMemory,
    /// What stands before the backend's own text in compatibility infos of compiled models.
    pub compatibility_prefix: String,
}

/// Whose memory the tensors of a forwarded session lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendMemory {
    /// Our factory's, whatever the backend offers: for plugins that know nothing of our memory, and may have hooks that
    /// answer every question with their own.
    Ours,
    /// Our factory's, unless the backend's execution provider has hooks of its own for a session's allocators or streams.
    Shared,
    /// The backend's: where its execution provider has no such hooks, its factory is asked.
    Backend,
}
