//! Attention over caches, block by block: the softmax is rescaled whenever a larger score appears, so only the scores
//! of one block are stored (as in flash attention).
use std::ops::Range;

use graph::prim::{CachedAttention, Filled, PagedAttention, Sinks, place};
use graph::{DType, View};

use crate::carve::{carve, piece};
use crate::index::{Bounds, Indices};
use crate::number::Number;
use crate::paged::ints;
use crate::rows::ranges_with;
use crate::{Context, OpError, Tensor, TensorMut, tiles};

/// Query rows that share each read of keys and values.
const ROWS: usize = 64;
/// Keys per block.
const KEYS: usize = 128;
/// From this many rows on it pays to transpose the keys: products then need no horizontal sums.
const MANY_ROWS: usize = 8;
/// Minimum number of multiplications per task.
const GRAIN: usize = 64 * 1024;

pub(crate) fn run(
    prim: &CachedAttention,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = || OpError::Unsupported { prim: "cached_attention", dtype: out.dtype() };
    let &[q, k, v, lengths, ref operands @ ..] = inputs else { return Err(unsupported()) };
    if !matches!(out.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(unsupported());
    }
    let (&[batch, heads, rows, size], &[_, shared, total, width]) = (q.shape(), v.shape()) else {
        return Err(unsupported());
    };
    if out.elems() == 0 {
        return Ok(());
    }
    let group = heads / shared.max(1);
    let mut operands = operands.iter().copied();
    let bias = if prim.bias { operands.next() } else { None };
    let sinks = if prim.sinks == Sinks::Given { operands.next() } else { None };
    let indices = Indices::new(lengths, "cached_attention")?;
    let work = AttentionJob { prim, q, k, v, bias, sinks, out, group, total, pages: None };
    let Division { tokens, blocks, most, grain } = Division::new(group, rows, total * (size + width));
    let bytes = Memory::bytes(most, size, width);
    ranges_with::<u8>(cx, batch * shared * blocks, grain, bytes, |range, mut scratch| {
        let mut memory = Memory::carve(&mut scratch, most, size, width);
        for block in range {
            // The last rows of a causal prompt have the most work, so they come first.
            let (at, block) = (block / blocks, blocks - 1 - block % blocks);
            let (batch, head) = (at / shared, at % shared);
            // SAFETY: the view is `[batch]`.
            let length = unsafe { indices.at(batch as isize * lengths.strides()[0]) };
            let tokens = block * tokens..((block + 1) * tokens).min(rows);
            work.block(batch, head, tokens, prim.filled.before(length), &mut memory);
        }
    });
    Ok(())
}

