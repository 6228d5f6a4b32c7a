//! What a streamed answer consists of, and when its parts arrived.

use std::time::Duration;

use serde_json::Value;

use super::client::Failure;

/// The event after the last one with a document.
const DONE: &str = "[DONE]";

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The time to the first text; absent if the answer has none.
    pub first: Option<Duration>,
    /// The times between events with text.
    pub gaps: Vec<Duration>,
    pub total: Duration,
    /// Events with text.
    pub events: usize,
    /// The token counts, if the server sent them.
    pub usage: Option<Usage>,
}

impl Answer {
    /// The number of new tokens: the server's, or that of the events.
    pub fn tokens(&self) -> usize {
        self.usage.map_or(self.events, |usage| usage.answer)
    }
}

/// Tokens as the server counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    pub answer: usize,
}

/// Reads the events of an answer.
#[derive(Default)]
pub struct Reader {
    first: Option<Duration>,
    last: Duration,
    gaps: Vec<Duration>,
    events: usize,
    usage: Option<Usage>,
    /// A reason to finish was given, or the last event has arrived.
    is_complete: bool,
}

impl Reader {
    /// Reads an event that arrived at `time`.
    ///
    /// # Errors
    /// When it reports an error, or is not a document of the API.
    pub fn event(&mut self, data: &str, time: Duration) -> Result<(), Failure> {
        if data == DONE {
            self.is_complete = true;
            return Ok(());
        }
        let malformed = |why: &str| Failure::Malformed(format!("{why}: {data}"));
        let document: Value = serde_json::from_str(data).map_err(|_| malformed("an event is not JSON"))?;
        if let Some(error) = document.get("error").filter(|error| !error.is_null()) {
            let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            return Err(Failure::InStream(message));
        }
        let choices = document["choices"].as_array().ok_or_else(|| malformed("an event has no choices"))?;
        self.is_complete |= choices.iter().any(|choice| choice["finish_reason"].is_string());
        if choices.iter().any(has_text) {
            match self.first {
                None => self.first = Some(time),
                Some(_) => self.gaps.push(time.saturating_sub(self.last)),
            }
            self.last = time;
            self.events += 1;
        }
        let count = |name: &str| document["usage"][name].as_u64().map(|count| count as usize);
        if let Some((prompt, answer)) = count("prompt_tokens").zip(count("completion_tokens")) {
            self.usage = Some(Usage { prompt, answer });
        }
        Ok(())
    }

    /// The answer, after the end of the stream.
    ///
    /// # Errors
    /// When the stream ended too early.
    pub fn end(self, total: Duration) -> Result<Answer, Failure> {
        if !self.is_complete {
            return Err(Failure::Closed(format!(
                "the stream ended after {} events, without its last one",
                self.events
            )));
        }
        let Reader { first, gaps, events, usage, .. } = self;
        Ok(Answer { first, gaps, total, events, usage })
    }
}

/// Whether a part of the answer carries text: of `completions`, of `chat/completions`, or of the model's reasoning.
fn has_text(choice: &Value) -> bool {
    let delta = &choice["delta"];
    [&choice["text"], &delta["content"], &delta["reasoning_content"], &delta["reasoning"]]
        .iter()
        .any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
        || delta["tool_calls"].is_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn read(events: &[&str]) -> Result<Answer, Failure> {
        let mut reader = Reader::default();
        for (at, event) in events.iter().enumerate() {
            // At 10, 21, 33, 46, ... milliseconds.
            let at = at as u64;
            reader.event(event, milliseconds(10 + at * 11 + at * at.saturating_sub(1) / 2))?;
        }
        reader.end(milliseconds(500))
    }

    #[test]
    fn times_count_from_text_to_text() {
        let answer = read(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"Once"}}]}"#,
            r#"{"choices":[{"delta":{"content":" upon"},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
            "[DONE]",
        ])
        .unwrap();
        assert_eq!((answer.first, answer.gaps.as_slice()), (Some(milliseconds(21)), &[milliseconds(12)][..]));
        assert_eq!((answer.usage, answer.tokens()), (Some(Usage { prompt: 7, answer: 3 }), 3));
        assert_eq!((answer.events, answer.total), (2, milliseconds(500)));
    }

    #[test]
    fn events_count_if_the_server_does_not() {
        let answer = read(&[r#"{"choices":[{"text":"a"}]}"#, r#"{"choices":[{"text":"b"}],"usage":null}"#, "[DONE]"]);
        assert_eq!(answer.map(|answer| (answer.usage, answer.tokens())), Ok((None, 2)));
    }

    #[test]
    fn failures_are_told_apart() {
        let text = r#"{"choices":[{"text":"a"}]}"#;
        assert!(matches!(read(&[text]), Err(Failure::Closed(_))));
        assert!(matches!(read(&[text, "{"]), Err(Failure::Malformed(_))));
        assert!(matches!(read(&[text, r#"{"id":"x"}"#]), Err(Failure::Malformed(_))));
        let error = read(&[text, r#"{"error":{"message":"the device is lost"}}"#]);
        assert_eq!(error, Err(Failure::InStream("the device is lost".to_owned())));
        assert!(read(&[r#"{"choices":[{"text":"a","finish_reason":"length"}]}"#]).is_ok());
    }
}
