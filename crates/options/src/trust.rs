//! Who may set an option.
//!
//! | origin | is |
//! |---|---|
//! | [`Origin::Trusted`] | the command line, the environment, and the program that calls us |
//! | [`Origin::Untrusted`] | everything inside a model folder or a model file |
//!
//! Every option declares in its table who may set it. Options that load a library, name a file or a folder, or contain
//! an address are reserved for trusted origins.

/// The origin of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line, the environment, or the program that calls us.
    Trusted,
    /// A model folder or a model file. An execution provider cannot know what its caller copied from there, so all
    /// session options count as untrusted unless the process says otherwise ([`TRUST_VARIABLE`]).
    Untrusted,
}

/// Who may set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// Anyone, including a model folder.
    Anyone,
    /// Only trusted origins.
    Trusted,
}

impl SetBy {
    /// Whether an option from `origin` is accepted.
    pub const fn allows(self, origin: Origin) -> bool {
        matches!((self, origin), (Self::Anyone, _) | (_, Origin::Trusted))
    }

    /// The word in documentation, under the heading "set by".
    pub const fn word(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Trusted => "trusted",
        }
    }
}

/// The environment variable by which a process declares all its session options trusted.
pub const TRUST_VARIABLE: &str = "AMDGPU_EP_TRUST_OPTIONS";

/// The exported function of the provider's library with the same effect: `void amdgpu_ep_trust_options(int trusted)`.
pub const TRUST_FUNCTION: &str = "amdgpu_ep_trust_options";

/// The exported function of the provider's library that names the backend of the session that the calling thread made
/// last: `const char* amdgpu_ep_last_backend(void)`; the text is empty where no backend took the session.
pub const BACKEND_FUNCTION: &str = "amdgpu_ep_last_backend";
