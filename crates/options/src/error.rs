//! Errors that report all problems with the options at once, and warnings for the log.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;

use super::nearest::nearest;
use super::prefix::Namespace;
use super::slot::Kind;
use super::table::OPTIONS;
use super::trust::TRUST_VARIABLE;
use super::{MAX_KEY_BYTES, MAX_VALUE_BYTES, backend};

/// Longer values are truncated in messages.
const SHOWN_CHARS: usize = 120;

/// Further problems are only counted in messages.
const SHOWN_PROBLEMS: usize = 20;

/// Everything wrong with the options of one session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct OptionsError {
    /// The owner of the options: the name the library was registered under, in quotes, or a backend.
    pub whose: String,
    /// Each problem, ordered by key; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = &self.whose;
        match self.problems.len() {
            1 => write!(f, "1 problem with the options of {whose}:")?,
            count => write!(f, "{count} problems with the options of {whose}:")?,
        }
        for problem in self.problems.iter().take(SHOWN_PROBLEMS) {
            write!(f, "\n  - {problem}")?;
        }
        if let Some(more) = self.problems.len().checked_sub(SHOWN_PROBLEMS).filter(|more| *more > 0) {
            write!(f, "\n  - and {more} more")?;
        }
        let unknown: BTreeSet<_> = self.problems.iter().filter_map(Problem::unknown_in).collect();
        if unknown.is_empty() {
            return f.write_str("\n  help: correct or remove the options listed above");
        }
        f.write_str("\n  help: ")?;
        for namespace in unknown {
            match namespace.and_then(backend::table) {
                None => write!(f, "the options are {}; ", names(OPTIONS.iter().map(|row| row.name)))?,
                Some(table) => {
                    let names = names(table.rows.iter().map(|row| row.name));
                    write!(f, "the options ep.{}.* are {names}; ", table.namespace)?;
                }
            }
        }
        f.write_str("strict_options=0 turns unknown options into warnings")
    }
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A problem with one option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// There is no such option.
    #[error("unknown option {option:?} (entry {key:?}){}", DidYouMean(nearest))]
    Unknown {
        /// The name after the prefix.
        option: String,
        /// The full key.
        key: String,
        /// The closest option names, best first.
        nearest: Vec<&'static str>,
        /// The backend whose option it would be; `None` for the provider itself.
        namespace: Option<Namespace>,
    },
    /// The value does not match the option's kind.
    #[error("option {option} is {} (entry {key:?}): expected {accepted}{}", Shown(text), DidYouMean(nearest))]
    Malformed {
        /// The option.
        option: &'static str,
        /// The full key.
        key: String,
        /// The value as given.
        text: String,
        /// The values that would have been accepted.
        accepted: String,
        /// The closest values, best first.
        nearest: Vec<&'static str>,
    },
    /// The entry makes the session write files, and its origin is not trusted.
    #[error(
        "entry {key:?} makes the session write a compiled model, which untrusted session options may not do: {}",
        how_to_trust()
    )]
    NeedsTrust {
        /// The full key.
        key: String,
    },
    /// Two entries set one option to different values.
    #[error(
        "option {option} is given twice with different values: {} (entry {key:?}) and {} (entry {other_key:?})",
        Shown(text),
        Shown(other_text)
    )]
    Contradiction {
        /// The option.
        option: &'static str,
        /// Key of the first entry.
        key: String,
        /// Value of the first entry.
        text: String,
        /// Key of the second entry.
        other_key: String,
        /// Value of the second entry.
        other_text: String,
    },
    /// A key or value is too long for ONNX Runtime.
    #[error("{part} of entry {} has {bytes} bytes: ONNX Runtime accepts at most {}", Shown(key), part.limit())]
    TooLong {
        /// The full key.
        key: String,
        /// Which half of the entry is too long.
        part: Part,
        /// The length.
        bytes: usize,
    },
}

impl Problem {
    pub(super) fn malformed(option: &'static str, key: &str, text: &str, kind: Kind) -> Self {
        let (accepted, nearest) = (kind.accepted(), nearest(text, kind.words()));
        Self::Malformed { option, key: key.to_owned(), text: text.to_owned(), accepted, nearest }
    }

    /// The owner of the unknown option, if the problem is one.
    fn unknown_in(&self) -> Option<Option<Namespace>> {
        match self {
            Self::Unknown { namespace, .. } => Some(*namespace),
            _ => None,
        }
    }
}

/// Half of a config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl Part {
    /// The maximum length in bytes.
    pub const fn limit(self) -> usize {
        match self {
            Self::Key => MAX_KEY_BYTES,
            Self::Value => MAX_VALUE_BYTES,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "the key",
            Self::Value => "the value",
        })
    }
}

/// Something the user should know that does not stop the session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Warning {
    /// An unknown option was ignored because `strict_options` is off.
    #[error("unknown option {option:?} (entry {key:?}) is ignored{}", DidYouMean(nearest))]
    UnknownIgnored {
        /// The name after the prefix.
        option: String,
        /// The full key.
        key: String,
        /// The closest option names, best first.
        nearest: Vec<&'static str>,
    },
    /// An option of the MIGraphX provider inside ONNX Runtime that has no effect here.
    #[error("option {option:?} (entry {key:?}) has no effect: device memory is managed by the provider")]
    LegacyIgnored {
        /// The legacy name.
        option: String,
        /// The full key.
        key: String,
    },
    /// Options that only a trusted origin may set.
    #[error(
        "ignored, because they load libraries, name files or carry addresses, and session options may come from a model \
         folder: {}; {}",
        keys.iter().map(|key| key.escape_debug().to_string()).collect::<Vec<_>>().join(", "),
        how_to_trust()
    )]
    Refused {
        /// The full keys.
        keys: Vec<String>,
    },
    /// A legacy spelling was overridden by the current one.
    #[error("entry {key:?} is {}, but {option} is set as well and wins", Shown(text))]
    LegacyOverridden {
        /// The option.
        option: &'static str,
        /// Key of the legacy spelling.
        key: String,
        /// Value of the legacy spelling.
        text: String,
    },
}

fn how_to_trust() -> String {
    format!(
        "if you trust where the options come from, set {TRUST_VARIABLE}=1 before the session is created, or register the \
         library with amdgpu_ep.register(..., trust_options=True)"
    )
}

/// A user's text in quotes, escaped, and truncated if it is long.
pub(super) struct Shown<'t>(pub(super) &'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN_CHARS) {
            Some((cut, _)) => write!(f, "{:?}… ({} bytes)", &self.0[..cut], self.0.len()),
            None => write!(f, "{:?}", self.0),
        }
    }
}

struct DidYouMean<'n>(&'n [&'static str]);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            write!(f, "{}{name:?}", if index == 0 { "; did you mean " } else { " or " })?;
        }
        f.write_str(if self.0.is_empty() { "" } else { "?" })
    }
}
