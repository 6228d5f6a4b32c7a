use proptest::prelude::*;

use super::*;

/// Slots with the rows of a cache, on which the copies are made.
struct Simulated {
    slots: Slots<Vec<u32>>,
    rows: Vec<Vec<u32>>,
}

impl Simulated {
    fn new(count: usize) -> Simulated {
        Simulated { slots: Slots::new(count), rows: vec![Vec::new(); count] }
    }

    fn copy(&mut self, copies: &[Copy]) {
        for &Copy { from, to, tokens } in copies {
            assert_ne!(from, to);
            self.rows[to] = self.rows[from][..tokens].to_vec();
        }
    }

    /// Starts a sequence, and returns its slot and how many tokens it reuses.
    fn start(&mut self, prompt: &[u32], reuse: Reuse) -> Option<(usize, usize)> {
        let (slot, copies) = self.slots.place(prompt, reuse)?;
        self.copy(&copies);
        let cached = self.slots.get(slot).tokens.len();
        self.slots.get_mut(slot).running = Some(prompt.to_vec());
        self.check();
        Some((slot, cached))
    }

    /// Runs all tokens of a slot's sequence.
    fn run(&mut self, slot: usize) {
        let Some(tokens) = self.slots.get(slot).running.clone() else { return };
        self.rows[slot] = tokens.clone();
        self.slots.get_mut(slot).tokens = tokens;
    }

    fn compact(&mut self) {
        while let Some(copies) = self.slots.compact(|slots| slots.next_power_of_two()) {
            self.copy(&copies);
            self.check();
        }
    }

    /// Every row holds what its slot says, and a sequence's row holds its beginning.
    fn check(&self) {
        for (slot, row) in self.slots.iter().zip(&self.rows) {
            assert!(row.starts_with(&slot.tokens), "{row:?} does not hold {:?}", slot.tokens);
            assert!(slot.running.as_ref().is_none_or(|running| running.starts_with(&slot.tokens)));
        }
    }
}

fn tokens(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| seed * 1000 + at).collect()
}

#[test]
fn a_sequence_that_continues_stays_in_its_slot() {
    let mut slots = Simulated::new(2);
    slots.start(&tokens(1, 20), Reuse::Prefix);
    slots.run(0);
    slots.slots.release(0);
    assert_eq!(slots.start(&tokens(1, 50), Reuse::Prefix), Some((0, 20)));
}

#[test]
fn the_last_token_of_a_prompt_always_runs() {
    let mut slots = Simulated::new(1);
    slots.start(&tokens(1, 20), Reuse::Prefix);
    slots.run(0);
    slots.slots.release(0);
    assert_eq!(slots.start(&tokens(1, 20), Reuse::Prefix), Some((0, 19)));
}

#[test]
fn tokens_move_to_the_slot_that_was_unused_for_the_longest_time() {
    let mut slots = Simulated::new(3);
    for seed in 1..=4 {
        assert_eq!(slots.start(&tokens(seed, 20), Reuse::Prefix), Some((0, 0)), "the lowest slot is used");
        slots.run(0);
        slots.slots.release(0);
    }
    // The first was unused for the longest time when there was no empty slot left.
    assert_eq!(slots.start(&tokens(1, 30), Reuse::Prefix), Some((0, 0)));
    slots.slots.release(0);
    for seed in 3..=4 {
        assert_eq!(slots.start(&tokens(seed, 30), Reuse::Prefix), Some((0, 20)), "{seed}");
        slots.slots.release(0);
    }
}

#[test]
fn a_running_prompt_is_shared() {
    let mut slots = Simulated::new(3);
    slots.start(&tokens(1, 40), Reuse::Prefix);
    slots.run(0);
    let other = [tokens(1, 30), tokens(2, 5)].concat();
    assert_eq!(slots.start(&other, Reuse::Prefix), Some((1, 30)));
    assert_eq!(slots.start(&tokens(1, 40), Reuse::Nothing), Some((2, 0)));
    assert_eq!(slots.start(&tokens(1, 40), Reuse::Prefix), None, "all slots run");
}

