//! Searches every tracked text for the phrases that docs/lexicon.md tells writers to avoid.
//!
//! The search ignores case, matches whole words, and spans the line breaks of a comment or a paragraph.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

const LEXICON: &str = "docs/lexicon.md";
const HEADING: &str = "## Phrases we avoid\n";
/// Files that people read.
const PATTERNS: [&str; 6] = ["*.rs", "*.py", "*.md", "*.toml", "*.hip", "*.h"];
/// How a comment line begins; longer prefixes first.
const COMMENTS: [&str; 6] = ["//!", "///", "//", "#", "*", ">"];

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Phrase {
    /// In lower case.
    avoid: String,
    write: String,
}

/// Every occurrence of an avoided phrase.
///
/// # Errors
/// When the lexicon has no such table, or a file cannot be read.
pub fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let lexicon = fs::read_to_string(workspace.path(LEXICON)).with_context(|| format!("cannot read {LEXICON}"))?;
    let phrases = phrases(&lexicon)?;
    let mut faults = Vec::new();
    for file in tracked(workspace)?.lines().filter(|file| *file != LEXICON) {
        // A file may be deleted but not committed yet, and test data may not be text.
        let Ok(text) = fs::read_to_string(workspace.path(file)) else { continue };
        for (line, phrase) in hits(&text, &phrases) {
            let Phrase { avoid, write } = phrase;
            faults.push(format!("{file}:{line}: instead of \"{avoid}\" write \"{write}\" ({LEXICON})"));
        }
    }
    Ok(faults)
}

fn tracked(workspace: &Workspace) -> Result<String> {
    let mut list = std::process::Command::new("git");
    list.current_dir(workspace.root()).args(["ls-files", "--"]).args(PATTERNS);
    let files = shell::capture(&mut list)?;
    if files.is_empty() {
        bail!("git lists no files in {}", workspace.root().display());
    }
    Ok(files)
}

fn phrases(lexicon: &str) -> Result<Vec<Phrase>> {
    let section = lexicon.split_once(HEADING).map(|(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let section = section.with_context(|| format!("{LEXICON} has no heading {HEADING:?}"))?;
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut phrases = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [avoid, write] = cells[..] else { bail!("{LEXICON}: expected two cells in {row:?}") };
        if avoid.is_empty() || write.is_empty() {
            bail!("{LEXICON}: empty cell in {row:?}");
        }
        phrases.push(Phrase { avoid: avoid.to_lowercase(), write: write.to_owned() });
    }
    if phrases.is_empty() {
        bail!("{LEXICON}: the table of phrases is empty");
    }
    Ok(phrases)
}

/// The phrases found, with the line where each begins.
fn hits<'p>(text: &str, phrases: &'p [Phrase]) -> Vec<(usize, &'p Phrase)> {
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

    const LEXICON: &str = "# L\n\n| word | means |\n|---|---|\n| a | b |\n\n## Phrases we avoid\n\nWords.\n\n\
                           | not | write |\n|---|---|\n| Blue moon | seldom |\n\n## More\n\n| x | y |\n";

    #[test]
    fn phrases_come_from_their_own_section() {
        let want = [Phrase { avoid: "blue moon".into(), write: "seldom".into() }];
        assert_eq!(phrases(LEXICON).unwrap(), want);
    }

    #[test]
    fn a_lexicon_without_phrases_is_an_error() {
        for broken in [LEXICON.replace("## Phrases", "## Other"), LEXICON.replace("| Blue moon | seldom |\n", "")] {
            assert!(phrases(&broken).is_err(), "{broken}");
        }
        assert!(phrases(&LEXICON.replace("| seldom |", "| |")).is_err());
    }

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
    fn parts_of_words_and_neighbouring_paragraphs_are_no_hits() {
        let phrases = phrases(LEXICON).unwrap();
        for text in ["blue moons", "skyblue moon", "blue_moon", "a blue\n\nmoon", "/// a blue\n///\n/// moon"] {
            assert!(hits(text, &phrases).is_empty(), "{text:?}");
        }
    }
}
