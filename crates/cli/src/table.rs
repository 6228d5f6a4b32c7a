//! Tables in text reports.

use comfy_table::{ContentArrangement, Table, presets};

/// An indented table without lines, wrapped to the terminal where there is one.
pub fn text<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table.add_rows(rows);
    table.to_string().lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}
