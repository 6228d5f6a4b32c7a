//! Devices that a test makes unavailable. One test only, because the settings last for the life of the process.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

mod common;

use hip_host::Config;
use hip_host::abi::*;

use common::{Buffer, made, start};

#[test]
fn calls_fail_while_the_file_exists() {
    let folder = tempfile::tempdir().expect("a folder");
    let lost = folder.path().join("lost");
    let _guard = start(&Config { lost: Some(lost.clone()), ..Config::default() });
    // SAFETY: `made` gives a writable pointer.
    let early = made(|out| unsafe { hipMalloc(out, 100) });
    std::fs::write(&lost, "").expect("the file");
    let mut late = std::ptr::null_mut();
    // SAFETY: a writable pointer.
    assert_eq!(unsafe { hipMalloc(&mut late, 100) }, 719);
    assert_eq!(hipDeviceSynchronize(), 719);
    assert_eq!(hipFree(early), 0, "what is released needs no device");
    std::fs::remove_file(&lost).expect("the file exists");
    assert_eq!(Buffer::new(16).read().len(), 16);
}
