//! Turns over a cache in blocks, for decoders with PagedAttention: prompts and sequences that generate run together.
//!
//! Sequences with the same beginning share its blocks. If there are not enough blocks for all, the youngest sequences
//! lose theirs, and run again when there is room; the oldest one always goes on.

mod blocks;
mod runs;

use std::time::Instant;

use crate::paged::PagedRow;
use crate::{Error, Model, Result};

use super::EngineOptions;
use super::choose::Scored;
use super::core::Core;
use super::sequence::Sequence;
use super::slots::{SHORTEST_COPY, Slot};
use super::worker::Turns;

use blocks::{Blocks, Found};
use runs::BlockRuns;

/// The maximum number of blocks.
const MAX_BLOCKS: usize = 1 << 20;

/// A cache in blocks, and the runs on it.
pub(super) struct Paged {
    runs: BlockRuns,
    blocks: Blocks,
    /// The blocks of each slot's sequence.
    chains: Vec<Chain>,
    prefix_cache: bool,
    /// The maximum number of prompt tokens in a run.
    prompt_chunk: usize,
    /// Blocks for sequences that have been given room, but no slot yet.
    promised: usize,
}

/// The blocks of a sequence.
#[derive(Debug, Default)]
struct Chain {
    blocks: Vec<u32>,
    /// Whether it lost its blocks once. What it takes from the cache then was counted before.
    has_lost: bool,
}

/// The tokens of a slot's sequence that a run takes, from the number in the cache on.
#[derive(Clone, Copy, Debug)]
struct Part {
    slot: usize,
    past: usize,
    end: usize,
}

impl Paged {
    /// # Errors
    /// When an option does not fit, or the cache cannot be allocated.
    pub fn new(model: &Model, size: usize, max_length: usize, options: &EngineOptions) -> Result<Paged> {
        if options.speculation > 0 {
            let problem = "speculation is not possible with caches in blocks (PagedAttention)";
            return Err(Error::request(problem, "set speculation to 0"));
        }
        let (config, longest) = (model.config(), max_length.div_ceil(size));
        let most = options.slots.saturating_mul(longest);
        if let Some(blocks) = options.blocks.filter(|&blocks| blocks < longest) {
            let problem = format!("{blocks} blocks of {size} tokens are too few for a sequence of {max_length}");
            return Err(Error::request(problem, format!("use at least {longest} blocks, or a smaller max_length")));
        }
        let count = options.blocks.or(config.blocks.count).unwrap_or(most).clamp(longest, most);
        if !model.layout().states.is_empty() {
            let problem =
                "several requests cannot run at once, because the decoder has states besides its cache in blocks";
            return Err(Error::request(problem, "generate with one Generator per request"));
        }
        if count > MAX_BLOCKS {
            let problem = format!("{count} blocks of {size} tokens are more than {MAX_BLOCKS}");
            return Err(Error::request(problem, "use a smaller max_length, fewer slots or fewer blocks"));
        }
        let chunk = config.search.chunk_size.unwrap_or(options.prompt_chunk);
        Ok(Paged {
            runs: BlockRuns::new(model, options.slots, max_length, count, size)?,
            blocks: Blocks::new(count, size, options.prefix_cache),
            chains: (0..options.slots).map(|_| Chain::default()).collect(),
            prefix_cache: options.prefix_cache,
            prompt_chunk: options.prompt_chunk.min(chunk),
            promised: 0,
        })
    }

    pub fn cache_bytes(&self) -> usize {
        self.runs.cache_bytes()
    }

    /// Takes the blocks of sequences that have ended.
    fn settle(&mut self, core: &mut Core) {
        for (slot, chain) in self.chains.iter_mut().enumerate() {
            if core.slots.get(slot).running.is_none() {
                self.blocks.release(&std::mem::take(chain).blocks);
                core.slots.forget(slot);
            }
        }
    }

    /// Blocks that running sequences still need for what they have to run, also those that lost theirs.
    fn owed(&self, core: &Core) -> usize {
        let owed = |(slot, chain): (&Slot<Sequence>, &Chain)| {
            let tokens = slot.running.as_ref()?.tokens().len();
            Some((tokens + 1).div_ceil(self.blocks.size()).saturating_sub(chain.blocks.len()))
        };
        core.slots.iter().zip(&self.chains).filter_map(owed).sum()
    }

