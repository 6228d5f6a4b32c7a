//! How many tokens have an embedding. `vocab_size` counts scores; some folders have fewer rows of embeddings, and a run
//! with another token fails.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::path::Path;

use crate::files;
use crate::onnx_file::{self, Visitor};

/// More tables than any real decoder has.
const MAX_KEPT: usize = 1 << 16;

/// The number of tokens with an embedding, if the graph looks them up in one table.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn rows(path: &Path, input_ids: &str) -> io::Result<Option<usize>> {
    let mut reader = BufReader::new(files::open_regular(path)?);
    let mut found = Found { input_ids, lookups: Vec::new(), tables: HashMap::new() };
    // ONNX Runtime has other file formats, too.
    if onnx_file::visit(&mut reader, &mut found).is_err() {
        return Ok(None);
    }
    let rows = found.lookups.iter().filter_map(|table| found.tables.get(table));
    Ok(rows.min().and_then(|&rows| usize::try_from(rows).ok()))
}

struct Found<'a> {
    input_ids: &'a str,
    /// The tables in which token ids are looked up.
    lookups: Vec<String>,
    /// Rows of tables.
    tables: HashMap<String, u64>,
}

impl Visitor for Found<'_> {
    fn node(&mut self, op: String, inputs: Vec<String>, _: Vec<String>) {
        let is_lookup = matches!(op.as_str(), "Gather" | "GatherBlockQuantized");
        if let [table, ids, ..] = &inputs[..]
            && is_lookup
            && ids == self.input_ids
            && self.lookups.len() < MAX_KEPT
        {
            self.lookups.push(table.clone());
        }
    }

    fn integer(&mut self, _: String, _: i64) {}

    fn table(&mut self, name: String, rows: u64) {
        if self.tables.len() < MAX_KEPT {
            self.tables.insert(name, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::llm::{TinyDecoder, VOCABULARY};

    use super::*;

    #[test]
    fn the_table_of_the_token_ids_counts() {
        let folder = tempfile::tempdir().unwrap();
        TinyDecoder::new(1).without_embeddings(3).write(folder.path(), true).unwrap();
        let path = folder.path().join("model.onnx");
        assert_eq!(rows(&path, "input_ids").unwrap(), Some(VOCABULARY - 3));
        assert_eq!(rows(&path, "other_ids").unwrap(), None);
        std::fs::write(&path, b"not a model").unwrap();
        assert_eq!(rows(&path, "input_ids").unwrap(), None);
    }
}
