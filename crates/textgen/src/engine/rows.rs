//! Turns over caches with a row for each slot: the sequences that generate run one token together, then prompts run a
//! chunk.
//!
//! A run changes no sequence until it succeeds. If a step of several rows fails, its rows run one by one, and only
//! those that fail alone fail.

use std::time::Instant;

use crate::caught::caught;
use crate::{Error, Model, Result};

use super::EngineOptions;
use super::choose::Scored;
use super::core::Core;
use super::draft::draft;
use super::runs::Runs;
use super::sequence::Sequence;
use super::slots::{Copy, Reuse, Slot};
use super::step::StepRow;
use super::worker::Turns;

/// The maximum number of prompts between two steps. Even short ones take about as long as a step.
const MAX_PROMPTS: usize = 4;

/// A cache with a row for each slot, and the runs on it.
pub(super) struct Rows {
    runs: Runs,
    reuse: Reuse,
    speculation: usize,
    pad_token: u32,
    rows: Vec<StepRow>,
    /// Whether prompts of some lengths are prepared.
    is_prepared: bool,
}

impl Rows {
    /// # Errors
    /// When an option does not fit the model, the folder has no shared buffers, or the cache cannot be allocated.
    pub fn new(model: &Model, max_length: usize, options: &EngineOptions) -> Result<Rows> {
        let runs = Runs::new(model, options.slots, max_length, options.prompt_chunk)?;
        if options.speculation > 0 && !runs.scores_every_token() {
            return Err(Error::request(
                "speculation needs the scores of every token, but this session returns those of the last one only",
                "set ep.hip.last_logits=off in the folder's session options, or speculation to 0",
            ));
        }
        let reuse = if options.prefix_cache && runs.continues_prompts() { Reuse::Prefix } else { Reuse::Nothing };
        let (speculation, pad_token) = (options.speculation, model.config().pad_token);
        Ok(Rows { runs, reuse, speculation, pad_token, rows: Vec::new(), is_prepared: false })
    }

    pub fn cache_bytes(&self) -> usize {
        self.runs.cache_bytes()
    }

    /// Copies between rows. If a copy fails, what it was for runs again.
    fn copy(&mut self, core: &mut Core, copies: &[Copy]) {
        for &copy in copies {
            if let Err(error) = self.runs.copy(copy) {
                tracing::warn!(%error, ?copy, "a part of the cache could not be copied");
                core.slots.get_mut(copy.to).tokens.clear();
            }
        }
    }

    /// Runs one token of every sequence that generates.
    fn step(&mut self, core: &mut Core) {
        while let Some(copies) = core.slots.compact(|slots| self.runs.step_rows(slots)) {
            self.copy(core, &copies);
        }
        let ready = core.slots.running(|slot, sequence| slot.tokens.len() + 1 == sequence.tokens().len());
        let Some(&last) = ready.last() else { return };
        if let [slot] = ready[..]
            && self.speculate(core, slot)
        {
            return;
        }
        // Rows that do not generate write where no token is kept.
        let row = |slot: usize| {
            let (tokens, running) = (&core.slots.get(slot).tokens, &core.slots.get(slot).running);
            let token = running.as_ref().and_then(|sequence| sequence.tokens().get(tokens.len()));
            StepRow { token: token.copied().unwrap_or(self.pad_token), position: tokens.len() }
        };
        let count = self.runs.step_rows(last + 1);
        self.rows.clear();
        self.rows.extend((0..count).map(row));
        core.shared.count(|stats| {
            stats.steps += 1;
            stats.step_rows += ready.len() as u64;
        });
        let takes_best = |&slot: &usize| core.slots.get(slot).running.as_ref().is_some_and(Sequence::takes_best);
        match self.runs.step(&self.rows, ready.iter().any(takes_best)) {
            Ok(()) => {
                ready.iter().for_each(|&slot| core.has_run(slot, self.rows[slot].token));
                self.choose_step(core, count, ready.into_iter().map(|slot| (slot, slot)).collect());
            }
            Err(error) if ready.len() == 1 => core.fail_slot(last, error),
            Err(error) => {
                tracing::warn!(%error, rows = count, "a step failed; its rows run one by one");
                ready.into_iter().for_each(|slot| self.step_alone(core, slot));
            }
        }
    }

