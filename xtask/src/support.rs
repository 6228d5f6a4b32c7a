//! The support table: the outcome of the node tests, by operator, as a page of the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

/// The text before the count of placed tests in the page; [`recorded_placed`] reads it back.
const PLACED: &str = "Entirely on the device: **";

/// Verdicts of `python/conformance.py`.
#[derive(Debug)]
pub struct Report {
    operators: BTreeMap<(String, String), Counts>,
}

/// Tests of one operator by outcome.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    placed: usize,
    partly: usize,
    declined: usize,
    unusable: usize,
    bad: usize,
    /// How many of these test the operator's function body: placed, and usable.
    bodies_placed: usize,
    bodies_usable: usize,
}

impl Report {
    /// Reads the script's report.
    ///
    /// # Errors
    /// When it is not in the script's format.
    pub fn of(json: &str) -> Result<Self> {
        let rows: Vec<Value> = serde_json::from_str(json).context("the node tests' report is not a JSON list")?;
        let mut operators = BTreeMap::<_, Counts>::new();
        for row in &rows {
            let text = |key: &str| row[key].as_str().with_context(|| format!("a node test has no {key}"));
            let counts = operators.entry((text("domain")?.to_owned(), text("op")?.to_owned())).or_default();
            counts.add(text("verdict")?, text("test")?.contains("_expanded"));
        }
        Ok(Self { operators })
    }

    /// Tests that ran entirely on the device.
    pub fn placed(&self) -> usize {
        self.operators.values().map(|counts| counts.placed + counts.bodies_placed).sum()
    }

    fn usable(&self) -> usize {
        self.operators.values().map(|counts| counts.usable() + counts.bodies_usable).sum()
    }

    /// The page, with the engine's own lists: `supported` (domain, operator), and `left_alone` (domain, operator,
    /// reason).
    pub fn render(
        &self,
        supported: &[(&str, &str)],
        left_alone: &[(&str, &str, &str)],
        onnx: &str,
        runtime: &str,
    ) -> String {
        let mut page = header(onnx, runtime);
        let _ = writeln!(page, "{PLACED}{}** of {} usable tests.\n", self.placed(), self.usable());
        page.push_str("## Operators with node tests\n\n");
        page.push_str("| domain | operator | placed | partly | declined | unusable | function bodies placed |\n");
        page.push_str("|---|---|---|---|---|---|---|\n");
        for ((domain, op_type), counts) in &self.operators {
            let _ = writeln!(page, "| {} | {op_type} | {} |", shown(domain), counts.cells().join(" | "));
        }
        page.push_str("\n## Supported operators without node tests\n\n");
        page.push_str(
            "ONNX has no node tests for these. `crates/exec/tests` covers most of them, and the real models cover others.\n\n",
        );
        page.push_str("| domain | operator |\n|---|---|\n");
        let is_tested =
            |domain: &str, op_type: &str| self.operators.contains_key(&(domain.to_owned(), op_type.to_owned()));
        for (domain, op_type) in supported.iter().filter(|(domain, op_type)| !is_tested(domain, op_type)) {
            let _ = writeln!(page, "| {} | {op_type} |", shown(domain));
        }
        page.push_str("\n## Operators left to other providers\n\n");
        page.push_str("The hip backend declines these in all forms. `amdgpu-ep explain` shows the same reasons.\n\n");
        page.push_str("| domain | operator | reason |\n|---|---|---|\n");
        for (domain, op_type, reason) in left_alone {
            let _ = writeln!(page, "| {} | {op_type} | {reason} |", shown(domain));
        }
        page
    }
}

impl Counts {
    fn add(&mut self, verdict: &str, is_body: bool) {
        if is_body {
            self.bodies_placed += usize::from(verdict == "placed");
            self.bodies_usable += usize::from(verdict != "unusable");
            return;
        }
        let count = match verdict {
            "placed" => &mut self.placed,
            "partly" => &mut self.partly,
            "declined" => &mut self.declined,
            "unusable" => &mut self.unusable,
            _ => &mut self.bad,
        };
        *count += 1;
    }

    fn usable(self) -> usize {
        self.placed + self.partly + self.declined + self.bad
    }

