//! Tests rotary position embeddings in the simulator, against loops in double precision.

use graph::DType;
use testkit::ops::rotary;

use crate::common::{check_numbers, simulate};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn positions_are_given_or_follow_from_lengths() {
    for case in rotary::rotations() {
        let sample = case.sample();
        let relative = if case.dtype == DType::F32 { 1e-6 } else { 8e-3 };
        check_numbers(&TARGETS, &sample, &[case.expected(&sample.values())], relative);
    }
}

#[test]
fn a_position_without_angles_is_a_fault() {
    for case in rotary::out_of_range() {
        let sample = case.sample();
        let (_, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0, "{case:?}");
    }
}
