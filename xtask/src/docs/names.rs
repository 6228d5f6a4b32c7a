//! Searches the definitions in Rust and Python for names that docs/lexicon.md avoids.
//!
//! A definition is a line that begins with a keyword such as `struct` or `def`, after modifiers such as `pub`. A row of
//! the table is a whole name, or a pattern in which `*` stands for any characters.

use anyhow::{Result, bail};

use super::lexicon::{self, Row};
use crate::workspace::Workspace;

const HEADING: &str = "Names we avoid";
const PATTERNS: [&str; 2] = ["*.rs", "*.py"];
/// Words after which a name is defined.
const KEYWORDS: [&str; 11] =
    ["struct", "enum", "union", "trait", "type", "fn", "const", "static", "mod", "class", "def"];
/// Words that may come before a keyword. `const` is also a keyword: `const fn`.
const MODIFIERS: [&str; 7] = ["pub", "async", "unsafe", "extern", "default", "mut", "C"];

/// Every definition with a name to avoid.
///
/// # Errors
/// When the lexicon has no such table, or a row is not a name.
pub fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let rows = names(&lexicon::read(workspace)?)?;
    let mut faults = Vec::new();
    for (file, text) in lexicon::tracked(workspace, &PATTERNS)? {
        for (line, name, row) in hits(&text, &rows) {
            faults.push(format!("{file}:{line}: instead of the name `{name}` use {} ({})", row.write, lexicon::FILE));
        }
    }
    Ok(faults)
}

fn names(lexicon: &str) -> Result<Vec<Row>> {
    let mut rows = lexicon::rows(lexicon, HEADING)?;
    for row in &mut rows {
        let name = row.avoid.trim_matches('`').to_owned();
        if !name.chars().all(|one| one == '_' || one == '*' || one.is_alphanumeric()) {
            bail!("{}: {name:?} is not a name", lexicon::FILE);
        }
        row.avoid = name;
    }
    Ok(rows)
}

/// The definitions to rename, with their lines.
fn hits<'t, 'r>(text: &'t str, rows: &'r [Row]) -> Vec<(usize, &'t str, &'r Row)> {
    let defined = text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, defined(line)?)));
    defined.filter_map(|(at, name)| Some((at, name, rows.iter().find(|row| matches(name, &row.avoid))?))).collect()
}

/// The name that a line defines.
fn defined(line: &str) -> Option<&str> {
    let is_part = |one: char| one == '_' || one.is_alphanumeric();
    let mut rest = line.trim_start();
    let mut was_keyword = false;
    loop {
        let end = rest.find(|one| !is_part(one)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if KEYWORDS.contains(&word) {
            was_keyword = true;
        } else if MODIFIERS.contains(&word) {
            // `pub(crate)`: the word in parentheses is not a modifier.
            let after = after.strip_prefix('(').and_then(|inside| inside.split_once(')')).map_or(after, |(_, it)| it);
            rest = after.trim_start_matches([' ', '"']);
            continue;
        } else {
            return Some(word).filter(|word| was_keyword && !word.is_empty());
        }
        rest = after.strip_prefix(' ')?;
    }
}

/// Whether a name matches a pattern.
fn matches(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(start) else { return false };
    name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(&name[at..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEXICON: &str = "# L\n\n## Names we avoid\n\n| name | use |\n|---|---|\n| `Thing` | what it is |\n\
                           | `MOST_*` | `MAX_*` |\n| `*_somehow_*` | how |\n";

    #[test]
    fn definitions_are_found_in_rust_and_python() {
        let text = "struct Thing;\n    pub(crate) enum Thing {\npub const MOST_BYTES: u64 = 1;\n\
                    pub async unsafe extern \"C\" fn it_somehow_works() {}\n    def test_somehow_it(self):\nclass Thing:\n\
                    pub const fn it_somehow_is() {}\ntype Thing<'a> = u8;\n";
        let rows = names(LEXICON).unwrap();
        let lines: Vec<usize> = hits(text, &rows).into_iter().map(|(line, ..)| line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn uses_comments_and_longer_names_are_not_definitions_of_it() {
        let rows = names(LEXICON).unwrap();
        for text in [
            "use crate::Thing;",
            "/// struct Thing",
            "// a struct Thing",
            "struct Things;",
            "struct AThing;",
            "let x: Thing = MOST_BYTES;",
            "impl Thing {",
            "const MOST: u8 = 1;",
            "fn somehow() {}",
            "const _: () = ();",
        ] {
            assert!(hits(text, &rows).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_row_that_is_not_a_name_is_an_error() {
        assert!(names(&LEXICON.replace("`Thing`", "a thing")).is_err());
    }
}
