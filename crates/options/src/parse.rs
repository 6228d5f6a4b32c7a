//! Parses config entries into [`Options`], collecting all problems.

use std::collections::BTreeMap;

use super::backend::{self, BackendTable, Read};
use super::error::{OptionsError, Part, Problem, Shown, Warning};
use super::nearest::nearest;
use super::prefix::{ConfigKey, Prefixes};
use super::session;
use super::table::{OPTIONS, OptionRow, Options, Spelling, find, is_ignored_legacy};
use super::trust::{Origin, SetBy};

impl Options {
    /// Reads the session-config entries of a session with a library registered as `registration_name`. Entries that
    /// `origin` may not set are ignored and listed in one warning.
    ///
    /// Entries of other providers and of ONNX Runtime itself are skipped. The order of entries with distinct keys does
    /// not matter; if a key occurs twice, the last entry wins, as in ONNX Runtime.
    ///
    /// # Errors
    /// [`OptionsError`] listing every unknown option, malformed value, contradiction and over-long entry.
    pub fn parse<'e>(
        registration_name: &str,
        origin: Origin,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Result<(Self, Vec<Warning>), OptionsError> {
        let prefixes = Prefixes::new(registration_name);
        let latest: BTreeMap<&str, &str> = entries.into_iter().collect();
        let mut reader = Reader::new(origin);
        for (&key, &value) in &latest {
            reader.read(&prefixes, key, value);
        }
        reader.finish(registration_name, &prefixes, &latest)
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

/// An unknown option.
struct Unknown<'e> {
    option: &'e str,
    key: &'e str,
    /// The backend whose option it would be.
    table: Option<&'static BackendTable>,
}

impl Unknown<'_> {
    fn nearest(&self) -> Vec<&'static str> {
        match self.table {
            None => nearest(self.option, OPTIONS.iter().map(|row| row.name)),
            Some(table) => table.nearest(self.option),
        }
    }
}

struct Reader<'e> {
    origin: Origin,
    options: Options,
    given: BTreeMap<&'static str, Entries<'e>>,
    unknown: Vec<Unknown<'e>>,
    refused: Vec<&'e str>,
    problems: Vec<(&'e str, Problem)>,
    warnings: Vec<Warning>,
}

impl<'e> Reader<'e> {
    fn new(origin: Origin) -> Self {
        Self {
            origin,
            options: Options::default(),
            given: BTreeMap::new(),
            unknown: Vec::new(),
            refused: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Records an entry that its origin may not set, and returns whether it is one. An empty value sets nothing.
    fn is_refused(&mut self, set_by: SetBy, key: &'e str, value: &str) -> bool {
        let refused = !set_by.allows(self.origin) && !value.is_empty();
        if refused {
            self.refused.push(key);
        }
        refused
    }

    fn read(&mut self, prefixes: &Prefixes, key: &'e str, value: &'e str) {
        let class = prefixes.classify(key);
        if class != ConfigKey::Foreign && self.is_too_long(key, value) {
            return;
        }
        match class {
            ConfigKey::Own(option) => self.read_option(option, key, value),
            ConfigKey::Backend(namespace, rest) => {
                let row = backend::table(namespace).and_then(|table| table.find(rest));
                if row.is_some_and(|row| self.is_refused(row.set_by, key, value)) {
                    return;
                }
                let entries = self.options.backend_entries.entry(namespace).or_default();
                entries.insert(rest.to_owned(), value.to_owned());
            }
            ConfigKey::Foreign if key == session::PLACE_OF_COMPILED_MODEL => {
                self.is_refused(SetBy::Trusted, key, value);
            }
            ConfigKey::Foreign if key == session::WRITES_COMPILED_MODEL && !matches!(value, "" | "0") => {
                if self.origin == Origin::Untrusted {
                    self.problems.push((key, Problem::NeedsTrust { key: key.to_owned() }));
                }
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
                self.unknown.push(Unknown { option, key, table: None });
            }
            return;
        };
        if self.is_refused(row.set_by, key, text) {
            return;
        }
        let Ok(canonical) = (row.canonical)(text) else {
            self.problems.push((key, Problem::malformed(row.name, key, text, row.kind)));
            return;
        };
        let entries = self.given.entry(row.name).or_default();
        match spelling {
            Spelling::Canonical => entries.current.push(Given { key, text, canonical }),
            Spelling::Legacy => entries.legacy.push(Given { key, text, canonical }),
        }
    }

    /// Checks the entries of our own backends. With another library's plugin, the same keys may mean anything and are
    /// passed on unchanged.
    fn read_backend_entries(&mut self, latest: &BTreeMap<&'e str, &'e str>, prefixes: &Prefixes) {
        if self.options.backend_library.is_some() {
            return;
        }
        for (&key, &text) in latest {
            let ConfigKey::Backend(namespace, option) = prefixes.classify(key) else { continue };
            let Some(table) = backend::table(namespace).filter(|_| !self.refused.contains(&key)) else { continue };
            match table.read_entry(key, option, text) {
                Ok(Read::Unknown) => self.unknown.push(Unknown { option, key, table: Some(table) }),
                Ok(Read::Value(row, value)) if option != row.name => {
                    let current = format!("ep.{namespace}.{}", row.name);
                    if latest.get(current.as_str()).is_some_and(|text| row.kind.canonical(text).ok() != Some(value)) {
                        self.warnings.push(Warning::LegacyOverridden {
                            option: row.name,
                            key: key.to_owned(),
                            text: text.to_owned(),
                        });
                    }
                }
                Ok(Read::Value(..) | Read::Ignored) => {}
                Err(problem) => self.problems.push((key, problem)),
            }
        }
    }

    fn finish(
        mut self,
        registration_name: &str,
        prefixes: &Prefixes,
        latest: &BTreeMap<&'e str, &'e str>,
    ) -> Result<(Options, Vec<Warning>), OptionsError> {
        for row in OPTIONS {
            if let Some(entries) = self.given.remove(row.name) {
                self.settle(row, &entries);
            }
        }
        self.read_backend_entries(latest, prefixes);
        for unknown in std::mem::take(&mut self.unknown) {
            let (option, key, nearest) = (unknown.option.to_owned(), unknown.key.to_owned(), unknown.nearest());
            if self.options.is_strict() {
                let namespace = unknown.table.map(|table| table.namespace);
                self.problems.push((unknown.key, Problem::Unknown { option, key, nearest, namespace }));
            } else {
                self.options.withheld.push(key.clone());
                self.warnings.push(Warning::UnknownIgnored { option, key, nearest });
            }
        }
        if !self.refused.is_empty() {
            let keys: Vec<String> = self.refused.iter().map(|&key| key.to_owned()).collect();
            self.options.withheld.extend(keys.iter().cloned());
            self.warnings.push(Warning::Refused { keys });
        }
        if self.problems.is_empty() {
            return Ok((self.options, self.warnings));
        }
        self.problems.sort_by_key(|(key, _)| *key);
        let problems = self.problems.into_iter().map(|(_, problem)| problem).collect();
        Err(OptionsError { whose: Shown(registration_name).to_string(), problems })
    }

    /// Picks one of the entries for an option and stores its value.
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
