//! Runs of the decoder on slots of one shared cache.
//!
//! A prompt runs on the row of its slot. A decoding step runs on the first 1, 2, 4, 8, … rows, each number with its own
//! tensors and recorded run.

use std::collections::BTreeMap;

use ort_client::{Call, RunOptions, Tensor};

use crate::cache::Cache;
use crate::error::{BUG, Doing};
use crate::feed::{Columns, Feed, RowScores, Span};
use crate::generator;
use crate::{Attached, Error, Model, PromptShape, Result};

use super::best_tokens::BestTokens;
use super::scores::StepScores;
use super::slots::Copy;
use super::step::{StepFeed, StepRow};

const RUNNING: &str = "running the model";

/// Runs of each number of rows before the first request: our provider records a plan in its third run.
pub(super) const WARM_RUNS: usize = 3;

/// Lengths of prompts that are prepared are multiples of this. A provider needs longer for the first prompt of another
/// length than for a few tokens more.
const PROMPT_STEP: usize = 16;

/// The decoder and the cache.
#[derive(Debug)]
pub(super) struct Runs {
    model: Model,
    cache: Cache,
    call: Call,
    max_length: usize,
    /// Whether prompts run as a whole, padded to the maximum length.
    pads_prompts: bool,
    /// Whether all masks of steps have the maximum width.
    one_width: bool,
    prompt_chunk: usize,
    prompt_options: RunOptions,
    prompt_feed: Feed,
    /// The last run of a prompt.
    span: Span,
    /// The rows of the cache, one by one.
    rows: Vec<Vec<Tensor>>,
    /// By number of rows.
    buckets: BTreeMap<usize, Bucket>,
    /// `None` if the scores of steps are in host memory.
    best_tokens: Option<BestTokens>,
    /// Buffer for scores that are not 32-bit floats in the output.
    converted: Vec<f32>,
}

/// Everything that steps of a number of rows need.
#[derive(Debug)]
struct Bucket {
    feed: StepFeed,
    scores: StepScores,
    options: RunOptions,
    cache: Vec<Tensor>,
}

impl Runs {
    /// # Errors
    /// When the folder has no shared buffers, has states or transcribes audio, or memory is short.
    pub fn new(model: &Model, slots: usize, max_length: usize, prompt_chunk: usize) -> Result<Runs> {
        let search = &model.config().search;
        if !search.share_buffer {
            return Err(Error::request(
                "this folder cannot run several requests at once, because its caches are not shared buffers",
                "export the model with past_present_share_buffer, or generate with one Generator per request",
            ));
        }
        if !model.layout().states.is_empty() {
            return Err(Error::request(
                "this folder cannot run several requests at once, because its decoder has states besides the cache",
                "generate with one Generator per request",
            ));
        }
        let static_shapes = model.has_static_shapes(PromptShape::Auto);
        if static_shapes {
            generator::check_padded_scores(model, 1, max_length)?;
        }
        let cache = Cache::new(model, slots, max_length, true)?;
        let mut runs = Runs {
            call: generator::decoder_call(model)?,
            max_length,
            pads_prompts: static_shapes && generator::pads_prompts(model),
            // Attention on the CPU takes the mask's width as the length.
            one_width: static_shapes || model.layout().cache_place.is_some(),
            prompt_chunk: prompt_chunk.min(search.chunk_size.unwrap_or(prompt_chunk)),
            prompt_options: generator::prompt_options(model)?,
            prompt_feed: Feed::new(model, 1, max_length)?,
            span: Span { past: 0, total: 0, padded: 0, mask: 0 },
            rows: (0..slots).map(|slot| cache.rows(slot..slot + 1)).collect::<Result<_>>()?,
            buckets: BTreeMap::new(),
            best_tokens: BestTokens::new(model)?,
            converted: Vec::new(),
            model: model.clone(),
            cache,
        };
        // Rows can run one by one even if memory gets short later.
        runs.make_bucket(1)?;
        Ok(runs)
    }

    /// The number of rows that a step on the first `slots` slots runs on.
    pub fn step_rows(&self, slots: usize) -> usize {
        slots.next_power_of_two().min(self.rows.len())
    }

    /// Whether a prompt can start after cached tokens.
    pub fn continues_prompts(&self) -> bool {
        !self.pads_prompts
    }

