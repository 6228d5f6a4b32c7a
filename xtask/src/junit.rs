//! Reads JUnit reports, which both pytest and nextest write.

use std::path::Path;

use anyhow::{Result, anyhow};

/// The number of lines of a failed test's output to repeat, from the end.
const LINES: usize = 30;

/// The number of failed tests to show in full; more rarely help.
const TESTS: usize = 8;

/// Replaces a runner's error with the failed tests and their reasons, if its `report` has them.
///
/// # Errors
/// When the runner failed.
pub fn explained(ran: Result<()>, report: &Path) -> Result<()> {
    ran.map_err(|error| {
        let failures = std::fs::read_to_string(report).map(|text| failures(&text)).unwrap_or_default();
        // Drop the output tail from the error: the report has the same in order.
        let headline = error.to_string().lines().next().unwrap_or_default().to_owned();
        if failures.is_empty() { error } else { anyhow!("{headline}\n{}", shown(&failures)) }
    })
}

/// A failed test and its output.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    name: String,
    text: String,
}

fn failures(report: &str) -> Vec<Failure> {
    let cases = report.split("<testcase ").skip(1).filter_map(|rest| rest.split("</testcase>").next());
    cases
        .filter_map(|case| {
            let start = ["<failure", "<error"].iter().find_map(|tag| case.find(tag))?;
            let place = attribute(case, "classname").unwrap_or_default();
            let name = format!("{place}::{}", attribute(case, "name").unwrap_or_default());
            Some(Failure { name: unescaped(&name), text: said(&case[start..]) })
        })
        .collect()
}

/// The longest text of a failed case: pytest's is in the first element, nextest's in the captured output.
fn said(elements: &str) -> String {
    let texts = elements.split('<').filter_map(|element| element.split_once('>')).map(|(_, text)| text.trim());
    let longest = texts.max_by_key(|text| text.len()).unwrap_or_default();
    let message = attribute(elements, "message").unwrap_or_default();
    unescaped(if longest.is_empty() { message } else { longest })
}

fn shown(failures: &[Failure]) -> String {
    let mut lines = Vec::new();
    for failure in failures.iter().take(TESTS) {
        lines.push(format!("  {}", failure.name));
        let text: Vec<&str> = failure.text.lines().filter(|line| !line.trim().is_empty() && !is_frame(line)).collect();
        lines.extend(text[text.len().saturating_sub(LINES)..].iter().map(|line| format!("    {line}")));
    }
    if failures.len() > TESTS {
        let others = failures[TESTS..].iter().map(|failure| failure.name.as_str());
        lines.push(format!("  and {}", others.collect::<Vec<_>>().join(", ")));
    }
    lines.join("\n")
}

/// Whether a line belongs to a panic's backtrace, which would push the message out.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    line.starts_with("at /") || line.starts_with("at ./") || line.split_once(": ").is_some_and(|(n, _)| is_number(n))
}

/// An attribute of the element that `element` starts with, without unescaping.
pub fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let head = &element[..element.find('>')?];
    let marker = format!("{name}=\"");
    let starts = head.match_indices(&marker).map(|(at, _)| at);
    let start = starts.into_iter().find(|&at| at == 0 || head.as_bytes()[at - 1].is_ascii_whitespace())?;
    head[start + marker.len()..].split('"').next()
}

fn unescaped(text: &str) -> String {
    let known = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#10;", "\n"), ("&#xA;", "\n")];
    let text = known.iter().fold(text.to_owned(), |text, (written, meant)| text.replace(written, meant));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTEST: &str = r#"<testsuites><testsuite name="pytest" errors="0" failures="1" tests="2">
        <testcase classname="tests.a" name="good" time="0.1" /><testcase classname="tests.a" name="bad[x&lt;1]" time="0.2">
        <failure message="Failed: it ended with 1">it ended with 1
E       assert 1 &gt; 2
a.py:7: AssertionError</failure></testcase></testsuite></testsuites>"#;

    const NEXTEST: &str = r#"<testsuites name="r"><testsuite name="hip::driver" tests="1" failures="1">
        <testcase name="streams" classname="hip::driver" time="0.1">
            <failure message="thread panicked" type="test failure with exit code 101">at streams.rs:9</failure>
            <system-out>running 1 test</system-out><system-err>thread &apos;streams&apos; panicked at streams.rs:9:
two is not one</system-err></testcase></testsuite></testsuites>"#;

    #[test]
    fn failed_tests_are_named_with_their_messages() {
        let failed = failures(PYTEST);
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].name, "tests.a::bad[x<1]");
        assert!(failed[0].text.contains("assert 1 > 2\na.py:7"), "{failed:?}");
        let failed = failures(NEXTEST);
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].name, "hip::driver::streams");
        assert_eq!(failed[0].text, "thread 'streams' panicked at streams.rs:9:\ntwo is not one");
    }

    #[test]
    fn long_texts_and_many_failures_are_cut_short() {
        let text: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let many: Vec<_> = (0..TESTS + 2).map(|n| Failure { name: format!("test {n}"), text: text.clone() }).collect();
        let shown = shown(&many);
        assert!(!shown.contains("line 69\n") && shown.contains("line 70\n") && shown.contains("line 99"), "{shown}");
        assert!(shown.ends_with("and test 8, test 9"), "{shown}");
    }

    #[test]
    fn stack_of_a_panic_is_left_out() {
        let text =
            "two is not one\nstack backtrace:\n   0: core::panicking\n             at /rustc/x.rs:1:2\nnote: more"
                .into();
        let shown = shown(&[Failure { name: "a".into(), text }]);
        assert_eq!(shown, "  a\n    two is not one\n    stack backtrace:\n    note: more");
    }

    #[test]
    fn a_missing_report_gives_the_runners_own_message() {
        let error = explained(Err(anyhow!("it broke\n  here")), Path::new("no-such-report.xml")).unwrap_err();
        assert_eq!(error.to_string(), "it broke\n  here");
    }
}
