//! The options of the provider and of its own backends: one table each, typed values, and who may set them.
//!
//! ONNX Runtime turns every provider option into an entry `ep.<lower-case registration name>.<option>` and passes all
//! entries of the session to a plugin, including those of other providers. [`Prefixes`] tells them apart. [`OPTIONS`]
//! is the table of the provider's options; [`hip::TABLE`] and [`migraphx::TABLE`] are those of its backends.
//! [`Options::parse`] turns text into typed values, or into one [`OptionsError`] that lists all problems at once.
//!
//! Each option says who may set it ([`SetBy`]). A model folder is an untrusted [`Origin`]; [`may_set`] decides which
//! session-config entries it may set.
//!
//! ```
//! use options::{Options, Origin, Profile};
//!
//! let entries = [
//!     ("ep.amdgpuexecutionprovider.profile", "Migraphx"),
//!     ("ep.migraphx.static_pad_seq", "1"),
//!     ("session.disable_prepacking", "1"),
//! ];
//! let (options, warnings) = Options::parse("AMDGPUExecutionProvider", Origin::Trusted, entries)?;
//! assert_eq!(options.profile, Profile::Migraphx);
//! assert!(warnings.is_empty());
//!
//! let error = Options::parse("AMDGPUExecutionProvider", Origin::Trusted, [("ep.amdgpu.profil", "hip")]).unwrap_err();
//! assert!(error.to_string().contains("did you mean \"profile\"?"));
//! # Ok::<(), options::OptionsError>(())
//! ```
#![doc = "\n# The options\n\n"]
#![doc = include_str!("table.md")]
#![forbid(unsafe_code)]

mod backend;
mod contract;
mod error;
pub mod hip;
pub mod migraphx;
mod nearest;
mod parse;
mod prefix;
mod profile;
#[cfg(test)]
mod properties;
mod session;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod trust;

pub use backend::{BackendOption, BackendOptions, BackendTable};
pub use contract::{DEVICE_ID_KEY, TEXT_MODELS};
pub use error::{OptionsError, Part, Problem, Warning};
pub use nearest::nearest;
pub use prefix::{ConfigKey, Namespace, Prefixes};
pub use profile::{Profile, UnknownProfile};
pub use session::{may_set, may_set_for_runs};
pub use slot::{Hint, Kind, NotASwitch, parse_switch};
pub use table::{BackendEntries, OPTIONS, OptionRow, Options, markdown_table};
pub use trust::{BACKEND_FUNCTION, Origin, SetBy, TRUST_FUNCTION, TRUST_VARIABLE};

/// The longest key of a config entry that ONNX Runtime accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The longest value of a config entry that ONNX Runtime accepts, in bytes.
pub const MAX_VALUE_BYTES: usize = 8192;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
