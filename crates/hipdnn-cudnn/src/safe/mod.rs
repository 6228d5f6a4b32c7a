//! The top layer: owned handles and descriptors.

mod descriptor;
mod handle;
mod older;

pub use descriptor::{Descriptor, Setting};
pub use handle::Handle;
pub use older::{OlderCudnn, Reduction, Tensor};
