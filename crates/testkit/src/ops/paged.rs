//! Caches in pages: the places of tokens, new rows, and attention by loops over queries and keys.

use graph::prim::{PagedAttention, PagedPlaces, Sinks, place};
use graph::{DType, Prim};

use super::cached_attention::{ALPHA, Scores};
use super::{Sample, dense, ints, list, random, tensor};

/// A step of several sequences.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The type of all numbers.
    pub dtype: DType,
    /// The rows that each sequence has in the cache before the step.
    pub lengths: Vec<usize>,
    /// The new tokens of each sequence.
    pub news: Vec<usize>,
    /// Tokens after the last sequence, which belong to none.
    pub spare: usize,
    /// Rows of a block.
    pub block: usize,
    /// Whether slots are given: those of the positions, but none for every third token.
    pub slots: bool,
    /// The heads of keys and values.
    pub shared: usize,
    /// The heads of queries for each of them.
    pub group: usize,
    /// The size of keys and values.
    pub size: usize,
    /// What is done with scores; there is no bias.
    pub scores: Scores,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            dtype: DType::F16,
            lengths: vec![70, 0, 33, 16],
            news: vec![1, 3, 0, 2],
            spare: 0,
            block: 16,
            slots: false,
            shared: 2,
            group: 2,
            size: 32,
            scores: Scores::PLAIN,
        }
    }
}

impl Pages {
    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.news.iter().sum::<usize>() + self.spare
    }

    fn most(&self) -> usize {
        let ends = self.lengths.iter().zip(&self.news).map(|(length, new)| (length + new).div_ceil(self.block));
        ends.max().unwrap_or(0) + 1
    }

    fn blocks(&self) -> usize {
        // A prime, so that multiples of another number visit all blocks.
        let least = self.lengths.len() * self.most() + 2;
        (least..).find(|&n| (2..n).all(|d| n % d != 0)).unwrap_or(least)
    }

    /// The block of a page, in no order.
    fn entry(&self, sequence: usize, page: usize) -> usize {
        (sequence * self.most() + page + 1) * 7 % self.blocks()
    }

    /// The sequence and position of a token.
    fn owner(&self, token: usize) -> Option<(usize, usize)> {
        let mut first = 0;
        for (sequence, &new) in self.news.iter().enumerate() {
            if token < first + new {
                return Some((sequence, self.lengths[sequence] + token - first));
            }
            first += new;
        }
        None
    }

    fn row(&self, sequence: usize, position: usize) -> usize {
        self.entry(sequence, position / self.block) * self.block + position % self.block
    }

    fn slot(&self, token: usize) -> i64 {
        match self.owner(token) {
            Some(_) if self.slots && token % 3 == 2 => -1,
            Some((sequence, position)) => self.row(sequence, position) as i64,
            None => -1,
        }
    }

    fn end(&self, token: usize) -> usize {
        self.owner(token).map_or(0, |(sequence, position)| {
            if self.scores.causal { position + 1 } else { self.lengths[sequence] + self.news[sequence] }
        })
    }

    fn table(&self) -> Vec<i64> {
        let pages = (0..self.lengths.len()).flat_map(|sequence| (0..self.most()).map(move |page| (sequence, page)));
        let used = |sequence: usize| (self.lengths[sequence] + self.news[sequence]).div_ceil(self.block);
        pages.map(|(s, page)| if page < used(s) { self.entry(s, page) as i64 } else { -1 }).collect()
    }

    /// The rows of places, row by row.
    pub fn places(&self) -> Vec<f64> {
        let tokens = 0..self.tokens();
        let owner = |token| self.owner(token).unwrap_or((0, 0));
        let positions = tokens.clone().map(|token| owner(token).1 as f64);
        let slots = tokens.clone().map(|token| self.slot(token) as f64);
        let sequences = tokens.clone().map(|token| owner(token).0 as f64);
        positions.chain(slots).chain(sequences).chain(tokens.map(|token| self.end(token) as f64)).collect()
    }

    /// The step that finds places. `table` changes the table, `lengths` the lengths.
    pub fn places_sample(&self, table: impl Fn(&mut Vec<i64>), lengths: impl Fn(&mut Vec<i64>)) -> Sample {
        let sequences = self.lengths.len();
        let starts = (0..=sequences).map(|at| self.news[..at].iter().sum::<usize>() as i64);
        let (mut entries, mut before) = (self.table(), self.lengths.iter().map(|&it| it as i64).collect());
        table(&mut entries);
        lengths(&mut before);
        let view = |buffer, shape: &[usize]| dense(buffer, DType::I32, shape);
        let mut inputs = vec![
            (view(0, &[sequences + 1]), ints(DType::I32, starts)),
            (view(1, &[sequences]), ints(DType::I32, before)),
            (view(2, &[sequences, self.most()]), ints(DType::I32, entries)),
        ];
        if self.slots {
            let slots = (0..self.tokens()).map(|token| self.slot(token));
            inputs.push((view(3, &[self.tokens()]), ints(DType::I32, slots)));
        }
        let prim =
            PagedPlaces { block: self.block, blocks: self.blocks(), causal: self.scores.causal, slots: self.slots };
        Sample::new(Prim::PagedPlaces(prim), inputs, vec![view(4, &[place::ROWS, self.tokens()])])
    }

    fn cache_shape(&self) -> [usize; 4] {
        [self.blocks(), self.block, self.shared, self.size]
    }

    /// The step that writes new rows; `beyond` moves the first token's slot past the end.
    pub fn append_sample(&self, in_place: bool, beyond: bool) -> Sample {
        let (tokens, shape) = (self.tokens(), self.cache_shape());
        let mut places: Vec<i64> = self.places().iter().map(|&it| it as i64).collect();
        if beyond {
            places[place::SLOT * tokens] = (self.blocks() * self.block) as i64;
        }
        let mut inputs = vec![(dense(0, DType::I32, &[place::ROWS, tokens]), ints(DType::I32, places))];
        for buffer in [1, 2] {
            let view = dense(buffer, self.dtype, &[tokens, self.shared, self.size]);
            inputs.push((view.clone(), random(self.dtype, view.elems(), u64::from(buffer))));
        }
        for buffer in [3, 4] {
            let view = dense(buffer, self.dtype, &shape);
            inputs.push((view.clone(), random(self.dtype, view.elems(), u64::from(buffer))));
        }
        let first = if in_place { 3 } else { 5 };
        let outputs = [first, first + 1].map(|buffer| dense(buffer, self.dtype, &shape));
        Sample::new(Prim::PagedAppend, inputs, outputs.to_vec())
    }

    /// The caches for the values of the sample's inputs.
    pub fn appended(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let row = self.shared * self.size;
        let part = |which: usize| {
            let mut cache = values[3 + which].clone();
            for token in 0..self.tokens() {
                if let Ok(slot) = usize::try_from(self.slot(token)) {
                    cache[slot * row..][..row].copy_from_slice(&values[1 + which][token * row..][..row]);
                }
            }
            cache
        };
        vec![part(0), part(1)]
    }

    /// The attention of the tokens, with NaN in rows that no token sees. `table` changes the table.
    pub fn attention_sample(&self, table: impl Fn(&mut Vec<i64>)) -> Sample {
        let (tokens, shape, heads) = (self.tokens(), self.cache_shape(), self.shared * self.group);
        let mut is_filled = vec![false; self.blocks() * self.block];
        for (sequence, (length, new)) in self.lengths.iter().zip(&self.news).enumerate() {
            (0..length + new).for_each(|position| is_filled[self.row(sequence, position)] = true);
        }
        let queries = dense(0, self.dtype, &[tokens, heads, self.size]);
        let mut inputs = vec![(queries.clone(), random(self.dtype, queries.elems(), 1))];
        for buffer in [1, 2] {
            let view = dense(buffer, self.dtype, &shape);
            let numbers = list(&random(self.dtype, view.elems(), u64::from(buffer) + 1));
            let row = |at: usize| at / (self.shared * self.size);
            let kept = numbers.into_iter().enumerate().map(|(at, it)| if is_filled[row(at)] { it } else { f64::NAN });
            inputs.push((view, tensor(self.dtype, kept)));
        }
        let mut entries = self.table();
        table(&mut entries);
        let places = self.places().into_iter().map(|it| it as i64);
        inputs.push((dense(3, DType::I32, &[place::ROWS, tokens]), ints(DType::I32, places)));
        inputs.push((dense(4, DType::I32, &[self.lengths.len(), self.most()]), ints(DType::I32, entries)));
        if self.scores.sinks == Sinks::Given {
            inputs.push((dense(9, self.dtype, &[heads]), random(self.dtype, heads, 5)));
        }
        let Scores { window, softcap, sinks, .. } = self.scores;
        let prim = PagedAttention { alpha: ALPHA, window, softcap, sinks };
        Sample::new(Prim::PagedAttention(prim), inputs, vec![dense(6, self.dtype, &queries.shape)])
    }

    /// The result for the values of the sample's inputs.
    pub fn attended(&self, values: &[Vec<f64>]) -> Vec<f64> {
        let (size, heads) = (self.size, self.shared * self.group);
        let row = |(at, query): (usize, &[f64])| {
            let (token, head) = (at / heads, at % heads);
            let Some((sequence, position)) = self.owner(token) else { return vec![0.0; size] };
            let seen = self.scores.keys(position, self.end(token));
            let at = |which: usize, key: usize| {
                let first = (self.row(sequence, key) * self.shared + head / self.group) * size;
                &values[which][first..first + size]
            };
            let products = seen.clone().map(|key| query.iter().zip(at(1, key)).map(|(q, k)| q * k).sum());
            let held = seen.clone().map(|key| at(2, key));
            self.scores.attend(products, None, self.scores.sink(values, head), held, size)
        };
        values[0].chunks(size).enumerate().flat_map(row).collect()
    }
}

