//! Searches every tracked text for the phrases that docs/lexicon.md tells writers to avoid.
//!
//! The search ignores case, matches whole words, and spans the line breaks of a comment or a paragraph.

use anyhow::Result;

use super::lexicon::{self, Row};
use crate::workspace::Workspace;

const HEADING: &str = "Phrases we avoid";
/// Files that people read.
const PATTERNS: [&str; 6] = ["*.rs", "*.py", "*.md", "*.toml", "*.hip", "*.h"];
/// How a comment line begins; longer prefixes first.
const COMMENTS: [&str; 6] = ["//!", "///", "//", "#", "*", ">"];

/// Every occurrence of an avoided phrase.
///
/// # Errors
/// When the lexicon has no such table, or a file cannot be read.
pub fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let phrases = phrases(&lexicon::read(workspace)?)?;
    let mut faults = Vec::new();
    for (file, text) in lexicon::tracked(workspace, &PATTERNS)?.into_iter().filter(|(file, _)| file != lexicon::FILE) {
        for (line, phrase) in hits(&text, &phrases) {
            let Row { avoid, write } = phrase;
            faults.push(format!("{file}:{line}: instead of \"{avoid}\" write \"{write}\" ({})", lexicon::FILE));
        }
    }
    Ok(faults)
}

/// The phrases, in lower case.
fn phrases(lexicon: &str) -> Result<Vec<Row>> {
    let mut rows = lexicon::rows(lexicon, HEADING)?;
    rows.iter_mut().for_each(|row| row.avoid = row.avoid.to_lowercase());
    Ok(rows)
}

/// The phrases found, with the line where each begins.
fn hits<'p>(text: &str, phrases: &'p [Row]) -> Vec<(usize, &'p Row)> {
    let (joined, starts) = joined(text);
    let mut found = Vec::new();
    for phrase in phrases {
        for (at, _) in joined.match_indices(&phrase.avoid) {
            let is_word = |one: char| one.is_alphanumeric() || one == '_';
            let before = joined[..at].chars().next_back();
            let after = joined[at + phrase.avoid.len()..].chars().next();
            if !before.is_some_and(is_word) && !after.is_some_and(is_word) {
                found.push((starts.partition_point(|start| *start <= at), phrase));
            }
        }
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// The text in lower case, without comment prefixes, with each paragraph joined to one line, and the start of each
/// original line.
fn joined(text: &str) -> (String, Vec<usize>) {
    let (mut joined, mut starts) = (String::new(), Vec::new());
    for line in text.lines() {
        starts.push(joined.len());
        let line = line.trim();
        let words = COMMENTS.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
        if words.trim().is_empty() {
            joined.push('\n');
        }
        for word in words.split_whitespace() {
            joined.push_str(&word.to_lowercase());
            joined.push(' ');
        }
    }
    (joined, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEXICON: &str = "# L\n\n## Phrases we avoid\n\n| not | write |\n|---|---|\n| Blue moon | seldom |\n";

    #[test]
    fn phrases_are_found_in_any_case_and_across_the_lines_of_a_comment() {
        let phrases = phrases(LEXICON).unwrap();
        let lines = |text: &str| hits(text, &phrases).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(lines("x\nonce in a BLUE  moon.\nblue moon"), [2, 3]);
        assert_eq!(lines("    /// once in a blue\n    /// moon, maybe\n"), [1]);
        assert_eq!(lines("# a blue\n# moon\n"), [1]);
        assert_eq!(lines("let a = \"(blue moon)\";"), [1]);
    }

    #[test]
    fn parts_of_words_and_neighbouring_paragraphs_do_not_match() {
        let phrases = phrases(LEXICON).unwrap();
        for text in ["blue moons", "skyblue moon", "blue_moon", "a blue\n\nmoon", "/// a blue\n///\n/// moon"] {
            assert!(hits(text, &phrases).is_empty(), "{text:?}");
        }
    }
}
