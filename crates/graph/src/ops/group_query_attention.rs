//! com.microsoft's `GroupQueryAttention`: one decoder step over a key-value cache.
use crate::lower::Lower;
use crate::ops::grouped_heads::{GroupedHeads, beside, check_angles, rotate_into, rotates};
use crate::ops::quantised_cache::Width;
use crate::ops::windowed_cache::{Lengths, Staged, Window};
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::prim::{Append, CachedAttention, Filled, Positions, Rotary, Sinks};
use crate::{DType, Declined, LowerError, Prim, Scalar, Tensor, Val};

/// Input indices.
mod input {
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    pub const PAST_KEY: usize = 3;
    pub const PAST_VALUE: usize = 4;
    pub const LENGTHS: usize = 5;
    pub const TOTAL: usize = 6;
    pub const COSINES: usize = 7;
    pub const SINES: usize = 8;
    pub const POSITIONS: usize = 9;
    pub const BIAS: usize = 10;
    pub const SINKS: usize = 11;
    pub const SCALES: [usize; 2] = [12, 13];
    pub const QUERY_NORM: usize = 14;
    pub const KEY_NORM: usize = 15;
}

/// The error for a step without new tokens.
pub(super) const NO_TOKENS: &str = "there are no new tokens\n  help: pass at least one";

/// `GroupQueryAttention`.
#[derive(Debug)]
struct GroupQueryAttention {
    grouped: GroupedHeads,
    rotary: bool,
    interleaved: bool,
    causal: bool,
    /// The cache holds only the end of a sequence that is longer than the cache.
    is_windowed: bool,
    /// The width of the numbers in a quantised cache.
    quantised: Option<Width>,
    smooth: bool,
}

impl Op for GroupQueryAttention {
    fn name(&self) -> &'static str {
        "GroupQueryAttention"
    }

    /// The present's extent depends on the total length. The lengths of rows stay on the device.
    fn host_inputs(&self) -> &[usize] {
        &[input::TOTAL]
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::CachedAttention {
            lengths: input::LENGTHS,
            total: input::TOTAL,
            tables: [input::COSINES, input::SINES],
            positions: input::POSITIONS,
        }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (query, others) = (cx.required(inputs, 0)?, [given(input::KEY), given(input::VALUE)]);
        let [queries, keys, values] = self.grouped.parts(cx, 3, query, others)?;
        let (batch, rows, size) = (queries.shape()[0], queries.shape()[1], queries.shape()[3]);
        if rows == 0 {
            return Err(cx.invalid(NO_TOKENS));
        }
        let total = match cx.known(inputs, input::TOTAL)?.to_i64s()[..] {
            [total] => {
                usize::try_from(total).map_err(|_| cx.invalid(format!("total_sequence_length {total} is negative")))?
            }
            ref other => return Err(cx.invalid(format!("total_sequence_length is {other:?}, expected one number"))),
        };
        if total < rows {
            return Err(cx.invalid(format!("total_sequence_length is {total}, less than the {rows} new tokens")));
        }
        let (lengths, filled) = self.lengths(cx, inputs, batch, rows, total)?;
        let stored_size = self.quantised.map_or(Some(size), |width| width.elements(size));
        let stored_size =
            stored_size.ok_or_else(|| cx.invalid(format!("heads of {size} cannot be stored in pairs")))?;
        let past = self.past(cx, inputs, [batch, stored_size])?;
        let held = past.map_or(0, |[keys, _]| keys.shape()[2]);
        let norms = [given(input::QUERY_NORM), given(input::KEY_NORM)];
        let [queries, keys] = self.grouped.normed(cx, [queries, keys], norms)?;
        let (queries, keys) = self.turned(cx, inputs, (queries, keys), (&lengths, filled))?;

        let by_head = |value: &Val| value.permuted(&[0, 2, 1, 3]);
        let new = self.stored(cx, inputs, [&keys, &values].map(by_head))?;
        let bias = given(input::BIAS).map(|bias| self.bias(cx, bias, [batch, rows, total])).transpose()?;
        let queries = by_head(&queries);
        if self.is_windowed && held < total {
            let window = self.cache_window(cx, held)?;
            let Some(past) = past else { return Err(cx.invalid("a windowed cache without a past")) };
            let last = cx.required(inputs, input::LENGTHS)?;
            let lengths = Lengths { last, rows, is_first: rows == total };
            let Staged { all, before, present: [present_keys, present_values], bias } =
                window.step(cx, &lengths, [&new[0], &new[1]], past, bias.as_ref())?;
            let all = self.loaded(cx, inputs, all, queries.dtype())?;
            let seen = Seen { cache: &all, lengths: &before, filled: Filled { shift: 0 }, bias };
            let output = self.attend(cx, &queries, &seen, given(input::SINKS))?;
            return Ok(vec![output, present_keys, present_values]);
        }
        let extent = held.max(total);
        let present_keys = cx.fresh(new[0].dtype(), &[batch, self.grouped.shared, extent, stored_size])?;
        let present_values = cx.fresh(new[0].dtype(), &[batch, self.grouped.shared, extent, stored_size])?;
        if present_keys.elems() > 0 {
            let prim = Prim::Append(Append { filled, past: past.is_some(), rotary: None });
            let operands: Vec<&Val> = [&lengths].into_iter().chain(&new).chain(past.into_iter().flatten()).collect();
            cx.emit(prim, &operands, &[&present_keys, &present_values]);
        }

        // A bias does not cover the keys after its end; no row sees these.
        let visible = if bias.is_some() { total } else { extent };
        let cache = [&present_keys, &present_values].map(|cache| cache.sliced(2, 0, 1, visible));
        let cache = self.loaded(cx, inputs, cache, queries.dtype())?;
        let seen = Seen { cache: &cache, lengths: &lengths, filled, bias };
        let output = self.attend(cx, &queries, &seen, given(input::SINKS))?;
        Ok(vec![output, present_keys, present_values])
    }
}

