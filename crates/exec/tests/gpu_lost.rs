//! A device that stops working, on the host driver: once it finds damaged memory, every call gives the same status.
#![allow(clippy::unwrap_used, clippy::panic)]
#[path = "common/lookup.rs"]
mod lookup;

mod common;

use exec::{ExecError, Input, Order};
use lookup::{Lookup, Memory, gpu};

#[test]
fn a_lost_device_is_told_in_one_sentence_to_all_sessions_and_nothing_hangs() {
    // SAFETY: the only test of this program, and nothing else runs yet; the driver reads it when it is loaded.
    unsafe { std::env::set_var("AMDGPU_EP_HOST_POISON", "1") };
    let gpu = gpu();
    let (one, other) = (Lookup::new(&gpu, 6), Lookup::new(&gpu, 9));
    let (mut memory, mut later) = (Memory::new(&[5, 1]), Memory::new(&[8]));
    memory.run(&one, Order::Now).unwrap();
    memory.check(&one);
    later.run(&other, Order::Now).unwrap();
    let damaged = gpu.device().alloc(64).unwrap();
    // SAFETY: not sound, as a kernel's fault is not; the driver keeps room behind each buffer to find out.
    unsafe { damaged.address().as_ptr().add(64).write(1) };
    drop(damaged);
    let error = memory.run(&one, Order::Now).unwrap_err();
    let ExecError::DeviceLost { device, node, source } = &error else { panic!("{error}") };
    assert_eq!((device.as_str(), node.as_str(), source.code()), ("gfx1100", "Gather \"node\"", Some(719)));
    assert!(error.to_string().contains("\n  help: this process can't use the device any more"), "{error}");
    for _ in 0..3 {
        assert_eq!(later.run(&other, Order::Now).unwrap_err(), error, "another session");
        assert_eq!(
            other.program.plan(&[Input { shape: &[3], value: None }]).map(|_| ()).unwrap_err(),
            error,
            "a new shape"
        );
    }
}
