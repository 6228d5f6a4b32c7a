//! Output of untrusted text, such as a model's, to a terminal. A terminal interprets control sequences: they can change
//! its title, hide text, or inject input. So control characters are escaped, not sent.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Writes to stdout: unchanged to a file or pipe, with escaped control characters to a terminal. Each character is
/// escaped on its own, so a sequence may arrive in pieces.
///
/// # Errors
/// When stdout is closed or full.
pub fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let text = if stdout.is_terminal() { shown(text) } else { Cow::Borrowed(text) };
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a note to stderr. Control characters are always escaped, because stderr may be shown in a terminal later.
pub fn note(kind: &str, text: &str) {
    // In one piece, because another thread may print to the same terminal.
    let line = format!("{kind}: {}\n", indented(&shown(text)));
    // If stderr is closed, there is no one to tell.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Indents every line but the first, so that a name with a line break cannot imitate a separate note.
fn indented(text: &str) -> String {
    let mut lines = text.lines();
    let mut whole = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        whole += if line.starts_with(' ') { "\n" } else { "\n  " };
        whole += line;
    }
    whole
}

/// Escapes control characters other than newline and tab, as in `\x1b` and `\u{202e}`.
fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        // Writing to a String does not fail.
        let _ = match letter {
            _ if !is_obeyed(letter) => shown.write_char(letter),
            '\0'..='\u{ff}' => write!(shown, "\\x{:02x}", u32::from(letter)),
            _ => write!(shown, "\\u{{{:x}}}", u32::from(letter)),
        };
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1), and those that change the text direction.
fn is_obeyed(letter: char) -> bool {
    let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || letter.is_control() && !matches!(letter, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (text, wanted) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}]0;title\u{7}", "\\x1b]0;title\\x07"),
            ("\u{9b}31mred\u{7f}", "\\x9b31mred\\x7f"),
            ("over\rwritten\u{8}", "over\\x0dwritten\\x08"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("żółw 🐢 \u{200d}", "żółw 🐢 \u{200d}"),
        ] {
            assert_eq!(shown(text), wanted);
        }
    }

    #[test]
    fn lines_in_a_note_are_indented() {
        assert_eq!(indented("one\nerror: two\n  help: three\n"), "one\n  error: two\n  help: three");
        assert_eq!(indented(""), "");
    }

    proptest! {
        #[test]
        fn splitting_into_pieces_does_not_matter(text: String, cut: prop::sample::Index) {
            let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (start, rest) = text.split_at(ends[cut.index(ends.len())]);
            prop_assert_eq!(shown(&text), format!("{}{}", shown(start), shown(rest)));
            prop_assert!(!shown(&text).contains(is_obeyed));
        }
    }
}
