//! Heads of queries that share heads of keys and values: what `GroupQueryAttention` and `PagedAttention` have in common.
use crate::lower::{Lower, Storage};
use crate::ops::NodeInfo;
use crate::ops::norm::Layer;
use crate::prim::Rotary;
use crate::{DType, Declined, LowerError, Prim, Shape, Val};

/// The attributes that both operators have.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupedHeads {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values.
    pub shared: usize,
    /// 0 for the usual one.
    scale: f32,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    epsilon: f32,
}

impl GroupedHeads {
    /// Reads the attributes. The inputs `same` must have the type of the queries, and of each of `pairs`, either
    /// both inputs are given or none.
    pub(super) fn parse(
        node: &NodeInfo<'_>,
        dtype: DType,
        same: &[usize],
        pairs: &[[usize; 2]],
    ) -> Result<Self, Declined> {
        let attributes = node.attributes;
        for &at in same {
            if let Some(other) = node.optional(at).filter(|other| other.dtype != dtype) {
                return Err(Declined::new(format!("input {at} has type {}, but the queries are {dtype}", other.dtype)));
            }
        }
        for pair in pairs {
            if node.optional(pair[0]).is_some() != node.optional(pair[1]).is_some() {
                return Err(Declined::new(format!("inputs {} and {} must be given together", pair[0], pair[1])));
            }
        }
        let count = |name: &str| -> Result<usize, Declined> {
            let count = usize::try_from(attributes.int(name, 0)?).ok().filter(|&count| count > 0);
            count.ok_or_else(|| Declined::new(format!("{name} below 1")))
        };
        let (heads, shared) = (count("num_heads")?, count("kv_num_heads")?);
        if heads % shared != 0 {
            return Err(Declined::new(format!("{heads} query heads cannot share {shared} key heads")));
        }
        let softcap = attributes.float("softcap", 0.0)?;
        Ok(Self {
            heads,
            shared,
            scale: attributes.float("scale", 0.0)?,
            window: usize::try_from(attributes.int("local_window_size", -1)?).ok().filter(|&window| window > 0),
            softcap: (softcap > 0.0).then_some(softcap),
            epsilon: attributes.float("qk_norm_epsilon", 1e-6)?,
        })
    }

    /// The factor of scores, for heads of this size.
    pub(super) fn alpha(&self, size: usize) -> f32 {
        if self.scale == 0.0 { (1.0 / (size as f64).sqrt()) as f32 } else { self.scale }
    }

    /// Queries, keys and values `[…, heads, size]`, from one input `[…, heads · size]` of this rank or from three.
    pub(super) fn parts(
        &self,
        cx: &mut Lower<'_>,
        rank: usize,
        query: &Val,
        [key, value]: [Option<&Val>; 2],
    ) -> Result<[Val; 3], LowerError> {
        let split = |cx: &mut Lower<'_>, value: &Val, heads: usize| match *value.shape() {
            [ref leading @ .., width] if leading.len() + 1 == rank && width % heads == 0 => {
                let mut to: Shape = leading.into();
                to.extend([heads, width / heads]);
                cx.reshape(value, &to)
            }
            ref other => Err(cx.invalid(format!("{other:?} cannot be split into {heads} heads"))),
        };
        let (heads, shared) = (self.heads, self.shared);
        let (Some(key), Some(value)) = (key, value) else {
            let all = split(cx, query, heads + 2 * shared)?;
            return Ok([(0, heads), (heads, shared), (heads + shared, shared)]
                .map(|(start, count)| all.sliced(rank - 1, start, 1, count)));
        };
        let parts = [split(cx, query, heads)?, split(cx, key, shared)?, split(cx, value, shared)?];
        let mut wanted: Shape = parts[0].shape().into();
        wanted[rank - 1] = shared;
        if parts[1..].iter().any(|part| part.shape() != &wanted[..]) {
            let [q, k, v] = [query, key, value].map(Val::shape);
            return Err(cx.invalid(format!("queries {q:?}, keys {k:?} and values {v:?} do not match")));
        }
        Ok(parts)
    }

    /// Queries and keys, each head normalised if there are weights for that.
    pub(super) fn normed(
        &self,
        cx: &mut Lower<'_>,
        [queries, keys]: [Val; 2],
        weights: [Option<&Val>; 2],
    ) -> Result<[Val; 2], LowerError> {
        let layer = Layer { epsilon: self.epsilon, centre: false, round_before_scale: false };
        let norm = |cx: &mut Lower<'_>, value: Val, weight: Option<&Val>| match weight {
            Some(weight) => layer.lower(cx, &value, 1, Some(weight), None),
            None => Ok(value),
        };
        Ok([norm(cx, queries, weights[0])?, norm(cx, keys, weights[1])?])
    }
}

/// Whether the node rotates queries and keys, which needs cosines and sines.
pub(super) fn rotates(node: &NodeInfo<'_>, cosines: usize) -> Result<bool, Declined> {
    let rotates = node.attributes.flag("do_rotary")?;
    if rotates && node.optional(cosines).is_none() {
        return Err(Declined::new("do_rotary needs cos_cache and sin_cache"));
    }
    Ok(rotates)
}

/// Checks that tables of cosines and sines match heads of `size`, of which the first `offset` elements are not rotated.
pub(super) fn check_angles(
    cx: &Lower<'_>,
    [cosines, sines]: [&Val; 2],
    size: usize,
    offset: usize,
) -> Result<(), LowerError> {
    if cosines.rank() != 2 || cosines.shape() != sines.shape() || offset + 2 * cosines.shape()[1] > size {
        let (cosines, sines) = (cosines.shape(), sines.shape());
        return Err(cx.invalid(format!("cos_cache {cosines:?} and sin_cache {sines:?} do not match heads of {size}")));
    }
    Ok(())
}

/// Emits a rotation of `[batch, rows, heads, size]`.
pub(super) fn rotate_into(cx: &mut Lower<'_>, rotary: Rotary, x: &Val, [cosines, sines, at]: [&Val; 3], to: &Val) {
    if to.elems() > 0 {
        cx.emit(Prim::Rotary(rotary), &[x, cosines, sines, at], &[to]);
    }
}

/// Two values `[batch, rows, heads, size]` as one with the heads of both, if the second's directly follow the first's
/// in memory.
pub(super) fn beside(first: &Val, second: &Val) -> Option<Val> {
    let (Storage::Buffer(a), Storage::Buffer(b)) = (first.storage(), second.storage()) else { return None };
    let next = first.offset() + first.shape()[2] as isize * first.strides()[2];
    let follows = a == b && first.strides() == second.strides() && second.offset() == next;
    follows.then(|| first.widened(2, first.shape()[2] + second.shape()[2]))
}
