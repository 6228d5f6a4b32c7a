//! The key/value cache: keys and values of earlier tokens.
//!
//! Shared: each tensor is one buffer of `max_length` tokens that the decoder reads and writes in place. Its address
//! never changes, so recorded runs stay valid. Separate: the decoder writes a longer tensor at each step, alternating
//! between two blocks.
//!
//! The rows of a shared cache may belong to unrelated sequences: a run can use any range of neighbouring rows, and the
//! first tokens of a row can be copied to another one.

use std::ops::Range;
use std::sync::Arc;

use ort_client::{Element, Environment, Memory, MemoryLocation, Tensor};

use crate::error::Doing;
use crate::model::{CacheLayout, Model};
use crate::{Error, Result};

const MAKING: &str = "allocating the cache";

/// A copy takes about as long as this many bytes, in addition to its own.
const BYTES_PER_COPY: usize = 128 << 10;

/// The cache of one generator.
#[derive(Debug)]
pub(crate) struct Cache {
    batch: usize,
    entries: Vec<Entry>,
    shared: bool,
    /// Index of the block that holds the past, when there are two.
    turn: usize,
}

#[derive(Debug)]
struct Entry {
    element: Element,
    heads: usize,
    /// Tokens of a row.
    capacity: usize,
    head_size: usize,
    /// One block if shared, otherwise two.
    blocks: Vec<Arc<Memory>>,
    past: Tensor,
    present: Option<Tensor>,
}

impl Cache {
    /// An empty cache for sequences of up to `max_length` tokens.
    pub fn new(model: &Model, batch: usize, max_length: usize, shared: bool) -> Result<Cache> {
        let layout = model.layout();
        let place = layout.cache_place.as_ref().unwrap_or(&layout.host);
        let entries = layout.caches.iter().map(|cache| Entry::new(cache, place, batch, max_length, shared));
        Ok(Cache { batch, entries: entries.collect::<Result<_>>()?, shared, turn: 0 })
    }

    /// A shared cache of blocks, for a decoder with PagedAttention.
    pub fn in_blocks(model: &Model, blocks: usize, block: usize) -> Result<Cache> {
        let layout = model.layout();
        let place = layout.cache_place.as_ref().unwrap_or(&layout.host);
        let entries = layout.caches.iter().map(|cache| Entry::in_blocks(cache, place, blocks, block));
        Ok(Cache { batch: blocks, entries: entries.collect::<Result<_>>()?, shared: true, turn: 0 })
    }

    /// Copies whole blocks, from the first of each pair to the second.
    pub fn copy_blocks(&self, environment: &Environment, copies: &[(usize, usize)]) -> Result<()> {
        let pairs = self.entries.iter().flat_map(|entry| copies.iter().map(move |&(from, to)| (entry, from, to)));
        // A block is as large as a row of the other kind of cache.
        let part = |entry: &Entry, block: usize| entry.part(block, 0..entry.heads, entry.capacity, 1);
        let pairs: Vec<_> =
            pairs.map(|(entry, from, to)| Ok((part(entry, from)?, part(entry, to)?))).collect::<Result<_>>()?;
        environment.copy_tensors(&pairs).doing("copying blocks of the cache")
    }

    /// Whether cached tokens stay valid when the sequence is shortened.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Prepares for a run that grows the cache from `past` to `total` tokens.
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

    /// Call after a successful run: its output becomes the past.
    pub fn advance(&mut self) {
        if !self.shared {
            self.turn = 1 - self.turn;
        }
    }

