//! Runs of a decoder with PagedAttention on the blocks of one cache: prompts and single tokens of several sequences
//! together.

use std::collections::BTreeMap;

use ort_client::{Call, RunOptions};

use crate::cache::Cache;
use crate::engine::runs::WARM_RUNS;
use crate::error::{BUG, Doing};
use crate::feed::RowScores;
use crate::generator;
use crate::paged::{PagedFeed, PagedRow, PagedShape};
use crate::{Error, Model, Result};

/// Runs with prompts are padded to multiples of this, because a provider needs longer for the first run of another
/// length than for a few tokens more.
const TOKEN_STEP: usize = 16;

/// The decoder and the cache.
#[derive(Debug)]
pub(super) struct BlockRuns {
    model: Model,
    cache: Cache,
    call: Call,
    slots: usize,
    /// Blocks of the longest sequence.
    most: usize,
    /// Tensors of steps, which can be recorded.
    steps: BTreeMap<PagedShape, (PagedFeed, RunOptions)>,
    /// Tensors of the last run with prompts.
    mixed: Option<(PagedShape, PagedFeed)>,
    mixed_options: RunOptions,
    /// The shape of the last run, and where its scores are.
    last: (PagedShape, Vec<usize>),
}

impl BlockRuns {
    /// A cache of `blocks` blocks of `size` tokens.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(model: &Model, slots: usize, max_length: usize, blocks: usize, size: usize) -> Result<BlockRuns> {
        Ok(BlockRuns {
            cache: Cache::in_blocks(model, blocks, size)?,
            call: generator::decoder_call(model)?,
            slots,
            most: max_length.div_ceil(size),
            steps: BTreeMap::new(),
            mixed: None,
            mixed_options: generator::prompt_options(model)?,
            last: (PagedShape { tokens: 0, scored: 0 }, Vec::new()),
            model: model.clone(),
        })
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Runs steps of every number of rows, without a token that is kept.
    ///
    /// # Errors
    /// When a run fails.
    pub fn warm_up(&mut self) -> Result<()> {
        let mut rows = 0;
        while rows < self.slots {
            rows = self.padded(rows + 1);
            for _ in 0..WARM_RUNS {
                self.run_shape(PagedShape { tokens: rows, scored: rows }, true, &[])?;
            }
        }
        Ok(())
    }

    /// Runs the new tokens of some sequences, whose blocks have room for them.
    ///
    /// # Errors
    /// When the run fails. The tokens before the new ones are still there.
    pub fn run(&mut self, rows: &[PagedRow<'_>]) -> Result<()> {
        let tokens: usize = rows.iter().map(|row| row.tokens.len()).sum();
        let scored = self.padded(rows.len());
        let is_step = tokens == rows.len();
        let tokens = if is_step { scored } else { tokens.next_multiple_of(TOKEN_STEP) };
        self.run_shape(PagedShape { tokens, scored }, is_step, rows)
    }

    /// The scores after the last tokens of rows of the last run. `rows` is sorted.
    pub fn scores(&mut self, rows: &[usize]) -> Vec<RowScores<'_>> {
        let BlockRuns { model, steps, mixed, last: (shape, places), .. } = self;
        let feed = match mixed {
            Some((mixed, feed)) if mixed == shape => Some(feed),
            _ => steps.get_mut(shape).map(|(feed, _)| feed),
        };
        let wanted: Vec<usize> = rows.iter().map(|&row| places[row]).collect();
        feed.map(|feed| RowScores::of_rows(feed.logits(), model.config().vocab_size, &wanted)).unwrap_or_default()
    }

    /// Copies a block.
    ///
    /// # Errors
    /// When the copy fails. What the destination holds is then unspecified.
    pub fn copy(&self, from: u32, to: u32) -> Result<()> {
        self.cache.copy_blocks(self.model.session().environment(), &[(from as usize, to as usize)])
    }

    /// The number of rows that a step of some rows has.
    fn padded(&self, rows: usize) -> usize {
        rows.next_power_of_two().min(self.slots)
    }

    fn run_shape(&mut self, shape: PagedShape, is_step: bool, rows: &[PagedRow<'_>]) -> Result<()> {
        let BlockRuns { model, cache, call, slots, most, steps, mixed, mixed_options, last } = self;
        let make = || {
            let feed = PagedFeed::new(model, shape, *slots, *most)?;
            feed.ok_or_else(|| Error::internal("the caches are not in blocks", BUG))
        };
        if is_step && !steps.contains_key(&shape) {
            steps.insert(shape, (make()?, generator::step_options(model)?));
        }
        if is_step {
            *mixed = None;
        } else if mixed.as_ref().is_none_or(|(made, _)| *made != shape) {
            *mixed = Some((shape, make()?));
        }
        let (feed, options) = match (mixed, steps.get_mut(&shape)) {
            (Some((_, feed)), _) => (feed, &*mixed_options),
            (None, Some((feed, options))) => (feed, &*options),
            (None, None) => return Err(Error::internal("a run has no tensors", BUG)),
        };
        feed.write(rows);
        *last = (shape, feed.score_rows(rows));
        let (inputs, logits) = feed.tensors();
        let inputs = inputs.into_iter().flatten().chain(cache.past());
        call.run(model.session(), options, inputs, logits, cache.present()).doing("running the model")
    }
}
