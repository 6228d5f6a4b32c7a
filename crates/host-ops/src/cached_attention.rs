//! Attention over caches, block by block: the softmax is rescaled whenever a larger score appears, so only the scores
//! of one block are stored (as in flash attention).
use std::ops::Range;

use graph::DType;
use graph::prim::{CachedAttention, Sinks};

use crate::carve::{carve, piece};
use crate::index::Indices;
use crate::number::Number;
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
    let work = AttentionJob { prim, q, k, v, bias, sinks, out, group };
    // Rows of a block: the heads of a group, for as many tokens as fit.
    let tokens = (ROWS / group).clamp(1, rows);
    let blocks = rows.div_ceil(tokens);
    let most = tokens * group;
    let bytes = Memory::bytes(most, size, width);
    let grain = (GRAIN / (most * total * (size + width)).max(1)).max(1);
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
}

impl AttentionJob<'_> {
    /// The keys that a token sees.
    fn seen(&self, token: usize, before: usize) -> Range<usize> {
        let (rows, total) = (self.q.shape()[2], self.k.shape()[2]);
        let own = before.saturating_add(token);
        let end = if self.prim.causal { own.saturating_add(1) } else { before.saturating_add(rows) };
        let start = self.prim.window.map_or(0, |window| own.saturating_add(1).saturating_sub(window));
        start.min(total)..end.min(total)
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
            let keys = start..(start + KEYS).min(end);
            let count = keys.len();
            with_rows(&self.k, [batch, shared], keys.clone(), memory.block, |block, pitch| {
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
                self.adjust(scores, [batch, head(row), token(row)], keys.start, memory.bias);
                let seen = self.seen(token(row), before);
                scores[..seen.start.saturating_sub(keys.start).min(count)].fill(f32::NEG_INFINITY);
                scores[seen.end.saturating_sub(keys.start).min(count)..].fill(f32::NEG_INFINITY);
                let sums = &mut memory.sums[row * width..][..width];
                tiles::soften(scores, &mut memory.largest[row], &mut memory.weights[row], sums);
            }
            with_rows(&self.v, [batch, shared], keys, memory.block, |block, pitch| {
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
