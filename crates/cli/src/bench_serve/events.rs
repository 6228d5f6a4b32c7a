//! Decodes server-sent events.

use super::client::Failure;

/// Longer events are refused.
const LONGEST: usize = 1 << 20;

/// Collects the bytes of a stream until an event is complete.
#[derive(Default)]
pub struct Decoder {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a carriage return, so a line feed after it does not end another line.
    after_return: bool,
}

impl Decoder {
    /// The data of the events that these bytes complete.
    ///
    /// # Errors
    /// When an event is too long, or is not UTF-8.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, Failure> {
        let mut complete = Vec::new();
        for &byte in bytes {
            let is_second = std::mem::replace(&mut self.after_return, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if is_second => {}
                b'\n' | b'\r' => complete.extend(self.end_of_line()?),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > LONGEST {
                return Err(Failure::Malformed(format!("an event has more than {LONGEST} bytes")));
            }
        }
        Ok(complete)
    }

    /// The data of an event that an empty line completes. Comments and other fields are ignored.
    fn end_of_line(&mut self) -> Result<Option<String>, Failure> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return Ok(self.data.take());
        }
        let line = String::from_utf8(line).map_err(|_| Failure::Malformed("an event is not UTF-8".to_owned()))?;
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            let data = self.data.take().map_or_else(|| value.to_owned(), |data| format!("{data}\n{value}"));
            self.data = Some(data);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(text: &str) -> Vec<String> {
        Decoder::default().push(text.as_bytes()).unwrap()
    }

    #[test]
    fn events_are_read_as_the_html_standard_says() {
        // The examples of the standard, chapter "Server-sent events".
        assert_eq!(events("data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
        let stream = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        assert_eq!(events(stream), ["first event", "second event", " third event"]);
        assert_eq!(events("data\n\ndata\ndata\n\ndata:"), ["", "\n"]);
        assert_eq!(events("data:test\r\n\r\ndata: test\r\r"), ["test", "test"]);
    }

    #[test]
    fn endless_events_are_refused() {
        let mut decoder = Decoder::default();
        assert!(matches!(decoder.push(&vec![b'x'; LONGEST + 1]), Err(Failure::Malformed(_))));
    }

    proptest! {
        #[test]
        fn splitting_into_pieces_does_not_matter(text in "(data: ?|:|\r|\n|ż|[a-z]){0,40}", cut: prop::sample::Index) {
            let (start, rest) = text.as_bytes().split_at(cut.index(text.len() + 1));
            let mut decoder = Decoder::default();
            let mut pieces = decoder.push(start).unwrap();
            pieces.extend(decoder.push(rest).unwrap());
            prop_assert_eq!(pieces, events(&text));
        }
    }
}
