//! Copies and fills: their results, and the arguments that are rejected.

use std::ffi::c_void;

use hip_host::abi::*;
use proptest::prelude::*;

use crate::common::{Buffer, D2D, D2H, DEFAULT, H2D, NULL_STREAM, ok};
use crate::start;

#[test]
fn all_directions_move_bytes() {
    let _guard = start();
    let source = [1u8, 2, 3, 4, 5];
    let (first, second) = (Buffer::new(5), Buffer::new(5));
    for (there, across, back) in [(H2D, D2D, D2H), (DEFAULT, DEFAULT, DEFAULT), (H2D, 1024, D2H)] {
        let mut result = [0u8; 5];
        // SAFETY: the host sides are valid for five bytes.
        unsafe {
            ok(hipMemset(first.at, 0, 5));
            ok(hipMemcpy(first.at, source.as_ptr().cast(), 5, there));
            ok(hipMemcpy(second.at, first.at, 5, across));
            ok(hipMemcpy(result.as_mut_ptr().cast(), second.at, 5, back));
        }
        assert_eq!(result, source);
    }
    let mut result = [0u8; 5];
    // SAFETY: both sides are valid for five bytes.
    ok(unsafe { hipMemcpy(result.as_mut_ptr().cast(), source.as_ptr().cast(), 5, 0) });
    assert_eq!(result, source);
}

#[test]
fn the_device_side_must_be_device_memory() {
    let _guard = start();
    let mut local = [0u8; 16];
    let host: *mut c_void = local.as_mut_ptr().cast();
    let buffer = Buffer::new(16);
    let dead = Buffer::new(16).at;
    // SAFETY: the host side is valid for 16 bytes.
    unsafe {
        assert_eq!(hipMemcpy(host, host, 16, H2D), 1);
        assert_eq!(hipMemcpy(host, host, 16, D2H), 1);
        assert_eq!(hipMemcpy(buffer.at, host, 16, D2D), 1);
        assert_eq!(hipMemcpy(dead, host, 16, H2D), 1);
        assert_eq!(hipMemset(host, 0, 16), 1);
        assert_eq!(hipMemcpy(buffer.at, std::ptr::null(), 16, H2D), 1);
        assert_eq!(hipMemcpy(std::ptr::null_mut(), host, 16, DEFAULT), 1);
        for kind in [-1, 5, 1023] {
            assert_eq!(hipMemcpy(buffer.at, host, 16, kind), 21);
        }
        ok(hipMemcpy(std::ptr::null_mut(), std::ptr::null(), 0, H2D));
    }
}

#[test]
fn rows_are_moved_by_their_pitches() {
    let _guard = start();
    let source: Vec<u8> = (0..30).collect();
    let buffer = Buffer::of(&[0xFF; 28]);
    // SAFETY: three rows of seven bytes in a pitch of ten lie in the source.
    unsafe {
        ok(hipMemcpy2D(buffer.at, 8, source.as_ptr().cast(), 10, 7, 3, H2D));
        let mut want = [0xFF; 28];
        for row in 0..3 {
            want[row * 8..row * 8 + 7].copy_from_slice(&source[row * 10..row * 10 + 7]);
        }
        assert_eq!(buffer.read(), want);
        assert_eq!(hipMemcpy2D(buffer.at, 6, source.as_ptr().cast(), 10, 7, 3, H2D), 12);
        assert_eq!(hipMemcpy2D(buffer.at, 11, source.as_ptr().cast(), 10, 7, 3, H2D), 1, "leaves the allocation");
        assert_eq!(hipMemcpy2D(buffer.at, usize::MAX, source.as_ptr().cast(), 10, 7, 3, H2D), 1);
        ok(hipMemcpy2DAsync(buffer.at, 0, source.as_ptr().cast(), 0, 0, 3, H2D, NULL_STREAM));
    }
}

#[test]
fn fills_take_elements_of_one_two_and_four_bytes() {
    let _guard = start();
    let buffer = Buffer::new(8);
    // SAFETY: the destination is checked by the library.
    unsafe {
        ok(hipMemset(buffer.at, 0x1FF, 8));
        assert_eq!(buffer.read(), [0xFF; 8]);
        ok(hipMemsetD8(buffer.at, 7, 8));
        assert_eq!(buffer.read(), [7; 8]);
        ok(hipMemsetD16(buffer.offset(2), 0x0102, 2));
        let [a, b] = 0x0102u16.to_ne_bytes();
        assert_eq!(buffer.read(), [7, 7, a, b, a, b, 7, 7]);
        ok(hipMemsetD32(buffer.offset(4), -2, 1));
        assert_eq!(buffer.read()[4..], (-2i32).to_ne_bytes());
        assert_eq!(hipMemsetD32(buffer.offset(4), 0, 2), 1);
        assert_eq!(hipMemsetD32(buffer.offset(2), 0, 1), 1, "not aligned");
        assert_eq!(hipMemsetD16(buffer.at, 0, usize::MAX), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A copy is done completely or rejected completely, and rejected exactly if it exceeds an allocation.
    #[test]
    fn copies_stay_inside_their_allocations(size in 1usize..64, at in 0usize..80, bytes in prop_oneof![1usize..80, Just(usize::MAX)]) {
        let _guard = start();
        let before = vec![0x11u8; size];
        let buffer = Buffer::of(&before);
        let source = [0x22u8; 80];
        let inside = at < size && bytes <= size - at;
        // SAFETY: a copy that is not rejected is at most 64 bytes long.
        let status = unsafe { hipMemcpy(buffer.offset(at), source.as_ptr().cast(), bytes, H2D) };
        prop_assert_eq!(status, if inside { 0 } else { 1 });
        // SAFETY: the destination is checked by the library.
        prop_assert_eq!(unsafe { hipMemset(buffer.offset(at), 0x22, bytes) }, status);
        let mut want = before;
        if inside {
            want[at..at + bytes].fill(0x22);
        }
        prop_assert_eq!(buffer.read(), want);
    }
}
