//! Poison mode shows missing writes and overruns. One test only, because corruption lasts for the life of the process.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

mod common;

use hip_host::abi::*;
use hip_host::{Config, StreamMode};

use common::{Buffer, Stream, made, ok, start};

#[test]
fn fresh_memory_is_poisoned_and_an_overrun_fails_every_later_call() {
    let _guard = start(&Config {
        memory: 1 << 20,
        devices: 1,
        streams: StreamMode::Immediate,
        seed: 0,
        poison: true,
        lacks: Vec::new(),
        calls: None,
        lost: None,
    });
    assert_eq!(Buffer::new(100).read(), [0xCB; 100]);

    let stream = Stream::non_blocking();
    let healthy = Buffer::new(16);
    // SAFETY: `made` gives a writable pointer.
    let overrun = made(|out| unsafe { hipMalloc(out, 100) });
    // SAFETY: the byte after the end is a guard byte of the same allocation; writing it is the error to be detected.
    unsafe { overrun.cast::<u8>().add(100).write(1) };
    assert_eq!(hipFree(overrun), 719);
    assert_eq!(hipGetLastError(), 719);

    let mut at = std::ptr::null_mut();
    // SAFETY: the result is writable.
    assert_eq!(unsafe { hipMalloc(&mut at, 16) }, 719);
    assert_eq!(hipStreamSynchronize(stream.0), 719);
    assert_eq!(hipDeviceSynchronize(), 719);
    ok(hipStreamDestroy(stream.0));
    assert_eq!(hipFree(healthy.at), 719, "freed anyway");
    assert_eq!(hipFree(healthy.at), 1);
}
