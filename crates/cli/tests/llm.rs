//! Runs `generate`, `chat` and `bench-llm` as a user would: with a real ONNX Runtime, a tiny model and the staged
//! provider.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::llm::TinyDecoder;
use testkit::place;

/// A model folder, and the libraries to run it with.
struct Bench {
    folder: TempDir,
    ort: PathBuf,
    library: PathBuf,
}

impl Bench {
    /// `None`, with a printed reason, if something is not installed.
    fn new() -> Option<Bench> {
        let (ort, library) = place::provider_on_host()?;
        let folder = tempfile::tempdir().unwrap();
        TinyDecoder::new(5).write(folder.path(), true).unwrap();
        Some(Bench { folder, ort, library })
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
        command.arg(name).arg(self.folder.path()).args(arguments).arg("--ort").arg(&self.ort);
        command.env_remove("AMDGPU_EP_LOG").env_remove("AMDGPU_EP_PATH").env("AMDGPU_EP_DRIVER", "host");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The command with the staged provider.
    fn with_provider(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(name, arguments);
        command.arg("--library").arg(&self.library);
        command
    }
}

fn feed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    // A command that fails early ends without reading its input.
    let written = child.stdin.take().unwrap().write_all(input);
    assert!(written.is_ok() || written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    document
}

#[test]
fn a_prompt_is_an_argument_or_the_standard_input() {
    let Some(bench) = Bench::new() else { return };
    let limits = ["--max-new-tokens", "12"];
    let argument = feed(bench.with_provider("generate", &[&["Hello"], &limits[..]].concat()), b"");
    assert_eq!((argument.status.code(), stderr(&argument).as_str()), (Some(0), ""));
    assert!(argument.stdout.ends_with(b"\n"));
    for dash in [&[][..], &["-"]] {
        let standard = feed(bench.with_provider("generate", &[dash, &limits[..]].concat()), b"Hello\n");
        assert_eq!(standard.stdout, argument.stdout);
    }
}

#[test]
fn the_document_has_the_provider_and_the_text() {
    let Some(bench) = Bench::new() else { return };
    let arguments = ["Hello", "--max-new-tokens", "12", "--json"];
    let device = json(&feed(bench.with_provider("generate", &arguments), b""));
    assert_eq!(device["provider"], "AMDGPUExecutionProvider (driver host)");
    assert_eq!(device["prompt_tokens"], serde_json::json!([72, 101, 108, 108, 111]));
    assert_eq!(device["tokens"].as_array().unwrap().len(), 12);
    assert_eq!((device["finish"].as_str(), device["notices"].as_array().unwrap().len()), (Some("max_new_tokens"), 0));
    let cpu = json(&feed(bench.command("generate", &[&arguments[..], &["--provider", "cpu"]].concat()), b""));
    assert_eq!(cpu["provider"], "CPUExecutionProvider");
    assert_eq!(cpu["tokens"], device["tokens"], "the device and the CPU generate the same text");
}

#[test]
fn a_measurement_counts_every_step_of_every_provider() {
    let Some(bench) = Bench::new() else { return };
    let plot = bench.folder.path().join("speed.svg");
    let sizes = ["--prompts", "3,6", "--batches", "1,2", "--new-tokens", "4", "--rounds", "2", "--bandwidth", "10"];
    let arguments = [&sizes[..], &["--cpu", "--threads", "1", "--json", "--plot", plot.to_str().unwrap()]].concat();
    let report = json(&feed(bench.with_provider("bench-llm", &arguments), b""));
    let measured = report["measurements"].as_array().unwrap();
    assert_eq!(measured.len(), 2 * 2 * 2);
    for (index, one) in measured.iter().enumerate() {
        assert_eq!(one["provider"] == "CPUExecutionProvider", index % 2 == 1, "{one}");
        assert_eq!((&one["first_token"]["runs"], &one["step"]["runs"]), (&Value::from(2), &Value::from(2 * 3)));
        let step_seconds = one["step"]["median_ms"].as_f64().unwrap() / 1e3;
        let rate = one["batch"].as_f64().unwrap() / step_seconds;
        assert!((one["tokens_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{one}");
        assert!(one["step_bytes_at_most"].as_u64() > report["weight_bytes"].as_u64(), "{one}");
        let share = one["step_bytes_at_most"].as_f64().unwrap() / 10e9 / step_seconds;
        assert!((one["bandwidth_share_at_most"].as_f64().unwrap() / share - 1.0).abs() < 1e-9, "{one}");
    }
    let plot = std::fs::read_to_string(plot).unwrap();
    assert_eq!(plot.matches("<polyline").count(), 2 * 2, "{plot}");
    let refused = feed(bench.with_provider("bench-llm", &["--prompts", "0"]), b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("must be at least 1"), "{}", stderr(&refused));
}

#[test]
fn a_record_of_memory_that_the_user_names_is_written() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.folder.path().join("memory.jsonl");
    let option = format!("ep.hip.memory_file={}", file.display());
    let arguments = ["--prompts", "3", "--new-tokens", "2", "--rounds", "1", "--json"];
    let counted = json(&feed(bench.with_provider("bench-llm", &arguments), b""));
    assert!(counted["memory"].is_object(), "{counted}");
    let named = json(&feed(bench.with_provider("bench-llm", &[&arguments[..], &["--option", &option]].concat()), b""));
    assert!(named["memory"].is_null(), "{named}");
    let lines = std::fs::read_to_string(file).unwrap();
    let line: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(line["device"], "host");
}

#[test]
fn sampling_is_repeatable_by_seed() {
    let Some(bench) = Bench::new() else { return };
    let tokens = |extra: &[&str]| {
        let arguments = [&["Hello", "--json", "--max-new-tokens", "16", "--provider", "cpu"], extra].concat();
        json(&feed(bench.command("generate", &arguments), b""))["tokens"].clone()
    };
    let greedy = tokens(&["--greedy"]);
    assert_eq!(tokens(&["--temperature", "0"]), greedy);
    assert_eq!(tokens(&["--top-k", "1"]), greedy);
    let drawn = tokens(&["--seed", "3", "--temperature", "3"]);
    assert_eq!(tokens(&["--seed", "3", "--temperature", "3"]), drawn);
    assert_ne!(drawn, greedy);
    let biased = tokens(&["--logit-bias", "65=1000"]);
    assert!(biased.as_array().unwrap().iter().all(|token| token == 65), "{biased}");
}

#[test]
fn without_a_device_the_cpu_is_used_with_a_note() {
    let Some(bench) = Bench::new() else { return };
    let mut command = bench.with_provider("generate", &["Hello", "--max-new-tokens", "3"]);
    command.env("AMDGPU_EP_DRIVER", "amd").env("AMDGPU_EP_HIP_LIBRARY", "there-is-no-such-library.so");
    let output = feed(command, b"");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "note: no usable AMD GPU; running on the CPU. Reason: plugin: it is registered but offers no device",
        "MIGraphX: ",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_named_profile_without_a_device_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    for (profile, legacy) in [("hip", false), ("migraphx", true), ("hipgpu", false)] {
        let mut command = bench.with_provider("generate", &["Hello", "--max-new-tokens", "3", "--profile", profile]);
        command.env("AMDGPU_EP_DRIVER", "amd").env("AMDGPU_EP_HIP_LIBRARY", "there-is-no-such-library.so");
        let output = feed(command, b"");
        let said = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{profile}: {said}");
        let problem = format!("profile {profile} cannot be used: no usable AMD GPU. Reason: plugin: it is registered");
        for part in [problem.as_str(), "help: ", "profile=auto"] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert_eq!(said.contains("MIGraphX: "), legacy, "{profile}: {said}");
    }
}

#[test]
fn a_missing_library_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    let mut by_variable = bench.command("generate", &["Hello"]);
    by_variable.env("AMDGPU_EP_PATH", "there-is-no-such-file.so");
    for command in [bench.command("generate", &["Hello", "--library", "there-is-no-such-file.so"]), by_variable] {
        let output = feed(command, b"");
        let said = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains("there-is-no-such-file.so") && said.contains("help:"), "{said}");
    }
}

