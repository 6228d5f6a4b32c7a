//! Tables in text reports.

use comfy_table::{ContentArrangement, Table, presets};

/// A terminal that says it is narrower does not know its width: those of some containers and debuggers say 0.
const NARROWEST: u16 = 20;

/// An indented table without lines, wrapped to the terminal where there is one.
pub fn text<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header).add_rows(rows);
    if table.width().is_some_and(|width| width >= NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.to_string().lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}
