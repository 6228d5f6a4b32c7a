//! Tests layers with a state of fixed size in the simulator, against loops in double precision.

use testkit::ops::state;

use crate::common::check_numbers;

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn convolutions_see_their_state_and_replace_it() {
    for case in state::convolved() {
        for in_place in [false, true].into_iter().take(1 + usize::from(case.prim.past)) {
            let sample = case.sample(in_place);
            check_numbers(&TARGETS, &sample, &case.expected(&sample.values()), state::relative(case.dtype));
        }
    }
}

#[test]
fn linear_attention_updates_its_state_token_by_token() {
    for case in state::attended() {
        for in_place in [false, true].into_iter().take(1 + usize::from(case.prim.past)) {
            let sample = case.sample(in_place);
            check_numbers(&TARGETS, &sample, &case.expected(&sample.values()), state::relative(case.dtype));
        }
    }
}
