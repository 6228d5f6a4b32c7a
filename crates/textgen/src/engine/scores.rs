//! The scores of a step, and the best token of each row.

use std::sync::Arc;

use ort_client::{HostTensor, Memory, Output, Tensor};

use crate::error::Doing;
use crate::feed::{MAKING, RowScores};
use crate::{Model, Result};

use super::best_tokens::Best;

/// The scores of a step of a number of rows.
#[derive(Debug)]
pub(super) enum StepScores {
    /// The run writes them to host memory.
    Host(Output),
    /// They stay on the device, except for the rows that are read.
    Device(DeviceScores),
}

/// Scores in device memory, and copies of those that are read.
#[derive(Debug)]
pub(super) struct DeviceScores {
    /// The output of the run.
    pub all: Tensor,
    pub best: Best,
    rows: Vec<DeviceRow>,
    /// Made when most rows are read for the first time.
    copy: Option<Output>,
    /// Whether the last copy was one of all rows.
    is_whole: bool,
}

#[derive(Debug)]
struct DeviceRow {
    scores: Tensor,
    /// Made when only this row or a few are read for the first time.
    copy: Option<HostTensor>,
}

impl DeviceScores {
    /// Copies these rows to the host, which are sorted. One copy of everything is faster than many of a row.
    fn fetch(&mut self, model: &Model, rows: &[usize]) -> Result<()> {
        let (layout, words) = (model.layout(), model.config().vocab_size as i64);
        let host = |shape: &[i64]| HostTensor::new(&layout.host, layout.logits, shape).doing(MAKING);
        let copy = |pairs: Vec<(&Tensor, &mut HostTensor)>| {
            model.session().environment().copy_to_host(pairs).doing("copying scores from the device")
        };
        self.is_whole = rows.len() > 1 && rows.len() * 2 > self.rows.len();
        if self.is_whole {
            if self.copy.is_none() {
                self.copy = Some(Output::Given(host(&[self.rows.len() as i64, 1, words])?));
            }
            let Some(Output::Given(to)) = &mut self.copy else { return Ok(()) };
            return copy(vec![(&self.all, to)]);
        }
        for &row in rows {
            let copy = &mut self.rows[row].copy;
            if copy.is_none() {
                *copy = Some(host(&[words])?);
            }
        }
        let wanted = self.rows.iter_mut().enumerate().filter(|(row, _)| rows.binary_search(row).is_ok());
        copy(wanted.filter_map(|(_, row)| Some((&row.scores, row.copy.as_mut()?))).collect())
    }
}

impl StepScores {
    pub fn new(model: &Model, rows: usize, on_device: bool) -> Result<StepScores> {
        let (layout, words) = (model.layout(), model.config().vocab_size);
        let (element, shape) = (layout.logits, [rows as i64, 1, words as i64]);
        let Some(place) = layout.cache_place.as_ref().filter(|_| on_device) else {
            return Ok(StepScores::Host(Output::Given(HostTensor::new(&layout.host, element, &shape).doing(MAKING)?)));
        };
        let memory = Arc::new(Memory::zeroed(place, rows * words * element.bytes()).doing(MAKING)?);
        let row = |row: usize| {
            let scores = Tensor::at(&memory, row * words * element.bytes(), element, &[words as i64]).doing(MAKING)?;
            Ok(DeviceRow { scores, copy: None })
        };
        Ok(StepScores::Device(DeviceScores {
            all: Tensor::new(&memory, element, &shape).doing(MAKING)?,
            best: Best::new(model, rows)?,
            rows: (0..rows).map(row).collect::<Result<_>>()?,
            copy: None,
            is_whole: false,
        }))
    }

    /// Makes the scores of some rows readable. `rows` is sorted.
    ///
    /// # Errors
    /// When they cannot be copied from the device.
    pub fn fetch(&mut self, model: &Model, rows: &[usize]) -> Result<()> {
        match self {
            StepScores::Device(device) if !rows.is_empty() => device.fetch(model, rows),
            _ => Ok(()),
        }
    }

    /// The scores of the rows that were fetched last, in the order of `rows`, which is sorted.
    pub fn rows<'a>(&'a mut self, vocab_size: usize, rows: &'a [usize]) -> Vec<RowScores<'a>> {
        match self {
            StepScores::Host(logits) => RowScores::of_rows(logits, vocab_size, rows),
            StepScores::Device(DeviceScores { copy: Some(logits), is_whole: true, .. }) => {
                RowScores::of_rows(logits, vocab_size, rows)
            }
            StepScores::Device(device) => {
                let wanted = device.rows.iter_mut().enumerate().filter(|(row, _)| rows.binary_search(row).is_ok());
                wanted.filter_map(|(_, row)| row.copy.as_mut().map(RowScores::whole)).collect()
            }
        }
    }
}