#[test]
fn a_misspelled_option_is_an_error_with_and_without_a_device() {
    let Some(bench) = Bench::new() else { return };
    for (arguments, meant) in [
        (["--option", "foo=1"], "unknown option \"foo\""),
        (["--option", "device=1"], "did you mean \"device_id\""),
        (["--profile", "hipp"], "did you mean \"hip\""),
        (["--option", "ep.hip.bogus=1"], "unknown option \"bogus\""),
        (["--option", "ep.hip.replay=maybe"], "expected auto, on or off"),
        (["--option", "ep.migraphx.fp61_enable=1"], "did you mean \"fp16_enable\""),
    ] {
        for driver in ["host", "amd"] {
            let mut command = bench.with_provider("generate", &["Hello", "--max-new-tokens", "2"]);
            command.args(arguments).env("AMDGPU_EP_DRIVER", driver).env("AMDGPU_EP_HIP_LIBRARY", "there-is-none.so");
            let output = feed(command, b"");
            let said = stderr(&output);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?} {driver}: {said}");
            assert!(said.contains(meant) && said.contains("help:"), "{meant} is not in {said}");
        }
    }
}

#[test]
fn a_folder_may_not_name_files_and_the_command_line_may() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.folder.path().join("genai_config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let path = |name: &str| outside.path().join(name).to_str().unwrap().to_owned();
    let session = &mut config["model"]["decoder"]["session_options"];
    session["ep.hip.explain_file"] = path("by-folder").into();
    session["custom_ops_library"] = path("evil.so").into();
    session["provider_options"] =
        serde_json::json!([{"amdgpu": {"backend_library": path("evil.so"), "profile": "hip"}}]);
    std::fs::write(&file, config.to_string()).unwrap();

    let output = feed(bench.with_provider("generate", &["Hello", "--max-new-tokens", "2"]), b"");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let notices: Vec<&str> = said.lines().filter(|line| line.contains("may not set")).collect();
    assert_eq!(notices.len(), 1, "{said}");
    for key in ["genai_config.json", "custom_ops_library", "ep.hip.explain_file", "backend_library"] {
        assert!(notices[0].contains(key), "{key} is not in {said}");
    }
    assert!(!notices[0].contains("profile"), "{said}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);

    let option = format!("ep.hip.explain_file={}", path("by-user"));
    let output = feed(bench.with_provider("generate", &["Hello", "--max-new-tokens", "2", "--option", &option]), b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(std::fs::metadata(path("by-user")).unwrap().len() > 0);
}

#[test]
fn a_missing_required_gpu_is_exit_code_one() {
    let Some(bench) = Bench::new() else { return };
    let output = feed(bench.with_provider("generate", &["Hello", "--require-gpu"]), b"");
    let said = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("no usable AMD GPU") && said.contains("host device") && said.contains("help:"), "{said}");
    let output = feed(bench.command("generate", &["Hello", "--require-gpu", "--provider", "cpu"]), b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn wrong_usage_is_exit_code_two() {
    let Some(bench) = Bench::new() else { return };
    for arguments in [
        &["x", "--provider", "cuda"][..],
        &["x", "--greedy", "--seed", "1"],
        &["x", "--logit-bias", "a=b"],
        &["x", "--top-p", "7"],
        &["x", "--max-length", "100000"],
        &["x", "--system", "without a chat"],
    ] {
        let output = feed(bench.command("generate", arguments), b"");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {}", stderr(&output));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep")).args(["chat", "no-such-folder"]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("genai_config.json"), "{}", stderr(&output));
}

#[test]
fn a_conversation_has_commands() {
    let Some(bench) = Bench::new() else { return };
    let lines = b"hello\n/stats\n/history\n/nonsense\n/reset\n/history\n\n/quit\nnever\n";
    let output = feed(bench.with_provider("chat", &["--max-new-tokens", "4", "--system", "Be kind"]), lines);
    let (shown, said) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(shown.contains("messages      3\n") && shown.contains("driver host"), "{shown}");
    assert!(shown.contains("last answer   4 tokens") && shown.contains("user: hello\n"), "{shown}");
    assert!(shown.ends_with("system: Be kind\n"), "{shown}");
    assert_eq!(said, "note: unknown command /nonsense; /help lists them all\nnote: conversation cleared\n");
}

#[test]
fn a_conversation_ends_with_its_input() {
    let Some(bench) = Bench::new() else { return };
    let output = feed(bench.command("chat", &["--provider", "cpu", "--max-new-tokens", "2"]), b"hello");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn a_byte_that_is_not_text_does_not_end_a_conversation() {
    let Some(bench) = Bench::new() else { return };
    let arguments = ["--provider", "cpu", "--max-new-tokens", "2"];
    let output = feed(bench.command("chat", &arguments), b"hi\nh\xe9llo\nagain\n/history\n");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let shown = stdout(&output);
    assert!(["hi", "h\u{fffd}llo", "again"].iter().all(|said| shown.contains(&format!("user: {said}\n"))), "{shown}");
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let Some(bench) = Bench::new() else { return };
    // An answer that is still running when the signal arrives: the longest that fits, on the slow device.
    let arguments = ["--max-new-tokens", "100000", "--logit-bias", "65=1000"];
    let mut child = bench.with_provider("chat", &arguments).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(b"hello\n").unwrap();
    let mut first = [0];
    output.read_exact(&mut first).unwrap();
    interrupt(&child);
    let mut answer = Vec::new();
    output.read_until(b'\n', &mut answer).unwrap();
    input.write_all(b"/stats\n").unwrap();
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // If the machine was faster than the signal, the answer ran to its end.
    assert!(rest.contains("ended by cancelled") || rest.contains("ended by max_length"), "{rest}");
    assert!(rest.contains("messages      2\n"), "{rest}");
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
}

#[test]
fn answers_match_a_constraint() {
    let Some(bench) = Bench::new() else { return };
    let text = |form: &[&str]| {
        let arguments = [&["Hello", "--provider", "cpu", "--max-new-tokens", "200", "--seed", "3"], form].concat();
        let output = feed(bench.command("generate", &arguments), b"");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let word = text(&["--regex", "(yes|no), [0-9]{3}"]);
    let word = word.trim_end();
    assert!(word.starts_with("yes, ") || word.starts_with("no, "), "{word:?}");
    assert!(word.chars().rev().take(3).all(|letter| letter.is_ascii_digit()), "{word:?}");
    let schema = r#"{"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2, 3]}},
        "required": ["ok", "n"], "additionalProperties": false}"#;
    let document: Value = serde_json::from_str(&text(&["--json-schema", schema])).unwrap();
    assert!(document["ok"].is_boolean() && (1..=3).contains(&document["n"].as_u64().unwrap()), "{document}");
    let output = feed(bench.command("generate", &["x", "--provider", "cpu", "--regex", "("]), b"");
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("the constraint failed"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn text_is_exact_in_a_pipe_and_errors_show_control_characters() {
    let Some(bench) = Bench::new() else { return };
    // Tokens are bytes. 27 is the escape character, which terminals interpret.
    let escapes = ["Hello", "--provider", "cpu", "--max-new-tokens", "3", "--logit-bias", "27=1000"];
    let output = feed(bench.command("generate", &escapes), b"");
    assert_eq!((output.stdout.as_slice(), stderr(&output).as_str()), (&b"\x1b\x1b\x1b\n"[..], ""));
    let template = "{{ raise_exception('\u{1b}[2J\u{9b}31m \u{202e}gone') }}";
    std::fs::write(bench.folder.path().join("chat_template.jinja"), template).unwrap();
    let output = feed(bench.command("generate", &["Hello", "--provider", "cpu", "--chat"]), b"");
    let said = stderr(&output);
    assert!(said.contains("\\x1b[2J\\x9b31m \\u{202e}gone"), "{said:?}");
    assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{said:?}");
}

#[test]
fn endless_templates_do_not_end_a_conversation() {
    let Some(bench) = Bench::new() else { return };
    let doubling = "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    let path = bench.folder.path().join("chat_template.jinja");
    let text = format!("{{% if messages[0].content == 'grow' %}}{doubling}{{% endif %}}{{{{ messages[0].content }}}}");
    std::fs::write(&path, text).unwrap();
    let output = feed(bench.command("chat", &["--provider", "cpu", "--max-new-tokens", "2"]), b"grow\nhello\n/stats\n");
    let (said, shown) = (stderr(&output), stdout(&output));
    assert!(
        said.contains("chat_template.jinja: the chat template exceeded a limit") && said.contains("memory"),
        "{said}"
    );
    assert!(output.status.success() && shown.contains("messages      2\n"), "{said}{shown}");
}

#[test]
fn completions_are_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep")).args(["completions", "bash"]).output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("--max-new-tokens"));
}

#[test]
fn a_length_over_the_models_limit_is_named_as_it_was_typed() {
    let Some(bench) = Bench::new() else { return };
    for command in ["generate", "chat"] {
        for length in ["100000", "0"] {
            let output = feed(bench.command(command, &["--provider", "cpu", "--max-length", length]), b"hi\n");
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(error.starts_with(&format!("error: --max-length is {length}, ")), "{error}");
            assert!(error.contains("the model supports 1 to "), "{error}");
        }
    }
    let negative = feed(bench.command("generate", &["--seed", "-1"]), b"");
    assert!(stderr(&negative).contains("invalid value '-1' for '--seed"), "{}", stderr(&negative));
}

#[test]
fn a_missing_folder_is_reported_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep")).args(["generate", "/nowhere", "hi"]).output().unwrap();
    let error = stderr(&output);
    assert_eq!((error.matches("/nowhere").count(), error.matches("No such file").count()), (1, 1), "{error}");
}
