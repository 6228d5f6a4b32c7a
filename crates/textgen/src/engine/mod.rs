//! Continuous batching: requests come and go while others run.
//!
//! [`Engine::start`] starts a thread that owns the cache of a fixed number of slots. A request that is submitted gets a
//! slot as soon as one is free; its events go to a closure. All sequences that generate run one token together in each
//! step. Prompts run in chunks between steps, so that they delay the others by the tokens of a chunk at most.
//!
//! A request's tokens do not depend on the other requests: each has its own random numbers, and a row of a batch is
//! computed like a batch of one.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::mpsc;
//! use textgen::engine::{Engine, EngineOptions, Event, Request};
//!
//! # let (model, tokenizer): (textgen::Model, textgen::Tokenizer) = todo!();
//! let engine = Engine::start(&model, &tokenizer, EngineOptions::default())?;
//! let (sender, events) = mpsc::channel();
//! let request = Request { max_new_tokens: Some(64), ..Request::new(tokenizer.encode("Once upon a time")?) };
//! // Dropping the ticket would cancel the request.
//! let _ticket = engine.submit(request, move |event| drop(sender.send(event)))?;
//! for event in events {
//!     match event {
//!         Event::Token { text, .. } | Event::Text { text, .. } => print!("{text}"),
//!         Event::Failed(error) => return Err(error.into()),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod best_tokens;
mod choose;
mod core;
mod draft;
mod live;
mod logprobs;
mod paged;
mod request;
mod rows;
mod runs;
mod schedule;
mod scores;
mod sequence;
mod shared;
mod slots;
mod stats;
mod step;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

pub use request::{Event, Rejected, Request, TokenLogprob, Usage};
pub use stats::{Phase, SlotState, Stats};

use live::{Interruption, Live, Sink};
use paged::Paged;
use rows::Rows;
use sequence::{Rules, Sequence};
use shared::{Shared, Waiting};
use worker::{Turns, Worker};

use crate::caught::caught;
use crate::generator::{self, check_max_length, check_tokens};
use crate::text::ShownText;
use crate::{Error, Model, Result, Sampling, TokenFilter, Tokenizer};

/// The maximum number of slots.
const MAX_SLOTS: usize = 1024;

/// The maximum number of choices of a request.
const MAX_CHOICES: usize = 128;

/// The maximum number of most likely tokens in the report of a token.
const MAX_TOP_LOGPROBS: usize = 128;

/// The maximum size of a request's stop strings.
const MAX_STOP_BYTES: usize = 64 << 10;

/// The maximum number of drafted tokens.
const MAX_SPECULATION: usize = 64;

/// Options of an [`Engine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// How many sequences run at once. Each has a row of `max_length` tokens in the cache, unless the
    /// cache is in blocks.
    pub slots: usize,
    /// The maximum length of a sequence, prompt included; `None` uses the model folder's value.
    pub max_length: Option<usize>,
    /// Blocks of the cache, if it is in blocks (PagedAttention). With fewer than all slots could need, sequences wait for
    /// blocks, and the youngest may lose theirs and run again. `None` uses the model folder's number, or as many as all
    /// slots could need.
    pub blocks: Option<usize>,
    /// How many requests may wait for a slot; more are rejected.
    pub queue: usize,
    /// The maximum number of prompt tokens that run between two steps.
    pub prompt_chunk: usize,
    /// Whether the tokens of earlier requests are reused by those with the same beginning.
    pub prefix_cache: bool,
    /// How many tokens are drafted by prompt lookup while only one sequence generates; 0 disables this. Texts stay the
    /// same.
    pub speculation: usize,
    /// Whether [`Engine::start`] runs steps of every number of rows and prompts of some lengths, so that requests do not
    /// wait for what a provider prepares in the first run of a shape. Prompts are then padded to these lengths. `None`
    /// does so on a GPU.
    pub warm_up: Option<bool>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            slots: 8,
            max_length: None,
            blocks: None,
            queue: 64,
            prompt_chunk: 256,
            prefix_cache: true,
            speculation: 0,
            warm_up: None,
        }
    }
}

/// A model that serves many requests at once. Cheap to clone. When the last clone is dropped, all requests are
/// cancelled.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    model: Model,
    tokenizer: Tokenizer,
    max_length: usize,
    next_id: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("max_length", &self.max_length).finish_non_exhaustive()
    }
}