#[test]
fn a_prompt_that_another_sequence_ran_meanwhile_is_copied() {
    let mut slots = Simulated::new(3);
    for _ in 0..2 {
        slots.start(&tokens(1, 40), Reuse::Prefix);
    }
    assert_eq!(slots.slots.catch_up(1, &tokens(1, 40)), None, "nothing has run");
    slots.run(0);
    let copy = slots.slots.catch_up(1, &tokens(1, 40));
    assert_eq!(copy, Some(Copy { from: 0, to: 1, tokens: 39 }));
    slots.copy(copy.as_slice());
    slots.check();
    assert_eq!(slots.slots.catch_up(1, &tokens(1, 40)), None);
}

#[test]
fn short_beginnings_are_copied_only_for_choices() {
    let mut slots = Simulated::new(3);
    slots.start(&tokens(1, 10), Reuse::Prefix);
    slots.run(0);
    assert_eq!(slots.start(&tokens(1, 10), Reuse::Prefix), Some((1, 0)));
    assert_eq!(slots.start(&tokens(1, 10), Reuse::Whole), Some((2, 9)));
}

#[test]
fn a_sequence_moves_down_if_a_step_gets_smaller() {
    let mut slots = Simulated::new(4);
    for seed in 0..3 {
        slots.start(&tokens(seed, 20), Reuse::Prefix);
        slots.run(seed as usize);
    }
    slots.slots.release(0);
    slots.compact();
    assert_eq!(slots.slots.get(0).running, Some(tokens(2, 20)));
    assert_eq!(slots.slots.running(|_, _| true), [0, 1]);
    // What was in the slot is still there, for the next one that begins with it.
    slots.slots.release(0);
    assert_eq!(slots.start(&tokens(0, 30), Reuse::Prefix), Some((0, 20)));
    // One of two would still run on two rows.
    slots.slots.release(0);
    slots.compact();
    assert_eq!(slots.slots.running(|_, _| true), [0]);
}

#[derive(Clone, Debug)]
enum Act {
    Start { seed: u32, length: u32, more: u32, reuse: Reuse },
    Run(usize),
    Release(usize),
    Forget(usize),
    Compact,
}

fn act() -> impl Strategy<Value = Act> {
    let reuse = prop_oneof![4 => Just(Reuse::Prefix), 1 => Just(Reuse::Whole), 1 => Just(Reuse::Nothing)];
    prop_oneof![
        4 => (0u32..3, 1u32..60, 0u32..3, reuse)
            .prop_map(|(seed, length, more, reuse)| Act::Start { seed, length, more, reuse }),
        4 => (0usize..5).prop_map(Act::Run),
        3 => (0usize..5).prop_map(Act::Release),
        1 => (0usize..5).prop_map(Act::Forget),
        2 => Just(Act::Compact),
    ]
}

proptest! {
    #[test]
    fn rows_always_hold_what_their_slots_say(acts in prop::collection::vec(act(), 1..60), count in 1usize..5) {
        let mut slots = Simulated::new(count);
        for act in acts {
            match act {
                Act::Start { seed, length, more, reuse } => {
                    let prompt = [tokens(seed, length), tokens(9, more)].concat();
                    let idle = slots.slots.idle();
                    let placed = slots.start(&prompt, reuse);
                    prop_assert_eq!(placed.is_some(), idle > 0);
                    if let Some((_, cached)) = placed {
                        prop_assert!(cached < prompt.len());
                    }
                }
                Act::Run(slot) if slot < count => slots.run(slot),
                Act::Release(slot) if slot < count => drop(slots.slots.release(slot)),
                Act::Forget(slot) if slot < count => slots.slots.forget(slot),
                Act::Compact => {
                    let running = slots.slots.running(|_, _| true).len();
                    slots.compact();
                    let now = slots.slots.running(|_, _| true);
                    prop_assert_eq!(now.len(), running);
                    if let Some(last) = now.last() {
                        prop_assert_eq!((last + 1).next_power_of_two(), running.next_power_of_two());
                    }
                }
                _ => {}
            }
            slots.check();
        }
    }
}
