//! The library with all work on delayed worker threads.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

#[path = "../common/mod.rs"]
mod common;
mod races;

use std::sync::MutexGuard;

use hip_host::{Config, StreamMode};
use proptest::prelude::*;

use common::program::{STREAMS, check_against_model, check_capture, programs};

fn start() -> MutexGuard<'static, ()> {
    common::start(&Config {
        memory: 64 << 20,
        devices: 2,
        streams: StreamMode::Threads,
        seed: 11,
        poison: true,
        lacks: Vec::new(),
        calls: None,
        lost: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn synchronised_programs_give_the_sequential_result(program in programs(0..STREAMS, true)) {
        let _guard = start();
        check_against_model(&program)?;
    }

    #[test]
    fn replayed_captures_equal_direct_execution(program in programs(1..STREAMS, false), replays in 1usize..5) {
        let _guard = start();
        check_capture(&program, replays)?;
    }
}
