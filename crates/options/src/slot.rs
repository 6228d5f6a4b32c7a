//! Kinds of option values: how each is parsed and rendered.

use std::path::PathBuf;

use thiserror::Error;

use super::profile::Profile;

const TRUE: [&str; 6] = ["1", "true", "on", "yes", "enable", "enabled"];
const FALSE: [&str; 6] = ["0", "false", "off", "no", "disable", "disabled"];
const SWITCH_ACCEPTED: &str = "1, true, on, yes, enable, enabled or 0, false, off, no, disable, disabled (any case)";

/// HIP device ordinals and the backends' element counts are C `int`s.
const MAX_NUMBER: u32 = i32::MAX as u32;

/// The kind of value an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the profile names.
    Profile,
    /// On or off.
    Switch,
    /// A non-negative integer that fits a C `int`.
    Number,
    /// A path, taken verbatim.
    Path,
    /// Words separated by commas.
    List,
    /// `key=value` separated by commas.
    Pairs,
    /// Free text, taken verbatim.
    Text,
    /// Free text; case and surrounding whitespace do not matter.
    Hint,
    /// A number of bytes.
    Bytes,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// Every kind that needs an explanation; a choice lists its words.
    pub const EXPLAINED: [Self; 9] = [
        Self::Profile,
        Self::Switch,
        Self::Number,
        Self::Bytes,
        Self::Path,
        Self::List,
        Self::Pairs,
        Self::Text,
        Self::Hint,
    ];

    /// The name of the kind in documentation.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Switch => "switch",
            Self::Number => "number",
            Self::Path => "path",
            Self::List => "list",
            Self::Pairs => "pairs",
            Self::Text => "text",
            Self::Hint => "hint",
            Self::Bytes => "bytes",
            Self::Choice(_) => "choice",
        }
    }

    /// The allowed words of a choice; empty for other kinds.
    pub(super) fn words(self) -> Vec<&'static str> {
        match self {
            Self::Profile => Profile::spellings().map(|(word, _)| word).filter(|word| word.len() > 1).collect(),
            Self::Choice(words) => words.to_vec(),
            _ => Vec::new(),
        }
    }

    /// How a table in the documentation shows it; a choice lists its words.
    pub fn documented(self) -> String {
        match self {
            Self::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            other => other.word().to_owned(),
        }
    }

    /// A description of valid values, for messages and documentation.
    pub fn accepted(self) -> String {
        let fixed = match self {
            Self::Profile => Profile::ACCEPTED,
            Self::Switch => SWITCH_ACCEPTED,
            Self::Number => "an integer from 0 to 2147483647",
            Self::Path => "a path (whitespace is significant)",
            Self::List => "words separated by commas",
            Self::Pairs => "key=value separated by commas",
            Self::Text => "any text",
            Self::Hint => "any text (case and surrounding whitespace do not matter)",
            Self::Bytes => "a non-negative number of bytes",
            Self::Choice(words) => return alternatives(words),
        };
        fixed.to_owned()
    }

    /// The canonical form of an entry's text; `None` if it means "unset", as an empty text does.
    pub(super) fn canonical(self, text: &str) -> Result<Option<String>, Malformed> {
        let word = text.trim();
        if word.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Profile => Ok(<Profile as Slot>::parse(word)?.render()),
            Self::Switch => Ok(<Option<bool> as Slot>::parse(word)?.render()),
            Self::Number => Ok(<Option<u32> as Slot>::parse(word)?.render()),
            Self::Path => Ok(Some(text.to_owned())),
            Self::List => Ok(<Vec<String> as Slot>::parse(word)?.render()),
            Self::Pairs => Ok(<Vec<(String, String)> as Slot>::parse(word)?.render()),
            Self::Text => Ok(Some(word.to_owned())),
            Self::Hint => Ok(<Option<Hint> as Slot>::parse(word)?.render()),
            Self::Bytes => word.parse().map(|bytes: u64| Some(bytes.to_string())).map_err(|_| Malformed),
            Self::Choice(words) => {
                let known = words.iter().find(|known| known.eq_ignore_ascii_case(word));
                known.map(|known| Some((*known).to_owned())).ok_or(Malformed)
            }
        }
    }
}

