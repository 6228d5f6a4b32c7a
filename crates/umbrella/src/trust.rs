//! Whether the process trusts the session options that it passes on.
//!
//! An execution provider sees session options, but not where they come from: ONNX Runtime GenAI copies them from a
//! model folder's `genai_config.json`. So they count as untrusted until the process says otherwise, in its environment
//! (`AMDGPU_EP_TRUST_OPTIONS=1`) or by calling `amdgpu_ep_trust_options(1)` of this library.
use std::sync::atomic::{AtomicBool, Ordering};

use options::{Origin, TRUST_VARIABLE};

use crate::variables::is_switched_on;

static VOUCHED_FOR: AtomicBool = AtomicBool::new(false);

/// Implements `amdgpu_ep_trust_options`.
pub(crate) fn vouch(trusted: bool) {
    VOUCHED_FOR.store(trusted, Ordering::Relaxed);
}

/// The origin of the options of a session created now.
pub(crate) fn origin() -> Origin {
    if VOUCHED_FOR.load(Ordering::Relaxed) || is_switched_on(TRUST_VARIABLE) {
        Origin::Trusted
    } else {
        Origin::Untrusted
    }
}