    /// Gives a slot the blocks with the longest beginning of a text, and returns how many tokens they hold.
    fn begin(&mut self, slot: usize, tokens: &[u32], is_follower: bool) -> usize {
        let Chain { blocks, .. } = &mut self.chains[slot];
        self.blocks.release(&std::mem::take(blocks));
        let Found { full, part } = self.blocks.find(tokens);
        full.iter().for_each(|&block| self.blocks.take(block));
        let mut held = full.len() * self.blocks.size();
        *blocks = full;
        let Some((from, count)) = part.filter(|&(_, count)| is_follower || count >= SHORTEST_COPY) else { return held };
        // It must not be freed for its own copy.
        self.blocks.take(from);
        if let Some(to) = self.blocks.grow(blocks.last().copied()) {
            blocks.push(to);
            match self.runs.copy(from, to) {
                Ok(()) => {
                    self.blocks.fill(to, &tokens[held..held + count]);
                    held += count;
                }
                Err(error) => tracing::warn!(%error, "a block of the cache could not be copied"),
            }
        }
        self.blocks.release(&[from]);
        held
    }

    /// Looks again for the beginning of a prompt: another sequence may have run it by now.
    fn catch_up(&mut self, core: &mut Core, slot: usize) {
        let place = core.slots.get(slot);
        let Some(sequence) = place.running.as_ref() else { return };
        let (held, id, is_new) = (place.tokens.len(), sequence.request, sequence.generated() == 0);
        let tokens = &sequence.tokens()[..sequence.tokens().len() - 1];
        let Found { full, part } = self.blocks.find(tokens);
        let part = part.map_or(0, |(_, count)| count);
        let found = full.len() * self.blocks.size() + if part >= SHORTEST_COPY { part } else { 0 };
        if !self.prefix_cache || found < held + SHORTEST_COPY {
            return;
        }
        let tokens = tokens.to_vec();
        let total = self.begin(slot, &tokens, false);
        core.slots.get_mut(slot).tokens = tokens[..total].to_vec();
        if is_new && !self.chains[slot].has_lost {
            core.count_cached(id, total.saturating_sub(held));
        }
    }

    /// Makes room for so many tokens of a slot's sequence, if need be with the blocks of younger ones.
    fn reserve(&mut self, core: &mut Core, slot: usize, tokens: usize, younger: &[usize]) -> bool {
        let mut losers = younger.iter().rev();
        while self.chains[slot].blocks.len() * self.blocks.size() < tokens {
            if let Some(block) = self.blocks.grow(self.chains[slot].blocks.last().copied()) {
                self.chains[slot].blocks.push(block);
                continue;
            }
            let Some(&loser) = losers.next() else { return false };
            if self.chains[loser].blocks.is_empty() {
                continue;
            }
            core.shared.count(|stats| stats.preempted += 1);
            self.blocks.release(&std::mem::take(&mut self.chains[loser].blocks));
            self.chains[loser].has_lost = true;
            core.slots.forget(loser);
        }
        true
    }

    /// What the next run takes: one token of each sequence that generates, and parts of prompts, the oldest first.
    fn parts(&mut self, core: &mut Core) -> Vec<Part> {
        let age =
            |&slot: &usize| core.slots.get(slot).running.as_ref().map(|sequence| (sequence.request, sequence.choice));
        let mut slots = core.slots.running(|_, _| true);
        slots.sort_by_key(age);
        let (mut parts, mut room) = (Vec::<Part>::new(), self.prompt_chunk);
        for (index, &slot) in slots.iter().enumerate() {
            let length =
                |core: &Core| core.slots.get(slot).running.as_ref().map_or(0, |running| running.tokens().len());
            let length = length(core);
            if core.slots.get(slot).tokens.len() + 1 < length {
                self.catch_up(core, slot);
            }
            let past = core.slots.get(slot).tokens.len();
            let is_prompt = past + 1 < length;
            let end = if is_prompt { length.min(past + room) } else { length };
            let is_repeated = is_prompt && self.prefix_cache && self.is_repeated(core, slot, past, &parts);
            if end == past || is_repeated || !self.reserve(core, slot, end, &slots[index + 1..]) {
                continue;
            }
            room -= if is_prompt { end - past } else { 0 };
            parts.push(Part { slot, past, end });
        }
        parts
    }

