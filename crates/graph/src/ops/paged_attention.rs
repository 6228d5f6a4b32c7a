//! com.microsoft's `PagedAttention`: a step of several sequences over a cache in blocks.
use crate::lower::Lower;
use crate::ops::grouped_heads::{GroupedHeads, beside, check_angles, rotate_into, rotates};
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{self, PagedPlaces, Positions, Rotary, Sinks, place};
use crate::{DType, Declined, LowerError, Prim, Val};

/// Input indices.
mod input {
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    pub const KEY_CACHE: usize = 3;
    pub const VALUE_CACHE: usize = 4;
    pub const STARTS: usize = 5;
    pub const LENGTHS: usize = 6;
    pub const TABLE: usize = 7;
    pub const COSINES: usize = 8;
    pub const SINES: usize = 9;
    pub const SLOTS: usize = 10;
    pub const SINKS: usize = 11;
    pub const QUERY_NORM: usize = 12;
    pub const KEY_NORM: usize = 13;
    pub const SCALES: [usize; 2] = [14, 15];
}

/// `PagedAttention`. Its last input, bounds of lengths, is a hint that changes no result; it is not read.
#[derive(Debug)]
struct PagedAttention {
    grouped: GroupedHeads,
    rotary: Option<Turn>,
    causal: bool,
}

/// How queries and keys are rotated.
#[derive(Clone, Copy, Debug)]
struct Turn {
    interleaved: bool,
    /// The first channel that is rotated.
    offset: usize,
}

impl Op for PagedAttention {
    fn name(&self) -> &'static str {
        "PagedAttention"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (query, others) = (cx.required(inputs, 0)?, [given(input::KEY), given(input::VALUE)]);
        let [queries, keys, values] = self.grouped.parts(cx, 2, query, others)?;
        let &[tokens, _, size] = queries.shape() else { return Err(cx.invalid("queries without heads")) };
        let (key_cache, value_cache) =
            (cx.required(inputs, input::KEY_CACHE)?, cx.required(inputs, input::VALUE_CACHE)?);
        let (blocks, block) = match *key_cache.shape() {
            [blocks, block, heads, width] if block > 0 && (heads, width) == (self.grouped.shared, size) => {
                (blocks, block)
            }
            ref other => {
                return Err(cx.invalid(format!("a key cache of {other:?} for {} heads of {size}", self.grouped.shared)));
            }
        };
        if value_cache.shape() != key_cache.shape() {
            let [keys, values] = [key_cache, value_cache].map(Val::shape);
            return Err(cx.invalid(format!("caches of keys {keys:?} and values {values:?} do not match")));
        }
        let table = self.table(cx, inputs)?;
        let places = cx.fresh(DType::I32, &[place::ROWS, tokens])?;
        if tokens > 0 {
            let slots = given(input::SLOTS);
            if let Some(slots) = slots.filter(|slots| slots.shape() != [tokens]) {
                return Err(cx.invalid(format!("slot_mapping of {:?} for {tokens} tokens", slots.shape())));
            }
            let prim = PagedPlaces { block, blocks, causal: self.causal, slots: slots.is_some() };
            let (starts, lengths) = (cx.required(inputs, input::STARTS)?, cx.required(inputs, input::LENGTHS)?);
            let operands: Vec<&Val> = [starts, lengths, table].into_iter().chain(slots).collect();
            cx.emit(Prim::PagedPlaces(prim), &operands, &[&places]);
        }
        let norms = [given(input::QUERY_NORM), given(input::KEY_NORM)];
        let [queries, keys] = self.grouped.normed(cx, [queries, keys], norms)?;
        let (queries, keys) = self.turned(cx, inputs, (queries, keys), &places)?;

        let cache = [cx.fresh(keys.dtype(), key_cache.shape())?, cx.fresh(keys.dtype(), key_cache.shape())?];
        if cache[0].elems() > 0 {
            let operands = [&places, &keys, &values, key_cache, value_cache];
            cx.emit(Prim::PagedAppend, &operands, &[&cache[0], &cache[1]]);
        }
        let output = self.attend(cx, inputs, &queries, &cache, [&places, table])?;
        let [keys, values] = cache;
        Ok(vec![output, keys, values])
    }
}

impl PagedAttention {
    /// The block table, if starts and lengths match it.
    fn table<'v>(&self, cx: &Lower<'_>, inputs: &'v [Option<Val>]) -> Result<&'v Val, LowerError> {
        let table = cx.required(inputs, input::TABLE)?;
        let (starts, lengths) = (cx.required(inputs, input::STARTS)?, cx.required(inputs, input::LENGTHS)?);
        match (starts.shape(), lengths.shape(), table.shape()) {
            (&[ends], &[sequences], &[rows, _]) if ends == sequences + 1 && rows == sequences => Ok(table),
            (starts, lengths, table) => Err(cx.invalid(format!(
                "cumulative_sequence_length {starts:?}, past_seqlens {lengths:?} and block_table {table:?} do not match"
            ))),
        }
    }

