//! Products with the weights of experts against loops in double precision.
use testkit::ops::{Sample, experts, list};

use crate::common::run;

#[test]
fn rows_are_multiplied_by_the_weights_of_their_experts() {
    for case in experts::chosen() {
        let sample = case.sample();
        let expected = case.expected(&sample.values());
        for threads in [1, 3] {
            let found = list(&run(&sample.step, &sample.inputs, threads).unwrap()[0]);
            assert_eq!(found.len(), expected.len());
            for (at, (found, (sum, size))) in found.into_iter().zip(&expected).enumerate() {
                let is_close = (found - sum).abs() <= case.relative() * size.max(1.0);
                assert!(is_close, "{case:?} on {threads} threads: element {at} is {found} instead of {sum}");
            }
        }
    }
}

#[test]
fn an_expert_that_does_not_exist_is_an_error() {
    for case in experts::out_of_range() {
        let Sample { step, inputs } = case.sample();
        assert!(run(&step, &inputs, 1).is_err(), "{case:?}");
    }
}
