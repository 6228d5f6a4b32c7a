//! Reads the tables of docs/lexicon.md and lists the tracked files that they apply to.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

pub const FILE: &str = "docs/lexicon.md";

/// A row of a table: what to avoid, and what to write instead.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub avoid: String,
    pub write: String,
}

/// The text of the lexicon.
///
/// # Errors
/// When it cannot be read.
pub fn read(workspace: &Workspace) -> Result<String> {
    fs::read_to_string(workspace.path(FILE)).with_context(|| format!("cannot read {FILE}"))
}

/// The rows of the table below `heading`.
///
/// # Errors
/// When there is no such table, or a row does not have two cells.
pub fn rows(lexicon: &str, heading: &str) -> Result<Vec<Row>> {
    let line = format!("## {heading}\n");
    let section = lexicon.split_once(&line).map(|(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let section = section.with_context(|| format!("{FILE} has no heading {heading:?}"))?;
    let mut rows = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [avoid, write] = cells[..] else { bail!("{FILE}: expected two cells in {row:?}") };
        if avoid.is_empty() || write.is_empty() {
            bail!("{FILE}: empty cell in {row:?}");
        }
        rows.push(Row { avoid: avoid.to_owned(), write: write.to_owned() });
    }
    if rows.is_empty() {
        bail!("{FILE}: the table below {heading:?} is empty");
    }
    Ok(rows)
}

/// The tracked files that match the patterns, and their texts.
///
/// # Errors
/// When git lists none.
pub fn tracked(workspace: &Workspace, patterns: &[&str]) -> Result<Vec<(String, String)>> {
    let mut list = std::process::Command::new("git");
    list.current_dir(workspace.root()).args(["ls-files", "--"]).args(patterns);
    let files = shell::capture(&mut list)?;
    if files.is_empty() {
        bail!("git lists no files in {}", workspace.root().display());
    }
    // A file may be deleted but not committed yet, and test data may not be text.
    let text = |file: &str| Some((file.to_owned(), fs::read_to_string(workspace.path(file)).ok()?));
    Ok(files.lines().filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEXICON: &str = "# L\n\n| word | means |\n|---|---|\n| a | b |\n\n## Phrases\n\nWords.\n\n\
                           | not | write |\n|---|---|\n| Blue moon | seldom |\n\n## More\n\n| x | y |\n";

    #[test]
    fn rows_come_from_their_own_section() {
        let want = [Row { avoid: "Blue moon".into(), write: "seldom".into() }];
        assert_eq!(rows(LEXICON, "Phrases").unwrap(), want);
    }

    #[test]
    fn a_section_without_rows_is_an_error() {
        for broken in [LEXICON.replace("## Phrases", "## Other"), LEXICON.replace("| Blue moon | seldom |\n", "")] {
            assert!(rows(&broken, "Phrases").is_err(), "{broken}");
        }
        assert!(rows(&LEXICON.replace("| seldom |", "| |"), "Phrases").is_err());
    }
}
