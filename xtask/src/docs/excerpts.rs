//! Checks the Rust and C++ blocks in the documents: each names a file, and quotes its code or an example in its doc
//! comments. CI compiles and tests that file.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

const FENCES: [&str; 2] = ["```rust", "```cpp"];

/// Every block that does not occur in the file it names.
///
/// # Errors
/// When a page cannot be read.
pub fn faults(workspace: &Workspace, pages: &BTreeSet<PathBuf>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        for Excerpt { line, file, code } in excerpts(&text) {
            let source = fs::read_to_string(workspace.path(&file)).unwrap_or_default();
            if code.is_empty() || !(source.contains(&code) || commented(&source).contains(&code)) {
                faults.push(format!("{}:{line}: this excerpt is not in {file}", workspace.relative(page)));
            }
        }
    }
    Ok(faults)
}

#[derive(Debug, PartialEq)]
struct Excerpt {
    line: usize,
    file: String,
    code: String,
}

/// The text of a source file's doc comments.
fn commented(source: &str) -> String {
    let text = |line: &'_ str| -> Option<String> {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(text.strip_prefix(' ').unwrap_or(text).to_owned() + "\n")
    };
    source.lines().filter_map(text).collect()
}

/// Finds blocks that begin with ` ```rust FILE ` or ` ```cpp FILE `; those in a list are indented together with their
/// code.
fn excerpts(text: &str) -> Vec<Excerpt> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let fenced = FENCES.iter().find_map(|fence| line.trim_start().strip_prefix(fence));
        let Some(file) = fenced else { continue };
        let indent = line.len() - line.trim_start().len();
        let code = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let code: Vec<&str> = code.map(|line| line.get(indent..).unwrap_or_default()).collect();
        found.push(Excerpt { line: number + 1, file: file.trim().to_owned(), code: code.join("\n") });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_lose_the_indent_of_their_list() {
        let text = "1. Words\n\n   ```rust a/b.rs\n   fn main() {\n       x();\n\n   }\n   ```\n\n```\nfree\n```\n```rust c.rs\ny\n```\n";
        let found = excerpts(text);
        assert_eq!(found.len(), 2);
        let want = Excerpt { line: 3, file: "a/b.rs".into(), code: "fn main() {\n    x();\n\n}".into() };
        assert_eq!(found[0], want);
        assert_eq!((found[1].line, found[1].code.as_str()), (13, "y"));
    }

    #[test]
    fn cpp_is_quoted_from_files_too() {
        let found = excerpts("```cpp a/b.cpp\nint x;\n```\n");
        assert_eq!(found, [Excerpt { line: 1, file: "a/b.cpp".into(), code: "int x;".into() }]);
    }

    #[test]
    fn examples_in_comments_can_be_quoted() {
        assert_eq!(commented("//! Top\nuse x;\n    /// let a = 1;\n    ///\n    // not this\n"), "Top\nlet a = 1;\n\n");
    }
}
