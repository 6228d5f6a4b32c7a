//! Routing: which backends a session tries, in which order and why. These are pure functions of a [`Query`]; they do
//! not inspect the machine.
//!
//! An explicit profile gives exactly one backend, or a [`Refusal`]. `auto` checks the user's [`RoutingTable`] first,
//! then the built-in rules, and returns every usable backend, best first.
//!
//! ```
//! use amdgpu_ep::routing::{BackendName, Platform, Query, RoutingTable, route};
//! use options::Profile;
//! use hip::DriverKind;
//!
//! let query = Query {
//!     arch: "gfx90a:sramecc+:xnack-",
//!     driver: DriverKind::Amd,
//!     platform: Platform::Linux,
//!     model_arch: None,
//!     model_fw: None,
//!     profile: Profile::Auto,
//!     backend_library: None,
//!     overrides: &RoutingTable::default(),
//!     ruled_out: &[],
//! };
//! let candidates = route(&query)?;
//! assert_eq!(candidates[0].backend, BackendName::MiGraphX);
//! assert_eq!(candidates[1].backend, BackendName::Hip);
//! # Ok::<(), amdgpu_ep::routing::Refusal>(())
//! ```
#![forbid(unsafe_code)]

mod name;
#[cfg(test)]
mod properties;
mod rules;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use hip::DriverKind;
use thiserror::Error;

pub use name::{BackendName, UnknownBackend};
pub use rules::language_models;
pub use table::{RoutingTable, Row, RowError, TableError};

use options::{Hint, Profile};

/// The operating system, as far as it matters to backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux, and any other system except Windows.
    Linux,
    /// Windows.
    Windows,
}

impl Platform {
    /// The platform this library runs on.
    pub const HERE: Self = if cfg!(windows) { Self::Windows } else { Self::Linux };

    /// Every platform.
    pub const ALL: [Self; 2] = [Self::Linux, Self::Windows];
}

/// The inputs of the routing decision.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// The device's architecture as reported by its driver, such as `gfx90a:sramecc+:xnack-`.
    pub arch: &'q str,
    /// The driver behind the device.
    pub driver: DriverKind,
    /// The operating system.
    pub platform: Platform,
    /// The option of that name.
    pub model_arch: Option<&'q Hint>,
    /// The option of that name.
    pub model_fw: Option<&'q Hint>,
    /// The option of that name.
    pub profile: Profile,
    /// The option of that name.
    pub backend_library: Option<&'q Path>,
    /// The user's own rows; they take precedence over the built-in rules.
    pub overrides: &'q RoutingTable,
    /// Backends known to be unusable, with the reason.
    pub ruled_out: &'q [RuledOut],
}

/// A backend that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// The backend.
    pub backend: BackendName,
    /// Why it cannot be used.
    pub reason: String,
}

/// A backend to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The backend.
    pub backend: BackendName,
    /// Why it is at this position.
    pub reason: String,
}

/// Why a session has no backend to use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The profile's backend does not exist on this platform.
    #[error(
        "profile {profile} runs on the directx backend, which exists on Windows only\n  help: use profile=auto, migraphx or hip"
    )]
    WindowsOnly {
        /// The requested profile.
        profile: Profile,
    },
    /// The requested backend is known to be unusable.
    #[error("the backend {} cannot be used: {}\n  help: profile=auto uses another backend", .0.backend, .0.reason)]
    Unusable(RuledOut),
    /// Two options name different backends.
    #[error(
        "backend_library is {} and profile is {profile}: they name different backends\n  help: set only one of them",
        .library.display()
    )]
    Contradiction {
        /// The requested library.
        library: PathBuf,
        /// The requested profile.
        profile: Profile,
    },
    /// With `auto`: every backend is known to be unusable.
    #[error("no backend is usable{}\n  help: amdgpu-ep doctor lists what each one needs", each(.0))]
    NoneLeft(Vec<RuledOut>),
}

fn each(all: &[RuledOut]) -> String {
    all.iter().map(|out| format!("; {}: {}", out.backend, out.reason)).collect()
}

impl Query<'_> {
    /// Whether the user named the backend. Then only that backend is tried, and no other.
    pub fn is_explicit(&self) -> bool {
        self.profile != Profile::Auto || self.backend_library.is_some()
    }

    fn exists(&self, backend: &BackendName) -> bool {
        *backend != BackendName::DirectX || self.platform == Platform::Windows
    }

    /// Why a backend cannot be used, if known.
    fn objection(&self, backend: &BackendName) -> Option<&str> {
        if !self.exists(backend) {
            return Some("it exists on Windows only");
        }
        self.ruled_out.iter().find(|out| out.backend == *backend).map(|out| out.reason.as_str())
    }
}

/// The backends to try for a session, best first; never empty.
///
/// # Errors
/// A [`Refusal`] if there is no backend to try.
pub fn route(query: &Query<'_>) -> Result<Vec<Candidate>, Refusal> {
    match (query.backend_library, query.profile) {
        (Some(library), Profile::Auto) => {
            explicit(query, BackendName::Library(library.to_owned()), "the option backend_library".to_owned())
        }
        (Some(library), profile) => Err(Refusal::Contradiction { library: library.to_owned(), profile }),
        (None, Profile::Auto) => automatic(query),
        (None, profile) => {
            let backend = match profile {
                Profile::Auto | Profile::Optimized | Profile::Migraphx => BackendName::MiGraphX,
                // Fast startup: backends that compile nothing ahead of time.
                Profile::Eager if query.platform == Platform::Windows => BackendName::DirectX,
                Profile::Eager | Profile::Hip => BackendName::Hip,
                Profile::Directx => BackendName::DirectX,
                Profile::Hipgpu => BackendName::HipGpu,
            };
            explicit(query, backend, format!("profile {profile}"))
        }
    }
}

fn explicit(query: &Query<'_>, backend: BackendName, reason: String) -> Result<Vec<Candidate>, Refusal> {
    if !query.exists(&backend) {
        return Err(Refusal::WindowsOnly { profile: query.profile });
    }
    match query.objection(&backend) {
        Some(found) => Err(Refusal::Unusable(RuledOut { backend, reason: found.to_owned() })),
        None => Ok(vec![Candidate { backend, reason }]),
    }
}

fn automatic(query: &Query<'_>) -> Result<Vec<Candidate>, Refusal> {
    let applies =
        |rule: &&rules::Rule| rule.order.first().is_some_and(|head| query.exists(head)) && rule.when.applies(query);
    let rule = rules::RULES.iter().find(applies);
    let order = rule.map(|rule| rule.order).unwrap_or_default();
    let mut order: Vec<_> = order.iter().filter(|backend| query.exists(backend)).cloned().collect();
    let mut why = rule.map(|rule| rule.reason.to_owned()).unwrap_or_default();
    if let Some(row) = query.overrides.find(query.arch, query.model_arch) {
        order.retain(|backend| *backend != row.backend);
        order.insert(0, row.backend.clone());
        why = format!("line {} of the routing table", row.line);
    }

    let (mut candidates, mut out) = (Vec::<Candidate>::new(), Vec::new());
    for backend in order {
        if let Some(found) = query.objection(&backend) {
            out.push(RuledOut { backend, reason: found.to_owned() });
            continue;
        }
        let reason = match candidates.last() {
            None if out.is_empty() => why.clone(),
            None => format!("{why}; unusable backends skipped{}", each(&out)),
            Some(before) => format!("if {} cannot run it", before.backend),
        };
        candidates.push(Candidate { backend, reason });
    }
    if candidates.is_empty() { Err(Refusal::NoneLeft(out)) } else { Ok(candidates) }
}