    /// The tensors that the run reads, in the order of the model's layout.
    pub fn past(&self) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(|entry| &entry.past)
    }

    /// The tensors that the run writes, in the order of the model's layout.
    pub fn present(&self) -> impl Iterator<Item = &Tensor> {
        self.entries.iter().map(|entry| entry.present.as_ref().unwrap_or(&entry.past))
    }

    /// Tensors over some rows of a shared cache, in the order of the model's layout. A run reads and writes them.
    pub fn rows(&self, rows: Range<usize>) -> Result<Vec<Tensor>> {
        self.entries.iter().map(|entry| entry.part(rows.start, 0..entry.heads, entry.capacity, rows.len())).collect()
    }

    /// Copies the first `tokens` tokens of a row of a shared cache to another row.
    pub fn copy(&self, environment: &Environment, from: usize, to: usize, tokens: usize) -> Result<()> {
        let mut pairs = Vec::new();
        for entry in &self.entries {
            let bytes = |tokens: usize| entry.heads * tokens * entry.head_size * entry.element.bytes();
            // The tokens of a head are contiguous, and so is a whole row.
            if bytes(entry.capacity) <= bytes(tokens) + (entry.heads - 1) * BYTES_PER_COPY {
                let row = |row: usize| entry.part(row, 0..entry.heads, entry.capacity, 1);
                pairs.push((row(from)?, row(to)?));
            } else {
                for head in 0..entry.heads {
                    let part = |row: usize| entry.part(row, head..head + 1, tokens, 1);
                    pairs.push((part(from)?, part(to)?));
                }
            }
        }
        environment.copy_tensors(&pairs).doing("copying a part of the cache")
    }

    /// Size of all tensors.
    pub fn bytes(&self) -> usize {
        self.entries.iter().flat_map(|entry| &entry.blocks).map(|block| block.bytes()).sum()
    }
}

impl Entry {
    fn new(
        cache: &CacheLayout,
        place: &Arc<MemoryLocation>,
        batch: usize,
        max_length: usize,
        shared: bool,
    ) -> Result<Entry> {
        let CacheLayout { element, heads, head_size, least, .. } = *cache;
        let room = max_length.max(least);
        let shape = [batch, heads, room, head_size].map(|extent| extent as i64);
        let bytes = bytes_of(element, &shape)?;
        let count = if shared { 1 } else { 2 };
        let blocks: Vec<Arc<Memory>> =
            (0..count).map(|_| Memory::zeroed(place, bytes).map(Arc::new).doing(MAKING)).collect::<Result<_>>()?;
        let length = if shared { room } else { 0 };
        let past = Tensor::new(&blocks[0], element, &[shape[0], shape[1], length as i64, shape[3]]).doing(MAKING)?;
        Ok(Entry { element, heads, capacity: room, head_size, blocks, past, present: None })
    }

    fn in_blocks(cache: &CacheLayout, place: &Arc<MemoryLocation>, blocks: usize, block: usize) -> Result<Entry> {
        let CacheLayout { element, heads, head_size, .. } = *cache;
        let shape = [blocks, block, heads, head_size].map(|extent| extent as i64);
        let memory = Arc::new(Memory::zeroed(place, bytes_of(element, &shape)?).doing(MAKING)?);
        let past = Tensor::new(&memory, element, &shape).doing(MAKING)?;
        Ok(Entry { element, heads, capacity: block, head_size, blocks: vec![memory], past, present: None })
    }

    fn view(&self, batch: usize, block: usize, tokens: usize) -> Result<Tensor> {
        let shape = [batch, self.heads, tokens, self.head_size].map(|extent| extent as i64);
        Tensor::new(&self.blocks[block], self.element, &shape).doing(MAKING)
    }

    /// A view of a shared block that starts at a head of a row. Only views of whole rows may have several of them, and
    /// only views of all tokens may have several heads.
    fn part(&self, row: usize, heads: Range<usize>, tokens: usize, rows: usize) -> Result<Tensor> {
        let start = (row * self.heads + heads.start) * self.capacity * self.head_size * self.element.bytes();
        let shape = [rows, heads.len(), tokens, self.head_size].map(|extent| extent as i64);
        Tensor::at(&self.blocks[0], start, self.element, &shape).doing(MAKING)
    }
}

fn bytes_of(element: Element, shape: &[i64; 4]) -> Result<usize> {
    element.bytes_of(shape).ok_or_else(|| {
        Error::request(
            format!("a cache of shape {shape:?} is too large"),
            "use a smaller max_length (search.max_length in genai_config.json) or a smaller batch",
        )
    })
}
