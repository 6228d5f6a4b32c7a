//! Tests caches that keep their newest rows in the simulator, against the definition.

use testkit::ops::retain;

use crate::common::{check_numbers, list, simulate};

#[test]
fn the_newest_rows_move_to_the_front() {
    for case in retain::kept() {
        for in_place in [false, true] {
            let sample = case.sample(in_place);
            check_numbers(&["gfx1030", "gfx906"], &sample, &case.expected(&sample.values()), 0.0);
        }
    }
}

#[test]
fn a_start_outside_the_rows_is_a_fault_and_leaves_the_batch_unchanged() {
    for case in retain::out_of_range() {
        let sample = case.sample(true);
        let (found, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
        let half = found[0].elems() / 2;
        assert_eq!(list(&found[0])[half..], list(&sample.inputs[3])[half..]);
    }
}
