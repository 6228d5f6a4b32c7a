//! Merges the cache update into one token's attention over that cache, on devices that support it.
//!
//! A block that attends with a head of keys can rotate its queries as it reads them, and the block with the newest key
//! can write that into the cache too. No block waits for another, and a launch is saved.
use crate::plan::uses::{Uses, take_in};
use crate::plan::{Draft, rotary_append};
use crate::prim::{Append, AppendAttention, Prim};
use crate::{Step, View};

/// Merges cache updates into the attention over them.
pub(super) fn merge(draft: &mut Draft) {
    take_in(draft, candidate);
}

/// The attention at `at` merged with the update of its cache, and the position of the update.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, _: &Draft) -> Option<(usize, Step)> {
    let attention = steps[at].as_ref()?;
    let Prim::CachedAttention(seen) = &attention.prim else { return None };
    let [queries, keys, values, lengths, more @ ..] = &attention.inputs[..] else { return None };
    let from = uses.maker_for(at, queries)?;
    let update = steps[from].as_ref()?;
    let Prim::Append(append @ Append { past: true, rotary: Some(_), .. }) = &update.prim else { return None };
    let [present_keys, present_values, turned] = &update.outputs[..] else { return None };
    let pairs = [(queries, turned), (keys, present_keys), (values, present_values)];
    let is_own = pairs.into_iter().all(|(read, made)| rotary_append::is_same(read, made));
    let is_same = is_own && *lengths == update.inputs[0] && seen.filled == append.filled;
    // A cache that grows with each token is copied.
    let grows = update.inputs[3].shape != keys.shape || update.inputs[4].shape != values.shape;
    let is_one = queries.shape[2] == 1 && seen.window != Some(0);
    // The update moves to the position of the attention.
    let is_made = |view: &View| update.outputs.iter().any(|made| made.buffer == view.buffer);
    let early = steps[from + 1..at].iter().flatten().flat_map(|step| &step.inputs).chain(more).any(is_made);
    if !is_same || grows || !is_one || early {
        return None;
    }
    let prim = Prim::AppendAttention(AppendAttention { append: *append, attention: *seen });
    let inputs = update.inputs.iter().chain(more).cloned().collect();
    let outputs = update.outputs.iter().chain(&attention.outputs).cloned().collect();
    Some((from, Step { node: attention.node, prim, inputs, outputs }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;
    use crate::lower::{Buffer, Origin};
    use crate::prim::{BufferId, CachedAttention, Filled, Map, Positions, Rotary, Sinks};
    use crate::shape::dense_strides;
    use crate::{DType, Shape};

    fn view(buffer: u32, extents: [usize; 4]) -> View {
        let shape = Shape::from_slice(&extents);
        View { buffer: BufferId(buffer), dtype: DType::F32, strides: dense_strides(&shape), shape, offset: 0 }
    }

    /// Buffer 0 has lengths and angles, 1 to 3 a token, 4 and 5 the past. Caches are 6 and 7, rotated queries 8, the
    /// result 9.
    fn update() -> Step {
        let filled = Filled { shift: -1 };
        let rotary = Some(Rotary { interleaved: false, positions: Positions::Behind(filled) });
        let (token, cache) = ([1, 2, 1, 8], [1, 2, 9, 8]);
        let mut inputs = vec![view(0, [1, 1, 1, 1]), view(2, token), view(3, token), view(4, cache), view(5, cache)];
        inputs.extend([view(1, [1, 4, 1, 8]), view(0, [1, 1, 9, 4]), view(0, [1, 1, 9, 4]), view(0, [1, 1, 1, 1])]);
        let outputs = vec![view(6, cache), view(7, cache), view(8, [1, 4, 1, 8])];
        Step { node: 0, prim: Prim::Append(Append { filled, past: true, rotary }), inputs, outputs }
    }

    fn attention(shift: i64) -> Step {
        let prim = Prim::CachedAttention(CachedAttention {
            alpha: 1.0,
            filled: Filled { shift },
            causal: true,
            window: None,
            softcap: None,
            bias: false,
            sinks: Sinks::None,
        });
        let cache = [1, 2, 9, 8];
        let inputs = vec![view(8, [1, 4, 1, 8]), view(6, cache), view(7, cache), view(0, [1, 1, 1, 1])];
        Step { node: 0, prim, inputs, outputs: vec![view(9, [1, 4, 1, 8])] }
    }

    fn copy(from: u32) -> Step {
        let (prim, extents) = (Prim::Map(Map { expr: Expr::copy(DType::F32, DType::F32) }), [1, 1, 1, 8]);
        Step { node: 0, prim, inputs: vec![view(from, extents)], outputs: vec![view(10, extents)] }
    }

    fn merged(steps: Vec<Step>) -> Vec<&'static str> {
        steps_of(steps).iter().map(|step| step.prim.name()).collect()
    }

    fn steps_of(steps: Vec<Step>) -> Vec<Step> {
        let buffer = |at: usize| Buffer {
            dtype: DType::F32,
            elems: 144,
            origin: if at < 6 { Origin::Input(at) } else { Origin::Step },
        };
        let output_buffers = [6, 7, 9].map(BufferId).to_vec();
        let mut draft = Draft { buffers: (0..11).map(buffer).collect(), steps, output_buffers, outputs: Vec::new() };
        merge(&mut draft);
        draft.steps
    }

    #[test]
    fn an_update_is_merged_into_the_attention_that_reads_it() {
        assert_eq!(merged(vec![update(), attention(-1)]), ["rotary_append_attention"]);
        // Other readers of the past, and of the cache after the attention, do not prevent the merge.
        let between = vec![update(), copy(4), attention(-1)];
        assert_eq!(merged(between), ["map", "rotary_append_attention"]);
        assert_eq!(merged(vec![update(), attention(-1), copy(6)]), ["rotary_append_attention", "map"]);
        // Strides of axes with one row do not matter.
        let mut seen = attention(-1);
        seen.inputs[0].strides[2] = 77;
        assert_eq!(merged(vec![update(), seen]), ["rotary_append_attention"]);
    }

    #[test]
    fn updates_with_other_readers_stay_separate_steps() {
        let apart = ["rotary_append", "cached_attention"];
        assert_eq!(merged(vec![update(), copy(6), attention(-1)]), [apart[0], "map", apart[1]]);
        assert_eq!(merged(vec![update(), attention(-1), copy(8)]), [apart[0], apart[1], "map"]);
        assert_eq!(merged(vec![update(), attention(0)]), apart, "other lengths");
        let mut grows = update();
        grows.inputs[3] = view(4, [1, 2, 8, 8]);
        assert_eq!(merged(vec![grows, attention(-1)]), apart);
    }

    #[test]
    fn a_merged_step_splits_into_the_original_two() {
        let steps = steps_of(vec![update(), attention(-1)]);
        let [Step { prim: Prim::AppendAttention(both), .. }] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(both.parts(&steps[0]), Some([update(), attention(-1)]));
    }
}
