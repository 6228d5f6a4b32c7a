//! Options of our own backends: session-config entries `ep.<namespace>.<option>`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::error::{OptionsError, Problem};
use super::nearest::nearest;
use super::prefix::Namespace;
use super::slot::Kind;
use super::trust::SetBy;
use super::{hip, migraphx};

/// An option of a backend, for the parser and the documentation.
#[derive(Clone, Copy, Debug)]
pub struct BackendOption {
    /// The name after `ep.<namespace>.`.
    pub name: &'static str,
    /// Names that it had before. They are still read; if both are set, the current name wins.
    pub old_names: &'static [&'static str],
    /// The kind of value it takes.
    pub kind: Kind,
    /// Who may set it.
    pub set_by: SetBy,
    /// The default, as Markdown.
    pub default: &'static str,
    /// What it does, in one line of Markdown.
    pub meaning: &'static str,
    /// Environment variables that override it; the first one that is set wins.
    pub environment: &'static [&'static str],
}

/// The options of one backend.
#[derive(Debug)]
pub struct BackendTable {
    /// The namespace of the options.
    pub namespace: Namespace,
    /// Every option.
    pub rows: &'static [BackendOption],
    /// Names that are accepted but have no effect.
    pub ignored: &'static [&'static str],
    /// A prefix that every name may have.
    pub(super) old_prefix: Option<&'static str>,
}

/// The table of a namespace; `None` if the backend is not one of ours.
pub const fn table(namespace: Namespace) -> Option<&'static BackendTable> {
    match namespace {
        Namespace::Directml => None,
        Namespace::Hip => Some(&hip::TABLE),
        Namespace::Migraphx => Some(&migraphx::TABLE),
    }
}

/// The options that were given, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendOptions(BTreeMap<&'static str, String>);

impl BackendOptions {
    /// The canonical text of an option, by its name or its full key; `None` if unset.
    pub fn get(&self, key: &str) -> Option<&str> {
        let name = key.rsplit('.').next().unwrap_or(key);
        self.0.get(name).map(String::as_str)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.get(key) == Some("1")
    }
}

/// The result of reading one entry.
pub(super) enum Read {
    /// A value; `None` means "unset".
    Value(&'static BackendOption, Option<String>),
    /// Accepted but has no effect.
    Ignored,
    /// No such option.
    Unknown,
}

impl BackendTable {
    /// The option with this name or older name.
    pub fn find(&self, name: &str) -> Option<&'static BackendOption> {
        let without_prefix = self.without_old_prefix(name);
        self.rows.iter().find(|row| row.name == without_prefix || row.old_names.contains(&name))
    }

