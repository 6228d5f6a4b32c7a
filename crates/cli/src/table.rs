//! Tables in text reports.

use comfy_table::{ContentArrangement, Table, presets};

/// A smaller reported width is wrong: some containers and debuggers report 0.
const NARROWEST: u16 = 20;

/// An indented table without borders, wrapped to the terminal's width if there is one.
pub fn text<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header).add_rows(rows);
    if table.width().is_some_and(|width| width >= NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.to_string().lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}
