//! Arbitrary bytes as `tokenizer.json`: each is refused with a sentence, or turns texts into tokens and back.
//!
//! The crate `tokenizers` panics at some files. `textgen` catches that, so only panics that reach the target end it; they are
//! printed if `RUST_BACKTRACE` is set.
#![no_main]

use std::{env, fs, panic, path::PathBuf, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use textgen::Tokenizer;

static FILE: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    (folder, file)
});

const TEXTS: [&str; 4] =
    ["", "Hello there, 12345!", "größe\u{301} 日本\u{1f600}\n\t", "<|im_start|>aaaaaaaaaaaaaaaaaaaaaaaaaaa"];

/// Replaces libFuzzer's hook, which ends the process before a panic can be caught.
fn replace_hook() {
    drop(panic::take_hook());
    if env::var_os("RUST_BACKTRACE").is_none() {
        panic::set_hook(Box::new(|_| {}));
    }
}

fuzz_target!(init: replace_hook(), |bytes: &[u8]| {
    fs::write(&FILE.1, bytes).unwrap();
    let Ok(tokenizer) = Tokenizer::from_file(&FILE.1).map_err(|error| assert!(!error.to_string().is_empty())) else {
        return;
    };
    for text in TEXTS {
        if let Ok(tokens) = tokenizer.encode(text) {
            let _ = tokenizer.decode(&tokens);
        }
    }
    let _ = tokenizer.decode(&[0, 1, u32::MAX]);
});
