//! Compiles kernels to code objects.
use hip::{DriverKind, Rtc, RtcError};

use crate::{Arch, Counts, Kernel};

/// Why there is no code object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The run-time compiler failed.
    #[error(transparent)]
    Rtc(#[from] RtcError),
    /// The simulator's host compiler failed, or is missing.
    #[error("kernel {kernel} did not compile for the simulator: {reason}")]
    Sim {
        /// The kernel.
        kernel: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// There is no compiler, and the kernel is not precompiled.
    #[error("kernel {kernel} is not in the shipped set, and there is no compiler: {reason}")]
    NoCompiler {
        /// The kernel.
        kernel: &'static str,
        /// Why there is no compiler.
        reason: String,
    },
}

/// Compiles kernels to code objects.
pub trait Compiler: Send + Sync {
    /// Everything besides source and target that the result depends on, for cache keys.
    fn version(&self) -> String;

    /// The code object of a kernel, as a driver loads it.
    ///
    /// # Errors
    /// The compiler's own message.
    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError>;

    /// Other code for a kernel whose code from [`compile`](Self::compile) the driver refuses to load: a runtime may be
    /// older than the code of a shipped set. `None` if there is no other code.
    fn replace_refused(&self, _: &Kernel, _: &Arch) -> Option<Result<Vec<u8>, CompileError>> {
        None
    }

    /// Where code came from, if that is counted.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// No compiler: only the sets shipped with the library are available.
pub struct NoCompiler {
    /// Why there is no compiler.
    pub reason: String,
}

impl Compiler for NoCompiler {
    fn version(&self) -> String {
        "none".to_owned()
    }

    fn compile(&self, kernel: &Kernel, _: &Arch) -> Result<Vec<u8>, CompileError> {
        Err(CompileError::NoCompiler { kernel: kernel.name, reason: self.reason.clone() })
    }
}

/// hiprtc or nvrtc.
pub struct RtcCompiler(pub Rtc);

impl Compiler for RtcCompiler {
    fn version(&self) -> String {
        format!("{} {}", self.0.kind(), self.0.version_text())
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        let target = self.0.target_option(&arch.target);
        let standard = if self.0.kind() == DriverKind::Nvidia { "--std=c++17" } else { "-std=c++17" };
        Ok(self.0.compile(&kernel.text(), kernel.name, &[&target, standard])?)
    }
}