/// What queries attend to.
struct Seen<'a> {
    /// Keys and values `[batch, heads, rows, size]`, with those of the new tokens.
    cache: &'a [Val; 2],
    lengths: &'a Val,
    filled: Filled,
    /// `[batch, heads, rows, …]`, a column for each row of the cache.
    bias: Option<Val>,
}

impl GroupQueryAttention {
    /// The result `[batch, rows, heads · size]` for queries `[batch, heads, rows, size]`.
    fn attend(
        &self,
        cx: &mut Lower<'_>,
        queries: &Val,
        seen: &Seen<'_>,
        given_sinks: Option<&Val>,
    ) -> Result<Val, LowerError> {
        let &[batch, _, rows, size] = queries.shape() else { return Err(cx.invalid("queries without four axes")) };
        let sinks = match given_sinks {
            Some(sinks) if sinks.shape() != [self.grouped.heads] => {
                return Err(cx.invalid(format!(
                    "head_sink of shape {:?} does not match {} heads",
                    sinks.shape(),
                    self.grouped.heads
                )));
            }
            Some(_) => Sinks::Given,
            None if self.smooth => Sinks::Zero,
            None => Sinks::None,
        };
        let prim = Prim::CachedAttention(CachedAttention {
            alpha: self.grouped.alpha(size),
            filled: seen.filled,
            causal: self.causal,
            window: self.grouped.window,
            softcap: self.grouped.softcap,
            bias: seen.bias.is_some(),
            sinks,
        });
        let output = cx.fresh(queries.dtype(), &[batch, rows, self.grouped.heads, size])?;
        if output.elems() > 0 {
            let [keys, values] = seen.cache;
            let operands: Vec<&Val> =
                [queries, keys, values, seen.lengths].into_iter().chain(&seen.bias).chain(given_sinks).collect();
            cx.emit(prim, &operands, &[&output.permuted(&[0, 2, 1, 3])]);
        }
        cx.reshape(&output, &[batch, rows, self.grouped.heads * size])
    }

