//! Broken model folders: each gives an error that names the file and how to fix it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::llm::TinyDecoder;
use textgen::{ChatTemplate, Config, Generator, GeneratorOptions, Tokenizer};

use common::{On, config, load};

struct Case {
    name: &'static str,
    spoil: fn(&Path),
    /// Parts of the error message.
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case { name: "no folder", spoil: |folder| fs::remove_dir_all(folder).unwrap(), says: &["genai_config.json"] },
    Case { name: "no config", spoil: |folder| remove(folder, "genai_config.json"), says: &["genai_config.json"] },
    Case {
        name: "no decoder",
        spoil: |folder| remove(folder, "model.onnx"),
        says: &["model.onnx", "decoder.filename"],
    },
    Case { name: "no tokenizer", spoil: |folder| remove(folder, "tokenizer.json"), says: &["tokenizer.json"] },
    Case {
        name: "a decoder that is not a model",
        spoil: |folder| fs::write(folder.join("model.onnx"), "not a model").unwrap(),
        says: &["model.onnx", "damaged"],
    },
    Case { name: "half a decoder", spoil: |folder| halve(folder, "model.onnx"), says: &["model.onnx", "damaged"] },
    Case {
        name: "half a config",
        spoil: |folder| halve(folder, "genai_config.json"),
        says: &["genai_config.json", "JSON"],
    },
    Case { name: "half a tokenizer", spoil: |folder| halve(folder, "tokenizer.json"), says: &["tokenizer.json"] },
    Case {
        name: "a tokenizer of nothing",
        spoil: |folder| fs::write(folder.join("tokenizer.json"), "{}").unwrap(),
        says: &["tokenizer.json"],
    },
    Case {
        name: "a template that is damaged",
        spoil: |folder| fs::write(folder.join("chat_template.jinja"), "{% for %}").unwrap(),
        says: &["chat_template.jinja"],
    },
    Case {
        name: "no template",
        spoil: |folder| fs::write(folder.join("tokenizer_config.json"), "{}").unwrap(),
        says: &["tokenizer_config.json", "chat_template"],
    },
    Case {
        name: "a wrong type",
        spoil: |folder| set(folder, "/model/vocab_size", json!("many")),
        says: &["genai_config.json", "model.vocab_size"],
    },
    Case {
        name: "no vocabulary",
        spoil: |folder| set(folder, "/model/vocab_size", json!(0)),
        says: &["model.vocab_size"],
    },
    Case {
        name: "another vocabulary",
        spoil: |folder| set(folder, "/model/vocab_size", json!(300)),
        says: &["model.onnx", "model.vocab_size", "260"],
    },
    Case {
        name: "a kind that is not a name",
        spoil: |folder| set(folder, "/model/type", json!("tele pathy")),
        says: &["model.type", "tele pathy", "llama"],
    },
    Case {
        name: "a context beyond numbers",
        spoil: |folder| set(folder, "/model/context_length", json!(1u64 << 40)),
        says: &["model.context_length"],
    },
    Case {
        name: "a context beyond memory",
        spoil: |folder| {
            set(folder, "/model/context_length", json!(i32::MAX));
            set(folder, "/search/max_length", json!(i32::MAX));
            set(folder, "/model/decoder/num_key_value_heads", json!(1 << 20));
        },
        says: &["max_length"],
    },
    Case {
        name: "a layer that is not there",
        spoil: |folder| set(folder, "/model/decoder/inputs/past_key_names", json!("past.%d.key")),
        says: &["model.onnx", "past_key_values.0.key", "model.decoder.inputs"],
    },
    Case {
        name: "no such output",
        spoil: |folder| set(folder, "/model/decoder/outputs/logits", json!("scores")),
        says: &["model.onnx", "scores", "model.decoder.outputs.logits"],
    },
    Case {
        name: "a file outside",
        spoil: |folder| set(folder, "/model/decoder/filename", json!("../model.onnx")),
        says: &["model.decoder.filename", ".."],
    },
];

/// Files of a folder. Each is replaced by a special file, which would block or never end if it were read.
const FILES: [&str; 6] = [
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.onnx",
    "weights.bin",
];

