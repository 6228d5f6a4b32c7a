use proptest::prelude::*;

use super::*;

const SIZE: usize = 4;

/// A cache whose every row is the whole text up to its token, which is what keys and values depend on.
struct Cache {
    blocks: Blocks,
    rows: Vec<[Vec<u32>; SIZE]>,
}

/// A text, and the blocks that hold it.
type Chain = (Vec<u32>, Vec<u32>);

impl Cache {
    fn new(count: usize, keeps: bool) -> Cache {
        Cache { blocks: Blocks::new(count, SIZE, keeps), rows: vec![Default::default(); count] }
    }

    /// Starts a text from its longest beginning in the cache, and runs the rest. `None` if there is no room.
    fn start(&mut self, text: &[u32]) -> Option<Chain> {
        let Found { full, part } = self.blocks.find(text);
        full.iter().for_each(|&block| self.blocks.take(block));
        let mut chain = (text[..full.len() * SIZE].to_vec(), full);
        if let Some((from, count)) = part {
            self.blocks.take(from);
            if let Some(to) = self.blocks.grow(chain.1.last().copied()) {
                self.rows[to as usize] = self.rows[from as usize].clone();
                let held = chain.0.len();
                self.blocks.fill(to, &text[held..held + count]);
                chain.0.extend(&text[held..held + count]);
                chain.1.push(to);
            }
            self.blocks.release(&[from]);
        }
        self.check(&chain);
        let held = chain.0.len();
        if text[held..].iter().all(|&token| self.run(&mut chain, token)) {
            return Some(chain);
        }
        self.blocks.release(&chain.1);
        None
    }

    fn run(&mut self, (text, chain): &mut Chain, token: u32) -> bool {
        if text.len() == chain.len() * SIZE {
            let Some(block) = self.blocks.grow(chain.last().copied()) else { return false };
            chain.push(block);
        }
        let (block, at) = (chain[chain.len() - 1], text.len() % SIZE);
        text.push(token);
        self.rows[block as usize][at].clone_from(text);
        self.blocks.fill(block, &[token]);
        true
    }

    fn check(&self, (text, chain): &Chain) {
        for at in 0..text.len() {
            assert_eq!(self.rows[chain[at / SIZE] as usize][at % SIZE], text[..=at], "token {at} of {text:?}");
        }
    }
}

#[test]
fn a_beginning_is_shared_in_blocks_and_copied_in_parts() {
    let mut cache = Cache::new(8, true);
    let first = cache.start(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    let second = cache.start(&[1, 2, 3, 4, 5, 6, 9]).unwrap();
    assert_eq!(first.1[0], second.1[0]);
    assert_ne!(first.1[1], second.1[1]);
    assert_eq!(cache.blocks.available(), 5);
    cache.check(&first);
}

#[test]
fn the_end_of_the_text_that_was_unused_for_the_longest_time_goes_first() {
    let mut cache = Cache::new(4, true);
    let texts: [Vec<u32>; 2] = [(0..8).collect(), (10..18).collect()];
    let chains = texts.each_ref().map(|text| cache.start(text).unwrap());
    chains.iter().for_each(|(_, chain)| cache.blocks.release(chain));
    assert_eq!(cache.blocks.available(), 4);
    cache.start(&[20]).unwrap();
    assert_eq!(cache.blocks.find(&texts[0]).full, chains[0].1[..1]);
    assert_eq!(cache.blocks.find(&texts[1]).full, chains[1].1);
}

#[test]
fn nothing_stays_without_a_prefix_cache() {
    let mut cache = Cache::new(4, false);
    let (_, chain) = cache.start(&[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(cache.blocks.find(&[1, 2, 3, 4, 5]).full.len(), 1, "sequences that run share blocks");
    cache.blocks.release(&chain);
    assert_eq!((cache.blocks.find(&[1, 2]), cache.blocks.available()), (Found::default(), 4));
}

proptest! {
    #[test]
    fn no_sequence_sees_the_tokens_of_another(
        steps in prop::collection::vec((0usize..4, prop::collection::vec(0u32..2, 1..14)), 1..120),
        count in 4usize..12,
        keeps: bool,
    ) {
        let mut cache = Cache::new(count, keeps);
        let mut running: Vec<Chain> = Vec::new();
        for (kind, text) in steps {
            match (kind, running.is_empty()) {
                (0, false) => {
                    let (_, chain) = running.remove(text.len() % running.len());
                    cache.blocks.release(&chain);
                }
                (1, false) => {
                    let at = text.len() % running.len();
                    cache.run(&mut running[at], text[0]);
                }
                _ => running.extend(cache.start(&text)),
            }
            running.iter().for_each(|chain| cache.check(chain));
            let used: std::collections::BTreeSet<u32> = running.iter().flat_map(|(_, chain)| chain).copied().collect();
            prop_assert_eq!(cache.blocks.available() + used.len(), count);
        }
    }
}