    /// New keys and values as the cache stores them.
    fn stored(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>], new: [Val; 2]) -> Result<[Val; 2], LowerError> {
        let Some(width) = self.quantised else { return Ok(new) };
        let [keys, values] = input::SCALES.map(|at| cx.required(inputs, at));
        Ok([width.stored(cx, &new[0], keys?)?, width.stored(cx, &new[1], values?)?])
    }

    /// Keys and values of a cache in the type of the queries. A quantised cache is converted as a whole.
    fn loaded(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        cache: [Val; 2],
        dtype: DType,
    ) -> Result<[Val; 2], LowerError> {
        let Some(width) = self.quantised else { return Ok(cache) };
        let [keys, values] = input::SCALES.map(|at| cx.required(inputs, at));
        Ok([width.loaded(cx, &cache[0], keys?, dtype)?, width.loaded(cx, &cache[1], values?, dtype)?])
    }

    /// The window of a cache with this many rows.
    fn cache_window(&self, cx: &Lower<'_>, capacity: usize) -> Result<Window, LowerError> {
        let size = self.grouped.window.unwrap_or(usize::MAX);
        if capacity < size {
            return Err(cx.invalid(format!(
                "a cache of {capacity} rows is shorter than its window of {size}\n  help: pass a past of at least {size} rows"
            )));
        }
        Ok(Window { capacity, size })
    }

    /// The row lengths on the device, and how full the cache is according to them: for a first prompt it is empty,
    /// whatever they say.
    fn lengths(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        batch: usize,
        rows: usize,
        total: usize,
    ) -> Result<(Val, Filled), LowerError> {
        let last = cx.required(inputs, input::LENGTHS)?;
        if last.elems() != batch {
            return Err(cx.invalid(format!("seqlens_k of shape {:?} does not match a batch of {batch}", last.shape())));
        }
        if rows == total {
            let zeros = Tensor::from_scalars(DType::I32, &[batch], std::iter::repeat_n(Scalar::Int(0), batch));
            return zeros
                .map(|zeros| (Val::known(zeros), Filled::EMPTY))
                .ok_or_else(|| cx.invalid(format!("a batch of {batch} is too large")));
        }
        Ok((cx.reshape(last, &[batch])?, Filled { shift: 1 - rows as i64 }))
    }

    fn past<'v>(
        &self,
        cx: &mut Lower<'_>,
        inputs: &'v [Option<Val>],
        [batch, size]: [usize; 2],
    ) -> Result<Option<[&'v Val; 2]>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (Some(keys), Some(values)) = (given(input::PAST_KEY), given(input::PAST_VALUE)) else { return Ok(None) };
        let fits =
            |past: &Val| matches!(*past.shape(), [b, h, _, s] if (b, h, s) == (batch, self.grouped.shared, size));
        if !fits(keys) || keys.shape() != values.shape() {
            return Err(cx.invalid(format!(
                "past keys {:?} and values {:?}, expected [{batch}, {}, …, {size}]",
                keys.shape(),
                values.shape(),
                self.grouped.shared
            )));
        }
        Ok(Some([keys, values]))
    }

    /// Queries and keys rotated by their positions. If they are adjacent in memory, one step rotates both.
    fn turned(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        (queries, keys): (Val, Val),
        (lengths, filled): (&Val, Filled),
    ) -> Result<(Val, Val), LowerError> {
        if !self.rotary {
            return Ok((queries, keys));
        }
        let (batch, rows, size) = (queries.shape()[0], queries.shape()[1], queries.shape()[3]);
        let (operand, positions) = match inputs.get(input::POSITIONS).and_then(Option::as_ref) {
            Some(positions) => (cx.expand(positions, &[batch, rows])?, Positions::Given),
            None => (lengths.clone(), Positions::Behind(filled)),
        };
        let (cosines, sines) = (cx.required(inputs, input::COSINES)?, cx.required(inputs, input::SINES)?);
        check_angles(cx, [cosines, sines], size, 0)?;
        let rotary = Rotary { interleaved: self.interleaved, positions };
        let turn = |cx: &mut Lower<'_>, x: &Val| rotate(cx, rotary, x, [cosines, sines, &operand]);
        match beside(&queries, &keys) {
            Some(both) => {
                let turned = turn(cx, &both)?;
                Ok((
                    turned.sliced(2, 0, 1, self.grouped.heads),
                    turned.sliced(2, self.grouped.heads, 1, self.grouped.shared),
                ))
            }
            None => Ok((turn(cx, &queries)?, turn(cx, &keys)?)),
        }
    }

    fn bias(&self, cx: &mut Lower<'_>, bias: &Val, [batch, rows, total]: [usize; 3]) -> Result<Val, LowerError> {
        let wanted = [batch, self.grouped.heads, rows, total];
        match bias.shape() {
            // A bias wider than the visible keys is cut.
            &[_, _, _, width] if width > total => cx.expand(&bias.sliced(3, 0, 1, total), &wanted),
            _ => cx.expand(bias, &wanted),
        }
    }
}

