//! What must not disturb other requests: cancels, deadlines, full queues, failed runs, filters and clients that fail,
//! and requests that ask for the impossible.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::llm::{TinyDecoder, VOCABULARY};
use textgen::engine::{Engine, EngineOptions, Event, Rejected, Request};
use textgen::{Error, Sampling, TextFinish, TokenFilter};

use common::served::{Served, submit};
use common::tiny::Tiny;

fn engine(tiny: &Tiny, slots: usize, queue: usize) -> Engine {
    let options = EngineOptions { slots, queue, prompt_chunk: 8, ..EngineOptions::default() };
    Engine::start(&tiny.model, &tiny.tokenizer, options).unwrap()
}

fn request(prompt: &[u32], max_new_tokens: usize) -> Request {
    Request { max_new_tokens: Some(max_new_tokens), ..Request::new(prompt.to_vec()) }
}

/// Holds the engine at each token until the test lets it continue.
#[derive(Debug)]
struct Gate {
    arrived: Sender<()>,
    opened: Receiver<()>,
}

impl TokenFilter for Gate {
    fn filter(&mut self, _: &mut [f32]) -> textgen::Result<()> {
        // A gate that the test dropped stays open.
        let _ = self.arrived.send(());
        let _ = self.opened.recv();
        Ok(())
    }

    fn accept(&mut self, _: u32) -> textgen::Result<()> {
        Ok(())
    }
}

/// The test's side of a gate.
struct Held {
    served: Served,
    arrived: Receiver<()>,
    open: Sender<()>,
}

/// Submits a request that stops before its first token until its gate is opened.
fn hold(engine: &Engine, request: Request) -> Held {
    hold_by(engine, request, |gate| Box::new(gate))
}

/// The same, with a filter that has the gate.
fn hold_by(engine: &Engine, request: Request, filter: impl FnOnce(Gate) -> Box<dyn TokenFilter>) -> Held {
    let (arrived, arrives) = mpsc::channel();
    let (open, opened) = mpsc::channel();
    let filter = Some(filter(Gate { arrived, opened }));
    Held { served: submit(engine, Request { filter, ..request }), arrived: arrives, open }
}

impl Held {
    /// Waits until the engine is at the gate.
    fn wait(&self) {
        self.arrived.recv().unwrap();
    }

    fn open(self) -> Served {
        drop(self.open);
        self.served
    }
}

#[test]
fn a_cancelled_request_frees_its_slot() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let first = hold(&engine, request(&[1, 2, 3], 200));
    first.wait();
    let second = submit(&engine, request(&[4, 5], 5));
    let waiting = submit(&engine, request(&[6], 5));
    first.served.ticket.cancel();
    waiting.ticket.cancel();
    let first = first.open().reply();
    assert_eq!(first.only().finish, Some(TextFinish::Cancelled));
    // The token that was being chosen is the only one.
    assert_eq!(first.only().tokens, tiny.reference(&[1, 2, 3], 1));
    let waiting = waiting.reply();
    assert_eq!((waiting.only().finish, waiting.only().tokens.len()), (Some(TextFinish::Cancelled), 0));
    assert_eq!(second.reply().only().tokens, tiny.reference(&[4, 5], 5));
    assert_eq!((engine.stats().cancelled, engine.stats().finished), (2, 1));
}

#[test]
fn a_dropped_ticket_cancels_and_a_detached_one_does_not() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let first = hold(&engine, request(&[1, 2, 3], 200));
    first.wait();
    let finishes = Arc::new(Mutex::new(Vec::new()));
    let sink = |name: &'static str| {
        let finishes = Arc::clone(&finishes);
        move |event| {
            if let Event::Finished { finish, .. } = event {
                finishes.lock().unwrap().push((name, finish));
            }
        }
    };
    drop(engine.submit(request(&[4], 3), sink("dropped")).unwrap());
    engine.submit(request(&[5], 3), sink("detached")).unwrap().detach();
    first.open().reply();
    engine.shutdown(Instant::now() + Duration::from_secs(600));
    let wanted = [("dropped", TextFinish::Cancelled), ("detached", TextFinish::MaxNewTokens)];
    assert_eq!(*finishes.lock().unwrap(), wanted);
}

/// Lets some tokens pass, then waits until a point in time.
#[derive(Debug)]
struct Waits {
    tokens: usize,
    until: Instant,
}

impl TokenFilter for Waits {
    fn filter(&mut self, _: &mut [f32]) -> textgen::Result<()> {
        while self.tokens == 0 && Instant::now() < self.until {
            std::thread::yield_now();
        }
        self.tokens = self.tokens.saturating_sub(1);
        Ok(())
    }

