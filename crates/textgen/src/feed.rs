//! Inputs and outputs of a run: token ids, mask, positions and logits. All padding happens here.
//!
//! A sequence is stored in *columns*. With one row, a column is a token. With more rows, prompts are padded at the end
//! to the longest one, and later tokens follow in new columns, so a short row has a gap.

use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;

use ort_client::{Element, HostTensor, MadeTensor, MemoryLocation, Output, Tensor};

use crate::error::Doing;
use crate::model::{Layout, Model};
use crate::{Error, Result, sampler};

/// Names the failed action in the error, if a tensor cannot be allocated.
pub(crate) const MAKING: &str = "allocating the tensors of a run";

/// Which columns hold a token, and at which position.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Columns of the prompts; 0 with one row, which has no gap.
    pub prompt: usize,
    /// Tokens of each row's prompt; 0 with one row.
    pub lengths: Vec<usize>,
}

impl Columns {
    /// The position of a column within its row, or `None` for padding.
    pub fn position(&self, row: usize, column: usize) -> Option<usize> {
        let length = self.lengths[row];
        if column >= self.prompt { Some(length + column - self.prompt) } else { (column < length).then_some(column) }
    }
}

/// Input and output tensors of runs.
#[derive(Debug)]
pub(crate) struct Feed {
    batch: usize,
    vocab_size: usize,
    pruned: bool,
    position_rows: usize,
    mask: Option<Mask>,
    /// The columns in the cache.
    past_length: Option<HostTensor>,
    /// Tensors for runs of one column. They never change, so recorded runs stay valid.
    single: Tokens,
    /// Tensors of the last run of several columns; dropped by the next run of one column.
    prompt: Option<Tokens>,
}

/// Tensors whose shape depends on the number of columns in a run.
#[derive(Debug)]
struct Tokens {
    columns: usize,
    ids: HostTensor,
    positions: Option<HostTensor>,
    logits: Output,
}

/// The columns of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Columns in the cache.
    pub past: usize,
    /// Columns after the run.
    pub total: usize,
    /// Columns in the run, including padding.
    pub padded: usize,
    /// The width of the mask.
    pub mask: usize,
}

impl Feed {
    pub fn new(model: &Model, batch: usize, max_length: usize) -> Result<Feed> {
        let layout = model.layout();
        let vocab_size = model.config().vocab_size;
        Ok(Feed {
            batch,
            vocab_size,
            pruned: layout.pruned,
            position_rows: layout.position_rows,
            mask: layout.mask.map(|element| Mask::new(&layout.host, element, batch, max_length)).transpose()?,
            past_length: layout
                .past_length
                .map(|element| HostTensor::new(&layout.host, element, &[1]).doing(MAKING))
                .transpose()?,
            single: Tokens::new(layout, batch, 1, vocab_size)?,
            prompt: None,
        })
    }

    /// Writes the inputs of a run. `token` returns the token of a row in a column.
    pub fn write(
        &mut self,
        layout: &Layout,
        span: Span,
        columns: &Columns,
        token: impl Fn(usize, usize) -> u32,
    ) -> Result<()> {
        if let Some(mask) = &mut self.mask {
            mask.update(span.mask, span.total, columns)?;
        }
        if let Some(length) = &mut self.past_length {
            write_integers(length, std::iter::once(span.past as i64));
        }
        if span.padded > 1 {
            self.prompt = Some(Tokens::new(layout, self.batch, span.padded, self.vocab_size)?);
        } else {
            self.prompt = None;
        }
        let tokens = self.prompt.as_mut().unwrap_or(&mut self.single);
        let cells = |row: usize| (0..span.padded).map(move |offset| (row, span.past + offset));
        let batch = self.batch;
        write_integers(
            &mut tokens.ids,
            (0..batch).flat_map(cells).map(
                |(row, column)| {
                    if column < span.total { i64::from(token(row, column)) } else { 0 }
                },
            ),
        );
        if let Some(positions) = &mut tokens.positions {
            // The rows of positions are the same for text.
            let cells = (0..self.position_rows).flat_map(|_| (0..batch).flat_map(cells));
            write_integers(
                positions,
                cells.map(|(row, column)| {
                    let position = if column < span.total { columns.position(row, column) } else { None };
                    position.unwrap_or(0) as i64
                }),
            );
        }
        Ok(())
    }

    /// The inputs in the order of [`input_names`], without the cache, and the tensor for the logits.
    pub fn tensors(&mut self) -> (impl Iterator<Item = &Tensor>, &mut Output) {
        let tokens = self.prompt.as_mut().unwrap_or(&mut self.single);
        let inputs = [Some(tokens.ids.tensor()), self.mask.as_ref().map(|mask| mask.tensor.tensor())];
        let positions = tokens.positions.as_ref().map(HostTensor::tensor);
        let past_length = self.past_length.as_ref().map(HostTensor::tensor);
        (inputs.into_iter().chain([positions, past_length]).flatten(), &mut tokens.logits)
    }

