//! Just enough JSON to write records: escaped strings.
use std::fmt::Write as _;

/// A JSON string literal, including the quotes.
pub(crate) fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Line separators are valid in JSON, but tools that split records by line may treat them as line ends.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                // Writing to a String can't fail; every control character is one UTF-16 unit.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn plain_text_is_only_quoted() {
        assert_eq!(text("/conv1/Conv"), "\"/conv1/Conv\"");
        assert_eq!(text("Größe 数"), "\"Größe 数\"");
        assert_eq!(text(""), "\"\"");
    }

    #[test]
    fn what_json_forbids_is_escaped() {
        assert_eq!(text("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(text("a\n\r\tb"), r#""a\n\r\tb""#);
        assert_eq!(text("\0\u{1f}\u{7f}"), "\"\\u0000\\u001f\\u007f\"");
    }

    #[test]
    fn a_record_stays_on_one_line() {
        let escaped = text("one\u{85}two\u{2028}three\u{2029}four\nfive");
        assert!(!escaped.contains(['\n', '\u{85}', '\u{2028}', '\u{2029}']), "{escaped}");
    }
}