    fn accept(&mut self, _: u32) -> textgen::Result<()> {
        Ok(())
    }
}

#[test]
fn a_request_ends_at_its_deadline_with_the_text_so_far() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 2, 8);
    let until = Instant::now() + Duration::from_millis(100);
    let filter: Option<Box<dyn TokenFilter>> = Some(Box::new(Waits { tokens: 2, until }));
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    let late = Request { deadline: Some(until), filter, sampling, ..Request::new(vec![1, 2, 3]) };
    let (late, other) = (submit(&engine, late), submit(&engine, request(&[7, 8], 30)));
    let late = late.reply();
    assert_eq!((late.only().tokens.len(), late.only().finish), (3, Some(TextFinish::Deadline)));
    assert_eq!(other.reply().only().tokens, tiny.reference(&[7, 8], 30));
    // It may also pass before the request starts.
    let past = Request { deadline: Some(until), choices: 3, ..Request::new(vec![1]) };
    let past = submit(&engine, past).reply();
    assert_eq!(past.choices.len(), 3);
    for choice in &past.choices {
        assert_eq!((choice.tokens.len(), choice.finish), (0, Some(TextFinish::Deadline)));
    }
    assert_eq!(engine.stats().finished, 3);
}

#[test]
fn a_full_queue_rejects_requests() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 1);
    let first = hold(&engine, request(&[1], 4));
    first.wait();
    let second = submit(&engine, request(&[2], 4));
    let rejected = engine.submit(request(&[3], 4), |_| ()).unwrap_err();
    assert!(
        matches!(rejected, Rejected::QueueFull { waiting: 1, retry_after } if !retry_after.is_zero()),
        "{rejected}"
    );
    assert!(rejected.to_string().contains("\n  help: "), "{rejected}");
    assert_eq!((engine.stats().waiting, engine.stats().rejected, engine.stats().submitted), (1, 1, 2));
    assert_eq!(first.open().reply().only().tokens, tiny.reference(&[1], 4));
    assert_eq!(second.reply().only().tokens, tiny.reference(&[2], 4));
    assert_eq!(submit(&engine, request(&[3], 4)).reply().only().tokens, tiny.reference(&[3], 4));
}

#[test]
fn a_long_prompt_does_not_stall_the_others() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 2, 8);
    let order = Arc::new(Mutex::new(Vec::new()));
    let record = |name: &'static str| {
        let order = Arc::clone(&order);
        move |event| {
            if let Event::Token { .. } = event {
                order.lock().unwrap().push(name);
            }
        }
    };
    let (arrived, arrives) = mpsc::channel();
    let (open, opened) = mpsc::channel();
    let filter: Option<Box<dyn TokenFilter>> = Some(Box::new(Gate { arrived, opened }));
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    let short = Request { filter, sampling, ..request(&[1], 100) };
    engine.submit(short, record("short")).unwrap().detach();
    // The engine is at the first token when the long prompt arrives.
    arrives.recv().unwrap();
    engine.submit(request(&[2; 200], 1), record("long")).unwrap().detach();
    drop(open);
    engine.shutdown(Instant::now() + Duration::from_secs(600));
    // The prompt runs in chunks of 8 tokens, with a step between two of them.
    let before = order.lock().unwrap().iter().position(|&name| name == "long").unwrap();
    assert!(before >= 200 / 8, "only {before} tokens while the prompt ran");
}

#[test]
fn higher_priorities_start_earlier() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let first = hold(&engine, request(&[1], 4));
    first.wait();
    let order = Arc::new(Mutex::new(Vec::new()));
    for (number, priority) in [0, 5, -2, 5, 0].into_iter().enumerate() {
        let order = Arc::clone(&order);
        let sink = move |event| {
            if matches!(event, Event::Done(_)) {
                order.lock().unwrap().push(number);
            }
        };
        engine.submit(Request { priority, ..request(&[2], 3) }, sink).unwrap().detach();
    }
    first.open().reply();
    engine.shutdown(Instant::now() + Duration::from_secs(600));
    assert_eq!(*order.lock().unwrap(), [1, 3, 0, 4, 2]);
}

/// Lets some tokens pass a gate, and then only one token.
#[derive(Debug)]
struct Forces {
    gate: Gate,
    tokens: usize,
    token: u32,
}

impl TokenFilter for Forces {
    fn filter(&mut self, scores: &mut [f32]) -> textgen::Result<()> {
        if self.tokens == 0 {
            let kept = scores[self.token as usize];
            scores.fill(f32::MIN);
            scores[self.token as usize] = kept;
        }
        self.tokens = self.tokens.saturating_sub(1);
        self.gate.filter(scores)
    }

