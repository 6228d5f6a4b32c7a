//! Borrowed views of objects that ONNX Runtime owns.
//!
//! A view is a pointer of the runtime, the function table to query it with, and the lifetime of the call it was passed
//! to. Views are cheap to copy. Each accessor queries the runtime, so keep a name or a shape in a variable rather than
//! reading it twice. Types called `Owned…` release what they hold when dropped.
#[macro_use]
mod macros;

mod attribute;
mod element;
mod external_data;
mod graph;
mod hardware_device;
mod host_session;
mod kernel_context;
mod kernel_info;
mod key_values;
mod loans;
mod logger;
mod node;
mod os_path;
mod parallel;
mod read;
mod readable;
mod run_options;
mod scratch;
mod session_options;
mod tensor;
mod tensor_mut;
mod value_info;
mod value_type;

pub use attribute::{Attribute, AttributeKind, AttributeValue};
pub use element::Element;
pub use external_data::ExternalData;
pub use graph::{Graph, OwnedGraph};
pub use hardware_device::{HardwareDevice, HardwareKind};
pub use host_session::{HostSession, HostTensor};
pub use kernel_context::{KernelContext, RawStream};
pub use kernel_info::KernelInfo;
pub use key_values::{KeyValues, OwnedKeyValues};
pub use logger::{LogLocation, Logger, Severity};
pub use node::Node;
pub use readable::HostReadable;
pub(crate) use readable::{mark_host_readable, unmark_host_readable};
pub use run_options::RunOptions;
pub use scratch::Scratch;
pub use session_options::{OwnedSessionOptions, SessionOptions};
pub use tensor::{OwnedTensor, Tensor};
pub use tensor_mut::TensorMut;
pub use value_info::{Consumer, ValueInfo};
pub use value_type::{Dim, TensorType, ValueType};
