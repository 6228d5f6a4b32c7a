//! Switches in environment variables.
use std::env;

use options::parse_switch;

/// Whether the environment turns `variable` on. An invalid value counts as off, with a warning: a typo in the
/// environment must not stop a session.
pub(crate) fn is_switched_on(variable: &str) -> bool {
    let Some(text) = env::var_os(variable) else { return false };
    let text = text.to_string_lossy();
    parse_switch(text.trim()).unwrap_or_else(|error| {
        if !text.trim().is_empty() {
            tracing::warn!(target: "amdgpu_ep::load", "{variable} is ignored: {error}");
        }
        false
    })
}