/// Attention over a cache in pages: the tokens of a sequence, one sequence after the other.
pub(crate) fn run_paged(
    prim: &PagedAttention,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = || OpError::Unsupported { prim: "paged_attention", dtype: out.dtype() };
    let &[q, k, v, places, table, ref sinks @ ..] = inputs else { return Err(unsupported()) };
    let (&[tokens, heads, size], &[blocks, block, shared, width]) = (q.shape(), v.shape()) else {
        return Err(unsupported());
    };
    let one_type = [q, k, v].iter().all(|tensor| tensor.dtype() == out.dtype());
    if !one_type || !matches!(out.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(unsupported());
    }
    let (of, entry) = (ints(places, "paged_attention")?, ints(table, "paged_attention")?);
    let at = |row: usize, token: usize| usize::try_from(of(&[row, token])).unwrap_or(0);
    let bounds = Bounds::default();
    let prim = CachedAttention {
        alpha: prim.alpha,
        filled: Filled::default(),
        causal: true,
        window: prim.window,
        softcap: prim.softcap,
        bias: false,
        sinks: prim.sinks,
    };
    let group = heads / shared.max(1);
    // `[blocks, block, shared, …]` and `[tokens, heads, …]` in the order of axes of a cache without pages.
    let by_head = |view: &[usize], strides: &[isize]| View {
        buffer: graph::prim::BufferId(0),
        dtype: out.dtype(),
        shape: [view[0], view[2], view[1], view[3]].into_iter().collect(),
        strides: [strides[0], strides[2], strides[1], strides[3]].into_iter().collect(),
        offset: 0,
    };
    let views = [k, v].map(|cache| by_head(cache.shape(), cache.strides()));
    // SAFETY: the views show the same elements as the tensors.
    let [k, v] = [(k, &views[0]), (v, &views[1])].map(|(cache, view)| unsafe { Tensor::new(view, cache.start()) });
    let mut first = 0;
    while first < tokens {
        let (sequence, before) = (at(place::SEQUENCE, first), at(place::POSITION, first));
        let follows = |token: usize| {
            let place = [at(place::SEQUENCE, token), at(place::POSITION, token)];
            place == [sequence, before + token - first] && at(place::END, token) > 0
        };
        // Tokens without keys are rows of their own.
        let ends = (first + 1..tokens).find(|&token| at(place::END, first) == 0 || !follows(token)).unwrap_or(tokens);
        let rows = ends - first;
        let end = (first..ends).map(|token| at(place::END, token)).max().unwrap_or(0);
        let start = prim.window.map_or(0, |window| (before + 1).saturating_sub(window));
        for page in start / block..end.div_ceil(block) {
            let is_listed = bounds.position(page as i64, table.shape()[1]).is_some() && sequence < table.shape()[0];
            let entry = if is_listed { i64::from(entry(&[sequence, page])) } else { i64::MAX };
            // A negative entry does not count from the end.
            bounds.position(if entry < 0 { i64::MAX } else { entry }, blocks);
        }
        bounds.result()?;
        let slice = |strides: &[isize], size: usize| View {
            buffer: graph::prim::BufferId(0),
            dtype: out.dtype(),
            shape: [1, heads, rows, size].into_iter().collect(),
            strides: [0, strides[1], strides[0], strides[2]].into_iter().collect(),
            offset: first as isize * strides[0],
        };
        let (q_view, out_view) = (slice(q.strides(), size), slice(out.strides(), width));
        let pages = Pages {
            block,
            entry: &|page| usize::try_from(entry(&[sequence, page])).unwrap_or(0),
            end: &|token| at(place::END, first + token),
        };
        let work = AttentionJob {
            prim: &prim,
            // SAFETY: the views show the rows of these tokens.
            q: unsafe { Tensor::new(&q_view, q.start()) },
            k,
            v,
            bias: None,
            sinks: sinks.first().copied(),
            // SAFETY: as above.
            out: unsafe { TensorMut::new(&out_view, out.start()) },
            group,
            total: end,
            pages: Some(pages),
        };
        let Division { tokens: step, blocks, most, grain } = Division::new(group, rows, end * (size + width));
        ranges_with::<u8>(cx, shared * blocks, grain, Memory::bytes(most, size, width), |range, mut scratch| {
            let mut memory = Memory::carve(&mut scratch, most, size, width);
            for number in range {
                let (head, block) = (number / blocks, blocks - 1 - number % blocks);
                work.block(0, head, block * step..((block + 1) * step).min(rows), before, &mut memory);
            }
        });
        first = ends;
    }
    Ok(())
}

/// How the tokens of a sequence are split into blocks.
struct Division {
    /// Tokens of a block.
    tokens: usize,
    blocks: usize,
    /// Rows of a block: the heads of a group, for as many tokens as fit.
    most: usize,
    /// Blocks per task.
    grain: usize,
}

impl Division {
    /// `work`: multiplications of a row.
    fn new(group: usize, rows: usize, work: usize) -> Self {
        let tokens = (ROWS / group).clamp(1, rows);
        let most = tokens * group;
        Self { tokens, blocks: rows.div_ceil(tokens), most, grain: (GRAIN / (most * work).max(1)).max(1) }
    }
}

/// The working memory of one task.
struct Memory<'a> {
    /// Scaled queries `[rows, size]`.
    queries: &'a mut [f32],
    /// Scores, then weights `[rows, KEYS]`.
    scores: &'a mut [f32],
    /// Weighted values `[rows, width]`.
    sums: &'a mut [f32],
    /// The largest score of each row.
    largest: &'a mut [f32],
    /// The sum of each row's weights.
    weights: &'a mut [f32],
    /// Keys or values of a block, as f32.
    block: &'a mut [f32],
    /// Keys of a block, transposed `[size, KEYS]`.
    columns: &'a mut [f32],
    /// The bias of a row.
    bias: &'a mut [f32],
}

impl<'a> Memory<'a> {
    fn bytes(rows: usize, size: usize, width: usize) -> usize {
        let numbers = [rows * size, rows * KEYS, rows * width, rows, rows, KEYS * size.max(width), size * KEYS, KEYS];
        numbers.into_iter().map(piece::<f32>).sum()
    }

