//! The only unsafe code of this crate: the exports of our provider, and libraries that other code has registered.

mod exports;

use ort_client::{Environment, Registration};

pub(crate) use exports::last_backend;
pub use exports::with_trusted_options;

/// A provider that other code of this process has registered.
pub(crate) fn registered_elsewhere(environment: &Environment, name: &str) -> ort_client::Result<Option<Registration>> {
    // SAFETY: `Runtime::load` asks its callers to keep such libraries registered.
    unsafe { Registration::adopt(environment, name) }
}
