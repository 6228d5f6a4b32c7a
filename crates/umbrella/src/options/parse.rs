//! From config entries to [`Options`], gathering every problem on the way.

use std::collections::BTreeMap;

use super::error::{OptionsError, Part, Problem, Warning};
use super::nearest::nearest;
use super::prefix::{ConfigKey, Prefixes};
use super::table::{OPTIONS, OptionRow, Options, Spelling, find, is_ignored_legacy};

impl Options {
    /// Reads the session-config entries of a session on a library registered as `registration_name`.
    ///
    /// Entries of other providers and of ONNX Runtime itself are passed over. The order of entries with distinct keys
    /// does not matter; of entries with one key the last counts, as in ONNX Runtime.
    ///
    /// # Errors
    /// [`OptionsError`] naming every unknown option, malformed value, contradiction and over-long entry.
    pub fn parse<'e>(
        registration_name: &str,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Result<(Self, Vec<Warning>), OptionsError> {
        let prefixes = Prefixes::new(registration_name);
        let latest: BTreeMap<&str, &str> = entries.into_iter().collect();
        let mut reader = Reader::default();
        for (key, value) in latest {
            reader.read(&prefixes, key, value);
        }
        reader.finish(registration_name)
    }
}

/// A well-formed entry for some option.
struct Given<'e> {
    key: &'e str,
    text: &'e str,
    canonical: Option<String>,
}

/// The entries for one option by spelling.
#[derive(Default)]
struct Entries<'e> {
    current: Vec<Given<'e>>,
    legacy: Vec<Given<'e>>,
}

#[derive(Default)]
struct Reader<'e> {
    options: Options,
    given: BTreeMap<&'static str, Entries<'e>>,
    unknown: Vec<(&'e str, &'e str)>,
    problems: Vec<(&'e str, Problem)>,
    warnings: Vec<Warning>,
}

impl<'e> Reader<'e> {
    fn read(&mut self, prefixes: &Prefixes, key: &'e str, value: &'e str) {
        let class = prefixes.classify(key);
        if class == ConfigKey::Foreign || self.is_too_long(key, value) {
            return;
        }
        match class {
            ConfigKey::Own(option) => self.read_option(option, key, value),
            ConfigKey::Backend(namespace, rest) => {
                let entries = self.options.backend_entries.entry(namespace).or_default();
                entries.insert(rest.to_owned(), value.to_owned());
            }
            ConfigKey::Arena(_) | ConfigKey::Foreign => {}
        }
    }

    fn is_too_long(&mut self, key: &'e str, value: &'e str) -> bool {
        let mut is_too_long = false;
        for (part, bytes) in [(Part::Key, key.len()), (Part::Value, value.len())] {
            if bytes > part.limit() {
                self.problems.push((key, Problem::TooLong { key: key.to_owned(), part, bytes }));
                is_too_long = true;
            }
        }
        is_too_long
    }

    fn read_option(&mut self, option: &'e str, key: &'e str, text: &'e str) {
        let Some((row, spelling)) = find(option) else {
            if is_ignored_legacy(option) {
                self.warnings.push(Warning::LegacyIgnored { option: option.to_owned(), key: key.to_owned() });
            } else {
                self.unknown.push((option, key));
            }
            return;
        };
        let Ok(canonical) = (row.canonical)(text) else {
            let problem = Problem::Malformed {
                option: row.name,
                key: key.to_owned(),
                text: text.to_owned(),
                accepted: row.kind.accepted(),
            };
            self.problems.push((key, problem));
            return;
        };
        let entries = self.given.entry(row.name).or_default();
        match spelling {
            Spelling::Canonical => entries.current.push(Given { key, text, canonical }),
            Spelling::Legacy => entries.legacy.push(Given { key, text, canonical }),
        }
    }

    fn finish(mut self, registration_name: &str) -> Result<(Options, Vec<Warning>), OptionsError> {
        for row in OPTIONS {
            if let Some(entries) = self.given.remove(row.name) {
                self.settle(row, &entries);
            }
        }
        for (option, key) in std::mem::take(&mut self.unknown) {
            let (option, nearest) = (option.to_owned(), nearest(option));
            if self.options.is_strict() {
                self.problems.push((key, Problem::Unknown { option, key: key.to_owned(), nearest }));
            } else {
                self.warnings.push(Warning::UnknownIgnored { option, key: key.to_owned(), nearest });
            }
        }
        if self.problems.is_empty() {
            return Ok((self.options, self.warnings));
        }
        self.problems.sort_by_key(|(key, _)| *key);
        let problems = self.problems.into_iter().map(|(_, problem)| problem).collect();
        Err(OptionsError { registration_name: registration_name.to_owned(), problems })
    }

    /// Decides between the entries for one option and stores the winner.
    fn settle(&mut self, row: &OptionRow, entries: &Entries<'e>) {
        for same_spelling in [&entries.current, &entries.legacy] {
            for pair in same_spelling.windows(2) {
                if let [one, other] = pair
                    && one.canonical != other.canonical
                {
                    let problem = Problem::Contradiction {
                        option: row.name,
                        key: one.key.to_owned(),
                        text: one.text.to_owned(),
                        other_key: other.key.to_owned(),
                        other_text: other.text.to_owned(),
                    };
                    self.problems.push((one.key, problem));
                }
            }
        }
        let Some(winner) = entries.current.first().or(entries.legacy.first()) else { return };
        for loser in entries.legacy.iter().filter(|loser| loser.canonical != winner.canonical) {
            if !entries.current.is_empty() {
                self.warnings.push(Warning::LegacyOverridden {
                    option: row.name,
                    key: loser.key.to_owned(),
                    text: loser.text.to_owned(),
                });
            }
        }
        // `canonical` accepted the same text, so storing it cannot fail.
        let _ = (row.store)(&mut self.options, winner.text);
    }
}