    /// Queries and keys rotated by their positions. If they are adjacent in memory, one step rotates both.
    fn turned(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        (queries, keys): (Val, Val),
        places: &Val,
    ) -> Result<(Val, Val), LowerError> {
        let Some(Turn { interleaved, offset }) = self.rotary else { return Ok((queries, keys)) };
        let (cosines, sines) = (cx.required(inputs, input::COSINES)?, cx.required(inputs, input::SINES)?);
        let size = queries.shape()[2];
        check_angles(cx, [cosines, sines], size, offset)?;
        let positions = places.sliced(0, place::POSITION, 1, 1);
        let rotary = Rotary { interleaved, positions: Positions::Given };
        let turn = |cx: &mut Lower<'_>, x: &Val| -> Result<Val, LowerError> {
            let output = cx.fresh(x.dtype(), x.shape())?;
            if offset > 0 {
                cx.copy_into(&x.sliced(3, 0, 1, offset), &output.sliced(3, 0, 1, offset))?;
            }
            let [from, to] = [x, &output].map(|value| value.sliced(3, offset, 1, size - offset));
            rotate_into(cx, rotary, &from, [cosines, sines, &positions], &to);
            Ok(output)
        };
        let (queries, keys) = (queries.unsqueezed(0), keys.unsqueezed(0));
        let (queries, keys) = match beside(&queries, &keys) {
            Some(both) => {
                let turned = turn(cx, &both)?;
                (
                    turned.sliced(2, 0, 1, self.grouped.heads),
                    turned.sliced(2, self.grouped.heads, 1, self.grouped.shared),
                )
            }
            None => (turn(cx, &queries)?, turn(cx, &keys)?),
        };
        Ok((queries.squeezed(0), keys.squeezed(0)))
    }

    /// The result `[tokens, heads · size]`.
    fn attend(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        queries: &Val,
        [keys, values]: &[Val; 2],
        [places, table]: [&Val; 2],
    ) -> Result<Val, LowerError> {
        let &[tokens, heads, size] = queries.shape() else { return Err(cx.invalid("queries without heads")) };
        let sinks = inputs.get(input::SINKS).and_then(Option::as_ref);
        if let Some(sinks) = sinks.filter(|sinks| sinks.shape() != [heads]) {
            return Err(cx.invalid(format!("head_sink of shape {:?} for {heads} heads", sinks.shape())));
        }
        let prim = prim::PagedAttention {
            alpha: self.grouped.alpha(size),
            window: self.grouped.window,
            softcap: self.grouped.softcap,
            sinks: if sinks.is_some() { Sinks::Given } else { Sinks::None },
        };
        if keys.elems() == 0 || table.elems() == 0 {
            // No token can have a key.
            return cx.full(queries.dtype(), &[tokens, heads * size], crate::Scalar::Float(0.0));
        }
        let output = cx.fresh(queries.dtype(), &[tokens, heads, size])?;
        if output.elems() > 0 {
            let operands: Vec<&Val> = [queries, keys, values, places, table].into_iter().chain(sinks).collect();
            cx.emit(Prim::PagedAttention(prim), &operands, &[&output]);
        }
        cx.reshape(&output, &[tokens, heads * size])
    }
}

/// Declines caches that are not of plain floats.
fn check_caches(node: &NodeInfo<'_>, dtype: DType) -> Result<(), Declined> {
    let attributes = node.attributes;
    match attributes.text("kv_cache_layout", "SEPARATE")? {
        "SEPARATE" => {}
        "LATENT" => {
            return Err(Declined::new(
                "kv_cache_layout LATENT (multi-head latent attention over one cache) is not supported; SEPARATE is",
            ));
        }
        other => return Err(Declined::new(format!("kv_cache_layout {other:?} is unknown"))),
    }
    for (at, name) in [(input::KEY_CACHE, "k"), (input::VALUE_CACHE, "v")] {
        let found = node.input(at)?.dtype;
        if found != dtype || attributes.text(&format!("{name}_quant_type"), "NONE")? != "NONE" {
            return Err(Declined::new(format!(
                "a paged cache of {found} for queries of {dtype}: quantised paged caches are not supported"
            )));
        }
        let logical = attributes.text(&format!("{name}_cache_dtype"), "")?;
        if !matches!((logical, dtype), ("", _) | ("float16", DType::F16) | ("bfloat16", DType::Bf16)) {
            return Err(Declined::new(format!("{name}_cache_dtype is {logical:?}, but the cache is of {dtype}")));
        }
    }
    if input::SCALES.iter().any(|&at| node.optional(at).is_some()) {
        return Err(Declined::new("k_scale and v_scale are for quantised paged caches, which are not supported"));
    }
    if !node.wants(1) || !node.wants(2) {
        return Err(Declined::new(
            "the outputs key_cache_out and value_cache_out are needed: inputs are never written",
        ));
    }
    Ok(())
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, is_short_float)?;
    check_caches(node, dtype)?;
    let floats = [input::KEY, input::VALUE, input::COSINES, input::SINES];
    let norms = [input::SINKS, input::QUERY_NORM, input::KEY_NORM];
    let pairs = [[input::KEY, input::VALUE], [input::COSINES, input::SINES], [input::QUERY_NORM, input::KEY_NORM]];
    let grouped = GroupedHeads::parse(node, dtype, &[&floats[..], &norms].concat(), &pairs)?;
    for at in [input::STARTS, input::LENGTHS, input::TABLE] {
        node.accept(at, |dtype| dtype == DType::I32)?;
    }
    if node.optional(input::SLOTS).is_some() {
        node.accept(input::SLOTS, |dtype| dtype == DType::I32)?;
    }
    let rotary = match rotates(node, input::COSINES)? {
        false => None,
        true => {
            let offset = attributes.int("rotary_offset", 0)?;
            let offset = usize::try_from(offset).map_err(|_| Declined::new(format!("rotary_offset is {offset}")))?;
            Some(Turn { interleaved: attributes.flag("rotary_interleaved")?, offset })
        }
    };
    Ok(Box::new(PagedAttention { grouped, rotary, causal: attributes.flag_or("is_causal", true)? }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "PagedAttention", parse }];
