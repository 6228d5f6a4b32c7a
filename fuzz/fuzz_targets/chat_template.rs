//! Arbitrary texts as chat templates: each renders or fails with an error message, within the run's time and memory
//! limits.
#![no_main]

use std::path::Path;

use amdgpu_ep_fuzz::keep_caught_panics;
use libfuzzer_sys::fuzz_target;
use textgen::{ChatTemplate, Message};

fuzz_target!(init: keep_caught_panics(), |text: &str| {
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "Hello, {{ world }}"),
        Message::new("assistant", "<tag>&amp;"),
        Message::new("user", ""),
    ];
    let template = ChatTemplate::from_text(text, Path::new("chat_template.jinja"));
    if let Err(error) = template.and_then(|template| template.render(&messages, true)) {
        assert!(!error.to_string().is_empty());
    }
});
