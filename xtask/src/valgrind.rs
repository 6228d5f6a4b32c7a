//! Memory errors and leaks over register, run, unregister, as valgrind sees them.
//!
//! ONNX Runtime has findings of its own; only a record with a frame in one of our libraries counts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::shell;
use crate::test::{Context, Outcome};

const OUR_LIBRARIES: [&str; 2] = ["libamdgpu-ep.so", "libhip-host.so"];

/// Leaks that may be somebody's intention: reachable at exit, or held by an interior pointer.
const NOT_AN_ERROR: [&str; 2] = ["Leak_StillReachable", "Leak_PossiblyLost"];

/// Runs testkit's `ort_cycle` under valgrind.
///
/// # Errors
/// When the program fails or valgrind reports an error with a frame in our code.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    if let Err(reason) = install() {
        return Ok(Outcome::Skipped(reason));
    }
    let stage = context.stage()?;
    context.python()?;
    let program = example(context)?;
    let report = context.workspace.target().join("test-results").join("valgrind.xml");
    fs::create_dir_all(report.parent().unwrap_or(&report))?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .current_dir(context.workspace.root())
        // A library is unmapped before the leak search at exit: without its debug information the frames would be nameless.
        .args(["--quiet", "--leak-check=full", "--keep-debuginfo=yes", "--num-callers=40", "--xml=yes"])
        .arg(format!("--xml-file={}", report.display()))
        .arg(&program)
        .arg(stage.umbrella())
        .arg("3")
        .env("AMDGPU_EP_DRIVER", "host");
    shell::run(&mut valgrind)?;
    let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    if !report.contains("</valgrindoutput>") {
        bail!("valgrind's report is cut short: the program did not end normally");
    }
    let records = records(&report);
    let ours: Vec<&Record> = records.iter().filter(|record| record.is_ours()).collect();
    for record in &ours {
        println!("{}\n{}", record.kind, record.stack);
    }
    if !ours.is_empty() {
        bail!("valgrind reports {} errors with frames in our libraries", ours.len());
    }
    Ok(Outcome::Passed(format!("3 cycles, {} records, none of them ours", records.len())))
}

fn install() -> Result<(), String> {
    if shell::succeeds("valgrind", &["--version"]) {
        return Ok(());
    }
    let root = shell::capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || !shell::succeeds("apt-get", &["--version"]) {
        return Err("valgrind is not installed, and cannot be without root and apt-get".into());
    }
    println!("installing valgrind with apt-get");
    let mut apt = Command::new("sh");
    apt.args(["-c", "apt-get update -q && apt-get install -q -y --no-install-recommends valgrind"]);
    shell::capture(apt.env("DEBIAN_FRONTEND", "noninteractive")).map_err(|error| {
        format!("apt-get cannot install valgrind: {}", error.to_string().lines().last().unwrap_or_default().trim())
    })?;
    Ok(())
}

fn example(context: &Context<'_>) -> Result<PathBuf> {
    let mut build = shell::cargo(context.workspace.root());
    build.args(["build", "--package", "testkit", "--example", "ort_cycle"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = shell::capture_stdout(&mut build)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = messages
        .filter(|message| message["target"]["name"] == "ort_cycle")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo built no example ort_cycle")
}

/// One `<error>` of valgrind's XML.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    kind: String,
    /// One line a frame: `function (object)`.
    stack: String,
}

impl Record {
    fn is_ours(&self) -> bool {
        !NOT_AN_ERROR.contains(&self.kind.as_str()) && OUR_LIBRARIES.iter().any(|library| self.stack.contains(library))
    }
}

fn records(report: &str) -> Vec<Record> {
    let errors = report.split("<error>").skip(1).filter_map(|rest| rest.split("</error>").next());
    errors.map(|error| Record { kind: text_of(error, "kind").to_owned(), stack: stack(error) }).collect()
}

fn stack(error: &str) -> String {
    let frames = error.split("<frame>").skip(1).filter_map(|rest| rest.split("</frame>").next());
    frames.map(|frame| format!("    {} ({})\n", text_of(frame, "fn"), text_of(frame, "obj"))).collect()
}

fn text_of<'a>(element: &'a str, tag: &str) -> &'a str {
    let opening = format!("<{tag}>");
    element
        .split_once(&opening)
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("?", |(text, _)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "<valgrindoutput>
        <error><kind>Leak_DefinitelyLost</kind><stack>
          <frame><ip>0x1</ip><obj>/usr/lib/valgrind/vgpreload.so</obj><fn>malloc</fn></frame>
          <frame><ip>0x2</ip><obj>/t/lib/libamdgpu-ep.so</obj><fn>alloc</fn></frame></stack></error>
        <error><kind>UninitCondition</kind><stack>
          <frame><obj>/t/libonnxruntime.so.1</obj><fn>run</fn></frame></stack></error>
        <error><kind>Leak_StillReachable</kind><stack>
          <frame><obj>/t/lib/libhip-host.so</obj></frame></stack></error>
        </valgrindoutput>";

    #[test]
    fn reads_kind_and_frames_of_each_record() {
        let records = records(REPORT);
        assert_eq!(records.len(), 3);
        assert_eq!(records[0].kind, "Leak_DefinitelyLost");
        assert!(records[0].stack.contains("malloc (/usr/lib/valgrind/vgpreload.so)"), "{}", records[0].stack);
        assert!(records[2].stack.contains("? (/t/lib/libhip-host.so)"), "{}", records[2].stack);
    }

    #[test]
    fn counts_only_errors_with_a_frame_of_ours() {
        let ours: Vec<bool> = records(REPORT).iter().map(Record::is_ours).collect();
        assert_eq!(ours, [true, false, false]);
    }
}
