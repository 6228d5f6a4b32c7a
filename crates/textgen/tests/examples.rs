//! Runs the examples of the course with the demo model. Their answers are those that ONNX Runtime GenAI gave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::place;
use textgen::{ChatTemplate, Config, Message};

/// Runs an example with these arguments and this input, and returns what it printed. `None`, after printing why, if
/// something was not set up.
fn run(example: &str, arguments: &[&str], input: &str) -> Option<String> {
    let onnxruntime = match place::onnxruntime() {
        Ok(library) => library,
        Err(reason) => {
            println!("skipped: {reason}");
            return None;
        }
    };
    // Cargo runs tests from `<profile>/deps` and puts examples beside that folder.
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(example);
    if !program.exists() {
        println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", program.display());
        return None;
    }
    let mut command = Command::new(program);
    command.arg(onnxruntime).arg(demo().join("model")).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn demo() -> std::path::PathBuf {
    place::root().join("demo")
}

/// The recorded answer to these messages of the user, with a seed or without sampling.
fn recorded(questions: &[&str], seed: Option<u64>) -> String {
    let goldens = std::fs::read_to_string(demo().join("goldens.json")).unwrap();
    let goldens: Vec<Value> = serde_json::from_str(&goldens).unwrap();
    let is_wanted = |golden: &&Value| {
        let messages = golden["messages"].as_array().unwrap().iter();
        let asked: Vec<&str> = messages
            .filter(|message| message["role"] == "user")
            .filter_map(|message| message["content"].as_str())
            .collect();
        asked == questions && golden["search"]["random_seed"].as_u64() == seed
    };
    let found = goldens.iter().find(is_wanted).unwrap_or_else(|| panic!("no answer to {questions:?} was recorded"));
    found["text"].as_str().unwrap().trim().to_owned()
}

#[test]
fn the_first_example_continues_a_prompt() {
    let question = "What does a cow say?";
    let config = Config::from_folder(Path::new(&demo().join("model"))).unwrap();
    let template = ChatTemplate::from_folder(&config).unwrap();
    let prompt = template.render(&[Message::new("user", question)], true).unwrap();
    let Some(text) = run("01-generate", &[&prompt], "") else { return };
    assert_eq!(text.trim(), recorded(&[question], None));
}

#[test]
fn the_second_example_remembers_the_conversation() {
    let questions = ["Zoe is in the cave. Zoe has a blue lamp. Where is Zoe?", "What does Zoe have?"];
    let Some(text) = run("02-chat", &[], &format!("{}\n{}\n", questions[0], questions[1])) else { return };
    let wanted = [recorded(&questions[..1], None), recorded(&questions, None)];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn the_third_example_draws_what_a_seed_determines() {
    let question = "Tell me a story about Mia the fox and a kite.";
    let Some(text) = run("03-sampling", &[question], "") else { return };
    let wanted = [("greedy", None), ("seed 1", Some(1)), ("seed 2", Some(2))];
    let wanted: Vec<String> =
        wanted.into_iter().map(|(name, seed)| format!("{name}: {}", recorded(&[question], seed))).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn the_fifth_example_answers_several_questions_at_once() {
    let questions = ["What does a cow say?", "Tell me a story about Mia the fox and a kite."];
    let questions = [questions[0], questions[1], questions[0]];
    let Some(text) = run("05-batching", &questions, "") else { return };
    let wanted: Vec<String> = questions.iter().map(|&question| recorded(&[question], None)).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}
