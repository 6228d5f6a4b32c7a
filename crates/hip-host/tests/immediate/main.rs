//! The library in its default mode: idle streams run work on the calling thread.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

#[path = "../common/mod.rs"]
mod common;

mod capture;
mod capture_rules;
mod copies;
mod devices;
mod events;
mod kernels;
mod memory;
mod streams;

use std::sync::MutexGuard;

use hip_host::{Config, StreamMode};
use proptest::prelude::*;

use common::program::{STREAMS, check_against_model, check_capture, programs};

const MEMORY: u64 = 16 << 20;

fn start() -> MutexGuard<'static, ()> {
    common::start(&Config {
        memory: MEMORY,
        devices: 2,
        streams: StreamMode::Immediate,
        seed: 0,
        poison: false,
        lacks: Vec::new(),
        calls: None,
        lost: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