/// `auto, on or off`.
fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

/// A text that is not a valid switch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid switch {text:?}: expected {SWITCH_ACCEPTED}")]
pub struct NotASwitch {
    /// The text as given.
    pub text: String,
}

/// Parses a switch, with the spellings that options and environment variables use.
///
/// # Errors
/// [`NotASwitch`] for any other text. Callers that read an environment variable warn and treat it as off: a typo in a
/// debugging aid must not stop a session.
pub fn parse_switch(text: &str) -> Result<bool, NotASwitch> {
    let is_in = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_in(&TRUE) {
        Ok(true)
    } else if is_in(&FALSE) {
        Ok(false)
    } else {
        Err(NotASwitch { text: text.to_owned() })
    }
}

/// A routing hint, such as a model family: lower case, trimmed, never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint(String);

impl Hint {
    /// Normalises a text; `None` if it is blank.
    pub fn new(text: &str) -> Option<Self> {
        let word = text.trim();
        (!word.is_empty()).then(|| Self(word.to_ascii_lowercase()))
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text does not match the slot's kind; [`Kind::accepted`] describes valid texts.
pub(super) struct Malformed;

/// A field of `Options`: unset by default, parsed from text, and rendered so that parsing gives the same value again.
pub(super) trait Slot: Default + PartialEq {
    const KIND: Kind;

    fn parse(text: &str) -> Result<Self, Malformed>;

    /// The canonical text, or `None` if unset.
    fn render(&self) -> Option<String>;
}

impl Slot for Profile {
    const KIND: Kind = Kind::Profile;

    fn parse(text: &str) -> Result<Self, Malformed> {
        text.parse().map_err(|_| Malformed)
    }

    fn render(&self) -> Option<String> {
        (*self != Self::Auto).then(|| self.canonical().to_owned())
    }
}

impl Slot for Option<bool> {
    const KIND: Kind = Kind::Switch;

    fn parse(text: &str) -> Result<Self, Malformed> {
        parse_switch(text).map(Some).map_err(|_| Malformed)
    }

    fn render(&self) -> Option<String> {
        self.map(|on| if on { "1" } else { "0" }.to_owned())
    }
}

impl Slot for Option<u32> {
    const KIND: Kind = Kind::Number;

    fn parse(text: &str) -> Result<Self, Malformed> {
        // The standard parser accepts a leading plus sign, which the backends' parsers reject.
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Malformed);
        }
        match text.parse() {
            Ok(number) if number <= MAX_NUMBER => Ok(Some(number)),
            _ => Err(Malformed),
        }
    }

    fn render(&self) -> Option<String> {
        self.map(|number| number.to_string())
    }
}

impl Slot for Option<PathBuf> {
    const KIND: Kind = Kind::Path;

    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn render(&self) -> Option<String> {
        self.as_ref().map(|path| path.to_string_lossy().into_owned())
    }
}

impl Slot for Vec<String> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    fn render(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(","))
    }
}

impl Slot for Vec<(String, String)> {
    const KIND: Kind = Kind::Pairs;

    fn parse(text: &str) -> Result<Self, Malformed> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').ok_or(Malformed)?;
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() { Err(Malformed) } else { Ok((key.to_owned(), value.to_owned())) }
        };
        parts.map(pair).collect()
    }

    fn render(&self) -> Option<String> {
        let pairs: Vec<_> = self.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join(","))
    }
}

impl Slot for Option<String> {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    fn render(&self) -> Option<String> {
        self.clone()
    }
}

impl Slot for Option<Hint> {
    const KIND: Kind = Kind::Hint;

    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(Hint::new(text))
    }

    fn render(&self) -> Option<String> {
        self.as_ref().map(|hint| hint.as_str().to_owned())
    }
}