    fn step_alone(&mut self, core: &mut Core, slot: usize) {
        // Another choice of the same request may have failed before.
        if core.slots.get(slot).running.is_none() {
            return;
        }
        let row = self.rows[slot];
        match self.runs.step_alone(slot, row) {
            Ok(()) => {
                core.has_run(slot, row.token);
                self.choose_step(core, 1, vec![(slot, 0)]);
            }
            Err(error) => core.fail_slot(slot, error),
        }
    }

    /// Chooses the next tokens after a step of `rows` rows, for slots with the number of their row.
    fn choose_step(&mut self, core: &mut Core, rows: usize, mut stepped: Vec<(usize, usize)>) {
        let on_device = self.runs.chooses_on_device();
        // Most requests are greedy, and need only the best token.
        stepped.retain(|&(slot, row)| {
            let Some(sequence) = &mut core.slots.get_mut(slot).running else { return false };
            let best = if sequence.takes_best() { self.runs.best_token(rows, row) } else { None };
            let Some(chosen) = best.and_then(|token| sequence.take_best(token)) else { return true };
            core.shared.count(|stats| stats.chosen_on_device += u64::from(on_device));
            core.chosen(slot, Some(chosen));
            false
        });
        if self.runs.fetch_scores(rows, &rows_of(&stepped)).is_ok() {
            self.choose_scored(core, rows, &stepped);
        } else {
            for (slot, row) in stepped {
                match self.runs.fetch_scores(rows, &[row]) {
                    Ok(()) => self.choose_scored(core, rows, &[(slot, row)]),
                    Err(error) => core.fail_slot(slot, error),
                }
            }
        }
    }

    /// Chooses the next tokens of slots from the scores of their rows, which were fetched.
    fn choose_scored(&mut self, core: &mut Core, rows: usize, stepped: &[(usize, usize)]) {
        let mut sequences: Vec<_> = core.slots.iter_mut().map(|slot| slot.running.as_mut()).collect();
        let wanted = rows_of(stepped);
        let scores = self.runs.step_scores(rows, &wanted);
        // Another choice of the same request may have failed before.
        let scored = scores.zip(stepped).filter_map(|(scores, &(slot, _))| {
            let sequence = sequences[slot].take()?;
            Some(Scored { slot, sequence, scores })
        });
        for (slot, outcome) in core.chooser.choose(scored.collect()) {
            core.chosen(slot, outcome);
        }
    }

    /// Runs drafted tokens of the only sequence together with its last one. Those that the sequence chooses anyway are
    /// kept, so the text does not change. Returns whether it ran.
    fn speculate(&mut self, core: &mut Core, slot: usize) -> bool {
        let Some(sequence) = &core.slots.get(slot).running else { return false };
        let count = self.speculation.min(sequence.room().saturating_sub(1));
        let drafted = if count > 0 { draft(sequence.tokens(), count) } else { &[] };
        if drafted.is_empty() {
            return false;
        }
        let past = sequence.tokens().len() - 1;
        let tokens = [sequence.tokens(), drafted].concat();
        // A failed run is repeated without a draft.
        let Ok(total) = self.runs.prompt(slot, &tokens, past) else { return false };
        let mut right = 0;
        for position in past + 1..=total {
            core.has_run(slot, tokens[position - 1]);
            self.choose(core, slot, |runs| runs.prompt_scores(position));
            let chosen = core.slots.get(slot).running.as_ref().and_then(|sequence| sequence.tokens().get(position));
            if position == total || chosen != Some(&tokens[position]) {
                break;
            }
            right += 1;
        }
        core.shared.count(|stats| {
            stats.steps += 1;
            stats.step_rows += 1;
            stats.drafted_tokens += (total - past - 1) as u64;
            stats.accepted_tokens += right;
        });
        true
    }

