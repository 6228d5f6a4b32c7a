//! Lets threads sleep while they wait for a signal.
//!
//! Without interrupts, ROCr's `hsa_signal_wait_scacquire` looks at the signal without a pause, and takes a processor from
//! the kernel that it waits for. No timeout ends it, since the hook reports a clock of 0 Hz. If this library is preloaded,
//! HIP calls the function here instead.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dylib::Library;

use super::code_objects::ROCR;
use crate::queue::Patience;
use crate::signal::Condition;

type Load = unsafe extern "C" fn(signal: u64) -> i64;

/// ROCr's function that returns the value of a signal.
fn load() -> Option<Load> {
    static LOAD: OnceLock<Load> = OnceLock::new();
    if let Some(load) = LOAD.get() {
        return Some(*load);
    }
    // The library stays open: HIP, which calls this, needs it.
    let library = ROCR.iter().find_map(|name| Library::already_open(name))?;
    // SAFETY: ROCr's function of this name has this type.
    let found = unsafe { library.symbol::<Load>("hsa_signal_load_scacquire") }?;
    Some(*LOAD.get_or_init(|| found))
}

/// Takes the place of ROCr's function if this library is preloaded. The timeout is in nanoseconds, as on real hardware.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_signal_wait_scacquire(
    signal: u64,
    condition: u32,
    compared_with: i64,
    timeout: u64,
    _hint: u32,
) -> i64 {
    // Only a program that has loaded ROCr has signals.
    let Some(load) = load() else { return compared_with };
    let wanted = Condition::numbered(condition);
    let end = Instant::now().checked_add(Duration::from_nanos(timeout));
    let mut patience = Patience::new();
    loop {
        // SAFETY: the caller's signal exists as long as it waits for it.
        let value = unsafe { load(signal) };
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        if wanted.is_none_or(|wanted| wanted.holds(value, compared_with)) || is_over() {
            return value;
        }
        patience.wait();
    }
}