/// Creates a special file at a path.
#[cfg(unix)]
type Make = fn(&Path);

/// Files that are not regular files.
#[cfg(unix)]
const SPECIAL: [(&str, Make); 4] = [
    ("a pipe", |path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success())),
    ("a link to a device", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
    ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
    ("a folder", |path| fs::create_dir(path).unwrap()),
];

/// How long opening a folder may take before it counts as hanging.
#[cfg(unix)]
const HANGS: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(unix)]
#[test]
fn a_file_that_is_not_regular_is_refused_at_once() {
    if let Err(reason) = testkit::place::onnxruntime() {
        println!("skipped: {reason}");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for file in FILES {
        for (number, (kind, make)) in SPECIAL.iter().enumerate() {
            // External data may be in subfolders, so a folder is allowed there.
            if file == "weights.bin" && *kind == "a folder" {
                continue;
            }
            let folder = parent.path().join(format!("{file}{number}"));
            TinyDecoder::new(5).write(&folder, true).unwrap();
            let _ = fs::remove_file(folder.join(file));
            make(&folder.join(file));
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || sender.send(open(&folder)));
            let error = match receiver.recv_timeout(HANGS) {
                Ok(Ok(())) => panic!("{kind} as {file}: opened without an error"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => panic!("{kind} as {file}: opening it hung"),
            };
            assert!(error.contains(file) && error.contains("help:"), "{kind} as {file}: {error}");
            let named = if *kind == "a folder" { "it is a folder" } else { "it is a pipe, a socket or a device" };
            assert!(error.contains(named), "{kind} as {file}: {error}");
        }
    }
}

#[test]
fn huge_files_are_refused_before_they_are_read() {
    let parent = tempfile::tempdir().unwrap();
    for file in &FILES[..4] {
        let folder = parent.path().join(file);
        TinyDecoder::new(5).write(&folder, true).unwrap();
        // A sparse file, which takes no disk space.
        fs::File::create(folder.join(file)).unwrap().set_len(1 << 40).unwrap();
        let error = match open(&folder) {
            Ok(()) => panic!("{file}: opened without an error"),
            Err(error) => format!("{error:#}"),
        };
        let says = [file, "it has 1099511627776 bytes, but the limit is", "help:"];
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    }
}

fn remove(folder: &Path, file: &str) {
    fs::remove_file(folder.join(file)).unwrap();
}

fn halve(folder: &Path, file: &str) {
    let bytes = fs::read(folder.join(file)).unwrap();
    fs::write(folder.join(file), &bytes[..bytes.len() / 2]).unwrap();
}

fn set(folder: &Path, field: &str, value: Value) {
    let path = folder.join("genai_config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    *config.pointer_mut(field).unwrap() = value;
    fs::write(path, config.to_string()).unwrap();
}

/// All operations that a command performs on a folder.
fn open(folder: &Path) -> anyhow::Result<()> {
    let read = Config::from_folder(folder)?;
    Tokenizer::from_folder(&read)?;
    ChatTemplate::from_folder(&read)?;
    let model = load(&config(folder, On::Cpu)?)?;
    Generator::new(&model, GeneratorOptions { batch: 32, ..GeneratorOptions::default() })?;
    Ok(())
}

#[test]
fn every_bad_folder_gives_a_readable_error() {
    if let Err(reason) = testkit::place::onnxruntime() {
        println!("skipped: {reason}");
        return;
    }
    let decoder = TinyDecoder::new(5);
    let parent = tempfile::tempdir().unwrap();
    let good = parent.path().join("good");
    decoder.write(&good, true).unwrap();
    open(&good).unwrap();
    for (index, Case { name, spoil, says }) in CASES.iter().enumerate() {
        let folder = parent.path().join(index.to_string());
        decoder.write(&folder, true).unwrap();
        spoil(&folder);
        let error = match open(&folder) {
            Ok(()) => panic!("{name}: opened without an error"),
            Err(error) => format!("{error:#}"),
        };
        assert!(error.contains("\n  help: "), "{name}: {error}");
        for part in *says {
            assert!(error.contains(part), "{name}: {part:?} is not in {error}");
        }
    }
}