    fn accept(&mut self, _: u32) -> textgen::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_run_fails_only_the_request_that_caused_it() {
    let decoder = TinyDecoder::new(5).without_embeddings(3);
    let Some(tiny) = Tiny::of(decoder, true) else { return };
    let fails = VOCABULARY as u32 - 3;
    let engine = engine(&tiny, 4, 8);
    // Both generate a token that cannot run, when the others generate too: the second one as its first token.
    let forces = |gate| -> Box<dyn TokenFilter> { Box::new(Forces { gate, tokens: 8, token: fails }) };
    let held = hold_by(&engine, request(&[9, 9], 20), forces);
    held.wait();
    let prompts: [&[u32]; 3] = [&[72, 101, 108], &[84], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]];
    let others = prompts.map(|prompt| submit(&engine, request(prompt, 25)));
    let sampling = Sampling { logit_bias: vec![(fails, 1000.0)], ..Sampling::default() };
    let second = submit(&engine, Request { sampling, ..request(&[5, 6, 7], 20) });
    let refused = engine.submit(request(&[5, 6, fails, 7], 20), |_| ()).unwrap_err();
    assert!(refused.to_string().contains("has no embedding"), "{refused}");
    let failed = [held.open().reply(), second.reply()];
    assert_eq!(failed[0].choices[0].tokens[..8], tiny.reference(&[9, 9], 8));
    assert_eq!(failed[0].choices[0].tokens[8..], [fails]);
    for failed in failed {
        let error = failed.end.unwrap_err();
        assert!(matches!(error, Error::Ort { doing: "running the model", .. }), "{error}");
    }
    for (prompt, other) in prompts.iter().zip(others) {
        assert_eq!(other.reply().only().tokens, tiny.reference(prompt, 25), "{prompt:?}");
    }
    let stats = engine.stats();
    assert_eq!((stats.failed, stats.finished), (2, 3));
    assert!(stats.step_rows > stats.steps + 20, "the others did not run together: {stats:?}");
    // The slots of the failed requests are free again, and hold nothing.
    let again = submit(&engine, request(&[9, 9, 1], 5)).reply();
    assert_eq!(again.only().tokens, tiny.reference(&[9, 9, 1], 5));
}

/// Fails or panics after some tokens.
#[derive(Debug)]
struct Breaks {
    tokens: usize,
    panics: bool,
}

impl TokenFilter for Breaks {
    fn filter(&mut self, _: &mut [f32]) -> textgen::Result<()> {
        if self.tokens == 0 {
            assert!(!self.panics, "the filter is broken");
            return Err(Error::Cancelled);
        }
        self.tokens -= 1;
        Ok(())
    }

    fn accept(&mut self, _: u32) -> textgen::Result<()> {
        Ok(())
    }
}

#[test]
fn a_filter_that_breaks_fails_its_request() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 3, 8);
    let broken = [false, true].map(|panics| {
        let filter: Option<Box<dyn TokenFilter>> = Some(Box::new(Breaks { tokens: 3, panics }));
        submit(&engine, Request { filter, ..request(&[1, 2], 20) })
    });
    let other = submit(&engine, request(&[7, 8], 30));
    for (broken, panics) in broken.into_iter().zip([false, true]) {
        let reply = broken.reply();
        assert_eq!(reply.choices[0].tokens, tiny.reference(&[1, 2], 3));
        let error = reply.end.unwrap_err();
        assert_eq!(matches!(error, Error::Internal { .. }), panics, "a panic is not the request's fault: {error}");
    }
    assert_eq!(other.reply().only().tokens, tiny.reference(&[7, 8], 30));
    assert_eq!((engine.stats().failed, engine.stats().finished), (2, 1));
}

