//! A running generation of one or more prompts, as a stream of events.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use textgen::TextFinish;
use textgen::engine::{Engine, Event, Rejected, Request, Ticket, TokenLogprob, Usage};
use tokio::sync::mpsc;

use crate::access_log::Record;
use crate::app::App;
use crate::failure::Failure;

/// Something that happened to one choice.
pub enum Piece {
    /// Text that can be shown, with the token that completed it and the token's probability.
    Text { text: String, token: Option<(u32, Option<TokenLogprob>)> },
    /// The choice ended.
    Finished(TextFinish),
}

/// A request that counts for the limits of its key. Unless it runs, it is taken back.
pub struct Admission {
    app: App,
    record: Arc<Record>,
    runs: bool,
}

impl Admission {
    /// Checks the limits of the client's key. This comes before all work for the request that takes time.
    pub fn of(app: &App, record: Arc<Record>) -> Result<Admission, Failure> {
        if let Err(wait) = app.rates().admit(record.key(), Instant::now()) {
            let message = "the rate limit of this key is used up; try again later";
            let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
            return Err(failure.retry_after(wait));
        }
        Ok(Admission { app: app.clone(), record, runs: false })
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The request runs from now on, so it is not taken back.
    pub fn runs(&mut self) {
        self.runs = true;
    }

    /// Counts tokens of a prompt or of an answer.
    pub fn spend(&self, tokens: usize) {
        self.app.rates().spend(self.record.key(), tokens, Instant::now());
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.runs {
            self.app.rates().refund(self.record.key(), Instant::now());
        }
    }
}

/// The answers to one HTTP request. Dropping it cancels what is still running.
pub struct Generation {
    events: mpsc::UnboundedReceiver<(usize, Event)>,
    /// Dropping a ticket cancels its request.
    _tickets: Vec<Ticket>,
    choices_each: usize,
    running: usize,
    usage: Usage,
    /// Tokens that arrived.
    tokens: usize,
    admission: Admission,
}

impl Generation {
    /// Submits requests with the same number of choices. If one is rejected, none runs. `prompt_field` is the name of
    /// the prompt in errors.
    pub fn start(
        mut admission: Admission,
        engine: &Engine,
        requests: Vec<Request>,
        prompt_field: &str,
    ) -> Result<Generation, Failure> {
        let prompts = requests.iter().map(|request| request.prompt.len()).sum();
        // The channel is unbounded because the engine must not wait for clients. It holds at most one event per token
        // of the answers.
        let (sender, events) = mpsc::unbounded_channel();
        let (running, choices_each) = (requests.len(), requests.first().map_or(1, |request| request.choices));
        let submit = |(index, request)| {
            let sender = sender.clone();
            // The receiver is gone when the client is; the ticket is dropped with it.
            engine.submit(request, move |event| drop(sender.send((index, event))))
        };
        let tickets: Result<Vec<Ticket>, Rejected> = requests.into_iter().enumerate().map(submit).collect();
        let tickets = tickets.map_err(|rejected| Failure::rejected(rejected, prompt_field))?;
        admission.runs();
        admission.spend(prompts);
        let usage = Usage::default();
        Ok(Generation { events, _tickets: tickets, choices_each, running, usage, tokens: 0, admission })
    }

    /// The next piece and its choice; `None` when all choices ended.
    pub async fn next(&mut self) -> Result<Option<(usize, Piece)>, Failure> {
        while self.running > 0 {
            let Some((index, event)) = self.events.recv().await else {
                return Err(Failure::internal("running the model", &"the engine stopped"));
            };
            let each = self.choices_each;
            let at = |choice: usize| index * each + choice;
            match event {
                Event::Token { choice, token, text, logprob } => {
                    self.tokens += 1;
                    return Ok(Some((at(choice), Piece::Text { text, token: Some((token, logprob)) })));
                }
                Event::Text { choice, text } => return Ok(Some((at(choice), Piece::Text { text, token: None }))),
                Event::Finished { choice, finish } => return Ok(Some((at(choice), Piece::Finished(finish)))),
                Event::Done(usage) => self.add(&usage),
                Event::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(None)
    }

    fn add(&mut self, usage: &Usage) {
        self.running -= 1;
        self.admission.app.metrics().observe(usage);
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.cached_tokens += usage.cached_tokens;
        self.usage.new_tokens += usage.new_tokens;
        self.usage.queued = self.usage.queued.max(usage.queued);
        self.usage.first_token = self.usage.first_token.max(usage.first_token);
        self.usage.total = self.usage.total.max(usage.total);
        if self.running == 0 {
            self.admission.record.set_usage(self.usage);
        }
    }

    /// Token counts of all prompts and choices, complete after the last piece.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.admission.spend(self.tokens);
    }
}
