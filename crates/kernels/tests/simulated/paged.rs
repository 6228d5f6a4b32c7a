//! Tests caches in pages in the simulator, against the definition.

use graph::DType;
use testkit::ops::paged::{self, Pages};

use crate::common::{check_numbers, simulate};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn tokens_find_their_sequences_and_slots() {
    for case in paged::steps() {
        check_numbers(&TARGETS, &case.places_sample(|_| {}, |_| {}), &[case.places()], 0.0);
    }
}

#[test]
fn keys_and_values_are_written_to_their_slots() {
    for case in paged::steps() {
        for in_place in [false, true] {
            let sample = case.append_sample(in_place, false);
            check_numbers(&TARGETS, &sample, &case.appended(&sample.values()), 0.0);
        }
    }
}

#[test]
fn tokens_see_the_pages_of_their_sequence() {
    for case in paged::steps() {
        let sample = case.attention_sample(|_| {});
        let relative = match case.dtype {
            DType::F32 => 2e-5,
            DType::F16 => 6e-3,
            _ => 4e-2,
        };
        check_numbers(&TARGETS, &sample, &[case.attended(&sample.values())], relative);
    }
}

#[test]
fn tables_lengths_and_slots_out_of_range_are_faults() {
    let case = Pages::default();
    let faulty = [
        case.places_sample(|table| table[4] = 1 << 20, |_| {}),
        case.places_sample(|table| table[4] = -1, |_| {}),
        case.places_sample(|_| {}, |lengths| lengths[1] = -1),
        case.places_sample(|_| {}, |lengths| lengths[1] = i64::from(i32::MAX)),
        case.append_sample(true, true),
        case.attention_sample(|table| table[0] = 1 << 20),
        case.attention_sample(|table| table[0] = -1),
    ];
    for (number, sample) in faulty.iter().enumerate() {
        let (_, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), "gfx1100", 0).unwrap();
        assert_ne!(fault, 0, "number {number}");
    }
}