    /// Checks the shape of logits that ONNX Runtime allocated.
    pub fn check(&self) -> Result<()> {
        let tokens = self.prompt.as_ref().unwrap_or(&self.single);
        let Output::Made(made) = &tokens.logits else { return Ok(()) };
        let (batch, columns, words) = (self.batch as i64, tokens.columns as i64, self.vocab_size as i64);
        if [1, columns].iter().any(|&rows| made.shape() == [batch, rows, words]) {
            return Ok(());
        }
        let problem = format!("the model returned logits of shape {:?} for {columns} tokens", made.shape());
        Err(Error::request(problem, format!("expected [{batch}, {columns}, {words}] or [{batch}, 1, {words}]")))
    }

    /// The scores for the token after `column` of a row, after a run of `span`. They are in the output tensor, or in
    /// `converted` if they have to be converted. The caller may modify them: the next run overwrites them all.
    pub fn scores<'a>(
        &'a mut self,
        span: Span,
        row: usize,
        column: usize,
        converted: &'a mut Vec<f32>,
    ) -> &'a mut [f32] {
        let tokens = self.prompt.as_mut().unwrap_or(&mut self.single);
        let rows = tokens.rows(self.pruned);
        let offset = if rows == 1 { 0 } else { column - span.past };
        let start = (row * rows + offset) * self.vocab_size;
        RowScores::of(&mut tokens.logits, start, self.vocab_size).into_floats(converted)
    }
}

/// The names of the inputs that [`Feed::tensors`] returns.
pub(crate) fn input_names(model: &Model) -> impl Iterator<Item = &str> {
    let (layout, names) = (model.layout(), &model.config().names);
    let mask = layout.mask.map(|_| names.attention_mask.as_str());
    let positions = layout.positions.map(|_| names.position_ids.as_str());
    let past_length = layout.past_length.map(|_| names.past_length.as_str());
    let paged = layout.paged.as_ref().map(|paged| {
        let metadata = paged.metadata.map(|_| names.metadata.as_str());
        let scored = paged.scored.map(|_| names.scored.as_str());
        let needed = [&names.starts, &names.past_lengths, &names.block_table].map(|name| Some(name.as_str()));
        needed.into_iter().chain([metadata, scored]).flatten()
    });
    let plain = [Some(names.input_ids.as_str()), mask, positions, past_length].into_iter().flatten();
    plain.chain(paged.into_iter().flatten())
}

impl Tokens {
    fn new(layout: &Layout, batch: usize, columns: usize, vocab_size: usize) -> Result<Tokens> {
        let logits = [batch, if layout.pruned { 1 } else { columns }, vocab_size].map(|extent| extent as i64);
        // The provider decides how many rows of logits it returns; with one column there is only one choice.
        let logits = match layout.last_alone && columns > 1 {
            true => Output::Made(MadeTensor::new(layout.logits)),
            false => Output::Given(HostTensor::new(&layout.host, layout.logits, &logits).doing(MAKING)?),
        };
        let (ids, positions) = token_inputs(layout, batch, columns)?;
        Ok(Tokens { columns, ids, positions, logits })
    }

    /// Rows of logits for each sequence.
    fn rows(&self, pruned: bool) -> usize {
        match &self.logits {
            Output::Made(made) => made.shape().get(1).map_or(0, |&rows| rows as usize),
            Output::Given(_) if pruned => 1,
            Output::Given(_) => self.columns,
        }
    }
}

/// Tensors for the token ids of a run, and for their positions if the decoder reads them.
pub(crate) fn token_inputs(layout: &Layout, batch: usize, columns: usize) -> Result<(HostTensor, Option<HostTensor>)> {
    let zeros = |element, shape: &[i64]| HostTensor::new(&layout.host, element, shape).doing(MAKING);
    let positions = [layout.position_rows, batch, columns].map(|extent| extent as i64);
    let positions = if layout.position_rows == 1 { &positions[1..] } else { &positions[..] };
    let ids = zeros(layout.ids, &[batch as i64, columns as i64])?;
    Ok((ids, layout.positions.map(|element| zeros(element, positions)).transpose()?))
}

/// The mask. It is updated rather than rewritten, because a step changes one column.
#[derive(Debug)]
struct Mask {
    tensor: HostTensor,
    batch: usize,
    width: usize,
    /// Columns written for this width; all later ones are zero.
    total: usize,
}

impl Mask {
    fn new(host: &Arc<MemoryLocation>, element: Element, batch: usize, max_length: usize) -> Result<Mask> {
        let tensor = HostTensor::new(host, element, &[batch as i64, max_length as i64]).doing(MAKING)?;
        Ok(Mask { tensor, batch, width: max_length, total: 0 })
    }