    /// Runs a chunk of the oldest prompt, and the next ones if all of them fit into one chunk.
    fn prompts(&mut self, core: &mut Core) {
        let mut ran = 0;
        for number in 0..MAX_PROMPTS {
            let prompts = core.slots.running(|slot, sequence| slot.tokens.len() + 1 < sequence.tokens().len());
            let age =
                |&slot: &usize| core.slots.get(slot).running.as_ref().map(|running| (running.request, running.choice));
            let Some(slot) = prompts.into_iter().min_by_key(age) else { return };
            let Slot { tokens, running, .. } = core.slots.get(slot);
            let left = running.as_ref().map_or(0, |sequence| sequence.tokens().len() - tokens.len());
            if number > 0 && ran + left > self.runs.prompt_room() {
                return;
            }
            ran += left;
            self.prompt(core, slot);
        }
    }

    /// Runs a chunk of the prompt of a slot.
    fn prompt(&mut self, core: &mut Core, slot: usize) {
        let Some(sequence) = &core.slots.get(slot).running else { return };
        let (tokens, id) = (sequence.tokens().to_vec(), sequence.request);
        // A sequence that lost its row runs everything again. Only prompts are looked up in the cache, not answers.
        if self.reuse == Reuse::Prefix && sequence.generated() == 0 {
            let before = core.slots.get(slot).tokens.len();
            if let Some(copy) = core.slots.catch_up(slot, &tokens) {
                self.copy(core, &[copy]);
                core.count_cached(id, core.slots.get(slot).tokens.len().saturating_sub(before));
            }
        }
        let past = core.slots.get(slot).tokens.len();
        if past + 1 == tokens.len() {
            return;
        }
        let ran = match self.is_prepared {
            // The last token runs in the next step, which gives its scores.
            true => self.runs.prepared_prompt(slot, &tokens[..tokens.len() - 1], past),
            false => self.runs.prompt(slot, &tokens, past),
        };
        match ran {
            Ok(total) => {
                core.slots.get_mut(slot).tokens.extend(&tokens[past..total]);
                if total == tokens.len() {
                    self.choose(core, slot, |runs| runs.prompt_scores(total));
                }
            }
            Err(error) => core.fail_slot(slot, error),
        }
    }

    /// Chooses the next token of a slot's sequence from the scores of the last run.
    fn choose(&mut self, core: &mut Core, slot: usize, scores: impl FnOnce(&mut Runs) -> &mut [f32]) {
        let Some(sequence) = &mut core.slots.get_mut(slot).running else { return };
        let scores = scores(&mut self.runs);
        // Filters are foreign code.
        let outcome = caught(|| sequence.choose(scores));
        core.chosen(slot, outcome);
    }
}

impl Turns for Rows {
    fn warm_up(&mut self) {
        let start = Instant::now();
        match self.runs.warm_up() {
            Ok(()) => {
                self.is_prepared = self.runs.prepares_prompts();
                tracing::debug!("warmed up in {:.1?}", start.elapsed());
            }
            Err(error) => tracing::warn!(%error, "could not warm up; the first requests will take longer"),
        }
    }

    fn has_room(&mut self, _: &mut Core, _: &Sequence) -> bool {
        true
    }

    fn place(&mut self, core: &mut Core, sequence: &Sequence, is_follower: bool) -> Option<usize> {
        let reuse = if is_follower && self.runs.continues_prompts() { Reuse::Whole } else { self.reuse };
        let (slot, copies) = core.slots.place(sequence.prompt(), reuse)?;
        self.copy(core, &copies);
        Some(slot)
    }

    fn turn(&mut self, core: &mut Core) {
        self.step(core);
        self.prompts(core);
    }
}

/// The rows of slots, which are in the order of their rows.
fn rows_of(stepped: &[(usize, usize)]) -> Vec<usize> {
    stepped.iter().map(|&(_, row)| row).collect()
}
