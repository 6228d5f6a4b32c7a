//! Options of our own backends: session-config entries `ep.<namespace>.<option>`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::error::{OptionsError, Problem};
use super::nearest::nearest;
use super::prefix::Namespace;
use super::slot::Kind;
use super::trust::SetBy;
use super::{hip, migraphx};

/// One option of a backend, for the parser and the documentation.
#[derive(Clone, Copy, Debug)]
pub struct BackendOption {
    /// The name after `ep.<namespace>.`.
    pub name: &'static str,
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
    /// Their namespace.
    pub namespace: Namespace,
    /// Every option.
    pub rows: &'static [BackendOption],
    /// Names that are accepted but have no effect.
    pub ignored: &'static [&'static str],
    /// Older names: the prefix and the renamed options.
    pub(super) legacy: Option<(&'static str, &'static [(&'static str, &'static str)])>,
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
        let name = self.current(name);
        self.rows.iter().find(|row| row.name == name)
    }

    /// The current name for an older one.
    fn current<'n>(&self, name: &'n str) -> &'n str {
        let Some((prefix, renamed)) = self.legacy else { return name };
        let Some(legacy) = name.strip_prefix(prefix) else { return name };
        renamed.iter().find(|(old, _)| *old == legacy).map_or(legacy, |&(_, new)| new)
    }

    /// Whether a name is accepted but has no effect.
    pub fn ignores(&self, name: &str) -> bool {
        self.ignored.contains(&self.current(name))
    }

    /// The closest option names, best first.
    pub(super) fn nearest(&self, name: &str) -> Vec<&'static str> {
        nearest(self.current(name), self.rows.iter().map(|row| row.name))
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

    /// Picks the entries of this backend from all entries of a session.
    ///
    /// # Errors
    /// [`OptionsError`] naming every unknown option and malformed value.
    pub fn read<'e>(
        &self,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Result<BackendOptions, OptionsError> {
        let prefix = format!("ep.{}.", self.namespace);
        let (mut options, mut problems) = (BackendOptions::default(), Vec::new());
        for (key, text) in entries {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            match self.read_entry(key, name, text) {
                Ok(Read::Value(row, Some(value))) => drop(options.0.insert(row.name, value)),
                Ok(Read::Value(_, None) | Read::Ignored) => {}
                Ok(Read::Unknown) => problems.push(self.unknown(key, name)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(options);
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
            let BackendOption { name, kind, set_by, default, meaning, environment } = row;
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
            let _ = writeln!(text, " {meaning} |");
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
        let message = read(&[("ep.hip.garph", "on"), ("ep.hip.graph", "maybe")]).unwrap_err().to_string();
        for wanted in [
            "2 problems with the options of the hip backend:",
            "unknown option \"garph\" (entry \"ep.hip.garph\"); did you mean \"graph\"?",
            "option graph is \"maybe\" (entry \"ep.hip.graph\"): expected auto, on or off",
            "help: the options ep.hip.* are hipdnn, graph,",
        ] {
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn older_names_mean_the_current_ones() {
        let entries = [("ep.migraphx.migraphx_model_cache_dir", "/c"), ("ep.migraphx.migraphx_mem_limit", "1")];
        let options = migraphx::TABLE.read(entries).unwrap();
        assert_eq!(options.get("cache_dir"), Some("/c"));
    }

    #[test]
    fn names_are_unique_and_what_names_files_needs_trust() {
        for table in [&hip::TABLE, &migraphx::TABLE] {
            for (index, row) in table.rows.iter().enumerate() {
                assert!(table.rows[..index].iter().all(|other| other.name != row.name), "{}", row.name);
                assert!(!row.meaning.is_empty() && !row.meaning.contains('\n'), "{}", row.name);
                assert!(row.kind != Kind::Path || row.set_by == SetBy::Trusted, "{}", row.name);
            }
        }
    }

    #[test]
    fn documented_options_are_the_real_ones() {
        testkit::held::hold("crates/options/src/hip.md", &hip::TABLE.markdown()).unwrap();
        testkit::held::hold("crates/options/src/migraphx.md", &migraphx::TABLE.markdown()).unwrap();
    }
}
