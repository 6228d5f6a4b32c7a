//! Arbitrary texts as chat templates: each renders, or is refused with a sentence, within the time and memory of the run.
#![no_main]

use std::{fs, path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use textgen::{ChatTemplate, Config, Message};

/// A model folder whose template changes, and its configuration.
static FOLDER: LazyLock<(tempfile::TempDir, Config)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let special = r#"{"bos_token": "<s>", "eos_token": "</s>", "pad_token": null}"#;
    fs::write(folder.path().join("tokenizer_config.json"), special).unwrap();
    let config = include_str!("../../demo/model/genai_config.json");
    let config = Config::from_text(Path::new(folder.path()), config).unwrap();
    (folder, config)
});

fuzz_target!(|text: &str| {
    let (folder, config) = &*FOLDER;
    fs::write(folder.path().join("chat_template.jinja"), text).unwrap();
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "Hello, {{ world }}"),
        Message::new("assistant", "<tag>&amp;"),
        Message::new("user", ""),
    ];
    let rendered = ChatTemplate::from_folder(config).and_then(|template| template.render(&messages, true));
    if let Err(error) = rendered {
        assert!(!error.to_string().is_empty());
    }
});