#[test]
fn impossible_requests_are_rejected_with_a_message() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 0);
    let reject = |request: Request| engine.submit(request, |_| ()).unwrap_err();
    let rejected = reject(Request::new(vec![0; 256]));
    assert!(matches!(rejected, Rejected::TooLong { tokens: 256, limit: 255 }), "{rejected}");
    let filter = || -> Option<Box<dyn TokenFilter>> { Some(Box::new(Breaks { tokens: 0, panics: false })) };
    let nan = Sampling { temperature: f32::NAN, ..Sampling::default() };
    let cases = [
        (Request::new(Vec::new()), "prompt is 0"),
        (Request::new(vec![1, VOCABULARY as u32]), "not in the vocabulary"),
        (Request::new(vec![u32::MAX]), "not in the vocabulary"),
        (Request { end_tokens: vec![u32::MAX], ..Request::new(vec![1]) }, "not in the vocabulary"),
        (Request { choices: 0, ..Request::new(vec![1]) }, "choices is 0"),
        (Request { choices: usize::MAX, ..Request::new(vec![1]) }, "choices is"),
        (Request { top_logprobs: Some(usize::MAX), ..Request::new(vec![1]) }, "top_logprobs is"),
        (Request { stops: vec!["x".repeat(1 << 20)], ..Request::new(vec![1]) }, "stop strings is"),
        (Request { sampling: nan, ..Request::new(vec![1]) }, "temperature is NaN"),
        (Request { filter: filter(), choices: 2, ..Request::new(vec![1]) }, "only one choice"),
    ];
    let count = cases.len() as u64;
    for (request, wanted) in cases {
        let rejected = reject(request);
        let text = rejected.to_string();
        assert!(matches!(rejected, Rejected::Invalid(_)), "{rejected:?}");
        assert!(text.contains(wanted) && text.contains("\n  help: "), "{wanted}: {text}");
    }
    assert_eq!((engine.stats().rejected, engine.stats().submitted), (count + 1, 0));
    let none = submit(&engine, Request { choices: 2, ..request(&[1], 0) }).reply();
    assert!(none.choices.iter().all(|choice| choice.finish == Some(TextFinish::MaxNewTokens)));
    assert_eq!((none.choices.len(), none.end.unwrap().new_tokens), (2, 0));
}

#[test]
fn wrong_options_are_refused() {
    let Some(tiny) = Tiny::new(true) else { return };
    let refused = |options| Engine::start(&tiny.model, &tiny.tokenizer, options).unwrap_err().to_string();
    let cases = [
        (EngineOptions { slots: 0, ..EngineOptions::default() }, "slots is 0"),
        (EngineOptions { slots: usize::MAX, ..EngineOptions::default() }, "slots is"),
        (EngineOptions { prompt_chunk: 0, ..EngineOptions::default() }, "prompt_chunk is 0"),
        (EngineOptions { max_length: Some(257), ..EngineOptions::default() }, "max_length is 257"),
        (EngineOptions { max_length: Some(1), ..EngineOptions::default() }, "max_length is 1"),
        (EngineOptions { speculation: 1000, ..EngineOptions::default() }, "speculation is 1000"),
    ];
    for (options, wanted) in cases {
        let error = refused(options);
        assert!(error.contains(wanted) && error.contains("\n  help: "), "{wanted}: {error}");
    }
}

#[test]
fn shutting_down_lets_requests_end() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let first = hold(&engine, request(&[1, 2], 10));
    first.wait();
    let waiting = submit(&engine, request(&[3], 10));
    std::thread::scope(|scope| {
        let down = scope.spawn(|| engine.shutdown(Instant::now() + Duration::from_secs(600)));
        while !matches!(engine.submit(request(&[4], 1), |_| ()), Err(Rejected::ShuttingDown)) {
            std::thread::yield_now();
        }
        assert!(!down.is_finished() && engine.is_running());
        assert_eq!(first.open().reply().only().tokens, tiny.reference(&[1, 2], 10));
        down.join().unwrap();
    });
    assert!(!engine.is_running());
    assert_eq!(waiting.reply().only().tokens, tiny.reference(&[3], 10));
}

#[test]
fn a_shutdown_cancels_what_has_not_ended_in_time() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let first = hold(&engine, request(&[1, 2], 100));
    first.wait();
    let waiting = submit(&engine, request(&[3], 10));
    std::thread::scope(|scope| {
        scope.spawn(|| engine.shutdown(Instant::now()));
        while !matches!(engine.submit(request(&[4], 1), |_| ()), Err(Rejected::ShuttingDown)) {
            std::thread::yield_now();
        }
        // The token that was being chosen is the last one.
        let first = first.open().reply();
        assert_eq!((first.only().tokens.len(), first.only().finish), (1, Some(TextFinish::Cancelled)));
    });
    let waiting = waiting.reply();
    assert_eq!((waiting.only().tokens.len(), waiting.only().finish), (0, Some(TextFinish::Cancelled)));
}

#[test]
fn a_client_may_use_and_drop_the_engine_in_its_sink() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, 1, 8);
    let (sender, events) = mpsc::channel();
    // The sink has the last clone.
    let mut owned = Some(engine.clone());
    let sink = move |event| {
        if matches!(event, Event::Done(_))
            && let Some(engine) = owned.take()
        {
            let sender = sender.clone();
            let next = engine.submit(request(&[5, 6], 4), move |event| drop(sender.send(event)));
            next.unwrap().detach();
            engine.stats();
        }
    };
    engine.submit(request(&[1], 3), sink).unwrap().detach();
    drop(engine);
    let events: Vec<Event> = events.iter().collect();
    assert!(matches!(events.last(), Some(Event::Done(_))), "{events:?}");
}
