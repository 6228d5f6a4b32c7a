//! Errors, each with the status code ONNX Runtime reports it under.
use ort_ep_sys as sys;

/// The result of a fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The status codes a plugin returns or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// This call failed, but the next one may work: a bug in the provider, or out of memory.
    Fail,
    /// The caller passed something unusable.
    InvalidArgument,
    /// A file does not exist.
    NoSuchFile,
    /// The feature is not available here.
    NotImplemented,
    /// The model is invalid.
    InvalidGraph,
    /// The device, its driver or a library it needs failed. ONNX Runtime's Python class reacts by moving the session to
    /// the CPU for good.
    EpFail,
    /// A named thing does not exist.
    NotFound,
    /// Any other status code of the runtime.
    Other(i32),
}

impl ErrorCode {
    pub(crate) fn to_raw(self) -> sys::OrtErrorCode {
        match self {
            Self::Fail => sys::ORT_FAIL,
            Self::InvalidArgument => sys::ORT_INVALID_ARGUMENT,
            Self::NoSuchFile => sys::ORT_NO_SUCHFILE,
            Self::NotImplemented => sys::ORT_NOT_IMPLEMENTED,
            Self::InvalidGraph => sys::ORT_INVALID_GRAPH,
            Self::EpFail => sys::ORT_EP_FAIL,
            Self::NotFound => sys::ORT_NOT_FOUND,
            Self::Other(code) => code,
        }
    }

    pub(crate) fn from_raw(code: sys::OrtErrorCode) -> Self {
        match code {
            sys::ORT_FAIL => Self::Fail,
            sys::ORT_INVALID_ARGUMENT => Self::InvalidArgument,
            sys::ORT_NO_SUCHFILE => Self::NoSuchFile,
            sys::ORT_NOT_IMPLEMENTED => Self::NotImplemented,
            sys::ORT_INVALID_GRAPH => Self::InvalidGraph,
            sys::ORT_EP_FAIL => Self::EpFail,
            sys::ORT_NOT_FOUND => Self::NotFound,
            other => Self::Other(other),
        }
    }
}

/// An error with the code ONNX Runtime reports it under.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: ErrorCode,
    message: String,
}

impl Error {
    /// An error with any code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The caller passed something unusable.
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// This call failed, but the next one may work: a bug in the provider, or out of memory.
    pub fn fail(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Fail, message)
    }

    /// The device, its driver or a library it needs failed. Never use it for bad data: see [`ErrorCode::EpFail`].
    pub fn ep_fail(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::EpFail, message)
    }

    /// The feature is not available here.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotImplemented, message)
    }

    /// The code ONNX Runtime reports.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message ONNX Runtime reports.
    pub fn message(&self) -> &str {
        &self.message
    }
}
