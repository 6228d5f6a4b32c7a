//! Tests growing caches in the simulator, with and without rotation, against loops in double precision.

use graph::prim::{Filled, Positions};
use graph::{DType, Prim};
use testkit::ops::append::{self, Growth};

use crate::common::{check_numbers, left_by_host, list, simulate};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];

fn check(case: &Growth, in_place: bool, relative: f64) {
    let sample = case.sample(in_place);
    check_numbers(&TARGETS, &sample, &case.expected(&sample.values(), in_place), relative);
}

#[test]
fn new_rows_follow_the_past() {
    append::copied().iter().for_each(|case| check(case, false, 0.0));
}

#[test]
fn only_new_rows_of_an_in_place_cache_are_written() {
    append::in_place().iter().for_each(|case| check(case, true, 0.0));
}

#[test]
fn keys_and_queries_are_rotated_during_the_append() {
    for case in append::rotated() {
        let relative = if case.dtype == DType::F32 { 1e-6 } else { 8e-3 };
        check(&case, false, relative);
        if case.held == Some(case.total) {
            check(&case, true, relative);
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_a_fault_and_leave_the_batch_unchanged() {
    let plain = &append::copied()[0];
    let case = Growth { heads: 2, rows: 3, held: Some(10), total: 10, sizes: [4, 4], ..plain.clone() };
    for length in [11, i64::MAX] {
        let sample = Growth { lengths: vec![length, 7], ..case.clone() }.sample(true);
        let (found, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
        assert_eq!(list(&found[0])[..80], list(&sample.inputs[3])[..80]);
        assert_ne!(list(&found[0])[80..], list(&sample.inputs[3])[80..]);
    }
    // More than the past holds, although it would fit.
    let short = Growth { lengths: vec![8, 4], held: Some(4), ..case }.sample(false);
    assert_ne!(simulate(&short.step, &short.inputs, &short.rooms(), "gfx1100", 0).unwrap().1, 0);
}

#[test]
fn tokens_that_do_not_fit_or_have_no_angles_are_faults() {
    let plain = &append::rotated()[0];
    for (length, shift) in [(plain.total as i64 + 1, 0), (i64::from(i32::MAX), 0), (20, 30)] {
        let mut sample = Growth { lengths: vec![length, 7], ..plain.clone() }.sample(true);
        let Prim::Append(append) = &mut sample.step.prim else { panic!("{:?}", sample.step) };
        append.rotary.as_mut().unwrap().positions = Positions::Behind(Filled { shift });
        let (found, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
        let (found, past) = (list(&found[0]), list(&sample.inputs[3]));
        // The first batch is unchanged, and the other has its new rows.
        let half = found.len() / 2;
        assert_eq!(found[..half], past[..half]);
        assert_ne!(found[half..], past[half..]);
        let (left, done) = left_by_host(&sample.step, &sample.inputs, &sample.rooms());
        assert!(done.is_err());
        assert_eq!(list(&left[0]), past, "nothing is written on the host");
    }
}
