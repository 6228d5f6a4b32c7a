//! Tests products with the weights of experts in the simulator, against loops in double precision.

use testkit::ops::experts;

use crate::common::{due, list, simulate};

#[test]
fn rows_are_multiplied_by_the_weights_of_their_experts() {
    for case in experts::chosen() {
        let sample = case.sample();
        let expected = case.expected(&sample.values());
        for target in due(&["gfx1030", "gfx906"]) {
            let (found, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), target, 0).unwrap();
            assert_eq!(fault, 0, "{case:?}");
            for (at, (found, (sum, size))) in list(&found[0]).into_iter().zip(&expected).enumerate() {
                let is_close = (found - sum).abs() <= case.relative() * size.max(1.0);
                assert!(is_close, "{target}, {case:?}: element {at} is {found} instead of {sum}");
            }
        }
    }
}

#[test]
fn an_expert_that_does_not_exist_is_a_fault() {
    for case in experts::out_of_range() {
        let sample = case.sample();
        let (_, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0, "{case:?}");
    }
}
