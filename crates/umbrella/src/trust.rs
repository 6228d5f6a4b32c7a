//! Whether the process vouches for the session options that it passes on.
//!
//! An execution provider sees session options, not where they come from: ONNX Runtime GenAI copies them out of a model folder's
//! `genai_config.json`. So they count as untrusted until the process says otherwise, in its environment
//! (`AMDGPU_EP_TRUST_OPTIONS=1`) or by calling `amdgpu_ep_trust_options(1)` of this library.
use std::sync::atomic::{AtomicBool, Ordering};

use options::{Origin, TRUST_VARIABLE};

use crate::variables::is_switched_on;

static VOUCHED_FOR: AtomicBool = AtomicBool::new(false);

/// What `amdgpu_ep_trust_options` does.
pub(crate) fn vouch(trusted: bool) {
    VOUCHED_FOR.store(trusted, Ordering::Relaxed);
}

/// Where the options of a session that is made now come from.
pub(crate) fn origin() -> Origin {
    if VOUCHED_FOR.load(Ordering::Relaxed) || is_switched_on(TRUST_VARIABLE) {
        Origin::Trusted
    } else {
        Origin::Untrusted
    }
}