    fn update(&mut self, width: usize, total: usize, columns: &Columns) -> Result<()> {
        if width != self.width {
            // A single row keeps its offset. With more rows the offsets change, so old entries are cleared first, at
            // the old width.
            if self.batch > 1 {
                self.fill(0..self.total, |_, _| false);
                self.total = 0;
            } else if total < self.total {
                self.fill(total..self.total, |_, _| false);
                self.total = total;
            }
            self.tensor.reshape(&[self.batch as i64, width as i64]).doing(MAKING)?;
            self.width = width;
        }
        if total < self.total {
            self.fill(total..self.total, |_, _| false);
        }
        // With more rows, the prompts may have changed.
        let from = if self.batch > 1 && total <= columns.prompt { 0 } else { self.total.min(total) };
        self.fill(from..total, |row, column| columns.position(row, column).is_some());
        self.total = total;
        Ok(())
    }

    fn fill(&mut self, columns: Range<usize>, real: impl Fn(usize, usize) -> bool) {
        for row in 0..self.batch {
            for column in columns.clone() {
                set_integer(&mut self.tensor, row * self.width + column, real(row, column).into());
            }
        }
    }
}

pub(crate) fn write_integers(tensor: &mut HostTensor, values: impl Iterator<Item = i64>) {
    match tensor.element() {
        Element::I32 => {
            let cells: &mut [i32] = bytemuck::cast_slice_mut(tensor.bytes_mut());
            cells.iter_mut().zip(values).for_each(|(cell, value)| *cell = value as i32);
        }
        _ => {
            let cells: &mut [i64] = bytemuck::cast_slice_mut(tensor.bytes_mut());
            cells.iter_mut().zip(values).for_each(|(cell, value)| *cell = value);
        }
    }
}

pub(crate) fn fill_integers(tensor: &mut HostTensor, range: Range<usize>, value: i64) {
    match tensor.element() {
        Element::I32 => bytemuck::cast_slice_mut::<u8, i32>(tensor.bytes_mut())[range].fill(value as i32),
        _ => bytemuck::cast_slice_mut::<u8, i64>(tensor.bytes_mut())[range].fill(value),
    }
}

fn set_integer(tensor: &mut HostTensor, index: usize, value: i64) {
    match tensor.element() {
        Element::I32 => bytemuck::cast_slice_mut::<u8, i32>(tensor.bytes_mut())[index] = value as i32,
        _ => bytemuck::cast_slice_mut::<u8, i64>(tensor.bytes_mut())[index] = value,
    }
}

/// The scores of a row, as the run wrote them.
#[derive(Debug)]
pub(crate) struct RowScores<'a> {
    element: Element,
    bytes: &'a mut [u8],
}

impl<'a> RowScores<'a> {
    /// The `count` elements from `start` on.
    pub fn of(logits: &'a mut Output, start: usize, count: usize) -> RowScores<'a> {
        let element = logits.element();
        let bytes = &mut logits.bytes_mut()[start * element.bytes()..(start + count) * element.bytes()];
        RowScores { element, bytes }
    }

    /// All elements.
    pub fn whole(scores: &'a mut HostTensor) -> RowScores<'a> {
        RowScores { element: scores.element(), bytes: scores.bytes_mut() }
    }

    /// Rows of `count` elements, by their numbers, which are sorted.
    pub fn of_rows(logits: &'a mut Output, count: usize, rows: &[usize]) -> Vec<RowScores<'a>> {
        let element = logits.element();
        let all = logits.bytes_mut().chunks_exact_mut(count * element.bytes()).enumerate();
        let wanted = all.filter(|(row, _)| rows.binary_search(row).is_ok());
        wanted.map(|(_, bytes)| RowScores { element, bytes }).collect()
    }

    /// The scores: in place, or in `converted` if they are not 32-bit floats. The caller may modify them.
    pub fn into_floats(self, converted: &'a mut Vec<f32>) -> &'a mut [f32] {
        if self.element == Element::F32 {
            return bytemuck::cast_slice_mut(self.bytes);
        }
        converted.resize(self.bytes.len() / self.element.bytes(), 0.0);
        match self.element {
            Element::F16 => bytemuck::cast_slice::<u8, half::f16>(self.bytes).convert_to_f32_slice(converted),
            _ => bytemuck::cast_slice::<u8, half::bf16>(self.bytes).convert_to_f32_slice(converted),
        }
        converted
    }

    /// The token with the best score, as greedy search chooses it.
    pub fn best(&self) -> u32 {
        match self.element {
            Element::F32 => sampler::best(bytemuck::cast_slice(self.bytes)),
            Element::F16 => sampler::best_of_halves(bytemuck::cast_slice(self.bytes), half::f16::INFINITY.to_bits()),
            _ => sampler::best_of_halves(bytemuck::cast_slice(self.bytes), half::bf16::INFINITY.to_bits()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_has_a_gap_but_consecutive_positions() {
        let columns = Columns { prompt: 5, lengths: vec![3, 5] };
        let row = |row: usize| (0..7).map(|column| columns.position(row, column)).collect::<Vec<_>>();
        assert_eq!(row(0), [Some(0), Some(1), Some(2), None, None, Some(3), Some(4)]);
        assert_eq!(row(1), (0..7).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn a_single_row_has_no_gap() {
        let columns = Columns { prompt: 0, lengths: vec![0] };
        assert!((0..9).all(|column| columns.position(0, column) == Some(column)));
    }
}
