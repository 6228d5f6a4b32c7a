//! Requests to an engine, and the events that they got.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use textgen::engine::{Engine, Event, Request, Ticket, TokenLogprob, Usage};
use textgen::{Error, TextFinish};

/// How long a test waits for an event before it fails: much longer than any takes.
const HANGS: Duration = Duration::from_secs(120);

/// A request whose events have not been read.
pub struct Served {
    pub ticket: Ticket,
    events: Receiver<Event>,
}

/// A choice of an answer.
#[derive(Debug, Default)]
pub struct Choice {
    pub tokens: Vec<u32>,
    pub text: String,
    pub logprobs: Vec<TokenLogprob>,
    pub finish: Option<TextFinish>,
}

/// Everything that a request got.
#[derive(Debug)]
pub struct Reply {
    pub choices: Vec<Choice>,
    pub end: Result<Usage, Error>,
}

/// Submits a request that must be accepted.
pub fn submit(engine: &Engine, request: Request) -> Served {
    let (sender, events) = mpsc::channel();
    let ticket = engine.submit(request, move |event| drop(sender.send(event))).unwrap();
    Served { ticket, events }
}

impl Served {
    /// The next event.
    pub fn event(&self) -> Event {
        self.events.recv_timeout(HANGS).expect("an event, within the time limit")
    }

    /// Waits until a token was generated.
    pub fn first_token(&self) -> u32 {
        match self.event() {
            Event::Token { token, .. } => token,
            other => panic!("expected a token, found {other:?}"),
        }
    }

    /// Reads all events to the end.
    pub fn reply(self) -> Reply {
        self.cancelled_after(usize::MAX)
    }

    /// Reads all events to the end, and cancels after the first `count`.
    pub fn cancelled_after(self, count: usize) -> Reply {
        let mut read = 0;
        let mut choices: Vec<Choice> = Vec::new();
        let mut of = |choice: usize, change: &mut dyn FnMut(&mut Choice)| {
            while choices.len() <= choice {
                choices.push(Choice::default());
            }
            assert_eq!(choices[choice].finish, None, "an event after the end of choice {choice}");
            change(&mut choices[choice]);
        };
        let end = loop {
            if read == count {
                self.ticket.cancel();
            }
            read += 1;
            match self.event() {
                Event::Token { choice, token, text, logprob } => of(choice, &mut |choice| {
                    choice.tokens.push(token);
                    choice.text += &text;
                    choice.logprobs.extend(logprob.clone());
                }),
                Event::Text { choice, text } => of(choice, &mut |choice| choice.text += &text),
                Event::Finished { choice, finish } => of(choice, &mut |choice| choice.finish = Some(finish)),
                Event::Done(usage) => break Ok(usage),
                Event::Failed(error) => break Err(error),
                other => panic!("an unknown event: {other:?}"),
            }
        };
        // The engine drops the sink after the last event.
        assert!(self.events.recv_timeout(HANGS).is_err(), "an event after the last one");
        Reply { choices, end }
    }
}

impl Reply {
    /// The only choice of a request that did not fail.
    pub fn only(&self) -> &Choice {
        assert!(self.end.is_ok() && self.choices.len() == 1, "{self:?}");
        &self.choices[0]
    }
}
