//! Errors of a run.
use graph::LowerError;
use hip::ErrorKind;
use host_ops::OpError;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// No plan can be made for these shapes.
    #[error(transparent)]
    Plan(#[from] LowerError),
    /// A step failed.
    #[error("{node}: {source}")]
    Step {
        /// The operator and name of the node that the step came from.
        node: String,
        /// The reason.
        source: OpError,
    },
    /// A kernel found data that breaks an operator's rules.
    #[error("{node}: an index is out of range")]
    Fault {
        /// The operator and name of the node that the step came from.
        node: String,
    },
    /// The driver refused to launch a kernel.
    #[error("{node}: kernel {kernel} could not be launched: {source}")]
    Launch {
        /// The operator and name of the node that the step came from.
        node: String,
        /// The kernel.
        kernel: &'static str,
        /// The driver's error.
        source: Box<hip::HipError>,
    },
    /// A step runs on the host, so it cannot be recorded.
    #[error("{node}: it runs on the host and cannot be captured\n  help: unset ep.hip.graph_capture for this model")]
    NotRecordable {
        /// The operator and name of the node that the step came from.
        node: String,
    },
    /// The width of a padded mask would choose.
    #[error(
        "{node}: it chooses by the width of an attention mask, which is padded\n  help: do not disable the pass true-lengths; if the application does not pad masks, set ep.hip.static_pad_seq=0"
    )]
    PaddedChoice {
        /// The operator and name of the node.
        node: String,
    },
    /// The host does not have enough memory for the values between steps.
    #[error("out of memory: a run needs {bytes} bytes between its steps\n  help: use a smaller batch or context")]
    OutOfMemory {
        /// The number of bytes.
        bytes: usize,
    },
    /// The caller passed the wrong number of inputs or outputs.
    #[error("{found} {what} were passed, but the partition has {wanted}")]
    Count {
        /// Inputs or outputs.
        what: &'static str,
        /// How many were passed.
        found: usize,
        /// How many the partition has.
        wanted: usize,
    },
    /// The device stopped working and cannot be used any more.
    #[error(
        "{device} stopped working, at {node} or before it: {source}\n  help: restart the process, which cannot use the device any more; if it happens again, set ep.hip.replay=off and AMD_SERIALIZE_KERNEL=3 (on the CUDA twin CUDA_LAUNCH_BLOCKING=1), which identify the first failing kernel, and check the system log (dmesg)"
    )]
    DeviceLost {
        /// The device.
        device: String,
        /// The node at which it was noticed.
        node: String,
        /// The driver's error.
        source: Box<hip::HipError>,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] hip::HipError),
    /// hipDNN refused to run a step.
    #[error("hipDNN ({engine}): {reason}\n  help: ep.hip.hipdnn=off runs the session without hipDNN")]
    Dnn {
        /// The hipDNN engine.
        engine: String,
        /// The library's message.
        reason: String,
    },
    /// A candidate for a step could not be measured.
    #[error("it would run on the host: {why}")]
    Untimed {
        /// The reason.
        why: String,
    },
    /// Another user is capturing the stream.
    #[error(
        "this run's stream is being captured outside the session\n  help: end that capture first; ep.hip.graph_capture=1 lets the session capture its own runs"
    )]
    ForeignCapture,
    /// A step of a queued run panicked.
    #[error("a step of a queued run panicked: this is a bug in the engine")]
    Panicked,
    /// The driver dropped queued work without running it.
    #[error("the driver dropped queued work")]
    Abandoned,
}

impl ExecError {
    /// The kind of the error: who can fix it. Every new variant needs an entry here.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Plan(error) => match error {
                LowerError::Invalid { .. }
                | LowerError::Overflow { .. }
                | LowerError::NoRoom { .. }
                | LowerError::TooMuchWork { .. } => ErrorKind::Argument,
            },
            Self::Step { source, .. } => match source {
                OpError::IndexOutOfRange { .. } => ErrorKind::Argument,
                OpError::Unsupported { .. } => ErrorKind::Unsupported,
                OpError::OutOfMemory { .. } => ErrorKind::Memory,
            },
            // The caller's data is at fault, even if a later run reports it.
            Self::Fault { .. } | Self::ForeignCapture => ErrorKind::Argument,
            Self::NotRecordable { .. } | Self::Untimed { .. } | Self::PaddedChoice { .. } => ErrorKind::Unsupported,
            Self::OutOfMemory { .. } => ErrorKind::Memory,
            Self::Launch { source, .. } => source.kind(),
            Self::Driver(source) => source.kind(),
            Self::DeviceLost { .. } | Self::Dnn { .. } | Self::Abandoned => ErrorKind::Device,
            Self::Count { .. } | Self::Panicked => ErrorKind::Bug,
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::DType;
    use hip::{DriverKind, HipError};

    use super::*;

    #[test]
    fn bad_data_is_the_callers_fault_not_the_devices() {
        let node = || "Gather \"lookup\"".to_owned();
        let step = |source| ExecError::Step { node: node(), source };
        let call = |code| HipError::Call { driver: DriverKind::Amd, call: "hipMemcpy", code, text: String::new() };
        let launch = |source| ExecError::Launch { node: node(), kernel: "gather", source: Box::new(source) };
        let device = || "gfx1100".to_owned();
        for (error, want) in [
            (LowerError::Invalid { node: node(), reason: "rank 9".into() }.into(), ErrorKind::Argument),
            (LowerError::Overflow { node: node(), shape: vec![1 << 40, 1 << 40] }.into(), ErrorKind::Argument),
            (LowerError::NoRoom { node: node(), largest: 8, bytes: 9, available: 4 }.into(), ErrorKind::Argument),
            (LowerError::TooMuchWork { node: node(), shape: vec![9], bytes: 9, limit: 4 }.into(), ErrorKind::Argument),
            (step(OpError::IndexOutOfRange { index: 9, extent: 4 }), ErrorKind::Argument),
            (step(OpError::Unsupported { prim: "gather", dtype: DType::Bool }), ErrorKind::Unsupported),
            (step(OpError::OutOfMemory { bytes: 1 }), ErrorKind::Memory),
            (ExecError::Fault { node: node() }, ErrorKind::Argument),
            (launch(call(1)), ErrorKind::Device),
            (launch(call(2)), ErrorKind::Memory),
            (ExecError::NotRecordable { node: node() }, ErrorKind::Unsupported),
            (ExecError::OutOfMemory { bytes: 1 }, ErrorKind::Memory),
            (ExecError::Count { what: "inputs", found: 1, wanted: 2 }, ErrorKind::Bug),
            (ExecError::DeviceLost { device: device(), node: node(), source: Box::new(call(719)) }, ErrorKind::Device),
            (call(999).into(), ErrorKind::Device),
            (call(2).into(), ErrorKind::Memory),
            (ExecError::Dnn { engine: "MIOPEN".into(), reason: "refused".into() }, ErrorKind::Device),
            (ExecError::Untimed { why: "no kernel".into() }, ErrorKind::Unsupported),
            (ExecError::ForeignCapture, ErrorKind::Argument),
            (ExecError::Panicked, ErrorKind::Bug),
            (ExecError::Abandoned, ErrorKind::Device),
        ] {
            assert_eq!(error.kind(), want, "{error}");
        }
    }
}