impl Engine {
    /// Allocates the cache, starts the thread, and waits until it has warmed up.
    ///
    /// # Errors
    /// When an option does not fit the model, the folder has no shared buffers, or the cache cannot be allocated.
    pub fn start(model: &Model, tokenizer: &Tokenizer, options: EngineOptions) -> Result<Engine> {
        within("slots", options.slots, 1, MAX_SLOTS)?;
        within("prompt_chunk", options.prompt_chunk, 1, usize::MAX)?;
        within("speculation", options.speculation, 0, MAX_SPECULATION)?;
        let max_length = batched_length(model, options.max_length)?;
        within("max_length", max_length, 2, usize::MAX)?;
        generator::check_text(model)?;
        let (turns, cache_bytes): (Box<dyn Turns>, usize) = match &model.layout().paged {
            Some(paged) => {
                let paged = Paged::new(model, paged.block, max_length, &options)?;
                let bytes = paged.cache_bytes();
                (Box::new(paged), bytes)
            }
            None => {
                let rows = Rows::new(model, max_length, &options)?;
                let bytes = rows.cache_bytes();
                (Box::new(rows), bytes)
            }
        };
        let stats = Stats {
            slots: vec![SlotState::default(); options.slots],
            cache_bytes: cache_bytes as u64,
            ..Stats::default()
        };
        let shared = Arc::new(Shared::new(options.slots, options.queue, stats));
        let warms_up = options.warm_up.unwrap_or_else(|| runs::warms_up(model));
        let mut worker = Worker::new(Arc::clone(&shared), turns, options.slots, model.config().vocab_size);
        let ends = Arc::clone(&shared);
        let (warm, is_warm) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("textgen-engine".to_owned()).spawn(move || {
            let work = || {
                // On this thread, because providers may keep a stream for each thread.
                if warms_up {
                    worker.warm_up();
                }
                drop(warm);
                worker.run();
            };
            if caught(work).is_none() {
                tracing::error!("the engine's thread panicked; its requests are dropped");
            }
            ends.end();
        });
        let thread = thread.map_err(|error| {
            Error::request(format!("could not start the engine's thread: {error}"), "end other processes")
        })?;
        // Nothing is sent: the channel closes when the thread has warmed up.
        let _ = is_warm.recv();
        let (model, tokenizer) = (model.clone(), tokenizer.clone());
        let next_id = AtomicU64::new(1);
        Ok(Engine { inner: Arc::new(Inner { shared, model, tokenizer, max_length, next_id, thread: Some(thread) }) })
    }

    /// Queues a request. `sink` gets every event in order; the last one is [`Event::Done`] or [`Event::Failed`]. It
    /// runs on the engine's thread, so it must not block. A sink that panics cancels its request.
    ///
    /// # Errors
    /// When the request is wrong or too long, or too many requests are waiting.
    pub fn submit(
        &self,
        request: Request,
        sink: impl FnMut(Event) + Send + 'static,
    ) -> std::result::Result<Ticket, Rejected> {
        let inner = &self.inner;
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let interruption = Interruption::new(request.deadline);
        let ticket = Ticket { id, interruption: Some(interruption.clone()) };
        let waiting = inner.accept(id, request, interruption, Box::new(sink));
        waiting.and_then(|waiting| inner.shared.submit(id, waiting)).inspect_err(|_| inner.shared.rejected())?;
        Ok(ticket)
    }

    /// What the engine is doing.
    pub fn stats(&self) -> Stats {
        self.inner.shared.stats()
    }

    /// The maximum length of a sequence, prompt included.
    pub fn max_length(&self) -> usize {
        self.inner.max_length
    }

    /// Whether the engine's thread is running. It ends after [`Engine::shutdown`], or by a bug.
    pub fn is_running(&self) -> bool {
        !self.inner.shared.has_ended()
    }

    /// Accepts no more requests, and returns when all others have ended. Those that have not ended at `drain_until` are
    /// cancelled.
    pub fn shutdown(&self, drain_until: Instant) {
        self.inner.shared.close(drain_until);
        if !self.inner.is_own_thread() {
            self.inner.shared.wait_for_end();
        }
    }
}

