//! Inputs of a decoding step: one token in each row, and rows of different lengths.

use ort_client::{HostTensor, Tensor};

use crate::error::Doing;
use crate::feed::{self, MAKING};
use crate::{Model, Result};

/// One row of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepRow {
    /// The token to run.
    pub token: u32,
    /// Its position: the number of tokens in the row's cache.
    pub position: usize,
}

/// Tensors for steps of a number of rows. Their addresses do not change while the mask keeps its width, so recorded
/// runs stay valid.
#[derive(Debug)]
pub(super) struct StepFeed {
    ids: HostTensor,
    positions: Option<HostTensor>,
    mask: Option<HostTensor>,
    width: usize,
    /// Columns of each row of the mask that are 1; the others are 0.
    shown: Vec<usize>,
    position_rows: usize,
}

impl StepFeed {
    pub fn new(model: &Model, rows: usize, max_length: usize) -> Result<StepFeed> {
        let layout = model.layout();
        let shape = [rows, max_length].map(|extent| extent as i64);
        let mask = layout.mask.map(|element| HostTensor::new(&layout.host, element, &shape).doing(MAKING));
        let (ids, positions) = feed::token_inputs(layout, rows, 1)?;
        Ok(StepFeed {
            ids,
            positions,
            mask: mask.transpose()?,
            width: max_length,
            shown: vec![0; rows],
            position_rows: layout.position_rows,
        })
    }

    /// Writes the inputs. There are as many rows as in the tensors, and the mask is `width` columns wide.
    pub fn write(&mut self, rows: &[StepRow], width: usize) -> Result<()> {
        feed::write_integers(&mut self.ids, rows.iter().map(|row| i64::from(row.token)));
        if let Some(positions) = &mut self.positions {
            let all = (0..self.position_rows).flat_map(|_| rows);
            feed::write_integers(positions, all.map(|row| row.position as i64));
        }
        let Some(mask) = &mut self.mask else { return Ok(()) };
        if width != self.width {
            mask.reshape(&[rows.len() as i64, width as i64]).doing(MAKING)?;
            feed::fill_integers(mask, 0..rows.len() * width, 0);
            self.width = width;
            self.shown.fill(0);
        }
        for (index, (row, shown)) in rows.iter().zip(&mut self.shown).enumerate() {
            let (start, wanted) = (index * width, row.position + 1);
            feed::fill_integers(mask, start + *shown..start + wanted.max(*shown), 1);
            feed::fill_integers(mask, start + wanted..start + wanted.max(*shown), 0);
            *shown = wanted;
        }
        Ok(())
    }

    /// The inputs in the order of [`feed::input_names`], without the cache.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let others = [&self.mask, &self.positions].map(|tensor| tensor.as_ref().map(HostTensor::tensor));
        std::iter::once(self.ids.tensor()).chain(others.into_iter().flatten())
    }
}
