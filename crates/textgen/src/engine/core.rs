//! What both kinds of caches have in common: the slots, the requests, and the ends of sequences.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::{Error, TextFinish};

use super::Event;
use super::choose::{Chooser, Outcome};
use super::live::Live;
use super::sequence::{Chosen, End, Sequence};
use super::shared::{Shared, Waiting};
use super::slots::{Slot, Slots};
use super::stats::{Phase, SlotState};

/// The requests that run.
pub(super) struct Core {
    pub shared: Arc<Shared>,
    pub slots: Slots<Sequence>,
    pub live: HashMap<u64, Live>,
    pub chooser: Chooser,
}

impl Core {
    pub fn count_cached(&mut self, id: u64, tokens: usize) {
        if let Some(live) = self.live.get_mut(&id) {
            live.usage.cached_tokens += tokens;
            self.shared.count(|stats| stats.cached_tokens += tokens as u64);
        }
    }

    pub fn has_run(&mut self, slot: usize, token: u32) {
        self.slots.get_mut(slot).tokens.push(token);
    }

    pub fn chosen(&mut self, slot: usize, outcome: Outcome) {
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
    pub fn end_sequence(&mut self, mut sequence: Sequence, finish: TextFinish) {
        match sequence.end(finish) {
            Ok(End { text, finish }) => self.end_choice(sequence.request, sequence.choice, text, finish),
            Err(error) => self.fail(sequence.request, error),
        }
    }

    /// Ends sequences whose client has gone away, or whose time is over.
    pub fn end_interrupted(&mut self) {
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
    pub fn interrupt_waiting(&mut self, waiting: Waiting, finish: TextFinish) {
        let Waiting { sequence, request, .. } = waiting;
        if let Some(mut live) = request {
            live.usage.queued = live.elapsed();
            live.usage.prompt_tokens = sequence.prompt().len();
            self.live.insert(sequence.request, *live);
        }
        self.end_sequence(sequence, finish);
    }

    /// Ends the sequence of a slot. A client that has the end of its answer finds the slot free, so this comes first.
    pub fn release(&mut self, slot: usize) -> Option<Sequence> {
        let sequence = self.slots.release(slot)?;
        self.shared.freed();
        self.publish();
        Some(sequence)
    }

    /// Fails the request of a slot. What the row holds is uncertain.
    pub fn fail_slot(&mut self, slot: usize, error: Error) {
        let id = self.slots.get(slot).running.as_ref().map(|sequence| sequence.request);
        self.slots.forget(slot);
        if let Some(id) = id {
            self.fail(id, error);
        }
    }

    /// Fails a request with all of its choices.
    pub fn fail(&mut self, id: u64, error: Error) {
        let Some(mut live) = self.live.remove(&id) else { return };
        for slot in self.slots.running(|_, sequence| sequence.request == id) {
            self.release(slot);
        }
        self.shared.failed(id);
        live.send(Event::Failed(error));
        live.close();
    }

    pub fn publish(&self) {
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
