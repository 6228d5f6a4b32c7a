//! Tests attention over caches in the simulator, against loops in double precision.

use graph::DType;
use graph::prim::Sinks;
use testkit::ops::cached_attention::{self, Scores, Tokens};

use crate::common::check_numbers;

/// Both wave widths without matrix instructions, then all kinds of matrix instructions.
const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];
const PLAIN: [&str; 2] = ["gfx1030", "gfx906"];
const MATRIX: [&str; 4] = ["gfx1100", "gfx942", "gfx1201", "sm_90"];

fn check(case: &Tokens, targets: &[&str]) {
    let relative = match case.dtype {
        DType::F32 => 2e-5,
        DType::F16 => 6e-3,
        _ => 4e-2,
    };
    let sample = case.sample();
    check_numbers(targets, &sample, &[case.expected(&sample.values())], relative);
}

#[test]
fn one_token_reads_the_cache_up_to_its_length() {
    cached_attention::one_token().iter().for_each(|case| check(case, &PLAIN));
}

#[test]
fn few_tokens_see_only_their_visible_keys() {
    cached_attention::few_tokens().iter().for_each(|case| check(case, &PLAIN));
}

#[test]
fn few_rows_are_loaded_directly_into_fragments() {
    let targets = ["gfx942", "sm_90"];
    let plain = Tokens { lengths: vec![330, 1, 130], total: 340, shared: 1, size: 64, width: 64, ..Tokens::default() };
    for case in [
        Tokens { group: 4, shared: 2, ..plain.clone() },
        Tokens { dtype: DType::Bf16, size: 128, width: 64, group: 7, ..plain.clone() },
        Tokens { size: 64, width: 128, group: 16, ..plain.clone() },
        Tokens { group: 1, tokens: 3, ..plain.clone() },
        Tokens {
            scores: Scores { causal: false, ..Scores::PLAIN },
            group: 4,
            tokens: 4,
            size: 128,
            width: 128,
            ..plain.clone()
        },
        Tokens { scores: Scores { window: Some(2), ..Scores::PLAIN }, ..plain.clone() },
        Tokens {
            scores: Scores { window: Some(100), sinks: Sinks::Zero, ..Scores::PLAIN },
            tokens: 5,
            ..plain.clone()
        },
        Tokens { scores: Scores { softcap: Some(1.5), bias: true, ..Scores::PLAIN }, tokens: 2, ..plain.clone() },
        Tokens { scores: Scores { bias: true, sinks: Sinks::Given, ..Scores::PLAIN }, ..plain.clone() },
        // Fewer tokens than rows.
        Tokens { lengths: vec![2, 340], tokens: 3, ..plain.clone() },
        Tokens { lengths: vec![i64::from(i32::MAX), 341], ..plain.clone() },
    ] {
        check(&case, &targets);
    }
}

/// One block sums more than eight parts, and several of its threads sum the same elements.
#[test]
fn many_parts_of_the_keys_are_added_up() {
    let plain = Tokens { lengths: vec![1020], total: 1024, shared: 1, size: 64, width: 64, ..Tokens::default() };
    for group in [1, 8, 16] {
        check(&Tokens { group, ..plain.clone() }, &TARGETS);
    }
    check(&Tokens { dtype: DType::F32, group: 3, ..plain }, &PLAIN);
}

#[test]
fn prompts_are_processed_in_tiles() {
    let plain = Tokens { tokens: 45, lengths: vec![45, 170], total: 170, ..Tokens::default() };
    check(&plain, &TARGETS);
    // The code for visibility and scores is the same for all kinds of matrix instructions, so each case uses two of
    // them.
    let plain = Tokens { shared: 1, ..plain };
    for (number, case) in cached_attention::prompts().into_iter().enumerate() {
        check(&case, &[MATRIX[number % 4], MATRIX[(number + 1) % 4]]);
    }
    check(&Tokens { dtype: DType::F32, ..plain.clone() }, &PLAIN);
    check(&Tokens { size: 128, width: 128, group: 1, tokens: 20, lengths: vec![130], total: 140, ..plain }, &MATRIX);
}

/// On CUDA, scores are computed ahead of values if a cache has space for more than a few keys, however many a prompt
/// sees.
#[test]
fn prompts_in_long_caches() {
    let plain = Tokens { tokens: 130, lengths: vec![130, 290], total: 300, size: 64, width: 64, ..Tokens::default() };
    for case in [
        plain.clone(),
        Tokens { scores: Scores { causal: false, ..Scores::PLAIN }, dtype: DType::Bf16, ..plain.clone() },
        Tokens { scores: Scores { window: Some(40), sinks: Sinks::Given, ..Scores::PLAIN }, ..plain.clone() },
        Tokens { size: 19, width: 37, ..plain },
    ] {
        check(&case, &["sm_90"]);
    }
}

/// On AMD, two waves share such rows.
#[test]
fn prompts_with_large_heads_are_processed_in_tiles() {
    let lengths = vec![20, 75];
    let plain = Tokens { tokens: 20, lengths, total: 80, shared: 1, size: 256, width: 256, ..Tokens::default() };
    check(&plain, &MATRIX);
    for (number, case) in [
        Tokens {
            scores: Scores { softcap: Some(2.0), bias: true, ..Scores::PLAIN },
            dtype: DType::Bf16,
            tokens: 17,
            ..plain.clone()
        },
        Tokens { scores: Scores { softcap: Some(2.0), window: Some(9), ..Scores::PLAIN }, group: 1, ..plain.clone() },
        Tokens {
            scores: Scores { window: Some(30), sinks: Sinks::Given, causal: false, ..Scores::PLAIN },
            ..plain.clone()
        },
        Tokens {
            scores: Scores { bias: true, sinks: Sinks::Zero, ..Scores::PLAIN },
            size: 192,
            width: 128,
            ..plain.clone()
        },
        // No packs, and parts that end in different ways.
        Tokens { size: 147, width: 131, group: 3, tokens: 7, ..plain.clone() },
        Tokens { size: 40, width: 168, group: 9, tokens: 3, ..plain.clone() },
        // So few rows that blocks process parts of the keys.
        Tokens { group: 1, tokens: 18, lengths: vec![200], total: 230, ..plain.clone() },
        Tokens {
            scores: Scores { softcap: Some(3.0), ..Scores::PLAIN },
            group: 1,
            tokens: 18,
            lengths: vec![230],
            total: 230,
            ..plain.clone()
        },
    ]
    .into_iter()
    .enumerate()
    {
        check(&case, &[MATRIX[number % 4], MATRIX[(number + 1) % 4]]);
    }
}

#[test]
fn lengths_beyond_the_cache_are_clamped() {
    let case = Tokens { lengths: vec![80, 80], ..Tokens::default() };
    // The result for what the cache holds; the append step has already reported the error.
    check(&Tokens { lengths: vec![i64::from(i32::MAX), 81], ..case }, &PLAIN);
}
