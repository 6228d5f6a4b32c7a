//! Layers with a state of fixed size, against loops in double precision.
use testkit::ops::state;

use crate::common::check;

#[test]
fn convolutions_see_their_state_and_replace_it() {
    for case in state::convolved() {
        for in_place in [false, true].into_iter().take(1 + usize::from(case.prim.past)) {
            let sample = case.sample(in_place);
            check(&sample, &case.expected(&sample.values()), state::relative(case.dtype), &case);
        }
    }
}

#[test]
fn linear_attention_updates_its_state_token_by_token() {
    for case in state::attended() {
        for in_place in [false, true].into_iter().take(1 + usize::from(case.prim.past)) {
            let sample = case.sample(in_place);
            check(&sample, &case.expected(&sample.values()), state::relative(case.dtype), &case);
        }
    }
}
