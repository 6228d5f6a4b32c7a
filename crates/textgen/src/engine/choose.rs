//! Chooses tokens from scores, for several rows at once: sampling from a large vocabulary takes as long as a small step.

use std::thread;

use crate::Result;
use crate::caught::caught;
use crate::feed::RowScores;

use super::sequence::{Chosen, Sequence};

/// The maximum number of threads.
const MAX_THREADS: usize = 8;

/// A thread gets at least this many scores, because starting it takes time, too.
const SCORES_PER_THREAD: usize = 1 << 17;

/// A sequence, and the scores for its next token.
pub(super) struct Scored<'a> {
    pub slot: usize,
    pub sequence: &'a mut Sequence,
    pub scores: RowScores<'a>,
}

/// What a sequence chose; `None` if its filter panicked.
pub(super) type Outcome = Option<Result<Chosen>>;

/// Chooses tokens on a few threads.
#[derive(Debug)]
pub(super) struct Chooser {
    vocab_size: usize,
    /// For each thread, a buffer for scores that are not 32-bit floats.
    converted: Vec<Vec<f32>>,
}

impl Chooser {
    pub fn new(vocab_size: usize) -> Chooser {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Chooser { vocab_size, converted: vec![Vec::new(); threads] }
    }

    /// What each sequence chooses, with its slot. The sequences do not depend on each other.
    pub fn choose(&mut self, rows: Vec<Scored<'_>>) -> Vec<(usize, Outcome)> {
        let threads = (rows.len() * self.vocab_size / SCORES_PER_THREAD).clamp(1, self.converted.len()).min(rows.len());
        if threads <= 1 {
            return rows.into_iter().map(|row| outcome(row, &mut self.converted[0])).collect();
        }
        let mut shares: Vec<Vec<Scored<'_>>> = (0..threads).map(|_| Vec::new()).collect();
        rows.into_iter().enumerate().for_each(|(index, row)| shares[index % threads].push(row));
        let share = |rows: Vec<Scored<'_>>, converted: &mut Vec<f32>| -> Vec<(usize, Outcome)> {
            rows.into_iter().map(|row| outcome(row, converted)).collect()
        };
        let mut work = shares.into_iter().zip(&mut self.converted);
        let own = work.next();
        thread::scope(|scope| {
            let others: Vec<_> = work.map(|(rows, converted)| scope.spawn(move || share(rows, converted))).collect();
            let own = own.map(|(rows, converted)| share(rows, converted));
            // Panics are caught for each row.
            let others = others.into_iter().filter_map(|thread| thread.join().ok()).flatten();
            own.into_iter().flatten().chain(others).collect()
        })
    }
}

fn outcome(row: Scored<'_>, converted: &mut Vec<f32>) -> (usize, Outcome) {
    let Scored { slot, sequence, scores } = row;
    // Filters are foreign code.
    (slot, caught(|| sequence.choose(scores.into_floats(converted))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ort_client::{Element, HostTensor, MemoryLocation};
    use serde_json::json;

    use super::super::sequence::Rules;
    use super::*;
    use crate::sampler::NEVER;
    use crate::text::ShownText;
    use crate::{Sampling, TokenFilter, Tokenizer};

    const WORDS: usize = 1 << 15;

    #[derive(Debug)]
    struct Broken;

    impl TokenFilter for Broken {
        fn filter(&mut self, scores: &mut [f32]) -> Result<()> {
            scores.fill(NEVER);
            panic!("the filter is broken")
        }

        fn accept(&mut self, _: u32) -> Result<()> {
            Ok(())
        }
    }

    /// Sequences that sample, the third one with a filter that panics.
    fn sequences(count: usize) -> Vec<Sequence> {
        let words: serde_json::Map<_, _> = (0..WORDS).map(|word| (format!("w{word}"), json!(word))).collect();
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": null, "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
        });
        let tokenizer = Tokenizer::from_bytes(file.to_string().into_bytes(), "tokenizer.json".as_ref()).unwrap();
        let rules = Rules { end_tokens: vec![0], most: 100, max_length: 100, top_logprobs: Some(3) };
        let rules = Arc::new(rules);
        let sequence = |at: usize| {
            let sampling = Sampling { do_sample: true, seed: Some(at as u32), ..Sampling::default() };
            let filter = (at == 2).then(|| Box::new(Broken) as Box<dyn TokenFilter>);
            Sequence::new((at as u64, 0), &[1, 2], sampling, filter, ShownText::new(&tokenizer, []), &rules)
        };
        (0..count).map(sequence).collect()
    }

    #[test]
    fn threads_do_not_change_what_is_chosen() {
        let library = match testkit::place::onnxruntime() {
            Ok(library) => library,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let host = MemoryLocation::host(&ort_client::Runtime::load(&library).unwrap()).unwrap();
        let chosen = |threads: usize| {
            let mut chooser = Chooser { vocab_size: WORDS, converted: vec![Vec::new(); threads] };
            let mut sequences = sequences(13);
            let mut scores: Vec<HostTensor> = Vec::new();
            for row in 0..13 {
                let mut tensor = HostTensor::new(&host, Element::F16, &[WORDS as i64]).unwrap();
                let halves: &mut [half::f16] = bytemuck::cast_slice_mut(tensor.bytes_mut());
                let score = |word: usize| half::f16::from_f32(((word * 7919 + row * 31) % 1009) as f32 / 100.0);
                halves.iter_mut().enumerate().for_each(|(word, half)| *half = score(word));
                scores.push(tensor);
            }
            let rows = sequences.iter_mut().zip(&mut scores).enumerate();
            let row = |(slot, (sequence, scores))| Scored { slot, sequence, scores: RowScores::whole(scores) };
            let mut outcomes = chooser.choose(rows.map(row).collect());
            outcomes.sort_by_key(|&(slot, _)| slot);
            let shown = |(slot, outcome): (usize, Outcome)| {
                let chosen = outcome.map(|chosen| chosen.unwrap());
                (slot, chosen.map(|chosen| (chosen.token, chosen.text, chosen.logprob)))
            };
            outcomes.into_iter().map(shown).collect::<Vec<_>>()
        };
        let alone = chosen(1);
        assert_eq!(alone.len(), 13);
        assert!(alone.iter().all(|(slot, chosen)| chosen.is_none() == (*slot == 2)), "{alone:?}");
        for threads in [2, 3, 8] {
            assert_eq!(chosen(threads), alone, "{threads} threads");
        }
    }
}