    fn without_old_prefix<'n>(&self, name: &'n str) -> &'n str {
        self.old_prefix.and_then(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
    }

    /// Whether a name is accepted but has no effect.
    pub fn ignores(&self, name: &str) -> bool {
        self.ignored.contains(&self.without_old_prefix(name))
    }

    /// The closest option names, best first.
    pub(super) fn nearest(&self, name: &str) -> Vec<&'static str> {
        nearest(self.without_old_prefix(name), self.rows.iter().map(|row| row.name))
    }

    /// Reads one entry.
    pub(super) fn read_entry(&self, key: &str, name: &str, text: &str) -> Result<Read, Problem> {
        let Some(row) = self.find(name) else {
            return Ok(if self.ignores(name) { Read::Ignored } else { Read::Unknown });
        };
        match row.kind.canonical(text) {
            Ok(canonical) => Ok(Read::Value(row, canonical)),
            Err(_) => Err(Problem::malformed(row.name, key, text, row.kind)),
        }
    }

    /// Picks the entries of this backend from all entries of a session. An option's current name wins over its older
    /// ones.
    ///
    /// # Errors
    /// [`OptionsError`] naming every unknown option and malformed value.
    pub fn read<'e>(
        &self,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Result<BackendOptions, OptionsError> {
        let prefix = format!("ep.{}.", self.namespace);
        let (mut current, mut old, mut problems) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for (key, text) in entries {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            match self.read_entry(key, name, text) {
                Ok(Read::Value(row, value)) => {
                    let given = if name == row.name { &mut current } else { &mut old };
                    given.insert(row.name, value);
                }
                Ok(Read::Ignored) => {}
                Ok(Read::Unknown) => problems.push(self.unknown(key, name)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            old.extend(current);
            let given = old.into_iter().filter_map(|(name, value)| Some((name, value?)));
            return Ok(BackendOptions(given.collect()));
        }
        Err(OptionsError { whose: format!("the {} backend", self.namespace), problems })
    }

    pub(super) fn unknown(&self, key: &str, name: &str) -> Problem {
        Problem::Unknown {
            option: name.to_owned(),
            key: key.to_owned(),
            nearest: self.nearest(name),
            namespace: Some(self.namespace),
        }
    }

    /// The options as a Markdown table.
    pub fn markdown(&self) -> String {
        let has_environment = self.rows.iter().any(|row| !row.environment.is_empty());
        let mut text = String::from("| Option | Value | Default | Set by |");
        text += if has_environment {
            " Environment | Meaning |\n|---|---|---|---|---|---|\n"
        } else {
            " Meaning |\n|---|---|---|---|---|\n"
        };
        for row in self.rows {
            let BackendOption { name, old_names, kind, set_by, default, meaning, environment } = row;
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "| `ep.{}.{name}` | {} | {default} | {} |",
                self.namespace,
                kind.documented(),
                set_by.word()
            );
            if has_environment {
                let variables: Vec<_> = environment.iter().map(|name| format!("`{name}`")).collect();
                let _ = write!(text, " {} |", variables.join(", "));
            }
            let _ = write!(text, " {meaning}");
            for old in *old_names {
                let _ = write!(text, " (older name: `ep.{}.{old}`)", self.namespace);
            }
            text += " |\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<BackendOptions, OptionsError> {
        hip::TABLE.read(entries.iter().copied())
    }

    #[test]
    fn values_are_read_in_any_case_and_by_name_or_key() {
        let entries = [("ep.hip.hipdnn", "ON"), ("ep.hip.tf32", "true"), ("ep.hip.dump_dir", ""), ("session.x", "1")];
        let options = read(&entries).unwrap();
        assert_eq!((options.get("hipdnn"), options.get(hip::HIPDNN)), (Some("on"), Some("on")));
        assert!(options.is_on(hip::TF32) && !options.is_on(hip::GRAPH_CAPTURE));
        assert_eq!(options.get(hip::DUMP_DIR), None);
    }

    #[test]
    fn typos_are_errors_that_name_what_was_meant() {
        let message = read(&[("ep.hip.repaly", "on"), ("ep.hip.replay", "maybe")]).unwrap_err().to_string();
        for wanted in [
            "2 problems with the options of the hip backend:",
            "unknown option \"repaly\" (entry \"ep.hip.repaly\"); did you mean \"replay\"?",
            "option replay is \"maybe\" (entry \"ep.hip.replay\"): expected auto, on or off",
            "help: the options ep.hip.* are hipdnn, blaslt, replay,",
        ] {
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn older_names_mean_the_current_ones() {
        let entries = [("ep.migraphx.migraphx_model_cache_dir", "/c"), ("ep.migraphx.migraphx_mem_limit", "1")];
        let options = migraphx::TABLE.read(entries).unwrap();
        assert_eq!(options.get("cache_dir"), Some("/c"));
        assert_eq!(read(&[("ep.hip.graph", "off")]).unwrap().get(hip::REPLAY), Some("off"));
        let message = read(&[("ep.hip.graph", "maybe")]).unwrap_err().to_string();
        assert!(message.contains("option replay is \"maybe\" (entry \"ep.hip.graph\")"), "{message}");
    }

    #[test]
    fn a_current_name_wins_over_an_older_one_in_any_order() {
        let (current, old) = (("ep.hip.replay", "on"), ("ep.hip.graph", "off"));
        for entries in [[current, old], [old, current]] {
            assert_eq!(read(&entries).unwrap().get(hip::REPLAY), Some("on"));
        }
    }

    #[test]
    fn names_are_unique_and_what_names_files_needs_trust() {
        for table in [&hip::TABLE, &migraphx::TABLE] {
            for (index, row) in table.rows.iter().enumerate() {
                for name in row.old_names.iter().chain([&row.name]) {
                    let is_taken = |other: &BackendOption| other.name == *name || other.old_names.contains(name);
                    assert!(!table.rows[..index].iter().any(is_taken), "{name}");
                }
                assert!(!row.meaning.is_empty() && !row.meaning.contains('\n'), "{}", row.name);
                assert!(row.kind != Kind::Path || row.set_by == SetBy::Trusted, "{}", row.name);
            }
        }
    }

    #[test]
    fn documented_options_are_the_real_ones() {
        testkit::generated::check("crates/options/src/hip.md", &hip::TABLE.markdown()).unwrap();
        testkit::generated::check("crates/options/src/migraphx.md", &migraphx::TABLE.markdown()).unwrap();
    }
}
