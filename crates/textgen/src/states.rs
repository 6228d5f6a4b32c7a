//! States of fixed size: those of convolutions over tokens and of linear attention.
//!
//! A state summarises all tokens so far. It cannot be shortened, so a sequence that goes back runs again from its
//! start. A run reads one block and writes another, so that a run that fails changes nothing.

use std::sync::Arc;

use ort_client::{Element, Memory, MemoryLocation, Tensor};

use crate::error::Doing;
use crate::model::Model;
use crate::{Error, Result};

const MAKING: &str = "allocating the states";

/// A state tensor of a layer.
#[derive(Debug)]
pub(crate) struct StateLayout {
    pub past: String,
    pub present: String,
    pub element: Element,
    /// The extents after the batch.
    pub extents: Vec<i64>,
    /// Where the session wants it; `None` means host memory.
    pub place: Option<Arc<MemoryLocation>>,
}

/// The states of one generator.
#[derive(Debug)]
pub(crate) struct States {
    entries: Vec<Entry>,
    /// The block that holds the past.
    turn: usize,
}

#[derive(Debug)]
struct Entry {
    /// The state before the first token. It is never written.
    start: Tensor,
    blocks: [Tensor; 2],
}

impl States {
    /// The states of empty sequences.
    pub fn new(model: &Model, batch: usize) -> Result<States> {
        let host = &model.layout().host;
        let entries = model.layout().states.iter().map(|state| Entry::new(state, host, batch));
        Ok(States { entries: entries.collect::<Result<_>>()?, turn: 0 })
    }

    /// The tensors that a run reads, in the order of the model's layout. `is_first` says that nothing ran before it.
    pub fn past(&self, is_first: bool) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(move |entry| if is_first { &entry.start } else { &entry.blocks[self.turn] })
    }

    /// The tensors that a run writes, in the order of the model's layout.
    pub fn present(&self) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(|entry| &entry.blocks[1 - self.turn])
    }

    /// Call after a successful run: its output becomes the past.
    pub fn advance(&mut self) {
        self.turn = 1 - self.turn;
    }
}

impl Entry {
    fn new(state: &StateLayout, host: &Arc<MemoryLocation>, batch: usize) -> Result<Entry> {
        let shape: Vec<i64> = std::iter::once(batch as i64).chain(state.extents.iter().copied()).collect();
        let bytes = state
            .element
            .bytes_of(&shape)
            .ok_or_else(|| Error::request(format!("a state of shape {shape:?} is too large"), "use a smaller batch"))?;
        let place = state.place.as_ref().unwrap_or(host);
        let block = || -> Result<Tensor> {
            let memory = Memory::zeroed(place, bytes).map(Arc::new).doing(MAKING)?;
            Tensor::new(&memory, state.element, &shape).doing(MAKING)
        };
        Ok(Entry { start: block()?, blocks: [block()?, block()?] })
    }
}
