//! Arbitrary bytes as `tokenizer.json`: each is rejected with an error message, or encodes and decodes texts.
#![no_main]

use std::path::Path;

use amdgpu_ep_fuzz::keep_caught_panics;
use libfuzzer_sys::fuzz_target;
use textgen::Tokenizer;

const TEXTS: [&str; 4] =
    ["", "Hello there, 12345!", "größe\u{301} 日本\u{1f600}\n\t", "<|im_start|>aaaaaaaaaaaaaaaaaaaaaaaaaaa"];

fuzz_target!(init: keep_caught_panics(), |bytes: &[u8]| {
    let read = Tokenizer::from_bytes(bytes.to_vec(), Path::new("tokenizer.json"));
    let Ok(tokenizer) = read.map_err(|error| assert!(!error.to_string().is_empty())) else {
        return;
    };
    for text in TEXTS {
        if let Ok(tokens) = tokenizer.encode(text) {
            let _ = tokenizer.decode(&tokens);
        }
    }
    let _ = tokenizer.decode(&[0, 1, u32::MAX]);
});