    /// How many tokens of prompts may run between two steps; 0 if prompts always run as a whole.
    pub fn prompt_room(&self) -> usize {
        if self.pads_prompts { 0 } else { self.prompt_chunk }
    }

    /// Whether a run returns scores for each of several tokens.
    pub fn scores_every_token(&self) -> bool {
        let layout = self.model.layout();
        !self.pads_prompts && !layout.pruned && !layout.last_alone
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Runs steps of every number of rows and prompts of every prepared length, so that requests find everything
    /// prepared. No row may hold tokens, because the first ones are overwritten.
    ///
    /// # Errors
    /// When a run fails.
    pub fn warm_up(&mut self) -> Result<()> {
        let token = self.model.config().pad_token;
        let mut rows = 0;
        while rows < self.rows.len() {
            rows = self.step_rows(rows + 1);
            for _ in 0..WARM_RUNS {
                self.step(&vec![StepRow { token, position: 0 }; rows], true)?;
            }
        }
        if !self.prepares_prompts() {
            return self.prompt(0, &vec![token; self.prompt_chunk.min(self.max_length - 1)], 0).map(drop);
        }
        let tokens = vec![token; self.prompt_chunk.min(self.max_length)];
        for length in (PROMPT_STEP..tokens.len() + PROMPT_STEP).step_by(PROMPT_STEP) {
            self.prepared_prompt(0, &tokens[..length.min(tokens.len())], 0)?;
        }
        Ok(())
    }

    /// Whether prompts can be padded at their end: the next tokens overwrite the padding in the cache.
    pub fn prepares_prompts(&self) -> bool {
        self.one_width && !self.pads_prompts
    }

    /// As [`Runs::prompt`], but with padding to a prepared length, and without scores.
    ///
    /// # Errors
    /// When the run fails. The tokens before `past` are still there.
    pub fn prepared_prompt(&mut self, slot: usize, tokens: &[u32], past: usize) -> Result<usize> {
        let end = tokens.len().min(past + self.prompt_chunk);
        let padded = (end - past).next_multiple_of(PROMPT_STEP).min(self.max_length - past);
        self.span = Span { past, total: past + padded, padded, mask: self.max_length };
        self.run_prompt(slot, tokens)?;
        Ok(end)
    }

    /// Runs the next tokens of a sequence whose first `past` tokens are in the slot's row, and returns how many are
    /// there afterwards. If these are all tokens, [`Runs::prompt_scores`] has the scores for the next one.
    ///
    /// # Errors
    /// When the run fails. The tokens before `past` are still there.
    pub fn prompt(&mut self, slot: usize, tokens: &[u32], past: usize) -> Result<usize> {
        self.span = if self.pads_prompts {
            Span { past: 0, total: tokens.len(), padded: self.max_length, mask: self.max_length }
        } else {
            let total = tokens.len().min(past + self.prompt_chunk);
            Span { past, total, padded: total - past, mask: total }
        };
        self.run_prompt(slot, tokens)?;
        Ok(self.span.total)
    }

    /// Runs the columns of `span`. Those behind the tokens are padding.
    fn run_prompt(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        let columns = Columns { prompt: 0, lengths: vec![0] };
        let token = |_, column: usize| tokens.get(column).copied().unwrap_or(self.model.config().pad_token);
        self.prompt_feed.write(self.model.layout(), self.span, &columns, token)?;
        let (inputs, logits) = self.prompt_feed.tensors();
        let row = &self.rows[slot];
        let ran = self.call.run(self.model.session(), &self.prompt_options, inputs.chain(row), logits, row);
        ran.doing(RUNNING)?;
        self.prompt_feed.check()
    }

    /// The scores for the token at `position`, after a run of a prompt that has the tokens before it.
    pub fn prompt_scores(&mut self, position: usize) -> &mut [f32] {
        self.prompt_feed.scores(self.span, 0, position - 1, &mut self.converted)
    }

    /// Whether steps leave their scores on the device.
    pub fn chooses_on_device(&self) -> bool {
        self.best_tokens.is_some()
    }

    /// Runs one token in each of the first rows. Their number must be one of [`Runs::step_rows`]. `wants_best` says
    /// whether [`Runs::best_token`] will be called.
    ///
    /// # Errors
    /// When the run fails. The tokens before each row's position are still there.
    pub fn step(&mut self, rows: &[StepRow], wants_best: bool) -> Result<()> {
        self.make_bucket(rows.len())?;
        self.run_step(rows, None, wants_best)
    }

    /// Runs one token in any slot.
    ///
    /// # Errors
    /// See [`Runs::step`].
    pub fn step_alone(&mut self, slot: usize, row: StepRow) -> Result<()> {
        self.run_step(&[row], Some(slot), true)
    }

    /// The token with the best score in a row, after a step of `rows` rows. `None` if only the scores can tell.
    pub fn best_token(&mut self, rows: usize, row: usize) -> Option<u32> {
        let words = self.model.config().vocab_size;
        let best = match &mut self.buckets.get_mut(&rows)?.scores {
            StepScores::Host(logits) => RowScores::of(logits, row * words, words).best(),
            StepScores::Device(device) => device.best.of(row)?,
        };
        ((best as usize) < words).then_some(best)
    }

    /// Makes the scores of some rows readable, after a step of `rows` rows. `wanted` is sorted.
    ///
    /// # Errors
    /// When they cannot be copied from the device.
    pub fn fetch_scores(&mut self, rows: usize, wanted: &[usize]) -> Result<()> {
        match self.buckets.get_mut(&rows) {
            Some(bucket) => bucket.scores.fetch(&self.model, wanted),
            None => Ok(()),
        }
    }

    /// The scores of rows that were fetched, in the order of `wanted`, which is sorted.
    pub fn step_scores<'a>(&'a mut self, rows: usize, wanted: &'a [usize]) -> impl Iterator<Item = RowScores<'a>> {
        let words = self.model.config().vocab_size;
        self.buckets.get_mut(&rows).into_iter().flat_map(move |bucket| bucket.scores.rows(words, wanted))
    }

    fn run_step(&mut self, rows: &[StepRow], slot: Option<usize>, wants_best: bool) -> Result<()> {
        let longest = rows.iter().map(|row| row.position + 1).max().unwrap_or(1);
        let width = if self.one_width { self.max_length } else { longest };
        let Some(Bucket { feed, scores, options, cache }) = self.buckets.get_mut(&rows.len()) else {
            return Err(Error::internal(format!("there are no tensors for {} rows", rows.len()), BUG));
        };
        // A recorded run would use the rows that it was recorded with.
        let (cache, options) = match slot {
            Some(slot) => (&self.rows[slot], &self.prompt_options),
            None => (&*cache, &*options),
        };
        feed.write(rows, width)?;
        let (session, inputs) = (self.model.session(), feed.tensors().chain(cache));
        match (scores, &mut self.best_tokens) {
            (StepScores::Host(logits), _) => self.call.run(session, options, inputs, logits, cache).doing(RUNNING),
            (StepScores::Device(device), best_tokens) => {
                self.call.run_in_place(session, options, inputs, &device.all, cache).doing(RUNNING)?;
                match best_tokens {
                    Some(best_tokens) if wants_best => best_tokens.run(&device.all, &mut device.best),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Copies tokens between rows of the cache.
    ///
    /// # Errors
    /// When the copy fails. The tokens of the destination are then unspecified.
    pub fn copy(&self, copy: Copy) -> Result<()> {
        self.cache.copy(self.model.session().environment(), copy.from, copy.to, copy.tokens)
    }

    /// Makes the tensors for a number of rows, if this is their first step.
    fn make_bucket(&mut self, rows: usize) -> Result<()> {
        if !self.buckets.contains_key(&rows) {
            let bucket = Bucket {
                feed: StepFeed::new(&self.model, rows, self.max_length)?,
                scores: StepScores::new(&self.model, rows, self.best_tokens.is_some())?,
                options: generator::step_options(&self.model)?,
                cache: self.cache.rows(0..rows)?,
            };
            self.buckets.insert(rows, bucket);
        }
        Ok(())
    }
}

/// Whether warming up is worth its time by default: on a GPU, where the first run of a shape takes long. A provider
/// that compiles every shape would need minutes.
pub(super) fn warms_up(model: &Model) -> bool {
    let is_gpu = match model.attached() {
        Attached::Plugin { driver, .. } => driver.as_deref() != Some("host"),
        Attached::Legacy | Attached::Cpu => false,
    };
    is_gpu && !model.has_static_shapes(PromptShape::Auto)
}
