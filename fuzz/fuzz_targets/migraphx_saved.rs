//! Arbitrary bytes as a saved MIGraphX program: its header is parsed or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use migraphx_backend::mgx::SavedHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = SavedHeader::of_bytes(bytes) {
        // Only the bytes up to the version matter, not those after it.
        assert_eq!(SavedHeader::of_bytes(&[bytes, b"more"].concat()), Some(header));
    }
});