    fn cells(self) -> [String; 5] {
        let number = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        let bodies = match self.bodies_usable {
            0 => String::new(),
            usable => format!("{} of {usable}", self.bodies_placed),
        };
        [number(self.placed), number(self.partly), number(self.declined), number(self.unusable), bodies]
    }
}

/// The count of placed tests in a page that [`Report::render`] made.
pub fn recorded_placed(page: &str) -> Option<usize> {
    let rest = &page[page.find(PLACED)? + PLACED.len()..];
    rest.split("**").next()?.parse().ok()
}

fn shown(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn header(onnx: &str, runtime: &str) -> String {
    format!(
        "# Supported operators

This page is generated: `cargo xtask conformance` writes it, and `cargo xtask test` fails when fewer tests are placed than
it records. Do not edit it.

The node tests of onnx {onnx} run through onnxruntime {runtime} with the hip backend preferred and graph optimisations off,
on the host device (CPU and RAM). Nothing here was run on an AMD GPU. A test is *usable* if ONNX Runtime's CPU provider
passes it. Tensors of types that NumPy lacks (bfloat16, float8, 2-bit and 4-bit integers) are passed as raw bytes.

- *placed*: the result is correct, with every node on the device
- *partly*: the result is correct, with some nodes on the device and others on the CPU provider
- *declined*: the result is correct, with every node on the CPU provider
- *unusable*: the CPU provider does not support the test or fails it, so it cannot serve as a reference
- *function bodies*: the same tests with the operator expanded into simpler ones

This table has no column for failures: if a test on the device gives a wrong result, the command fails.

"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"[
        {"test": "test_celu", "domain": "", "op": "Celu", "verdict": "placed", "note": ""},
        {"test": "test_celu_expanded", "domain": "", "op": "Celu", "verdict": "placed", "note": ""},
        {"test": "test_celu_expanded_ver18", "domain": "", "op": "Celu", "verdict": "partly", "note": ""},
        {"test": "test_bin", "domain": "ai.onnx.ml", "op": "Binarizer", "verdict": "declined", "note": ""},
        {"test": "test_stft", "domain": "", "op": "STFT", "verdict": "unusable", "note": "no kernel"}]"#;

    fn page() -> String {
        let supported = [("", "Celu"), ("", "Crop"), ("com.microsoft", "FastGelu")];
        let left_alone = [("", "Det", "not supported: too hard"), ("com.microsoft", "Snpe", "compiled")];
        Report::of(REPORT).unwrap().render(&supported, &left_alone, "1.0", "2.0")
    }

    #[test]
    fn counts_each_test_once_under_its_operator() {
        let page = page();
        for row in [
            "| ai.onnx | Celu | 1 |  |  |  | 1 of 2 |",
            "| ai.onnx.ml | Binarizer |  |  | 1 |  |  |",
            "| ai.onnx | STFT |  |  |  | 1 |  |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row} is not in\n{page}");
        }
        assert!(page.contains("**2** of 4 usable tests"), "{page}");
    }

    #[test]
    fn lists_supported_operators_without_tests() {
        let page = page();
        let (_, untested) = page.split_once("without node tests").unwrap();
        assert!(untested.contains("| ai.onnx | Crop |\n| com.microsoft | FastGelu |\n"), "{untested}");
        assert!(!untested.contains("Celu"));
    }

    #[test]
    fn lists_operators_that_are_left_alone_with_the_reason() {
        let page = page();
        let (_, others) = page.split_once("left to other providers").unwrap();
        let rows = "| ai.onnx | Det | not supported: too hard |\n| com.microsoft | Snpe | compiled |\n";
        assert!(others.ends_with(rows), "{others}");
    }

    #[test]
    fn the_recorded_count_can_be_read_back() {
        assert_eq!(recorded_placed(&page()), Some(2));
        assert_eq!(recorded_placed("# Supported operators"), None);
    }

    #[test]
    fn an_unexpected_report_is_an_error() {
        assert!(Report::of("{}").is_err());
        assert!(Report::of(r#"[{"test": "a"}]"#).is_err());
    }
}