    fn carve(rest: &mut &'a mut [u8], rows: usize, size: usize, width: usize) -> Self {
        Self {
            queries: carve(rest, rows * size),
            scores: carve(rest, rows * KEYS),
            sums: carve(rest, rows * width),
            largest: carve(rest, rows),
            weights: carve(rest, rows),
            block: carve(rest, KEYS * size.max(width)),
            columns: carve(rest, size * KEYS),
            bias: carve(rest, KEYS),
        }
    }
}

struct AttentionJob<'a> {
    prim: &'a CachedAttention,
    q: Tensor<'a>,
    k: Tensor<'a>,
    v: Tensor<'a>,
    bias: Option<Tensor<'a>>,
    sinks: Option<Tensor<'a>>,
    out: TensorMut<'a>,
    group: usize,
    /// The most keys.
    total: usize,
    /// Where keys are, if the cache is in pages `[blocks, shared, block, …]`.
    pages: Option<Pages<'a>>,
}

/// The pages of one sequence.
struct Pages<'a> {
    /// Rows of a page.
    block: usize,
    /// The block of a page.
    entry: &'a (dyn Fn(usize) -> usize + Sync),
    /// The number of keys up to the last one that a token sees.
    end: &'a (dyn Fn(usize) -> usize + Sync),
}

impl AttentionJob<'_> {
    /// The keys that a token sees.
    fn seen(&self, token: usize, before: usize) -> Range<usize> {
        let (rows, total) = (self.q.shape()[2], self.total);
        let own = before.saturating_add(token);
        let end = match &self.pages {
            Some(pages) => (pages.end)(token),
            None if self.prim.causal => own.saturating_add(1),
            None => before.saturating_add(rows),
        };
        let start = self.prim.window.map_or(0, |window| own.saturating_add(1).saturating_sub(window));
        start.min(total)..end.min(total)
    }

    /// Where a key is: the index of the first axis, the row, and how many keys follow there with it.
    fn locate(&self, batch: usize, key: usize) -> (usize, usize, usize) {
        match &self.pages {
            None => (batch, key, usize::MAX),
            Some(Pages { block, entry, .. }) => (entry(key / block), key % block, block - key % block),
        }
    }

    /// Computes some tokens of the heads that share a key head.
    fn block(&self, batch: usize, shared: usize, tokens: Range<usize>, before: usize, memory: &mut Memory<'_>) {
        let (size, width) = (self.q.shape()[3], self.v.shape()[3]);
        let rows = tokens.len() * self.group;
        // Row `r` is token `r / group` of head `r % group`.
        let token = |row: usize| tokens.start + row / self.group;
        let head = |row: usize| shared * self.group + row % self.group;
        for row in 0..rows {
            let query = &mut memory.queries[row * size..][..size];
            load(&self.q, &[batch, head(row), token(row)], query);
            query.iter_mut().for_each(|x| *x *= self.prim.alpha);
            let sink = match (self.prim.sinks, &self.sinks) {
                (Sinks::None, _) => None,
                (Sinks::Given, Some(sinks)) => {
                    let mut sink = [0.0];
                    load_some(sinks, &[], head(row), &mut sink);
                    Some(sink[0])
                }
                _ => Some(0.0),
            };
            memory.largest[row] = sink.unwrap_or(f32::NEG_INFINITY);
            memory.weights[row] = if sink.is_some() { 1.0 } else { 0.0 };
        }
        memory.sums[..rows * width].fill(0.0);
        let mut start = self.seen(tokens.start, before).start;
        let end = self.seen(tokens.end - 1, before).end;
        while start < end {
            let (place, row, follow) = self.locate(batch, start);
            let count = KEYS.min(end - start).min(follow);
            let stored = row..row + count;
            with_rows(&self.k, [place, shared], stored.clone(), memory.block, |block, pitch| {
                let (queries, scores) = (&memory.queries[..rows * size], &mut memory.scores[..rows * KEYS]);
                if rows < MANY_ROWS {
                    return tiles::products(queries, size, block, pitch, count, scores, KEYS);
                }
                tiles::transpose(block, pitch, size, memory.columns, KEYS);
                scores.fill(0.0);
                tiles::add_weighted(queries, size, size, memory.columns, KEYS, scores, KEYS);
            });
            for row in 0..rows {
                let scores = &mut memory.scores[row * KEYS..][..count];
                self.adjust(scores, [batch, head(row), token(row)], start, memory.bias);
                let seen = self.seen(token(row), before);
                scores[..seen.start.saturating_sub(start).min(count)].fill(f32::NEG_INFINITY);
                scores[seen.end.saturating_sub(start).min(count)..].fill(f32::NEG_INFINITY);
                let sums = &mut memory.sums[row * width..][..width];
                tiles::soften(scores, &mut memory.largest[row], &mut memory.weights[row], sums);
            }
            with_rows(&self.v, [place, shared], stored, memory.block, |block, pitch| {
                tiles::add_weighted(memory.scores, KEYS, count, block, pitch, &mut memory.sums[..rows * width], width);
            });
            start += count;
        }
        for row in 0..rows {
            let sums = &mut memory.sums[row * width..][..width];
            let weight = memory.weights[row];
            let factor = if weight > 0.0 || weight.is_nan() { 1.0 / weight } else { 0.0 };
            sums.iter_mut().for_each(|x| *x *= factor);
            let strides = self.out.strides();
            let place = offset(strides, &[batch, head(row), token(row)]);
            let to = self.out.start().wrapping_offset(place * self.out.dtype().bytes() as isize);
            // SAFETY: the row is within the view, and belongs to one task.
            unsafe { f32::store(self.out.dtype(), to, strides[3], sums) };
        }
    }

    /// Turns products into scores.
    fn adjust(&self, scores: &mut [f32], row: [usize; 3], first: usize, bias: &mut [f32]) {
        if let Some(cap) = self.prim.softcap {
            tiles::cap(scores, cap);
        }
        if let Some(operand) = &self.bias {
            let bias = &mut bias[..scores.len()];
            load_some(operand, &row, first, bias);
            scores.iter_mut().zip(&*bias).for_each(|(score, bias)| *score += bias);
        }
    }
}

