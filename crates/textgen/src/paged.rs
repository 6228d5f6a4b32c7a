//! Inputs and outputs of a run over caches in blocks (PagedAttention): the new tokens of all sequences side by side, and a
//! table with the blocks of each sequence.

use ort_client::{Element, HostTensor, Output, Tensor};

use crate::error::Doing;
use crate::feed::{MAKING, write_integers};
use crate::{Model, Result};

/// Element types of the inputs that describe caches in blocks.
#[derive(Debug)]
pub(crate) struct PagedLayout {
    /// Tokens in a block.
    pub block: usize,
    pub table: Element,
    pub starts: Element,
    pub lengths: Element,
    /// Bounds of lengths.
    pub metadata: Option<Element>,
    /// The tokens whose scores are computed; `None` if those of all tokens are.
    pub scored: Option<Element>,
}

/// The new tokens of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagedRow<'a> {
    /// Tokens in the cache.
    pub past: usize,
    /// Tokens to run.
    pub tokens: &'a [u32],
    /// The blocks that hold all of them.
    pub table: &'a [u32],
}

/// How many tokens a run has, and how many scores it returns. Tensors are made for one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PagedShape {
    /// Tokens, including padding, which belongs to no sequence.
    pub tokens: usize,
    /// Rows of scores, if the decoder computes only those that are asked for.
    pub scored: usize,
}

/// Tensors for runs of one shape. Their addresses never change, so recorded runs stay valid.
#[derive(Debug)]
pub(crate) struct PagedFeed {
    /// Sequences; those without tokens are last.
    rows: usize,
    /// Blocks of the longest sequence.
    most: usize,
    ids: HostTensor,
    positions: Option<HostTensor>,
    starts: HostTensor,
    lengths: HostTensor,
    table: HostTensor,
    metadata: Option<HostTensor>,
    scored: Option<HostTensor>,
    logits: Output,
}

impl PagedFeed {
    /// Tensors for up to `rows` sequences of up to `most` blocks. `None` if the caches are not in blocks.
    pub fn new(model: &Model, shape: PagedShape, rows: usize, most: usize) -> Result<Option<PagedFeed>> {
        let layout = model.layout();
        let Some(paged) = &layout.paged else { return Ok(None) };
        let zeros = |element, shape: &[usize]| {
            let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
            HostTensor::new(&layout.host, element, &shape).doing(MAKING)
        };
        let scores = if paged.scored.is_some() { shape.scored } else { shape.tokens };
        Ok(Some(PagedFeed {
            rows,
            most,
            ids: zeros(layout.ids, &[shape.tokens])?,
            positions: layout.positions.map(|element| zeros(element, &[shape.tokens])).transpose()?,
            starts: zeros(paged.starts, &[rows + 1])?,
            lengths: zeros(paged.lengths, &[rows])?,
            table: zeros(paged.table, &[rows, most])?,
            metadata: paged.metadata.map(|element| zeros(element, &[3])).transpose()?,
            scored: paged.scored.map(|element| zeros(element, &[shape.scored])).transpose()?,
            logits: Output::Given(zeros(layout.logits, &[scores, model.config().vocab_size])?),
        }))
    }

    /// Writes the inputs of a run. There must be room for all rows and tokens.
    pub fn write(&mut self, rows: &[PagedRow<'_>]) {
        let none = std::iter::repeat(0);
        // Padding needs an embedding too, so it must not be a token of an earlier run.
        let ids = rows.iter().flat_map(|row| row.tokens).map(|&token| i64::from(token));
        write_integers(&mut self.ids, ids.chain(none.clone()));
        if let Some(positions) = &mut self.positions {
            let places = rows.iter().flat_map(|row| (row.past..).zip(row.tokens)).map(|(at, _)| at as i64);
            write_integers(positions, places.chain(none.clone()));
        }
        let ends = || {
            rows.iter().scan(0, |end, row| {
                *end += row.tokens.len() as i64;
                Some(*end)
            })
        };
        let all = ends().last().unwrap_or(0);
        // Sequences without tokens begin where the last one ends.
        write_integers(&mut self.starts, std::iter::once(0).chain(ends()).chain(std::iter::repeat(all)));
        write_integers(&mut self.lengths, rows.iter().map(|row| row.past as i64).chain(none.clone()));
        let blocks = |row: usize| {
            let table = rows.get(row).map_or(&[][..], |row| row.table);
            table.iter().map(|&block| i64::from(block)).chain(std::iter::repeat(0)).take(self.most)
        };
        write_integers(&mut self.table, (0..self.rows).flat_map(blocks));
        if let Some(metadata) = &mut self.metadata {
            let query = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
            let lengths = || rows.iter().map(|row| row.past + row.tokens.len());
            let bounds = [query, lengths().max().unwrap_or(0), lengths().min().unwrap_or(0)];
            write_integers(metadata, bounds.into_iter().map(|bound| bound as i64));
        }
        if let Some(scored) = &mut self.scored {
            write_integers(scored, ends().map(|end| end - 1).chain(none));
        }
    }

    /// The inputs in the order of [`crate::feed::input_names`], without the cache, and the tensor for the scores.
    pub fn tensors(&mut self) -> ([Option<&Tensor>; 7], &mut Output) {
        let PagedFeed { ids, positions, starts, lengths, table, metadata, scored, logits, .. } = self;
        let [positions, metadata, scored] =
            [positions, metadata, scored].map(|tensor| tensor.as_ref().map(HostTensor::tensor));
        let needed = [&*ids, starts, lengths, table].map(|tensor| Some(tensor.tensor()));
        let [ids, starts, lengths, table] = needed;
        ([ids, positions, starts, lengths, table, metadata, scored], logits)
    }

    /// Where the scores after the last token of a row are, for rows that were written.
    pub fn score_rows(&self, rows: &[PagedRow<'_>]) -> Vec<usize> {
        match &self.scored {
            Some(_) => (0..rows.len()).collect(),
            None => rows
                .iter()
                .scan(0, |end, row| {
                    Some({
                        *end += row.tokens.len();
                        *end - 1
                    })
                })
                .collect(),
        }
    }

    pub fn logits(&mut self) -> &mut Output {
        &mut self.logits
    }
}
