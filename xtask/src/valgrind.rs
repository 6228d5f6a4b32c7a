//! Checks register, run and unregister for memory errors and leaks with valgrind.
//!
//! valgrind also reports ONNX Runtime's own errors; only a record with a frame in one of our libraries counts.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::test::{Context, Outcome};
use crate::{built, debian, output, shell};

const OUR_LIBRARIES: [&str; 3] = ["libamdgpu-ep.so", "libhip-backend.so", "libhip-host.so"];

/// Leaks that may be intentional: reachable at exit, or held by an interior pointer.
const NOT_AN_ERROR: [&str; 2] = ["Leak_StillReachable", "Leak_PossiblyLost"];

/// Runs ort-client's `ort_cycle` under valgrind.
///
/// # Errors
/// When the program fails or valgrind reports an error with a frame in our code.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    if let Err(reason) = debian::install(&["valgrind"], &["valgrind"]) {
        return Ok(Outcome::Skipped(reason));
    }
    let stage = context.stage()?;
    context.python()?;
    let program = built::example(context.workspace, "ort-client", "ort_cycle")?;
    let report = context.workspace.target().join("test-results").join("valgrind.xml");
    fs::create_dir_all(report.parent().unwrap_or(&report))?;
    let mut valgrind = shell::user_program("valgrind");
    valgrind
        .current_dir(context.workspace.root())
        // Libraries are unmapped before the leak search at exit: without kept debug information, their frames would
        // have no names.
        .args(["--quiet", "--leak-check=full", "--keep-debuginfo=yes", "--num-callers=40", "--xml=yes"])
        .arg(format!("--xml-file={}", report.display()))
        .arg(&program)
        .arg(stage.umbrella())
        .arg("3")
        .env("AMDGPU_EP_DRIVER", "host");
    shell::run(&mut valgrind)?;
    let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    if !report.contains("</valgrindoutput>") {
        bail!("valgrind's report is truncated: the program did not exit normally");
    }
    let records = records(&report);
    let ours: Vec<&Record> = records.iter().filter(|record| record.is_ours()).collect();
    let distinct: BTreeSet<&Record> = ours.iter().copied().collect();
    for record in &distinct {
        output::say(format_args!("{}: {}\n{}", record.kind, record.what, record.stack));
    }
    if !ours.is_empty() {
        bail!("valgrind reports {} errors ({} distinct) with frames in our libraries", ours.len(), distinct.len());
    }
    Ok(Outcome::Passed(format!("3 cycles, {} records, none in our libraries", records.len())))
}

/// One `<error>` of valgrind's XML.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    kind: String,
    /// valgrind's description, without the running numbers, so that equal records compare equal.
    what: String,
    /// One line per frame: `function (object) file:line`.
    stack: String,
}

impl Record {
    fn is_ours(&self) -> bool {
        !NOT_AN_ERROR.contains(&self.kind.as_str()) && OUR_LIBRARIES.iter().any(|library| self.stack.contains(library))
    }
}

fn records(report: &str) -> Vec<Record> {
    let errors = report.split("<error>").skip(1).filter_map(|rest| rest.split("</error>").next());
    errors
        .map(|error| {
            let what =
                error.split_once("<xwhat>").map_or_else(|| text_of(error, "what"), |(_, rest)| text_of(rest, "text"));
            let what = what.split(" in loss record").next().unwrap_or_default().to_owned();
            Record { kind: text_of(error, "kind"), what, stack: stack(error) }
        })
        .collect()
}

fn stack(error: &str) -> String {
    let frames = error.split("<frame>").skip(1).filter_map(|rest| rest.split("</frame>").next());
    let line = |frame: &str| {
        let object = text_of(frame, "obj");
        let object = object.rsplit('/').next().unwrap_or_default();
        format!("    {} ({object}) {}:{}\n", text_of(frame, "fn"), text_of(frame, "file"), text_of(frame, "line"))
    };
    frames.map(line).collect()
}

fn text_of(element: &str, tag: &str) -> String {
    let opening = format!("<{tag}>");
    let text = element
        .split_once(&opening)
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("?", |(text, _)| text.trim());
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "<valgrindoutput>
        <error><kind>Leak_DefinitelyLost</kind><xwhat><text>8 bytes in 1 blocks are definitely lost in loss record 7 of
          70</text></xwhat><stack>
          <frame><ip>0x1</ip><obj>/usr/lib/valgrind/vgpreload.so</obj><fn>malloc</fn></frame>
          <frame><ip>0x2</ip><obj>/t/lib/libamdgpu-ep.so</obj><fn>alloc&lt;u8&gt;</fn><file>a.rs</file><line>7</line>
          </frame></stack></error>
        <error><kind>UninitCondition</kind><what>Jump depends on an uninitialised value</what><stack>
          <frame><obj>/t/libonnxruntime.so.1</obj><fn>run</fn></frame></stack></error>
        <error><kind>Leak_StillReachable</kind><stack>
          <frame><obj>/t/lib/libhip-host.so</obj></frame></stack></error>
        </valgrindoutput>";

    #[test]
    fn reads_kind_and_frames_of_each_record() {
        let records = records(REPORT);
        assert_eq!(records.len(), 3);
        assert_eq!(records[0].kind, "Leak_DefinitelyLost");
        assert_eq!(records[0].what, "8 bytes in 1 blocks are definitely lost");
        assert_eq!(records[0].stack, "    malloc (vgpreload.so) ?:?\n    alloc<u8> (libamdgpu-ep.so) a.rs:7\n");
        assert_eq!(records[1].what, "Jump depends on an uninitialised value");
        assert_eq!(records[2].stack, "    ? (libhip-host.so) ?:?\n");
    }

    #[test]
    fn counts_only_errors_with_a_frame_of_ours() {
        let ours: Vec<bool> = records(REPORT).iter().map(Record::is_ours).collect();
        assert_eq!(ours, [true, false, false]);
    }
}
