//! The engine's thread. In each turn, the sequences that generate run one token together, then prompts run a chunk.
//!
//! A run changes no sequence until it succeeds. If a step of several rows fails, its rows run one by one, and only
//! those that fail alone fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::caught::caught;
use crate::error::BUG;
use crate::{Config, Error, TextFinish};

use super::choose::{Chooser, Outcome, Scored};
use super::draft::draft;
use super::live::Live;
use super::runs::Runs;
use super::sequence::{Chosen, End, Sequence};
use super::shared::{Shared, Waiting};
use super::slots::{Copy, Reuse, Slot, Slots};
use super::stats::{Phase, SlotState};
use super::step::StepRow;
use super::{EngineOptions, Event};

/// The maximum number of prompts between two steps. Even short ones take about as long as a step.
const MAX_PROMPTS: usize = 4;

/// What the thread owns.
pub(super) struct Worker {
    shared: Arc<Shared>,
    runs: Runs,
    slots: Slots<Sequence>,
    live: HashMap<u64, Live>,
    reuse: Reuse,
    speculation: usize,
    pad_token: u32,
    rows: Vec<StepRow>,
    chooser: Chooser,
    /// Whether prompts of some lengths are prepared.
    is_prepared: bool,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, runs: Runs, options: &EngineOptions, config: &Config) -> Worker {
        let reuse = if options.prefix_cache && runs.continues_prompts() { Reuse::Prefix } else { Reuse::Nothing };
        Worker {
            slots: Slots::new(options.slots),
            live: HashMap::new(),
            reuse,
            speculation: options.speculation,
            pad_token: config.pad_token,
            rows: Vec::new(),
            chooser: Chooser::new(config.vocab_size),
            is_prepared: false,
            shared,
            runs,
        }
    }

    /// Prepares all runs before the first request. If that fails, requests prepare them.
    pub fn warm_up(&mut self) {
        let start = Instant::now();
        match self.runs.warm_up() {
            Ok(()) => {
                self.is_prepared = self.runs.prepares_prompts();
                tracing::debug!("warmed up in {:.1?}", start.elapsed());
            }
            Err(error) => tracing::warn!(%error, "could not warm up; the first requests will take longer"),
        }
    }

    /// Runs until the engine is shut down and nothing is left.
    pub fn run(mut self) {
        while let Some(work) = self.shared.next_work(self.slots.idle(), !self.live.is_empty()) {
            if work.must_end {
                self.live.values().for_each(|live| live.interruption.cancel());
            }
            for (finish, waiting) in work.interrupted {
                self.interrupt_waiting(waiting, finish);
            }
            for waiting in work.started {
                self.start(waiting);
            }
            self.end_interrupted();
            self.step();
            self.prompts();
            self.publish();
        }
    }

    /// Gives a sequence a slot.
    fn start(&mut self, waiting: Waiting) {
        let Waiting { sequence, request, .. } = waiting;
        let id = sequence.request;
        let is_follower = request.is_none();
        if let Some(mut live) = request {
            live.usage.queued = live.elapsed();
            live.usage.prompt_tokens = sequence.prompt().len();
            self.shared.count(|stats| stats.prompt_tokens += sequence.prompt().len() as u64);
            self.live.insert(id, *live);
        }
        if !self.live.contains_key(&id) {
            return self.shared.freed();
        }
        if sequence.is_empty() {
            self.shared.freed();
            return self.end_sequence(sequence, TextFinish::MaxNewTokens);
        }
        let reuse = if is_follower && self.runs.continues_prompts() { Reuse::Whole } else { self.reuse };
        let Some((slot, copies)) = self.slots.place(sequence.prompt(), reuse) else {
            return self.fail(id, Error::internal("there is no free slot", BUG));
        };
        self.copy(&copies);
        if !is_follower {
            self.count_cached(id, self.slots.get(slot).tokens.len());
        }
        self.slots.get_mut(slot).running = Some(sequence);
    }

    fn count_cached(&mut self, id: u64, tokens: usize) {
        if let Some(live) = self.live.get_mut(&id) {
            live.usage.cached_tokens += tokens;
            self.shared.count(|stats| stats.cached_tokens += tokens as u64);
        }
    }

    /// Copies between rows. If a copy fails, what it was for runs again.
    fn copy(&mut self, copies: &[Copy]) {
        for &copy in copies {
            if let Err(error) = self.runs.copy(copy) {
                tracing::warn!(%error, ?copy, "a part of the cache could not be copied");
                self.slots.get_mut(copy.to).tokens.clear();
            }
        }
    }

    /// Runs one token of every sequence that generates.
    fn step(&mut self) {
        while let Some(copies) = self.slots.compact(|slots| self.runs.step_rows(slots)) {
            self.copy(&copies);
        }
        let ready = self.slots.running(|slot, sequence| slot.tokens.len() + 1 == sequence.tokens().len());
        let Some(&last) = ready.last() else { return };
        if let [slot] = ready[..]
            && self.speculate(slot)
        {
            return;
        }
        // Rows that do not generate write where no token is kept.
        let row = |slot: usize| {
            let (tokens, running) = (&self.slots.get(slot).tokens, &self.slots.get(slot).running);
            let token = running.as_ref().and_then(|sequence| sequence.tokens().get(tokens.len()));
            StepRow { token: token.copied().unwrap_or(self.pad_token), position: tokens.len() }
        };
        let count = self.runs.step_rows(last + 1);
        self.rows.clear();
        self.rows.extend((0..count).map(row));
        self.shared.count(|stats| {
            stats.steps += 1;
            stats.step_rows += ready.len() as u64;
        });
        let takes_best = |&slot: &usize| self.slots.get(slot).running.as_ref().is_some_and(Sequence::takes_best);
        match self.runs.step(&self.rows, ready.iter().any(takes_best)) {
            Ok(()) => {
                ready.iter().for_each(|&slot| self.has_run(slot, self.rows[slot].token));
                self.choose_step(count, ready.into_iter().map(|slot| (slot, slot)).collect());
            }
            Err(error) if ready.len() == 1 => self.fail_slot(last, error),
            Err(error) => {
                tracing::warn!(%error, rows = count, "a step failed; its rows run one by one");
                ready.into_iter().for_each(|slot| self.step_alone(slot));
            }
        }
    }

    fn step_alone(&mut self, slot: usize) {
        // Another choice of the same request may have failed before.
        if self.slots.get(slot).running.is_none() {
            return;
        }
        let row = self.rows[slot];
        match self.runs.step_alone(slot, row) {
            Ok(()) => {
                self.has_run(slot, row.token);
                self.choose_step(1, vec![(slot, 0)]);
            }
            Err(error) => self.fail_slot(slot, error),
        }
    }

    /// Chooses the next tokens after a step of `rows` rows, for slots with the number of their row.
    fn choose_step(&mut self, rows: usize, mut stepped: Vec<(usize, usize)>) {
        let on_device = self.runs.chooses_on_device();
        // Most requests are greedy, and need only the best token.
        stepped.retain(|&(slot, row)| {
            let Some(sequence) = &mut self.slots.get_mut(slot).running else { return false };
            let best = if sequence.takes_best() { self.runs.best_token(rows, row) } else { None };
            let Some(chosen) = best.and_then(|token| sequence.take_best(token)) else { return true };
            self.shared.count(|stats| stats.chosen_on_device += u64::from(on_device));
            self.chosen(slot, Some(chosen));
            false
        });
        if self.runs.fetch_scores(rows, &rows_of(&stepped)).is_ok() {
            self.choose_scored(rows, &stepped);
        } else {
            for (slot, row) in stepped {
                match self.runs.fetch_scores(rows, &[row]) {
                    Ok(()) => self.choose_scored(rows, &[(slot, row)]),
                    Err(error) => self.fail_slot(slot, error),
                }
            }
        }
    }

    /// Chooses the next tokens of slots from the scores of their rows, which were fetched.
    fn choose_scored(&mut self, rows: usize, stepped: &[(usize, usize)]) {
        let mut sequences: Vec<_> = self.slots.iter_mut().map(|slot| slot.running.as_mut()).collect();
        let wanted = rows_of(stepped);
        let scores = self.runs.step_scores(rows, &wanted);
        // Another choice of the same request may have failed before.
        let scored = scores.zip(stepped).filter_map(|(scores, &(slot, _))| {
            let sequence = sequences[slot].take()?;
            Some(Scored { slot, sequence, scores })
        });
        for (slot, outcome) in self.chooser.choose(scored.collect()) {
            self.chosen(slot, outcome);
        }
    }

    /// Runs drafted tokens of the only sequence together with its last one. Those that the sequence chooses anyway are
    /// kept, so the text does not change. Returns whether it ran.
    fn speculate(&mut self, slot: usize) -> bool {
        let Some(sequence) = &self.slots.get(slot).running else { return false };
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
            self.has_run(slot, tokens[position - 1]);
            self.choose(slot, |runs| runs.prompt_scores(position));
            let chosen = self.slots.get(slot).running.as_ref().and_then(|sequence| sequence.tokens().get(position));
            if position == total || chosen != Some(&tokens[position]) {
                break;
            }
            right += 1;
        }
        self.shared.count(|stats| {
            stats.steps += 1;
            stats.step_rows += 1;
            stats.drafted_tokens += (total - past - 1) as u64;
            stats.accepted_tokens += right;
        });
        true
    }

    /// Runs a chunk of the oldest prompt, and the next ones if all of them fit into one chunk.
    fn prompts(&mut self) {
        let mut ran = 0;
        for number in 0..MAX_PROMPTS {
            let prompts = self.slots.running(|slot, sequence| slot.tokens.len() + 1 < sequence.tokens().len());
            let age =
                |&slot: &usize| self.slots.get(slot).running.as_ref().map(|running| (running.request, running.choice));
            let Some(slot) = prompts.into_iter().min_by_key(age) else { return };
            let Slot { tokens, running, .. } = self.slots.get(slot);
            let left = running.as_ref().map_or(0, |sequence| sequence.tokens().len() - tokens.len());
            if number > 0 && ran + left > self.runs.prompt_room() {
                return;
            }
            ran += left;
            self.prompt(slot);
        }
    }

    /// Runs a chunk of the prompt of a slot.
    fn prompt(&mut self, slot: usize) {
        let Some(sequence) = &self.slots.get(slot).running else { return };
        let (tokens, id) = (sequence.tokens().to_vec(), sequence.request);
        // A sequence that lost its row runs everything again. Only prompts are looked up in the cache, not answers.
        if self.reuse == Reuse::Prefix && sequence.generated() == 0 {
            let before = self.slots.get(slot).tokens.len();
            if let Some(copy) = self.slots.catch_up(slot, &tokens) {
                self.copy(&[copy]);
                self.count_cached(id, self.slots.get(slot).tokens.len().saturating_sub(before));
            }
        }
        let past = self.slots.get(slot).tokens.len();
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
                self.slots.get_mut(slot).tokens.extend(&tokens[past..total]);
                if total == tokens.len() {
                    self.choose(slot, |runs| runs.prompt_scores(total));
                }
            }
            Err(error) => self.fail_slot(slot, error),
        }
    }

    fn has_run(&mut self, slot: usize, token: u32) {
        self.slots.get_mut(slot).tokens.push(token);
    }

    /// Chooses the next token of a slot's sequence from the scores of the last run.
    fn choose(&mut self, slot: usize, scores: impl FnOnce(&mut Runs) -> &mut [f32]) {
        let Some(sequence) = &mut self.slots.get_mut(slot).running else { return };
        let scores = scores(&mut self.runs);
        // Filters are foreign code.
        let outcome = caught(|| sequence.choose(scores));
        self.chosen(slot, outcome);
    }

    fn chosen(&mut self, slot: usize, outcome: Outcome) {
        let Some(sequence) = &self.slots.get(slot).running else { return };
        let (id, choice) = (sequence.request, sequence.choice);
        let chosen = match outcome {
            Some(Ok(chosen)) => chosen,
            Some(Err(error)) => return self.fail(id, error),
            None => {
                return self.fail(id, Error::internal("the request's filter panicked", "report this to its author"));
            }
        };
        let Some(live) = self.live.get_mut(&id) else { return };
        if live.usage.new_tokens == 0 {
            live.usage.first_token = live.elapsed();
        }
        live.usage.new_tokens += 1;
        self.shared.count(|stats| stats.new_tokens += 1);
        let Chosen { token, text, logprob, end } = chosen;
        live.send(Event::Token { choice, token, text, logprob });
        self.release_followers(id);
        if let Some(End { text, finish }) = end {
            self.release(slot);
            self.end_choice(id, choice, text, finish);
        }
    }

    /// Lets the other choices of a request start: its prompt is in the cache now.
    fn release_followers(&mut self, id: u64) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let interruption = live.interruption.clone();
        let wait = |sequence| Waiting { sequence, interruption: interruption.clone(), request: None };
        let followers: Vec<_> = live.followers.drain(..).map(wait).collect();
        if !followers.is_empty() {
            self.shared.requeue(id, live.priority, followers);
        }
    }

    fn end_choice(&mut self, id: u64, choice: usize, text: String, finish: TextFinish) {
        self.release_followers(id);
        let Some(live) = self.live.get_mut(&id) else { return };
        if live.end_choice(choice, text, finish)
            && let Some(live) = self.live.remove(&id)
        {
            // A client that has the last event finds it in the statistics.
            self.shared.ended(live.elapsed(), live.was_cancelled());
            live.done();
        }
    }

    /// Ends a sequence that has no slot.
    fn end_sequence(&mut self, mut sequence: Sequence, finish: TextFinish) {
        match sequence.end(finish) {
            Ok(End { text, finish }) => self.end_choice(sequence.request, sequence.choice, text, finish),
            Err(error) => self.fail(sequence.request, error),
        }
    }

    /// Ends sequences whose client has gone away, or whose time is over.
    fn end_interrupted(&mut self) {
        let now = Instant::now();
        let finish = |sequence: &Sequence| self.live.get(&sequence.request)?.interruption.at(now);
        let slots = self.slots.running(|_, sequence| finish(sequence).is_some());
        for slot in slots {
            let Some(sequence) = self.release(slot) else { continue };
            let finish = self.live.get(&sequence.request).and_then(|live| live.interruption.at(now));
            self.end_sequence(sequence, finish.unwrap_or(TextFinish::Cancelled));
        }
    }

    /// Ends a sequence that was still waiting.
    fn interrupt_waiting(&mut self, waiting: Waiting, finish: TextFinish) {
        let Waiting { sequence, request, .. } = waiting;
        if let Some(mut live) = request {
            live.usage.queued = live.elapsed();
            live.usage.prompt_tokens = sequence.prompt().len();
            self.live.insert(sequence.request, *live);
        }
        self.end_sequence(sequence, finish);
    }

    /// Ends the sequence of a slot. A client that has the end of its answer finds the slot free, so this comes first.
    fn release(&mut self, slot: usize) -> Option<Sequence> {
        let sequence = self.slots.release(slot)?;
        self.shared.freed();
        self.publish();
        Some(sequence)
    }

    /// Fails the request of a slot. What the row holds is uncertain.
    fn fail_slot(&mut self, slot: usize, error: Error) {
        let id = self.slots.get(slot).running.as_ref().map(|sequence| sequence.request);
        self.slots.forget(slot);
        if let Some(id) = id {
            self.fail(id, error);
        }
    }

    /// Fails a request with all of its choices.
    fn fail(&mut self, id: u64, error: Error) {
        let Some(mut live) = self.live.remove(&id) else { return };
        for slot in self.slots.running(|_, sequence| sequence.request == id) {
            self.release(slot);
        }
        self.shared.failed(id);
        live.send(Event::Failed(error));
        live.close();
    }

    fn publish(&self) {
        let state = |slot: &Slot<Sequence>| {
            let tokens = slot.tokens.len();
            match &slot.running {
                None => SlotState { tokens, ..SlotState::default() },
                Some(sequence) => SlotState {
                    request: Some(sequence.request),
                    phase: if tokens + 1 < sequence.tokens().len() { Phase::Prompt } else { Phase::Decoding },
                    tokens,
                    generated: sequence.generated(),
                },
            }
        };
        self.shared.count(|stats| {
            stats.slots.clear();
            stats.slots.extend(self.slots.iter().map(state));
        });
    }
}

/// The rows of slots, which are in the order of their rows.
fn rows_of(stepped: &[(usize, usize)]) -> Vec<usize> {
    stepped.iter().map(|&(_, row)| row).collect()
}