/// Steps with every way to change scores, in all types: single tokens, prompts, and both together.
pub fn steps() -> Vec<Pages> {
    let plain = Pages::default();
    let with = |scores| Pages { scores, ..plain.clone() };
    vec![
        plain.clone(),
        Pages { dtype: DType::F32, spare: 2, ..plain.clone() },
        Pages { dtype: DType::Bf16, size: 64, group: 4, ..plain.clone() },
        Pages { slots: true, ..plain.clone() },
        Pages { lengths: vec![260, 1, 130], news: vec![1, 1, 1], shared: 1, group: 7, size: 128, ..plain.clone() },
        Pages { lengths: vec![5, 0], news: vec![0, 45], block: 32, group: 1, ..plain.clone() },
        // Blocks whose number of rows is no power of two, and rows that cannot be read in packs.
        Pages { dtype: DType::F32, block: 5, size: 19, group: 3, ..plain.clone() },
        with(Scores { causal: false, ..Scores::PLAIN }),
        with(Scores { causal: false, window: Some(4), ..Scores::PLAIN }),
        with(Scores { window: Some(20), ..Scores::PLAIN }),
        with(Scores { window: Some(2), sinks: Sinks::Given, ..Scores::PLAIN }),
        with(Scores { softcap: Some(1.5), ..Scores::PLAIN }),
        Pages { spare: 1, ..with(Scores { softcap: Some(2.0), sinks: Sinks::Given, ..Scores::PLAIN }) },
    ]
}
