//! Checks the links between documents: the file must exist, and so must the heading if the link names one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Documents outside docs/ that also contain links.
const OTHERS: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

/// Every broken link in the pages and in the documents at the root.
///
/// # Errors
/// When a page cannot be read.
pub fn faults(workspace: &Workspace, pages: &BTreeSet<PathBuf>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let others = OTHERS.map(|name| workspace.path(name));
    for page in pages.iter().chain(&others) {
        let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        for (line, target) in targets(&text) {
            if !leads_somewhere(page, &text, &target) {
                faults.push(format!("{}:{line}: broken link {target}", workspace.relative(page)));
            } else if pages.contains(page) && leaves(page, &workspace.path("docs"), &target) {
                faults.push(format!("{}:{line}: link {target} leaves the book", workspace.relative(page)));
            }
        }
    }
    Ok(faults)
}

/// The targets of links and images outside of code, with their line numbers.
pub fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second part is between backticks.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        for part in prose.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
}

fn leads_somewhere(page: &Path, text: &str, target: &str) -> bool {
    if target.contains("://") {
        return true;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    if file.is_empty() {
        return heading.is_some_and(|heading| headings(text).contains(heading));
    }
    let path = page.parent().unwrap_or(Path::new("")).join(file);
    match heading {
        None => path.exists(),
        Some(heading) => fs::read_to_string(path).is_ok_and(|text| headings(&text).contains(heading)),
    }
}

/// True for files outside the book, which mdBook accepts as link targets anyway.
fn leaves(page: &Path, book: &Path, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    let real = |path: &Path| fs::canonicalize(path).ok();
    let path = page.parent().unwrap_or(Path::new("")).join(file);
    !file.is_empty()
        && !target.contains("://")
        && real(&path).zip(real(book)).is_none_or(|(path, book)| !path.starts_with(book))
}

/// The anchors that both GitHub and mdBook generate for a page's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles.map(anchor).collect()
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|one| match one {
        ' ' => Some('-'),
        '-' | '_' => Some(one),
        one if one.is_alphanumeric() => Some(one.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_ignored() {
        let text = "[a](b.md) `[c](d.md)` ![e](f.svg)\n```\n[g](h.md)\n```\n[i](j.md#k)\n";
        let found: Vec<_> = targets(text);
        assert_eq!(found, [(1, "b.md".into()), (1, "f.svg".into()), (5, "j.md#k".into())]);
    }

    #[test]
    fn a_book_ends_at_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let book = folder.path().join("docs");
        fs::create_dir_all(book.join("adr")).unwrap();
        for file in ["README.md", "docs/page.md", "docs/adr/one.md"] {
            fs::write(folder.path().join(file), "# Title\n").unwrap();
        }
        let page = book.join("adr/one.md");
        for inside in ["../page.md#title", "#title", "one.md", "https://example.org/x"] {
            assert!(!leaves(&page, &book, inside), "{inside}");
        }
        assert!(leaves(&page, &book, "../../README.md#title"));
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::write(folder.path().join("other.md"), "# What `auto` does\n").unwrap();
        let text = "## Here, too\n";
        for good in ["other.md", "other.md#what-auto-does", "#here-too", "https://example.org/x"] {
            assert!(leads_somewhere(&page, text, good), "{good}");
        }
        for bad in ["missing.md", "other.md#what", "#there"] {
            assert!(!leads_somewhere(&page, text, bad), "{bad}");
        }
    }
}