impl Inner {
    /// Checks a request, and makes its sequences.
    fn accept(
        &self,
        id: u64,
        mut request: Request,
        interruption: Interruption,
        sink: Sink,
    ) -> std::result::Result<Waiting, Rejected> {
        let config = self.model.config();
        let filter = request.filter.take();
        let Request { prompt, sampling, stops, .. } = &request;
        let limit = self.max_length - 1;
        if prompt.len() > limit {
            return Err(Rejected::TooLong { tokens: prompt.len(), limit });
        }
        within("the number of tokens in the prompt", prompt.len(), 1, limit)?;
        within("choices", request.choices, 1, MAX_CHOICES)?;
        within("top_logprobs", request.top_logprobs.unwrap_or(0), 0, MAX_TOP_LOGPROBS)?;
        within("the size of the stop strings", stops.iter().map(String::len).sum(), 0, MAX_STOP_BYTES)?;
        sampling.check(config.vocab_size)?;
        generator::check_prompt(&self.model, prompt)?;
        let mut end_tokens = config.eos_tokens.clone();
        end_tokens.extend(&request.end_tokens);
        check_tokens(&end_tokens, config.vocab_size)?;
        if request.ignore_end && filter.is_some() {
            return Err(
                Error::request("an answer with a form cannot go on after its end", "leave one of both out").into()
            );
        }
        let rules = Arc::new(Rules {
            end_tokens: if request.ignore_end { Vec::new() } else { end_tokens },
            most: request.max_new_tokens.unwrap_or(usize::MAX),
            max_length: self.max_length,
            top_logprobs: request.top_logprobs,
        });
        let sequence = |choice: usize, filter: Option<Box<dyn TokenFilter>>| {
            let seed = sampling.seed.map(|seed| seed.wrapping_add(choice as u32));
            let text = ShownText::new(&self.tokenizer, stops.iter().cloned()).separated_by(&request.separators);
            Sequence::new((id, choice), prompt, Sampling { seed, ..sampling.clone() }, filter, text, &rules)
        };
        let fork = |filter: &dyn TokenFilter| {
            let help = "send one request for each choice, or implement TokenFilter::fork";
            filter.fork().ok_or_else(|| Error::request("this filter supports only one choice", help))
        };
        let follower = |choice: usize| Ok(sequence(choice, filter.as_deref().map(fork).transpose()?));
        let followers = (1..request.choices).map(follower).collect::<Result<Vec<_>>>()?;
        let sequence = sequence(0, filter);
        let live = Live::new(request.priority, interruption.clone(), followers, sink);
        Ok(Waiting { sequence, interruption, request: Some(Box::new(live)) })
    }

    fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == thread::current().id())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close(Instant::now());
        // A sink may own the last clone.
        let is_own_thread = self.is_own_thread();
        if let Some(thread) = self.thread.take().filter(|_| !is_own_thread)
            && thread.join().is_err()
        {
            tracing::error!("the engine's thread panicked");
        }
    }
}

/// A request that was accepted. Dropping it cancels the request; its slot is free before the next step.
#[derive(Debug)]
#[must_use = "dropping the ticket cancels the request"]
pub struct Ticket {
    id: u64,
    interruption: Option<Interruption>,
}

impl Ticket {
    /// The request's number, as in [`SlotState::request`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Cancels the request.
    pub fn cancel(&self) {
        if let Some(interruption) = &self.interruption {
            interruption.cancel();
        }
    }

    /// Lets the request run to its end without the ticket.
    pub fn detach(mut self) {
        self.interruption = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The maximum length of sequences in one batch. The rows of a batch have one mask, so no two lengths may mean different
/// things to the graph.
fn batched_length(model: &Model, asked: Option<usize>) -> Result<usize> {
    let max_length = check_max_length(model, asked)?;
    let Some(limit) = model.layout().mask_width.batched(max_length) else {
        return Err(Error::request(
            "this folder cannot run several requests at once: its graph may depend on the width of the attention mask",
            "generate with one Generator per request",
        ));
    };
    match asked {
        Some(asked) if asked > limit => {
            let problem =
                format!("max_length is {asked}, but sequences of more than {limit} tokens use other rotary tables");
            Err(Error::request(problem, format!("use at most {limit}, or one Generator per request")))
        }
        _ => Ok(limit),
    }
}

/// Checks a number that a caller gives.
fn within(name: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let help = match most {
        usize::MAX => format!("use at least {least}"),
        _ => format!("use a number from {least} to {most}"),
    };
    Err(Error::request(format!("{name} is {value}"), help))
}
