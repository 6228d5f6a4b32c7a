//! The environment is read by the first call, in a process of its own.
#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use std::process::Command;

use hip_host::abi::*;

const CHILD: &str = "HIP_HOST_TEST_CHILD";

#[test]
fn switches_are_read_at_the_first_call() {
    if std::env::var_os(CHILD).is_some() {
        return in_child();
    }
    let output = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "switches_are_read_at_the_first_call", "--nocapture"])
        .env(CHILD, "1")
        .env("AMDGPU_EP_HOST_DEVICES", "3")
        .env("AMDGPU_EP_HOST_MEMORY", "8M")
        .env("AMDGPU_EP_HOST_STREAMS", "later")
        .output()
        .expect("the child starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("AMDGPU_EP_HOST_STREAMS=later is ignored"), "{errors}");
    assert!(errors.contains("help: set it to immediate or threads"), "{errors}");
}

fn in_child() {
    let (mut count, mut total) = (0, 0);
    // SAFETY: both results are writable.
    unsafe {
        assert_eq!(hipGetDeviceCount(&mut count), 0);
        assert_eq!(hipDeviceTotalMem(&mut total, 2), 0);
    }
    assert_eq!((count, total), (3, 8 << 20));
}
