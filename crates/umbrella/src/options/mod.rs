//! Provider options: what a user may say to the umbrella, read from ONNX Runtime's session-config entries.
//!
//! ONNX Runtime turns every provider option into an entry `ep.<lower-case registration name>.<option>` and hands a
//! plugin all entries of the session, other providers' included. [`Prefixes`] tells them apart, [`OPTIONS`] is the
//! one table of options there are, and [`Options::parse`] turns text into typed values or into one
//! [`OptionsError`] that names everything wrong at once.
//!
//! ```
//! use amdgpu_ep::options::{Options, Profile};
//!
//! let entries = [
//!     ("ep.amdgpuexecutionprovider.profile", "Migraphx"),
//!     ("ep.migraphx.static_pad_seq", "1"),
//!     ("session.disable_prepacking", "1"),
//! ];
//! let (options, warnings) = Options::parse("AMDGPUExecutionProvider", entries)?;
//! assert_eq!(options.profile, Profile::Migraphx);
//! assert!(warnings.is_empty());
//!
//! let error = Options::parse("AMDGPUExecutionProvider", [("ep.amdgpu.profil", "hip")]).unwrap_err();
//! assert!(error.to_string().contains("did you mean \"profile\"?"));
//! # Ok::<(), amdgpu_ep::options::OptionsError>(())
//! ```
#![doc = "\n# The options\n\n"]
#![doc = include_str!("table.md")]
#![forbid(unsafe_code)]

mod error;
mod nearest;
mod parse;
mod prefix;
mod profile;
#[cfg(test)]
mod properties;
mod slot;
mod table;
#[cfg(test)]
mod tests;

pub use error::{OptionsError, Part, Problem, Warning};
pub use prefix::{ConfigKey, Namespace, Prefixes};
pub use profile::{Profile, UnknownProfile};
pub use slot::{Hint, Kind, NotASwitch, parse_switch};
pub use table::{BackendEntries, OPTIONS, OptionRow, Options, markdown_table};

/// Longest key of a config entry that ONNX Runtime takes, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Longest value of a config entry that ONNX Runtime takes, in bytes.
pub const MAX_VALUE_BYTES: usize = 8192;
