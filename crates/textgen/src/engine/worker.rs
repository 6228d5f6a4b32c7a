//! The engine's thread. In each turn, waiting requests get free slots, and those that have one run.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::BUG;
use crate::{Error, TextFinish};

use super::choose::Chooser;
use super::core::Core;
use super::sequence::Sequence;
use super::shared::{Shared, Waiting};
use super::slots::Slots;

/// How sequences in slots run. There is one for each kind of cache.
pub(super) trait Turns: Send {
    /// Prepares all runs before the first request. If that fails, requests prepare them.
    fn warm_up(&mut self);

    /// Whether the cache has room for a sequence that waits, if there is a free slot.
    fn has_room(&mut self, core: &mut Core, sequence: &Sequence) -> bool;

    /// Reserves a slot, which afterwards holds as much of the prompt as can be reused. `None` if all slots run.
    fn place(&mut self, core: &mut Core, sequence: &Sequence, is_follower: bool) -> Option<usize>;

    /// Runs the sequences.
    fn turn(&mut self, core: &mut Core);
}

/// What the thread owns.
pub(super) struct Worker {
    core: Core,
    turns: Box<dyn Turns>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, turns: Box<dyn Turns>, slots: usize, vocab_size: usize) -> Worker {
        let (slots, chooser) = (Slots::new(slots), Chooser::new(vocab_size));
        Worker { core: Core { shared, slots, live: HashMap::new(), chooser }, turns }
    }

    pub fn warm_up(&mut self) {
        self.turns.warm_up();
    }

    /// Runs until the engine is shut down and nothing is left.
    pub fn run(mut self) {
        loop {
            let Worker { core, turns } = &mut self;
            let (shared, idle, running) = (Arc::clone(&core.shared), core.slots.idle(), !core.live.is_empty());
            let room = |sequence: &Sequence| turns.has_room(core, sequence);
            let Some(work) = shared.next_work(idle, running, room) else { return };
            if work.must_end {
                core.live.values().for_each(|live| live.interruption.cancel());
            }
            for (finish, waiting) in work.interrupted {
                core.interrupt_waiting(waiting, finish);
            }
            for waiting in work.started {
                self.start(waiting);
            }
            self.core.end_interrupted();
            self.turns.turn(&mut self.core);
            self.core.publish();
        }
    }

    /// Gives a sequence a slot.
    fn start(&mut self, waiting: Waiting) {
        let Worker { core, turns } = self;
        let Waiting { sequence, request, .. } = waiting;
        let id = sequence.request;
        let is_follower = request.is_none();
        if let Some(mut live) = request {
            live.usage.queued = live.elapsed();
            live.usage.prompt_tokens = sequence.prompt().len();
            core.shared.count(|stats| stats.prompt_tokens += sequence.prompt().len() as u64);
            core.live.insert(id, *live);
        }
        if !core.live.contains_key(&id) {
            return core.shared.freed();
        }
        if sequence.is_empty() {
            core.shared.freed();
            return core.end_sequence(sequence, TextFinish::MaxNewTokens);
        }
        let Some(slot) = turns.place(core, &sequence, is_follower) else {
            return core.fail(id, Error::internal("there is no free slot", BUG));
        };
        if !is_follower {
            core.count_cached(id, core.slots.get(slot).tokens.len());
        }
        core.slots.get_mut(slot).running = Some(sequence);
    }
}
