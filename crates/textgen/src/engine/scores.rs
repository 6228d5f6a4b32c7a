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

/// Scores in device memory.
#[derive(Debug)]
pub(super) struct DeviceScores {
    /// The output of the run.
    pub all: Tensor,
    pub best: Best,
    rows: Vec<DeviceRow>,
}

#[derive(Debug)]
struct DeviceRow {
    scores: Tensor,
    /// Made when the row is read for the first time.
    copy: Option<HostTensor>,
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
        }))
    }

    /// Makes the scores of some rows readable. `rows` is sorted.
    ///
    /// # Errors
    /// When they cannot be copied from the device.
    pub fn fetch(&mut self, model: &Model, rows: &[usize]) -> Result<()> {
        let StepScores::Device(device) = self else { return Ok(()) };
        let (layout, words) = (model.layout(), model.config().vocab_size as i64);
        for &row in rows {
            let copy = &mut device.rows[row].copy;
            if copy.is_none() {
                *copy = Some(HostTensor::new(&layout.host, layout.logits, &[words]).doing(MAKING)?);
            }
        }
        let wanted = device.rows.iter_mut().enumerate().filter(|(row, _)| rows.binary_search(row).is_ok());
        let pairs = wanted.filter_map(|(_, row)| Some((&row.scores, row.copy.as_mut()?)));
        model.session().environment().copy_to_host(pairs).doing("copying scores from the device")
    }

    /// The scores of rows that were fetched, in the order of `rows`, which is sorted.
    pub fn rows<'a>(&'a mut self, vocab_size: usize, rows: &'a [usize]) -> Vec<RowScores<'a>> {
        match self {
            StepScores::Host(logits) => RowScores::of_rows(logits, vocab_size, rows),
            StepScores::Device(device) => {
                let wanted = device.rows.iter_mut().enumerate().filter(|(row, _)| rows.binary_search(row).is_ok());
                wanted.filter_map(|(_, row)| row.copy.as_mut().map(RowScores::whole)).collect()
            }
        }
    }
}
