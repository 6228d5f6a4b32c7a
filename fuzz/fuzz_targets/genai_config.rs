//! Arbitrary texts as `genai_config.json`: each is parsed, or rejected with an error message.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use textgen::Config;

fuzz_target!(|text: &str| {
    match Config::from_text(Path::new("/models/fuzzed"), text) {
        Ok(config) => drop(format!("{config:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
