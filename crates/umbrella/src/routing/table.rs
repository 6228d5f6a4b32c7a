//! The user's own rows, in the text file named by `routing_table`.

use std::fmt;
use std::path::Path;

use thiserror::Error;

use options::Hint;

use super::{BackendName, UnknownBackend};

/// The rows of a routing table, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingTable {
    rows: Vec<Row>,
}

/// A row: sessions with a matching device and model try this backend first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line number in the file.
    pub line: usize,
    /// The prefix of the architecture; `None` matches any.
    pub arch: Option<String>,
    /// The value of `model_arch`; `None` matches any value or none.
    pub model: Option<Hint>,
    /// The backend to try first.
    pub backend: BackendName,
}

/// All errors in a routing table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct TableError {
    /// Each bad line with its error, in order; never empty.
    pub problems: Vec<(usize, RowError)>,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (line, problem)) in self.problems.iter().enumerate() {
            write!(f, "{}line {line}: {problem}", if index == 0 { "" } else { "\n" })?;
        }
        f.write_str("\n  help: a row has an architecture prefix, a model_arch and a backend, such as: gfx11 llama hip (* means any)")
    }
}

/// The error in one row.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RowError {
    /// Fewer than three columns.
    #[error("expected 3 columns, found {found}")]
    TooShort {
        /// The number of columns found.
        found: usize,
    },
    /// The third column is not a backend.
    #[error(transparent)]
    Backend(#[from] UnknownBackend),
}

impl RoutingTable {
    /// Parses rows of `architecture-prefix model_arch backend`, separated by whitespace. `*` matches anything. `#` at
    /// the start of a line or after whitespace starts a comment. The backend is the rest of the line, so a path may
    /// contain spaces; relative paths are resolved against `folder`.
    ///
    /// # Errors
    /// A [`TableError`] that lists every invalid line.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, TableError> {
        let (mut rows, mut problems) = (Vec::new(), Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            match row(line, without_comment(text), folder) {
                Ok(row) => rows.extend(row),
                Err(problem) => problems.push((line, problem)),
            }
        }
        if problems.is_empty() { Ok(Self { rows }) } else { Err(TableError { problems }) }
    }

    /// The first row that matches the device and model.
    pub fn find(&self, arch: &str, model: Option<&Hint>) -> Option<&Row> {
        self.rows.iter().find(|row| {
            row.arch.as_ref().is_none_or(|prefix| arch.starts_with(prefix.as_str()))
                && row.model.as_ref().is_none_or(|wanted| Some(wanted) == model)
        })
    }

    /// All rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        if letter == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = letter;
    }
    line
}

/// Parses one line; `None` for an empty line.
fn row(line: usize, text: &str, folder: &Path) -> Result<Option<Row>, RowError> {
    let columns = |text: &str| text.split_whitespace().count();
    // A byte-order mark is not part of the first word.
    let text = text.trim_start_matches('\u{feff}').trim();
    let Some((arch, rest)) = text.split_once(char::is_whitespace) else {
        return if text.is_empty() { Ok(None) } else { Err(RowError::TooShort { found: 1 }) };
    };
    let Some((model, backend)) = rest.trim_start().split_once(char::is_whitespace) else {
        return Err(RowError::TooShort { found: columns(text) });
    };
    let backend = match backend.parse()? {
        BackendName::Library(file) => BackendName::Library(folder.join(file)),
        named => named,
    };
    let arch = (arch != "*").then(|| arch.to_ascii_lowercase());
    let model = if model == "*" { None } else { Hint::new(model) };
    Ok(Some(Row { line, arch, model, backend }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<RoutingTable, TableError> {
        RoutingTable::parse(text, Path::new("/etc/amdgpu"))
    }

    #[test]
    fn rows_comments_and_paths_are_read() {
        let table = parse(
            "# our machines\n\n gfx11   Llama  hip # quick\nGFX90a\t*\tmigraphx\r\n* resnet my ep/lib#1.so\n* * /opt/x.so\n",
        );
        let row = |line, arch: Option<&str>, model: Option<&str>, backend| Row {
            line,
            arch: arch.map(str::to_owned),
            model: model.and_then(Hint::new),
            backend,
        };
        assert_eq!(
            table.unwrap().rows(),
            [
                row(3, Some("gfx11"), Some("llama"), BackendName::Hip),
                row(4, Some("gfx90a"), None, BackendName::MiGraphX),
                row(5, None, Some("resnet"), BackendName::Library("/etc/amdgpu/my ep/lib#1.so".into())),
                row(6, None, None, BackendName::Library("/opt/x.so".into())),
            ]
        );
    }

    #[test]
    fn every_bad_line_is_named_with_its_number() {
        let message = parse("gfx11 llama hip\ngfx11\n# fine\ngfx11 hip\n* * turbo\n").unwrap_err().to_string();
        assert_eq!(
            message,
            "line 2: expected 3 columns, found 1\nline 4: expected 3 columns, found 2\n\
             line 5: unknown backend \"turbo\": expected migraphx, hip, directx, hipgpu or the path of a plugin library\n  \
             help: a row has an architecture prefix, a model_arch and a backend, such as: gfx11 llama hip (* means any)"
        );
    }

    #[test]
    fn the_first_row_that_fits_counts() {
        let table = parse("gfx1100 llama hip\ngfx11 * migraphx\n* llama directx\n").unwrap();
        let line = |arch, model| table.find(arch, Hint::new(model).as_ref()).map(|row| row.line);
        assert_eq!(line("gfx1100", " LLAMA "), Some(1));
        assert_eq!(line("gfx1100", ""), Some(2));
        assert_eq!(line("gfx90a:xnack-", "llama"), Some(3));
        assert_eq!(line("gfx90a", "resnet"), None);
        assert_eq!(line("", ""), None);
    }

    proptest! {
        #[test]
        fn any_text_gives_rows_or_line_numbers_of_the_text(text in "([a-z#* /\t\u{feff}]{0,12}\n){0,6}") {
            let lines = text.lines().count();
            match parse(&text) {
                Ok(table) => prop_assert!(table.rows().iter().all(|row| (1..=lines).contains(&row.line))),
                Err(error) => {
                    prop_assert!(!error.problems.is_empty());
                    prop_assert!(error.problems.iter().all(|(line, _)| (1..=lines).contains(line)));
                }
            }
        }
    }
}