/// `[batch, rows, heads, size]` rotated by cosines and sines at positions.
fn rotate(cx: &mut Lower<'_>, rotary: Rotary, x: &Val, angles: [&Val; 3]) -> Result<Val, LowerError> {
    let output = cx.fresh(x.dtype(), x.shape())?;
    rotate_into(cx, rotary, x, angles, &output);
    Ok(output)
}

/// The width of the numbers in a quantised cache, if the node has one.
fn cache_width(node: &NodeInfo<'_>) -> Result<Option<Width>, Declined> {
    let attributes = node.attributes;
    let kinds = [attributes.text("k_quant_type", "NONE")?, attributes.text("v_quant_type", "NONE")?];
    let scales = input::SCALES.map(|at| node.optional(at).map(|scale| scale.dtype));
    if kinds == ["NONE"; 2] && scales == [None; 2] {
        return Ok(None);
    }
    if let Some(other) = kinds.into_iter().find(|kind| !["PER_TENSOR", "PER_CHANNEL"].contains(kind)) {
        return Err(Declined::new(format!("a cache with keys or values quantised as {other:?} is not supported")));
    }
    if scales != [Some(DType::F32); 2] {
        return Err(Declined::new("a quantised cache needs k_scale and v_scale of type f32"));
    }
    let past = node.optional(input::PAST_KEY).map(|past| past.dtype);
    match attributes.int("kv_cache_bit_width", 8)? {
        8 if past == Some(Width::Float8.dtype()) => Ok(Some(Width::Float8)),
        8 => Ok(Some(Width::Eight)),
        4 => Ok(Some(Width::Four)),
        bits => Err(Declined::new(format!("a cache of {bits} bits is not supported; 8 and 4 are"))),
    }
}

fn parse_group_query_attention(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))?;
    let quantised = cache_width(node)?;
    let floats = [input::KEY, input::VALUE, input::COSINES, input::SINES, input::BIAS];
    let norms = [input::SINKS, input::QUERY_NORM, input::KEY_NORM];
    let pairs = [[input::KEY, input::VALUE], [input::PAST_KEY, input::PAST_VALUE], [input::COSINES, input::SINES]];
    let grouped = GroupedHeads::parse(node, dtype, &[&floats[..], &norms].concat(), &pairs)?;
    let stored = quantised.map_or(dtype, Width::dtype);
    for at in [input::PAST_KEY, input::PAST_VALUE] {
        if let Some(other) = node.optional(at).filter(|other| other.dtype != stored) {
            let why = if quantised.is_some() { "the attributes ask for" } else { "but the queries are" };
            return Err(Declined::new(format!("input {at} has type {}, {why} {stored}", other.dtype)));
        }
    }
    for at in [input::LENGTHS, input::TOTAL] {
        node.accept(at, |dtype| dtype == DType::I32)?;
    }
    if let Some(positions) = node.optional(input::POSITIONS)
        && !matches!(positions.dtype, DType::I64 | DType::I32)
    {
        return Err(Declined::new(format!("position_ids has unsupported type {}", positions.dtype)));
    }
    let rotary = rotates(node, input::COSINES)?;
    if node.wants(3) || attributes.int("qk_output", 0)? != 0 {
        return Err(Declined::new("the output qk is not supported"));
    }
    let is_windowed = attributes.int("sliding_window_cache", 0)? != 0;
    if is_windowed && (grouped.window.is_none() || node.optional(input::PAST_KEY).is_none()) {
        return Err(Declined::new("sliding_window_cache needs local_window_size and a past"));
    }
    Ok(Box::new(GroupQueryAttention {
        grouped,
        rotary,
        interleaved: attributes.flag("rotary_interleaved")?,
        causal: attributes.flag_or("causal", true)?,
        is_windowed,
        quantised,
        // ONNX Runtime's kernels treat any other value as false.
        smooth: attributes.int("smooth_softmax", 0)? == 1,
    }))
}

pub(super) const OPS: &[Entry] =
    &[Entry { domain: "com.microsoft", op_type: "GroupQueryAttention", parse: parse_group_query_attention }];
