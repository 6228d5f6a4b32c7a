//! The end of docs/status.md: what users of four reference systems can rely on, where we implement it, and what tests
//! it. The rows are in docs/promises.json; each file and test that a row names must exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test;
use crate::workspace::Workspace;

pub const PAGE: &str = "docs/status.md";
const ROWS: &str = "docs/promises.json";

/// Text before the marker is written by hand.
const MARKER: &str = "<!-- Below: written by `cargo xtask docs` from docs/promises.json. -->\n";

/// A system, and what its users can rely on.
struct System {
    name: String,
    about: String,
    promises: Vec<Promise>,
}

struct Promise {
    says: String,
    /// How it differs from the reference, and why.
    differently: Option<String>,
    /// Paths from the root.
    places: Vec<String>,
    /// `FILE::FUNCTION`, or `step NAME` of `cargo xtask test`.
    tests: Vec<String>,
}

/// The page with its tables.
///
/// # Errors
/// When the rows or the page cannot be read.
pub fn page(workspace: &Workspace) -> Result<String> {
    let page = fs::read_to_string(workspace.path(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let Some((by_hand, _)) = page.split_once(MARKER) else { bail!("{PAGE} lacks the line {MARKER:?}") };
    Ok(format!("{by_hand}{MARKER}{}", tables(&read(workspace)?)))
}

/// Rows that name no file or test, or one that does not exist.
///
/// # Errors
/// When the rows cannot be read.
pub fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let systems = read(workspace)?;
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let mut faults = Vec::new();
    for promise in systems.iter().flat_map(|system| &system.promises) {
        let mut fault = |what: String| faults.push(format!("{ROWS}: \"{}\": {what}", promise.says));
        if promise.places.is_empty() || promise.tests.is_empty() {
            fault("it needs at least one place and one test".to_owned());
        }
        for place in promise.places.iter().filter(|place| !workspace.path(place).exists()) {
            fault(format!("there is no {place}"));
        }
        for test in &promise.tests {
            let found = match test.split_once("::") {
                Some((file, function)) => {
                    let text = texts.entry(file);
                    let text = text.or_insert_with(|| fs::read_to_string(workspace.path(file)).unwrap_or_default());
                    defines(text, function)
                }
                None => test.strip_prefix("step ").is_some_and(test::has_step),
            };
            if !found {
                fault(format!("there is no test {test}"));
            }
        }
    }
    Ok(faults)
}

/// Whether a Rust or Python source defines a function with this name.
fn defines(text: &str, function: &str) -> bool {
    ["fn ", "def "].iter().any(|keyword| text.contains(&format!("{keyword}{function}(")))
}

fn read(workspace: &Workspace) -> Result<Vec<System>> {
    let text = fs::read_to_string(workspace.path(ROWS)).with_context(|| format!("cannot read {ROWS}"))?;
    let document: Value = serde_json::from_str(&text).with_context(|| format!("{ROWS} is not valid JSON"))?;
    let systems = document["systems"].as_array().with_context(|| format!("{ROWS} has no systems"))?;
    systems.iter().map(system).collect()
}

fn system(value: &Value) -> Result<System> {
    let promises = value["promises"].as_array().with_context(|| format!("{ROWS}: a system has no promises"))?;
    Ok(System {
        name: text(value, "name")?,
        about: text(value, "about")?,
        promises: promises.iter().map(promise).collect::<Result<_>>()?,
    })
}

fn promise(value: &Value) -> Result<Promise> {
    let differently = value.get("differently").map(|_| text(value, "differently")).transpose()?;
    let (places, tests) = (texts(value, "where")?, texts(value, "tests")?);
    Ok(Promise { says: text(value, "says")?, differently, places, tests })
}

fn text(value: &Value, key: &str) -> Result<String> {
    value[key].as_str().map(str::to_owned).with_context(|| format!("{ROWS}: \"{key}\" is not a string in {value}"))
}

fn texts(value: &Value, key: &str) -> Result<Vec<String>> {
    let all = value[key].as_array().into_iter().flatten().map(|one| one.as_str().map(str::to_owned));
    all.collect::<Option<_>>().with_context(|| format!("{ROWS}: \"{key}\" is not a list of strings in {value}"))
}

fn tables(systems: &[System]) -> String {
    let mut page = String::new();
    for System { name, about, promises } in systems {
        // Writing to a string does not fail.
        let _ =
            write!(page, "\n### {name}\n\n{about}\n\n| what a user can rely on | where | tested by |\n|---|---|---|\n");
        for Promise { says, differently, places, tests } in promises {
            let differently =
                differently.as_ref().map(|how| format!(". *Done differently*: {how}")).unwrap_or_default();
            let places: Vec<String> = places.iter().map(|place| link(place)).collect();
            let tests: Vec<String> = tests.iter().map(|test| format!("`{}`", short(test))).collect();
            let _ = writeln!(page, "| {says}{differently} | {} | {} |", places.join(", "), tests.join(", "));
        }
    }
    page
}

/// A book page as a link, any other file by its name.
fn link(place: &str) -> String {
    match place.strip_prefix("docs/").filter(|page| page.ends_with(".md")) {
        Some(page) => format!("[{page}]({page})"),
        None => format!("`{place}`"),
    }
}

/// A test's name without the folder that all tests of its kind share.
fn short(test: &str) -> &str {
    ["tests/python/", "crates/"].iter().find_map(|folder| test.strip_prefix(folder)).unwrap_or(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace_with(rows: &str) -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("docs")).unwrap();
        fs::write(folder.path().join(ROWS), rows).unwrap();
        fs::write(folder.path().join("docs/a.md"), "").unwrap();
        fs::write(folder.path().join("b.rs"), "#[test]\nfn it_holds() {}\n").unwrap();
        fs::write(folder.path().join("c.py"), "def test_it(x):\n    pass\n").unwrap();
        fs::write(folder.path().join(PAGE), format!("# By hand\n{MARKER}outdated\n")).unwrap();
        let workspace = Workspace::at(folder.path().to_owned());
        (folder, workspace)
    }

    fn rows(promise: &str) -> String {
        format!(r#"{{"systems": [{{"name": "N", "about": "A.", "promises": [{promise}]}}]}}"#)
    }

    #[test]
    fn a_row_with_its_files_and_tests_is_a_line_of_the_page() {
        let row = r#"{"says": "it works", "differently": "faster", "where": ["docs/a.md", "b.rs"],
            "tests": ["b.rs::it_holds", "c.py::test_it", "step fmt"]}"#;
        let (_folder, workspace) = workspace_with(&rows(row));
        assert_eq!(faults(&workspace).unwrap(), Vec::<String>::new());
        let page = page(&workspace).unwrap();
        assert!(page.starts_with("# By hand\n") && !page.contains("outdated"), "{page}");
        let line = "| it works. *Done differently*: faster | [a.md](a.md), `b.rs` | `b.rs::it_holds`, `c.py::test_it`, `step fmt` |";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn missing_files_and_tests_are_named() {
        let row = r#"{"says": "s", "where": ["gone.rs"], "tests": ["b.rs::it_hold", "c.py::it", "step nonsense", "d.rs::x"]}"#;
        let (_folder, workspace) = workspace_with(&rows(row));
        let faults = faults(&workspace).unwrap();
        for missing in ["gone.rs", "b.rs::it_hold", "c.py::it", "step nonsense", "d.rs::x"] {
            assert!(faults.iter().any(|fault| fault.ends_with(missing)), "{missing} is not in {faults:?}");
        }
        assert_eq!(faults.len(), 5, "{faults:?}");
    }

    #[test]
    fn a_row_without_a_test_or_a_place_is_an_error() {
        let (_folder, workspace) = workspace_with(&rows(
            r#"{"says": "s", "where": ["b.rs"], "tests": []}, {"says": "t", "tests": ["step fmt"]}"#,
        ));
        assert_eq!(faults(&workspace).unwrap().len(), 2);
    }
}
