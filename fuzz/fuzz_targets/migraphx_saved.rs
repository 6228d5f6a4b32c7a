//! Arbitrary bytes as a saved program of MIGraphX: its head is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use migraphx_backend::mgx::SavedHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = SavedHeader::of_bytes(bytes) {
        // What is in front of the version decides; what follows does not matter.
        assert_eq!(SavedHeader::of_bytes(&[bytes, b"more"].concat()), Some(header));
    }
});
