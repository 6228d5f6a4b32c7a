//! Rotary embeddings, growing caches and attention over them, against loops in double precision.
use graph::DType;
use proptest::prelude::*;
use testkit::ops::append_attention::{self, STORED, Token};
use testkit::ops::cached_attention::{self, Scores, Tokens};
use testkit::ops::paged::{self, Pages};
use testkit::ops::{Sample, append, compare, retain, rotary};

use crate::common::{check, run};

/// The rounding error of results that are sums of products.
fn relative(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 6e-3,
        _ => 4e-2,
    }
}

#[test]
fn heads_are_rotated_by_their_positions() {
    for case in rotary::rotations() {
        let sample = case.sample();
        let relative = if case.dtype == DType::F32 { 1e-6 } else { 8e-3 };
        check(&sample, &[case.expected(&sample.values())], relative, &case);
    }
}

#[test]
fn a_position_without_angles_is_an_error() {
    for case in rotary::out_of_range() {
        let Sample { step, inputs } = case.sample();
        assert!(run(&step, &inputs, 1).is_err(), "{case:?}");
    }
}

#[test]
fn new_rows_follow_the_past() {
    for case in append::copied() {
        let sample = case.sample(false);
        check(&sample, &case.expected(&sample.values(), false), 0.0, &case);
    }
}

#[test]
fn only_new_rows_of_an_in_place_cache_are_written() {
    for case in append::in_place() {
        let sample = case.sample(true);
        check(&sample, &case.expected(&sample.values(), true), 0.0, &case);
    }
}

#[test]
fn keys_are_rotated_on_their_way_into_the_cache() {
    for case in append::rotated() {
        let relative = if case.dtype == DType::F32 { 1e-6 } else { 8e-3 };
        for in_place in [false, true] {
            if in_place && case.held != Some(case.total) {
                continue;
            }
            let sample = case.sample(in_place);
            check(&sample, &case.expected(&sample.values(), in_place), relative, &case);
        }
    }
}

#[test]
fn the_newest_rows_of_a_cache_move_to_its_front() {
    for case in retain::kept() {
        for in_place in [false, true] {
            let sample = case.sample(in_place);
            check(&sample, &case.expected(&sample.values()), 0.0, &case);
        }
    }
    for case in retain::out_of_range() {
        let Sample { step, inputs } = case.sample(true);
        assert!(run(&step, &inputs, 1).is_err(), "{case:?}");
    }
}

#[test]
fn tokens_see_what_they_may_of_a_cache() {
    let beyond = Tokens { lengths: vec![i64::from(i32::MAX), 81], ..Tokens::default() };
    let lists = [cached_attention::one_token(), cached_attention::few_tokens(), cached_attention::prompts()];
    for case in lists.into_iter().flatten().chain([beyond]) {
        let sample = case.sample();
        check(&sample, &[case.expected(&sample.values())], relative(case.dtype), &case);
    }
}

fn check_token(case: &Token) {
    for in_place in [false, true] {
        let sample = case.sample(in_place);
        let expected = case.expected(&sample.values(), in_place);
        for threads in [1, 3] {
            let found = run(&sample.step, &sample.inputs, threads).unwrap();
            for number in STORED {
                let difference = compare(&testkit::ops::list(&found[number]), &expected[number], relative(case.dtype));
                assert_eq!(difference, Ok(()), "output {number} of {case:?}, in place {in_place}, {threads} threads");
            }
        }
    }
}

#[test]
fn a_token_joins_the_cache_and_sees_it() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            let case = Token { dtype, interleaved, ..Token::default() };
            check_token(&case);
            // Some elements are not rotated.
            check_token(&Token { half: 16, given: true, packed: false, group: 1, ..case });
        }
    }
    append_attention::sizes().iter().for_each(check_token);
}

#[test]
fn scores_and_windows_apply_to_the_newest_key() {
    for case in append_attention::changed_scores() {
        check_token(&case);
        check_token(&Token { dtype: DType::F32, size: 32, half: 16, ..case });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_agree_with_the_loops(
        lengths in prop::collection::vec(1i64..200, 1..4),
        (shared, group) in (1usize..4, 1usize..9),
        (size, halves) in (4usize..70, 1usize..5),
        (interleaved, given, packed) in any::<(bool, bool, bool)>(),
        window in prop::option::of(1usize..200),
        is_single in any::<bool>(),
    ) {
        let dtype = if is_single { DType::F32 } else { DType::F16 };
        let (half, scores) = ((size / 2).min(halves * 8), Scores { window, ..Scores::PLAIN });
        check_token(&Token {
            dtype, lengths, shared, group, total: 200, size, half, interleaved, given, packed, scores,
        });
    }
}

#[test]
fn caches_in_pages_are_found_written_and_read() {
    for case in paged::steps() {
        let sample = case.places_sample(|_| {}, |_| {});
        check(&sample, &[case.places()], 0.0, &case);
        for in_place in [false, true] {
            let sample = case.append_sample(in_place, false);
            check(&sample, &case.appended(&sample.values()), 0.0, &case);
        }
        let sample = case.attention_sample(|_| {});
        check(&sample, &[case.attended(&sample.values())], relative(case.dtype), &case);
    }
}

#[test]
fn pages_out_of_range_are_errors() {
    let case = Pages::default();
    for (number, sample) in [
        case.places_sample(|table| table[4] = 1 << 20, |_| {}),
        case.places_sample(|table| table[4] = -1, |_| {}),
        case.places_sample(|_| {}, |lengths| lengths[1] = -1),
        case.places_sample(|_| {}, |lengths| lengths[1] = i64::from(i32::MAX)),
        case.append_sample(true, true),
        case.attention_sample(|table| table[0] = 1 << 20),
        case.attention_sample(|table| table[0] = -1),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(run(&sample.step, &sample.inputs, 1).is_err(), "number {number}");
    }
}
