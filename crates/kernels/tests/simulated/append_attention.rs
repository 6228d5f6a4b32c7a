//! Tests attention of a token whose key and value are appended to the cache in the same launch: in the simulator and on
//! the host, against loops in double precision.

use graph::prim::{Filled, Positions};
use graph::{DType, Prim};
use kernels::Arch;
use proptest::prelude::*;
use testkit::ops::append_attention::{self, STORED, Token};
use testkit::ops::cached_attention::Scores;
use testkit::ops::{Sample, compare};

use crate::common::{ORDERS, due, due_orders, left_by_host, simulate};

/// Both wave widths without matrix instructions, then targets whose matrix instructions load keys directly into
/// fragments.
const TARGETS: [&str; 4] = ["gfx1030", "gfx906", "gfx942", "sm_90"];
const PLAIN: [&str; 2] = ["gfx1030", "gfx906"];
const MATRIX: [&str; 2] = ["gfx942", "sm_90"];

fn launches(case: &Token, target: &str) -> usize {
    kernels::work(&case.sample(false).step, &Arch::new(target, 4)).unwrap().launches.len()
}

fn check(case: &Token, targets: &[&str]) {
    let relative = match case.dtype {
        DType::F32 => 2e-5,
        DType::F16 => 6e-3,
        _ => 4e-2,
    };
    for in_place in [true, false] {
        let sample = case.sample(in_place);
        let expected = case.expected(&sample.values(), in_place);
        for (target, order) in due_orders(targets, ORDERS) {
            let (found, fault) = simulate(&sample.step, &sample.inputs, &sample.rooms(), target, order).unwrap();
            assert_eq!(fault, 0, "{target}: {case:?}");
            let found = sample.results(&found);
            for number in STORED {
                if let Err(difference) = compare(&found[number], &expected[number], relative) {
                    panic!("{target}, order {order}, in place {in_place}, {case:?}: output {number}: {difference}");
                }
            }
        }
    }
}

#[test]
fn a_token_is_appended_and_attended_to_in_one_launch() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            let case = Token { dtype, interleaved, ..Token::default() };
            // Single precision has no matrix instructions.
            let targets = if dtype == DType::F32 { &PLAIN[..] } else { &TARGETS };
            check(&case, targets);
            assert!(targets.iter().all(|target| launches(&case, target) == 1));
            // Some elements are not rotated.
            let target = targets[usize::from(interleaved)..].last().copied();
            check(&Token { half: 16, given: true, packed: false, group: 1, ..case }, target.as_slice());
        }
    }
}

#[test]
fn all_head_and_group_sizes_take_one_launch() {
    for (case, targets) in append_attention::sizes().iter().zip([MATRIX, MATRIX, PLAIN, PLAIN, PLAIN, PLAIN]) {
        check(case, &targets);
        assert!(TARGETS.iter().all(|target| launches(case, target) == 1), "{case:?}");
    }
}

#[test]
fn scores_and_windows_apply_to_the_newest_key() {
    for case in append_attention::changed_scores() {
        check(&case, &MATRIX);
        check(&Token { dtype: DType::F32, size: 32, half: 16, ..case }, &PLAIN);
    }
}

#[test]
fn unaligned_rows_and_many_rows_take_two_launches() {
    let odd = Token { size: 20, half: 10, group: 2, ..Token::default() };
    check(&odd, &MATRIX);
    assert!(TARGETS.iter().all(|target| launches(&odd, target) == 2));
    // Queries with more heads than a fragment has rows.
    let many = Token { group: 20, shared: 1, ..Token::default() };
    check(&many, &["gfx906", "gfx942"]);
    assert_eq!(TARGETS.map(|target| launches(&many, target)), [1, 1, 2, 2]);
    // Angles where packs would not start at a multiple of a pack.
    let apart = Token { half: 20, ..Token::default() };
    check(&apart, &PLAIN);
    assert!(TARGETS.iter().all(|target| launches(&apart, target) == 2));
}

#[test]
fn tokens_that_do_not_fit_or_have_no_angles_are_faults() {
    for (length, shift) in [(81, -1), (i64::from(i32::MAX), -1), (20, 1000)] {
        for dtype in [DType::F32, DType::F16] {
            let case = Token { dtype, lengths: vec![length, 7], total: 80, ..Token::default() };
            let mut sample = case.sample(true);
            let Prim::AppendAttention(both) = &mut sample.step.prim else { panic!("{:?}", sample.step) };
            both.append.rotary.as_mut().unwrap().positions = Positions::Behind(Filled { shift });
            let Sample { step, inputs } = &sample;
            let elems = sample.rooms();
            for target in due(&TARGETS) {
                let (found, fault) = simulate(step, inputs, &elems, target, 0).unwrap();
                assert_ne!(fault, 0, "{target}");
                for part in 0..2 {
                    let half = elems[part] / 2 * dtype.bytes();
                    assert_eq!(
                        found[part].bytes()[..half],
                        inputs[3 + part].bytes()[..half],
                        "{target}: stays as it was"
                    );
                }
            }
            assert!(left_by_host(step, inputs, &elems).1.is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_agree_with_the_loops(
        lengths in prop::collection::vec(1i64..200, 1..4),
        (shared, group) in (1usize..4, 1usize..9),
        (sizes, halves) in (1usize..5, 1usize..5),
        (interleaved, given, packed) in any::<(bool, bool, bool)>(),
        window in prop::option::of(1usize..200),
        kind in 0usize..4,
    ) {
        // Few distinct kernel sources, because each is compiled.
        let size = [32, 64, 64, 128][sizes - 1];
        let half = (size / 2).min(halves * 8);
        let dtype = if kind == 0 { DType::F32 } else { DType::F16 };
        let scores = Scores { window, ..Scores::PLAIN };
        let case = Token { dtype, lengths, shared, group, total: 200, size, half, interleaved, given, packed, scores };
        check(&case, &[TARGETS[kind]]);
    }
}