    /// Whether a part of the run fills a block that this prompt continues with, so that it can be shared afterwards.
    fn is_repeated(&self, core: &Core, slot: usize, past: usize, parts: &[Part]) -> bool {
        let tokens = |slot: usize| core.slots.get(slot).running.as_ref().map_or(&[][..], Sequence::tokens);
        let own = tokens(slot);
        parts.iter().any(|part| {
            let others = &tokens(part.slot)[..part.end];
            let most = own.len() - 1;
            let same = own[..most].iter().zip(others).take_while(|(own, other)| own == other).count();
            // Blocks that were full before this run are no reason to wait.
            same / self.blocks.size() * self.blocks.size() > past.max(part.past)
        })
    }

    /// Runs some parts, and chooses the next tokens of sequences that have run as a whole.
    fn run(&mut self, core: &mut Core, parts: &[Part]) -> Result<()> {
        let row = |part: &Part| {
            let tokens = core.slots.get(part.slot).running.as_ref().map_or(&[][..], Sequence::tokens);
            PagedRow { past: part.past, tokens: &tokens[part.past..part.end], table: &self.chains[part.slot].blocks }
        };
        let rows: Vec<PagedRow<'_>> = parts.iter().map(row).collect();
        self.runs.run(&rows)?;
        let mut ready = Vec::new();
        for (row, part) in parts.iter().enumerate() {
            let Some(sequence) = &core.slots.get(part.slot).running else { continue };
            let new = sequence.tokens()[part.past..part.end].to_vec();
            if sequence.tokens().len() == part.end {
                ready.push((row, part.slot));
            }
            let size = self.blocks.size();
            for (at, &token) in (part.past..).zip(&new) {
                self.blocks.fill(self.chains[part.slot].blocks[at / size], &[token]);
            }
            core.slots.get_mut(part.slot).tokens.extend(&new);
        }
        let mut sequences: Vec<_> = core.slots.iter_mut().map(|slot| slot.running.as_mut()).collect();
        let wanted: Vec<usize> = ready.iter().map(|&(row, _)| row).collect();
        let scored = self.runs.scores(&wanted).into_iter().zip(&ready).filter_map(|(scores, &(_, slot))| {
            let sequence = sequences[slot].take()?;
            Some(Scored { slot, sequence, scores })
        });
        for (slot, outcome) in core.chooser.choose(scored.collect()) {
            core.chosen(slot, outcome);
        }
        Ok(())
    }
}

impl Turns for Paged {
    fn warm_up(&mut self) {
        let start = Instant::now();
        match self.runs.warm_up() {
            Ok(()) => tracing::debug!("warmed up in {:.1?}", start.elapsed()),
            Err(error) => tracing::warn!(%error, "could not warm up; the first requests will take longer"),
        }
    }

    fn has_room(&mut self, core: &mut Core, sequence: &Sequence) -> bool {
        self.settle(core);
        let tokens = sequence.tokens();
        let shares = self.prefix_cache || sequence.choice > 0;
        let full = if shares { self.blocks.find(&tokens[..tokens.len() - 1]).full } else { Vec::new() };
        // One more token than the prompt has, and shared blocks that nobody else uses.
        let needed = (tokens.len() + 1).div_ceil(self.blocks.size()) - full.len() + self.blocks.unused(&full);
        let has_room = self.promised + self.owed(core) + needed <= self.blocks.available();
        self.promised += if has_room { needed } else { 0 };
        has_room
    }

    fn place(&mut self, core: &mut Core, sequence: &Sequence, is_follower: bool) -> Option<usize> {
        self.settle(core);
        let slot = core.slots.iter().position(|slot| slot.running.is_none())?;
        let prompt = &sequence.prompt()[..sequence.prompt().len() - 1];
        let held = if self.prefix_cache || is_follower { self.begin(slot, prompt, is_follower) } else { 0 };
        core.slots.get_mut(slot).tokens.extend(&prompt[..held]);
        Some(slot)
    }

    fn turn(&mut self, core: &mut Core) {
        self.settle(core);
        self.promised = 0;
        let parts = self.parts(core);
        if parts.is_empty() {
            return;
        }
        let steps = parts.iter().filter(|part| part.past + 1 == part.end).count() as u64;
        core.shared.count(|stats| {
            stats.steps += u64::from(steps > 0);
            stats.step_rows += steps;
        });
        let Err(error) = self.run(core, &parts) else { return };
        if let [part] = parts[..] {
            return core.fail_slot(part.slot, error);
        }
        tracing::warn!(%error, sequences = parts.len(), "a run failed; its sequences run one by one");
        for part in parts {
            // Another choice of the same request may have failed before.
            if core.slots.get(part.slot).running.is_some()
                && let Err(error) = self.run(core, &[part])
            {
                core.fail_slot(part.slot, error);
            }
        }
    }
}
