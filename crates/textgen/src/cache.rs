//! Keys and values of earlier tokens.
//!
//! Shared: one buffer a tensor, as long as the longest sequence, that the decoder reads and writes in place; its address
//! never changes, so that recorded runs stay valid. Separate: the decoder writes a longer tensor at each step; two blocks
//! take turns.

use std::sync::Arc;

use crate::ffi::{Kind, Memory, Place, Tensor, bytes_of};
use crate::model::{CacheLayout, Model};
use crate::{Error, Result};

/// The cache of one generator.
#[derive(Debug)]
pub(crate) struct Cache {
    batch: usize,
    entries: Vec<Entry>,
    shared: bool,
    /// Which of the two blocks holds the past, where they take turns.
    turn: usize,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    heads: usize,
    head_size: usize,
    /// One block when shared, else two.
    blocks: Vec<Arc<Memory>>,
    past: Tensor,
    present: Option<Tensor>,
}

impl Cache {
    /// An empty cache for sequences of up to `max_length` tokens.
    pub fn new(model: &Model, batch: usize, max_length: usize, shared: bool) -> Result<Cache> {
        let layout = model.layout();
        let place = match &layout.cache_place {
            Some(place) => Arc::clone(place),
            None => Place::host()?,
        };
        let entries = layout.caches.iter().map(|cache| Entry::new(cache, &place, batch, max_length, shared));
        Ok(Cache { batch, entries: entries.collect::<Result<_>>()?, shared, turn: 0 })
    }

    /// Whether tokens that were run stay there when the sequence becomes shorter.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Gets ready for a run after `past` tokens that leads to `total` tokens.
    pub fn prepare(&mut self, past: usize, total: usize) -> Result<()> {
        if self.shared {
            return Ok(());
        }
        for entry in &mut self.entries {
            entry.past = entry.view(self.batch, self.turn, past)?;
            entry.present = Some(entry.view(self.batch, 1 - self.turn, total)?);
        }
        Ok(())
    }

    /// The run succeeded: what it wrote is the past now.
    pub fn advance(&mut self) {
        if !self.shared {
            self.turn = 1 - self.turn;
        }
    }

    /// What the run reads, in the order of the model's layout.
    pub fn past(&self) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(|entry| &entry.past)
    }

    /// What the run writes, in the order of the model's layout.
    pub fn present(&self) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(|entry| entry.present.as_ref().unwrap_or(&entry.past))
    }
}

impl Entry {
    fn new(cache: &CacheLayout, place: &Arc<Place>, batch: usize, max_length: usize, shared: bool) -> Result<Entry> {
        let CacheLayout { kind, heads, head_size, .. } = *cache;
        let shape = [batch, heads, max_length, head_size].map(|extent| extent as i64);
        let bytes = bytes_of(kind, &shape).ok_or_else(|| {
            Error::request(
                format!("a cache of shape {shape:?} is too large"),
                "ask for a smaller max_length (search.max_length in genai_config.json) or a smaller batch",
            )
        })?;
        let count = if shared { 1 } else { 2 };
        let blocks: Vec<Arc<Memory>> =
            (0..count).map(|_| Memory::zeroed(place, bytes).map(Arc::new)).collect::<Result<_>>()?;
        let length = if shared { max_length } else { 0 };
        let past = Tensor::new(&blocks[0], kind, &[shape[0], shape[1], length as i64, shape[3]])?;
        Ok(Entry { kind, heads, head_size, blocks, past, present: None })
    }

    fn view(&self, batch: usize, block: usize, tokens: usize) -> Result<Tensor> {
        let shape = [batch, self.heads, tokens, self.head_size].map(|extent| extent as i64);
        Tensor::new(&self.blocks[block], self.kind, &shape)
    }
}
