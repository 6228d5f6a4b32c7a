//! What can be wrong with options, all of it at once, and what is merely worth a line in the log.

use std::fmt;

use thiserror::Error;

use super::table::OPTIONS;
use super::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Values longer than this are cut in messages.
const SHOWN_CHARS: usize = 120;

/// Everything wrong with the options of one session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct OptionsError {
    /// The name the library was registered under.
    pub registration_name: String,
    /// Each problem, ordered by key; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Shown(&self.registration_name);
        match self.problems.len() {
            1 => write!(f, "1 problem with the options of {name}:")?,
            count => write!(f, "{count} problems with the options of {name}:")?,
        }
        for problem in &self.problems {
            write!(f, "\n  - {problem}")?;
        }
        if self.problems.iter().any(|problem| matches!(problem, Problem::Unknown { .. })) {
            f.write_str("\n  help: the options are ")?;
            for (index, row) in OPTIONS.iter().enumerate() {
                write!(f, "{}{}", if index == 0 { "" } else { ", " }, row.name)?;
            }
            f.write_str("; strict_options=0 turns unknown options into warnings")
        } else {
            f.write_str("\n  help: correct or remove what is listed above")
        }
    }
}

/// One thing wrong with one option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// There is no such option.
    #[error("unknown option {option:?} (entry {key:?}){}", DidYouMean(nearest))]
    Unknown {
        /// The name after the prefix.
        option: String,
        /// The whole key.
        key: String,
        /// Names it may have meant, best first.
        nearest: Vec<&'static str>,
    },
    /// The value is not of the option's kind.
    #[error("option {option} is {} (entry {key:?}): expected {accepted}", Shown(text))]
    Malformed {
        /// The option.
        option: &'static str,
        /// The whole key.
        key: String,
        /// The value as given.
        text: String,
        /// What would have been accepted.
        accepted: &'static str,
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
    /// A key or value is longer than ONNX Runtime passes on.
    #[error("{part} of entry {} has {bytes} bytes: ONNX Runtime takes at most {}", Shown(key), part.limit())]
    TooLong {
        /// The whole key.
        key: String,
        /// Which half of the entry is too long.
        part: Part,
        /// Its length.
        bytes: usize,
    },
}

/// One half of a config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl Part {
    /// The most bytes it may have.
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
    /// An unknown option was passed over because `strict_options` is off.
    #[error("unknown option {option:?} (entry {key:?}) is ignored{}", DidYouMean(nearest))]
    UnknownIgnored {
        /// The name after the prefix.
        option: String,
        /// The whole key.
        key: String,
        /// Names it may have meant, best first.
        nearest: Vec<&'static str>,
    },
    /// An option of the MIGraphX provider inside ONNX Runtime that has nothing left to act on.
    #[error("option {option:?} (entry {key:?}) has no effect: device memory is managed by the provider")]
    LegacyIgnored {
        /// The legacy name.
        option: String,
        /// The whole key.
        key: String,
    },
    /// A legacy spelling lost against the current one.
    #[error("entry {key:?} is {} but {option} is set as well: the latter is used", Shown(text))]
    LegacyOverridden {
        /// The option.
        option: &'static str,
        /// Key of the legacy spelling.
        key: String,
        /// Value of the legacy spelling.
        text: String,
    },
}

/// A user's text in quotes, escaped, and cut if it would drown the message.
struct Shown<'t>(&'t str);

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
            write!(f, "{}{name:?}", if index == 0 { ": did you mean " } else { " or " })?;
        }
        f.write_str(if self.0.is_empty() { "" } else { "?" })
    }
}
