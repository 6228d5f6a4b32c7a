//! Counts the lines of a crate that tests run, from an lcov report. Tests inside the sources do not count: they run all
//! of their own lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// The number of lines of a crate that have code, and how many of them tests run.
#[derive(Debug, PartialEq, Eq)]
pub struct Lines {
    pub name: String,
    pub lines: usize,
    pub covered: usize,
}

impl Lines {
    pub fn percent(&self) -> f64 {
        // Line counts are far below the limit of exact integers.
        #[allow(clippy::cast_precision_loss)]
        let (lines, covered) = (self.lines.max(1) as f64, self.covered as f64);
        100.0 * covered / lines
    }

    pub fn total(crates: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> usize| crates.iter().map(of).sum();
        Self { name: "all".to_owned(), lines: sum(|one| one.lines), covered: sum(|one| one.covered) }
    }
}

/// The lines of the crate `name`; `None` if it has no code on this platform.
///
/// # Errors
/// When a source cannot be read.
pub fn of(workspace: &Workspace, report: &str, name: &str) -> Result<Option<Lines>> {
    let sources = workspace.path("crates").join(name).join("src");
    let mut counted = Lines { name: name.to_owned(), lines: 0, covered: 0 };
    let (mut files, mut tests) = (Vec::new(), BTreeSet::new());
    for (file, runs) in files_of(report) {
        if !file.starts_with(&sources) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        tests.extend(test_files(&file, &text));
        files.push((file, runs, tests_begin_at(&text)));
    }
    for (file, runs, end) in files {
        if !tests.iter().any(|tests| file == tests.with_extension("rs") || file.starts_with(tests)) {
            let own = runs.range(..end);
            counted.lines += own.clone().count();
            counted.covered += own.filter(|(_, runs)| **runs > 0).count();
        }
    }
    Ok((counted.lines > 0).then_some(counted))
}

/// The files of a report, with the execution count of each line.
fn files_of(report: &str) -> Vec<(PathBuf, BTreeMap<usize, u64>)> {
    let mut files = Vec::new();
    for line in report.lines() {
        if let Some(file) = line.strip_prefix("SF:") {
            files.push((PathBuf::from(file), BTreeMap::new()));
        } else if let Some((number, runs)) = line.strip_prefix("DA:").and_then(|entry| entry.split_once(',')) {
            let runs = runs.split(',').next().unwrap_or_default();
            if let (Some((_, lines)), Ok(number), Ok(runs)) = (files.last_mut(), number.parse(), runs.parse()) {
                lines.insert(number, runs);
            }
        }
    }
    files
}

/// The line where the tests at the end of a source file begin; one past the last line if there are none.
fn tests_begin_at(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    begin.map_or(usize::MAX, |index| index + 1)
}

/// The modules of a source file that are compiled only for tests, as paths without extension.
fn test_files<'a>(file: &'a Path, text: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => file.parent().unwrap_or(file).to_owned(),
        Some(_) => file.with_extension(""),
    };
    let mut is_for_tests = false;
    text.lines().filter_map(move |line| {
        let name = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        let found = name.filter(|_| is_for_tests).map(|name| folder.join(name));
        is_for_tests = line == "#[cfg(test)]";
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_in_the_sources_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/one/src");
        fs::create_dir_all(source.join("part")).unwrap();
        let file = |name: &str, text: &str| {
            fs::write(source.join(name), text).unwrap();
            source.join(name).display().to_string()
        };
        let library = file("lib.rs", "fn a() {}\nfn b() {}\n#[cfg(test)]\nmod tests;\nmod part;\n");
        let tests = file("tests.rs", "fn t() {}\n");
        let part = file("part/mod.rs", "fn c() {}\n\n#[cfg(test)]\nmod tests {\n    fn u() {}\n}\n");
        let report = format!(
            "SF:{library}\nDA:1,3\nDA:2,0\nend_of_record\nSF:{tests}\nDA:1,1\nend_of_record\n\
             SF:{part}\nDA:1,2,hash\nDA:5,1\nend_of_record\nSF:/elsewhere/crates/two/src/lib.rs\nDA:1,0\nend_of_record\n"
        );
        let workspace = Workspace::at(folder.path().to_owned());
        let lines = of(&workspace, &report, "one").unwrap().unwrap();
        assert_eq!(lines, Lines { name: "one".into(), lines: 3, covered: 2 });
        assert_eq!(of(&workspace, &report, "two").unwrap(), None);
    }

    #[test]
    fn percents_and_sums() {
        let one = Lines { name: "one".into(), lines: 4, covered: 3 };
        assert!((one.percent() - 75.0).abs() < 1e-9);
        let total = Lines::total(&[one, Lines { name: "two".into(), lines: 6, covered: 6 }]);
        assert_eq!((total.lines, total.covered), (10, 9));
    }
}