fn offset(strides: &[isize], index: &[usize]) -> isize {
    index.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum()
}

/// Reads a whole row.
fn load(tensor: &Tensor<'_>, index: &[usize], out: &mut [f32]) {
    load_some(tensor, index, 0, out);
}

/// Reads elements of a row, starting at `first`.
fn load_some(tensor: &Tensor<'_>, index: &[usize], first: usize, out: &mut [f32]) {
    let stride = tensor.strides()[index.len()];
    let place = offset(tensor.strides(), index) + first as isize * stride;
    let from = tensor.start().wrapping_offset(place * tensor.dtype().bytes() as isize);
    // SAFETY: callers pass elements within the view.
    unsafe { f32::load(tensor.dtype(), from, stride, out) };
}

/// Passes rows of keys or values as f32 to `work`, in place or converted into `memory`, with the distance between rows.
fn with_rows(
    tensor: &Tensor<'_>,
    [batch, head]: [usize; 2],
    rows: Range<usize>,
    memory: &mut [f32],
    work: impl FnOnce(&[f32], usize),
) {
    let (strides, size, count) = (tensor.strides(), tensor.shape()[3], rows.len());
    let (pitch, direct) = match usize::try_from(strides[2]) {
        Ok(pitch) if pitch >= size && tensor.dtype() == DType::F32 && (strides[3] == 1 || size == 1) => (pitch, true),
        _ => (size, false),
    };
    if direct {
        let from = tensor.as_ptr::<f32>().wrapping_offset(offset(strides, &[batch, head, rows.start]));
        // SAFETY: these rows are within the view, and nothing writes them during the step.
        work(unsafe { std::slice::from_raw_parts(from, (count - 1) * pitch + size) }, pitch);
    } else {
        let memory = &mut memory[..count * size];
        if strides[3] == 1 && strides[2] == size as isize {
            let from = offset(strides, &[batch, head, rows.start]) * tensor.dtype().bytes() as isize;
            // SAFETY: as above; the rows are contiguous.
            unsafe { f32::load(tensor.dtype(), tensor.start().wrapping_offset(from), 1, memory) };
        } else {
            for (row, to) in rows.zip(memory.chunks_exact_mut(size)) {
                load(tensor, &[batch, head, row], to);
            }
        }
        work(memory, pitch);
    }
}
