//! Errors: loading a library, calling a driver, compiling a kernel.

use std::path::PathBuf;

use dylib::{Attempt, listed};

use crate::DriverKind;
use crate::sys::codes;

/// A library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file with any known name could be opened.
    #[error("no {what} could be loaded (tried {})\n  help: {help}", listed(.attempts))]
    NotFound {
        /// Name of the library for messages, for example "HIP runtime".
        what: &'static str,
        /// Every name tried, in order.
        attempts: Vec<Attempt>,
        /// What the user can do about it.
        help: &'static str,
    },
    /// A file opened, but required symbols are missing from it.
    #[error(
        "{} is not a usable {what}: it lacks {} (tried {})\n  help: {help}",
        .path.display(), .missing.join(", "), listed(.attempts)
    )]
    Incomplete {
        /// Name of the library for messages.
        what: &'static str,
        /// The first file that opened.
        path: PathBuf,
        /// The symbols it lacks.
        missing: Vec<&'static str>,
        /// Every name tried, in order.
        attempts: Vec<Attempt>,
        /// What the user can do about it.
        help: &'static str,
    },
    /// This driver does not come with such a library.
    #[error("the {driver} driver has no {what}")]
    NotOffered {
        /// The driver that was asked.
        driver: DriverKind,
        /// Name of the library for messages.
        what: &'static str,
    },
}

impl LoadError {
    /// Every name that was tried, in order.
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            LoadError::NotFound { attempts, .. } | LoadError::Incomplete { attempts, .. } => attempts,
            LoadError::NotOffered { .. } => &[],
        }
    }
}

/// Who can fix an error. The status that callers get depends on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller: an index out of range, shapes that do not match, a stream in the wrong state. Another request may
    /// succeed.
    Argument,
    /// No one: there is no code for this, or the loaded library is too old for it.
    Unsupported,
    /// Those who use the memory: there was not enough at this moment. A smaller request, or the same one later, may
    /// succeed.
    Memory,
    /// The owner of the machine: the device, its driver or a library it needs failed. The next request is likely to
    /// fail too.
    Device,
    /// This project: a bug.
    Bug,
}

/// A driver call failed, or its arguments were rejected before the call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HipError {
    /// The device (or the host, for pinned memory) does not have enough free memory for this request.
    #[error(
        "out of memory on {driver} device {device}: requested {bytes} bytes, {free} of {total} bytes free\n  \
         help: free other buffers, or use a smaller model or batch"
    )]
    OutOfMemory {
        /// The driver.
        driver: DriverKind,
        /// The device's ordinal.
        device: usize,
        /// Bytes requested.
        bytes: usize,
        /// Free bytes that the driver reported after the failure, 0 if it reported none.
        free: usize,
        /// Total bytes of the device, 0 if the driver reported none.
        total: usize,
    },
    /// The driver returned an error status.
    #[error("{call} failed on the {driver} driver: {code} ({text})")]
    Call {
        /// The driver.
        driver: DriverKind,
        /// The HIP name of the call, on every driver.
        call: &'static str,
        /// The status as the driver returned it.
        code: i32,
        /// The driver's own message for the status.
        text: String,
    },
    /// The loaded library is too old for this, or never supported it.
    #[error("the {driver} driver library has no {symbol}")]
    Unsupported {
        /// The driver.
        driver: DriverKind,
        /// The HIP name of the missing function or feature.
        symbol: &'static str,
    },
    /// The library for matrix products has no kernels for the device.
    #[error("{} has no kernels for {target} in {}", .library.display(), .folder.display())]
    NoKernels {
        /// The library's file.
        library: PathBuf,
        /// The device's target, without its features.
        target: String,
        /// Where the kernels would be.
        folder: PathBuf,
    },
    /// A copy or fill would go past the end of its buffer.
    #[error("{bytes} bytes at offset {offset} exceed a buffer of {capacity} bytes")]
    OutOfBounds {
        /// First byte touched.
        offset: usize,
        /// Bytes touched.
        bytes: usize,
        /// Size of the buffer in bytes.
        capacity: usize,
    },
    /// Two objects that must share a driver or device do not.
    #[error("{what} belongs to {found}, not to {wanted}")]
    Foreign {
        /// Name of the object for messages.
        what: &'static str,
        /// Where it belongs.
        found: String,
        /// Where it has to belong.
        wanted: String,
    },
    /// An argument was rejected before the driver saw it.
    #[error("{call} rejected: {reason}")]
    Invalid {
        /// The HIP name of the call that was not made.
        call: &'static str,
        /// Why not.
        reason: String,
    },
    /// A library needed for this call could not be loaded.
    #[error(transparent)]
    Library(#[from] LoadError),
}

