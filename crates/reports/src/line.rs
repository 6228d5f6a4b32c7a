//! JSON lines: one object on each line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

use crate::Report;

/// A line that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("in the line {line:?}")]
pub struct ParseError {
    line: String,
    #[source]
    source: serde_json::Error,
}

/// Reads the lines of a report.
///
/// # Errors
/// [`ParseError`] for the first line that is not one of this report.
pub fn parse<R: Report>(text: &str) -> Result<Vec<R>, ParseError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| serde_json::from_str(line).map_err(|source| ParseError { line: line.to_owned(), source }))
        .collect()
}

/// The line of a report, including its end.
pub(crate) fn written(report: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    report.serialize(&mut serde_json::Serializer::with_formatter(&mut line, OneLine))?;
    line.push(b'\n');
    Ok(line)
}

/// Compact JSON that also escapes characters which some tools treat as line ends, and other control characters.
/// They are valid in JSON.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let is_escaped = |one: char| one.is_control() || matches!(one, '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(is_escaped) {
            let (plain, escaped) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut characters = escaped.chars();
            // Each of these characters is one UTF-16 unit.
            characters.next().map_or(Ok(()), |one| write!(out, "\\u{:04x}", u32::from(one)))?;
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Explain, OfferedGraph, Progress};

    fn text(value: &str) -> String {
        String::from_utf8(written(&value).unwrap()).unwrap().trim_end_matches('\n').to_owned()
    }

    #[test]
    fn plain_text_is_only_quoted() {
        assert_eq!(text("/conv1/Conv"), "\"/conv1/Conv\"");
        assert_eq!(text("Größe 数"), "\"Größe 数\"");
        assert_eq!(text(""), "\"\"");
    }

    #[test]
    fn characters_that_json_forbids_are_escaped() {
        assert_eq!(text("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(text("a\n\r\tb"), r#""a\n\r\tb""#);
        assert_eq!(text("\0\u{1f}\u{7f}"), "\"\\u0000\\u001f\\u007f\"");
    }

    #[test]
    fn a_record_stays_on_one_line() {
        let escaped = text("one\u{85}two\u{2028}three\u{2029}four\nfive");
        assert!(!escaped.contains(['\n', '\u{85}', '\u{2028}', '\u{2029}']), "{escaped}");
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse::<Progress>("\n{\"work\":\"steps\",\"done\":1,\"of\":2}\nnonsense\n").unwrap_err();
        assert_eq!(error.to_string(), "in the line \"nonsense\"");
        assert!(parse::<Explain>("{}").is_err());
    }

    proptest! {
        #[test]
        fn any_name_is_read_as_it_was_written(graph in ".*") {
            let line = Explain::Graph(OfferedGraph { graph, partitions: 1, nodes: Vec::new() });
            let text = String::from_utf8(written(&line).unwrap()).unwrap();
            prop_assert_eq!(text.matches('\n').count(), 1);
            prop_assert_eq!(parse::<Explain>(&text).unwrap(), [line]);
        }
    }
}
