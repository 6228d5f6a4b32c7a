//! The book under docs/: its generated pages, and the checks for all pages.

mod excerpts;
mod lexicon;
mod links;
mod names;
mod plots;
mod promises;
mod sizes;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::kernels;
use crate::shell;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;

const OPTIONS_PAGE: &str = "docs/options.md";

/// Sections of the options page. Tests of these crates write and check them.
const TABLES: [(&str, &str, &str); 4] = [
    (
        "Options of the provider",
        "crates/options/src/table.md",
        "Given to `add_provider_for_devices`, to GenAI's `set_provider_option`, or as session-config entries \
         `ep.amdgpuexecutionprovider.<option>`, `ep.amdgpu.<option>` or `ep.<registered name>.<option>`, which mean the same. \
         An unknown option is an error that suggests the nearest known one. *Set by* says who may set an option: `anyone`, or \
         only a `trusted` origin; a model folder is not trusted ([security.md](security.md#options)).",
    ),
    (
        "The hip backend",
        "crates/options/src/hip.md",
        "Session-config entries. Unknown ones and malformed values are errors.",
    ),
    (
        "The migraphx backend",
        "crates/options/src/migraphx.md",
        "Session-config entries; most can be given as options of the provider too. Environment variables take precedence. \
         [migraphx.md](migraphx.md) has the details.",
    ),
    ("Environment variables", "crates/cli/src/doctor/environment.md", "`amdgpu-ep doctor` lists those that are set."),
];

/// The packages whose tests write the tables, and the name prefix of these tests.
const WRITERS: [&str; 3] = ["amdgpu-ep-options", "reports", "cli"];
const WRITER_TESTS: &str = "documented_";

/// Writes the generated files.
///
/// # Errors
/// When a test fails, a file cannot be written, or the book is inconsistent.
pub fn write(workspace: &Workspace) -> Result<()> {
    let mut tests = shell::cargo(workspace.root());
    tests.args(["test", "--quiet", "--lib", "--bins"]).args(WRITERS.iter().flat_map(|name| ["--package", name]));
    shell::run(tests.arg(WRITER_TESTS).env("AMDGPU_EP_WRITE_TABLES", "1"))?;
    for (file, text) in generated(workspace)? {
        fs::write(workspace.path(&file), text).with_context(|| format!("cannot write {file}"))?;
        println!("wrote {file}");
    }
    check(workspace).map(|_| ())
}

/// Checks that generated pages are up to date, SUMMARY.md lists every page, Rust and C++ are quoted from files, links
/// resolve, promises name tests, and there are no phrases and names that the lexicon avoids. Builds the book if mdbook
/// is installed.
///
/// # Errors
/// Lists everything that is wrong.
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let pages = check(context.workspace)?;
    if !shell::succeeds("mdbook", &["--version"]) {
        return Ok(Outcome::Passed(format!("{pages} pages; mdbook is not installed: the book was not built")));
    }
    let mut book = std::process::Command::new("mdbook");
    shell::run(book.arg("build").arg(context.workspace.root()))?;
    Ok(Outcome::Passed(format!("{pages} pages")))
}

/// Reports every fault of the book at once; returns the number of pages if there is none.
fn check(workspace: &Workspace) -> Result<usize> {
    let mut faults = Vec::new();
    for (file, text) in generated(workspace)? {
        if fs::read_to_string(workspace.path(&file)).unwrap_or_default() != text {
            faults.push(format!("{file} is out of date"));
        }
    }
    let pages = pages(&workspace.path("docs"))?;
    faults.extend(links::faults(workspace, &pages)?);
    faults.extend(excerpts::faults(workspace, &pages)?);
    faults.extend(missing_in_summary(workspace, &pages)?);
    faults.extend(promises::faults(workspace)?);
    faults.extend(words::faults(workspace)?);
    faults.extend(names::faults(workspace)?);
    if !faults.is_empty() {
        bail!(
            "the documentation has errors\n  {}\n  help: cargo xtask docs rewrites the generated parts",
            faults.join("\n  ")
        );
    }
    Ok(pages.len())
}

/// The generated files, as paths from the root, and their texts.
fn generated(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let mut files = vec![(OPTIONS_PAGE.to_owned(), options_page(workspace)?)];
    files.push((kernels::page::FILE.to_owned(), kernels::page::text(workspace)?));
    files.push((promises::PAGE.to_owned(), promises::page(workspace)?));
    files.extend(plots::all(workspace)?);
    files.extend(sizes::all(workspace)?);
    Ok(files)
}

fn options_page(workspace: &Workspace) -> Result<String> {
    let mut page = String::from("# Options\n\nWritten by `cargo xtask docs` from the tables in the code.\n");
    for (title, file, about) in TABLES {
        let table = fs::read_to_string(workspace.path(file)).with_context(|| format!("cannot read {file}"))?;
        page += &format!("\n## {title}\n\n{about}\n\n{table}");
    }
    Ok(page)
}

fn pages(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            pages.extend(self::pages(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.insert(path);
        }
    }
    Ok(pages)
}

/// Pages that the summary does not list; mdBook silently leaves them out.
fn missing_in_summary(workspace: &Workspace, pages: &BTreeSet<PathBuf>) -> Result<Vec<String>> {
    let folder = workspace.path("docs");
    let summary = folder.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).context("cannot read docs/SUMMARY.md")?;
    let named: BTreeSet<PathBuf> = links::targets(&text).into_iter().map(|(_, target)| folder.join(target)).collect();
    let missing = pages.iter().filter(|page| **page != summary && !named.contains(*page));
    Ok(missing.map(|page| format!("{} is not in docs/SUMMARY.md", workspace.relative(page))).collect())
}
