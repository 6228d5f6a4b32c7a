//! Errors. Those of ONNX Runtime keep its code and its message.

use std::borrow::Cow;
use std::fmt;

use ort_ep_sys::{self as sys, Api, NegotiationError, Status};

use crate::text::text;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// ONNX Runtime, or a provider through it, reported an error.
    #[error("ONNX Runtime error {code}: {message}")]
    Call {
        /// ONNX Runtime's code.
        code: Code,
        /// ONNX Runtime's message, unchanged.
        message: String,
    },
    /// A call succeeded without the object that it should return.
    #[error("ONNX Runtime returned no {0}")]
    Nothing(&'static str),
    /// A text or path cannot be passed to C.
    #[error("{0:?} contains a NUL character")]
    Nul(String),
    /// The number of values is not that of the shape.
    #[error("{values} values do not match shape {shape:?}")]
    Mismatch {
        /// How many values there are.
        values: usize,
        /// The extents.
        shape: Vec<i64>,
    },
    /// The size of a tensor overflows, or an extent is negative.
    #[error("a tensor of shape {shape:?} is too large")]
    TooLarge {
        /// The extents.
        shape: Vec<i64>,
    },
    /// A tensor does not fit into the memory that was given for it.
    #[error("a tensor of shape {shape:?} is larger than its memory ({bytes} bytes)")]
    LargerThanMemory {
        /// The extents.
        shape: Vec<i64>,
        /// The size of the memory.
        bytes: usize,
    },
    /// No memory.
    #[error("could not allocate {bytes} bytes: {reason}")]
    OutOfMemory {
        /// The size that was requested.
        bytes: usize,
        /// The allocator's reason.
        reason: String,
    },
    /// The elements of a value cannot be accessed, because it is in a device's memory.
    #[error("the tensor is in the memory of a device")]
    OnDevice,
    /// The elements of a value have another type.
    #[error("expected a tensor of {expected}, found {found}")]
    Type {
        /// The expected element type.
        expected: &'static str,
        /// What the value is.
        found: String,
    },
    /// A call got the wrong number of tensors.
    #[error("expected {expected} tensors, found {found}")]
    Count {
        /// How many the call takes.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// A tensor cannot be copied to another one.
    #[error("cannot copy {from} bytes to {to} bytes: the sizes differ, or the tensors overlap")]
    Copy {
        /// The size of the source.
        from: usize,
        /// The size of the destination.
        to: usize,
    },
    /// A library cannot be unregistered yet.
    #[error("{0} is still in use by a device or a session")]
    InUse(String),
}

impl Error {
    /// ONNX Runtime's code, if the error is one of its own.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// ONNX Runtime's message alone, or the whole text of another error.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Error::Call { message, .. } => Cow::Borrowed(message),
            other => Cow::Owned(other.to_string()),
        }
    }
}

/// An error code of ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(i32);

impl Code {
    /// The request is wrong.
    pub const INVALID_ARGUMENT: Code = Code(sys::ORT_INVALID_ARGUMENT);
    /// A file does not exist.
    pub const NO_SUCH_FILE: Code = Code(sys::ORT_NO_SUCHFILE);
    /// A file is not a model.
    pub const INVALID_PROTOBUF: Code = Code(sys::ORT_INVALID_PROTOBUF);
    /// The provider failed.
    pub const EP_FAIL: Code = Code(sys::ORT_EP_FAIL);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a library cannot be used as ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The loader cannot open it.
    #[error("{0}")]
    Open(String),
    /// It has no `OrtGetApiBase`.
    #[error("it has no OrtGetApiBase: this is not ONNX Runtime")]
    NotOnnxRuntime,
    /// The version of the library is not supported.
    #[error(transparent)]
    Version(#[from] NegotiationError),
}

/// Turns a status into a result and releases it.
pub(crate) fn check(api: &Api, status: Status) -> Result<()> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null status is the caller's to read and to release once; the message is copied before that.
    unsafe {
        let (code, message) = (Code(api.GetErrorCode(status)), text(api.GetErrorMessage(status)));
        api.ReleaseStatus(status);
        Err(Error::Call { code, message })
    }
}