impl HipError {
    /// The status number, if the driver returned one.
    pub fn code(&self) -> Option<i32> {
        match self {
            HipError::Call { code, .. } => Some(*code),
            HipError::OutOfMemory { .. } => Some(codes::OUT_OF_MEMORY),
            _ => None,
        }
    }

    /// Whether the driver reports that the device stopped working for this process: every later call fails too.
    pub fn is_device_lost(&self) -> bool {
        self.code().is_some_and(|code| codes::DEVICE_LOST.contains(&code))
    }

    /// Whether the call was rejected because a stream is being captured.
    pub fn is_capture(&self) -> bool {
        self.code().is_some_and(|code| codes::CAPTURE.contains(&code))
    }

    /// Who can fix it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HipError::OutOfMemory { .. } => ErrorKind::Memory,
            HipError::Call { code: codes::OUT_OF_MEMORY, .. } => ErrorKind::Memory,
            // The user is capturing the stream and requested something that cannot be part of a capture.
            HipError::Call { .. } if self.is_capture() => ErrorKind::Argument,
            HipError::Call { .. } | HipError::Library(_) => ErrorKind::Device,
            HipError::Unsupported { .. } | HipError::NoKernels { .. } => ErrorKind::Unsupported,
            // Addresses and sizes come from this workspace's own code, whatever the user requested.
            HipError::OutOfBounds { .. } | HipError::Foreign { .. } | HipError::Invalid { .. } => ErrorKind::Bug,
        }
    }

    /// Whether an allocation failed because there was not enough memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(codes::OUT_OF_MEMORY)
    }
}

/// A kernel source could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RtcError {
    /// The compiler read the source and rejected it.
    #[error("{name} does not compile ({call}: {code}, {text})\n{log}")]
    Compile {
        /// The name given to the source.
        name: String,
        /// The call that failed.
        call: &'static str,
        /// The compiler's status.
        code: i32,
        /// The compiler's message for the status.
        text: String,
        /// The compiler's log; may be empty.
        log: String,
    },
    /// The compiler would terminate the process if it were given this target.
    #[error(
        "the run-time compiler of HIP {version} does not support the target {target}\n  \
         help: install ROCm 6 or newer"
    )]
    UnknownTarget {
        /// The requested target.
        target: String,
        /// The runtime's version.
        version: String,
    },
    /// A source, name or option contains a NUL byte, or the source or name is empty.
    #[error("{what} cannot be passed to the run-time compiler: {reason}")]
    BadText {
        /// Which string.
        what: &'static str,
        /// Why not.
        reason: &'static str,
    },
}

impl RtcError {
    /// The compiler's log, if it wrote one.
    pub fn log(&self) -> &str {
        match self {
            RtcError::Compile { log, .. } => log,
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_driver_and_device_are_of_kind_device() {
        let driver = DriverKind::Amd;
        let call = |code| HipError::Call { driver, call: "hipMemcpyAsync", code, text: "words".into() };
        let foreign = HipError::Foreign { what: "a stream", found: "here".into(), wanted: "there".into() };
        for (error, want) in [
            (HipError::OutOfMemory { driver, device: 0, bytes: 8, free: 0, total: 4 }, ErrorKind::Memory),
            (call(codes::OUT_OF_MEMORY), ErrorKind::Memory),
            (call(1), ErrorKind::Device),
            (call(719), ErrorKind::Device),
            (call(900), ErrorKind::Argument),
            (call(908), ErrorKind::Argument),
            (HipError::Unsupported { driver, symbol: "hipMallocAsync" }, ErrorKind::Unsupported),
            (HipError::OutOfBounds { offset: 0, bytes: 2, capacity: 1 }, ErrorKind::Bug),
            (foreign, ErrorKind::Bug),
            (HipError::Invalid { call: "hipModuleLoadData", reason: "truncated".into() }, ErrorKind::Bug),
            (LoadError::NotOffered { driver, what: "BLAS" }.into(), ErrorKind::Device),
        ] {
            assert_eq!(error.kind(), want, "{error:?}");
        }
    }

    #[test]
    fn not_found_lists_each_name_with_its_reason_then_the_help() {
        let attempt = |name: &str| Attempt { name: name.into(), reason: "not found".into() };
        let error = LoadError::NotFound {
            what: "HIP runtime",
            attempts: vec![attempt("libamdhip64.so.7"), attempt("libamdhip64.so")],
            help: "install ROCm",
        };
        assert_eq!(
            error.to_string(),
            "no HIP runtime could be loaded (tried libamdhip64.so.7: not found; libamdhip64.so: not found)\n  \
             help: install ROCm"
        );
    }
}
