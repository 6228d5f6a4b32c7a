//! Collects options as text and remembers their origin.
use std::collections::BTreeMap;

use ::options::migraphx::TABLE;

/// An option as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub text: String,
    /// The entry or variable it comes from, for error messages.
    pub origin: String,
    /// True if it comes from the environment.
    pub from_environment: bool,
}

/// The options of one session as written, by canonical name.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub options: BTreeMap<&'static str, Text>,
    /// Warnings about ignored options.
    pub warnings: Vec<String>,
}

impl Raw {
    /// Collects options from session-config entries and the environment. Unknown names are ignored: under the
    /// registered name they belong to the umbrella, and unknown names under our own prefix were rejected earlier.
    pub fn gather(
        entries: &BTreeMap<String, String>,
        registered: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut raw = Self::default();
        let registered = format!("ep.{}.", registered.to_lowercase());
        // The backend's own prefix comes last, so it takes precedence.
        for prefix in [registered.as_str(), "ep.migraphx."] {
            raw.take(entries, prefix);
        }
        for row in TABLE.rows {
            let set = row.environment.iter().find_map(|&name| Some((name, environment(name)?)));
            if let Some((name, value)) = set.filter(|(_, value)| !unquoted(value).is_empty()) {
                let text = Text { text: unquoted(&value).to_owned(), origin: name.to_owned(), from_environment: true };
                raw.options.insert(row.name, text);
            }
        }
        raw
    }

    fn take(&mut self, entries: &BTreeMap<String, String>, prefix: &str) {
        // Plain names come after legacy ones, so they take precedence.
        let written = entries.iter().filter_map(|(entry, value)| Some((entry, entry.strip_prefix(prefix)?, value)));
        let (legacy, plain): (Vec<_>, Vec<_>) = written.partition(|(_, key, _)| key.starts_with("migraphx_"));
        for (entry, key, value) in legacy.into_iter().chain(plain) {
            if let Some(row) = TABLE.find(key) {
                let text = Text { text: value.trim().to_owned(), origin: entry.clone(), from_environment: false };
                self.options.insert(row.name, text);
            } else if TABLE.ignores(key) {
                self.warnings.push(format!("{entry} is ignored: memory is managed by the device, not by the backend"));
            }
        }
    }
}

/// Values in the environment may be surrounded by whitespace and quotes.
fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'']).trim()
}
