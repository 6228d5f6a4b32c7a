//! Inputs and outputs of a generator's runs, for both kinds of caches.

use ort_client::{Output, Tensor};

use crate::feed::{Columns, Feed, RowScores, Span};
use crate::model::Layout;
use crate::paged::{PagedFeed, PagedRow, PagedShape};
use crate::{Error, Model, Result};

/// The tensors of a generator.
#[derive(Debug)]
pub(crate) enum SequenceFeed {
    /// Each sequence has a cache of its own.
    Rows(Box<Feed>),
    /// The cache is in blocks, all of which belong to the only sequence.
    Blocks(Box<PagedSequence>),
}

/// One sequence over a cache in blocks.
#[derive(Debug)]
pub(crate) struct PagedSequence {
    model: Model,
    /// All blocks, in their order.
    table: Vec<u32>,
    tokens: Vec<u32>,
    /// Tensors for runs of one token.
    single: PagedFeed,
    /// Tensors of the last run of several tokens; dropped by the next run of one token.
    prompt: Option<PagedFeed>,
}

impl SequenceFeed {
    pub fn new(model: &Model, batch: usize, max_length: usize) -> Result<SequenceFeed> {
        let Some(paged) = &model.layout().paged else {
            return Ok(SequenceFeed::Rows(Box::new(Feed::new(model, batch, max_length)?)));
        };
        if batch > 1 {
            let problem = "a generator runs one sequence of a folder with PagedAttention";
            return Err(Error::request(problem, "use textgen::engine, or one generator per row"));
        }
        let table: Vec<u32> = (0..max_length.div_ceil(paged.block) as u32).collect();
        let single = paged_feed(model, 1, table.len())?;
        Ok(SequenceFeed::Blocks(Box::new(PagedSequence {
            model: model.clone(),
            table,
            tokens: Vec::new(),
            single,
            prompt: None,
        })))
    }

    /// Writes the inputs of a run. `token` returns the token of a row in a column.
    pub fn write(
        &mut self,
        layout: &Layout,
        span: Span,
        columns: &Columns,
        token: impl Fn(usize, usize) -> u32,
    ) -> Result<()> {
        match self {
            SequenceFeed::Rows(feed) => feed.write(layout, span, columns, token),
            SequenceFeed::Blocks(sequence) => sequence.write(span, |column| token(0, column)),
        }
    }

    /// The inputs in the order of [`crate::feed::input_names`], without the cache, and the tensor for the logits.
    pub fn tensors(&mut self) -> (impl Iterator<Item = &Tensor>, &mut Output) {
        let (rows, blocks, logits) = match self {
            SequenceFeed::Rows(feed) => {
                let (inputs, logits) = feed.tensors();
                (Some(inputs), None, logits)
            }
            SequenceFeed::Blocks(sequence) => {
                let (inputs, logits) = sequence.current().tensors();
                (None, Some(inputs), logits)
            }
        };
        (rows.into_iter().flatten().chain(blocks.into_iter().flatten().flatten()), logits)
    }

    /// Checks the shape of logits that ONNX Runtime allocated.
    pub fn check(&self) -> Result<()> {
        match self {
            SequenceFeed::Rows(feed) => feed.check(),
            SequenceFeed::Blocks(_) => Ok(()),
        }
    }

    /// The scores for the token after `column` of a row: see [`Feed::scores`].
    pub fn scores<'a>(
        &'a mut self,
        span: Span,
        row: usize,
        column: usize,
        converted: &'a mut Vec<f32>,
    ) -> &'a mut [f32] {
        match self {
            SequenceFeed::Rows(feed) => feed.scores(span, row, column, converted),
            SequenceFeed::Blocks(sequence) => sequence.scores(converted),
        }
    }
}

impl PagedSequence {
    fn write(&mut self, span: Span, token: impl Fn(usize) -> u32) -> Result<()> {
        self.tokens.clear();
        self.tokens.extend((span.past..span.total).map(token));
        self.prompt = match self.tokens.len() {
            1 => None,
            count => Some(paged_feed(&self.model, count, self.table.len())?),
        };
        let row = PagedRow { past: span.past, tokens: &self.tokens, table: &self.table };
        self.prompt.as_mut().unwrap_or(&mut self.single).write(&[row]);
        Ok(())
    }

    fn current(&mut self) -> &mut PagedFeed {
        self.prompt.as_mut().unwrap_or(&mut self.single)
    }

    /// The scores after the last token.
    fn scores<'a>(&'a mut self, converted: &'a mut Vec<f32>) -> &'a mut [f32] {
        let words = self.model.config().vocab_size;
        let PagedSequence { tokens, table, single, prompt, .. } = self;
        let feed = prompt.as_mut().unwrap_or(single);
        let row = feed.score_rows(&[PagedRow { past: 0, tokens, table }]).first().copied().unwrap_or(0);
        RowScores::of(feed.logits(), row * words, words).into_floats(converted)
    }
}

fn paged_feed(model: &Model, tokens: usize, most: usize) -> Result<PagedFeed> {
    let feed = PagedFeed::new(model, PagedShape { tokens, scored: 1 }, 1, most)?;
    feed.ok_or_else(|| Error::internal("the caches are not in blocks", crate::error::BUG))
}
