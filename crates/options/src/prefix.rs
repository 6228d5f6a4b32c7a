//! Classifies session-config keys by prefix.

use std::fmt;

/// Prefixes that are ours whatever name the host registered us under: GenAI hard-codes the first; its drafts used the
/// second.
const FIXED: [&str; 2] = ["ep.amdgpuexecutionprovider.", "ep.amdgpu."];

/// A namespace of keys that belong to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// `ep.directml.*`, read by the directx backend.
    Directml,
    /// `ep.hip.*`.
    Hip,
    /// `ep.migraphx.*`.
    Migraphx,
}

impl Namespace {
    /// Every backend namespace.
    pub const ALL: [Self; 3] = [Self::Directml, Self::Hip, Self::Migraphx];

    /// The word between `ep.` and the next dot.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Directml => "directml",
            Self::Hip => "hip",
            Self::Migraphx => "migraphx",
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The meaning of a session-config key to the umbrella.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKey<'k> {
    /// An option of the umbrella: the text after one of its prefixes.
    Own(&'k str),
    /// An `arena.*` setting under one of our prefixes. ONNX Runtime reads those for its own arena, which it never
    /// creates for an EP with its own allocators.
    Arena(&'k str),
    /// A backend's key: its namespace and the text after it.
    Backend(Namespace, &'k str),
    /// Another provider's key, or one of ONNX Runtime itself.
    Foreign,
}

/// The prefixes of one registration, all equivalent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes {
    own: Vec<String>,
}

impl Prefixes {
    /// The prefixes for a library registered as `registration_name`.
    ///
    /// A registration name that equals a backend namespace adds no prefix: `ep.hip.*` belongs to the backend even if
    /// the umbrella itself is registered as `HIP`.
    pub fn new(registration_name: &str) -> Self {
        let mut own: Vec<String> = FIXED.map(str::to_owned).to_vec();
        // ONNX Runtime lower-cases the name byte by byte.
        let name = registration_name.to_ascii_lowercase();
        let is_namespace = Namespace::ALL.iter().any(|namespace| namespace.as_str() == name);
        let prefix = format!("ep.{name}.");
        if !name.is_empty() && !is_namespace && !own.contains(&prefix) {
            own.push(prefix);
        }
        // Longest first: with the name `amdgpu.virtual`, `ep.amdgpu.virtual.profile` is the option `profile`.
        own.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        Self { own }
    }

    /// Classifies a key.
    pub fn classify<'k>(&self, key: &'k str) -> ConfigKey<'k> {
        // Own prefixes come first: one that also starts with `ep.hip.` (registration name `hip.virtual`) is the longer
        // match.
        if let Some(option) = self.own.iter().find_map(|prefix| key.strip_prefix(prefix.as_str())) {
            return match option.strip_prefix("arena.") {
                Some(setting) => ConfigKey::Arena(setting),
                None => ConfigKey::Own(option),
            };
        }
        let Some((word, rest)) = key.strip_prefix("ep.").and_then(|tail| tail.split_once('.')) else {
            return ConfigKey::Foreign;
        };
        match Namespace::ALL.into_iter().find(|namespace| namespace.as_str() == word) {
            Some(namespace) => ConfigKey::Backend(namespace, rest),
            None => ConfigKey::Foreign,
        }
    }

    /// Every own prefix, longest first, each ending in a dot.
    pub fn own(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(String::as_str)
    }
}
