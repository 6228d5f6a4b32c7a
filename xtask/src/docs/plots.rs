//! Plots of the tables in docs/performance.md. They are drawn from the tables, so the two cannot disagree.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

const PAGE: &str = "docs/performance.md";

/// One picture: two columns of the first table under a heading.
struct Plot {
    file: &'static str,
    heading: &'static str,
    title: &'static str,
    about: &'static str,
    /// Titles of the columns, and their names in the legend.
    columns: [(&'static str, &'static str); 2],
    unit: &'static str,
}

const PLOTS: [Plot; 2] = [
    Plot {
        file: "docs/plots/networks.svg",
        heading: "## Networks on a GPU",
        title: "Networks in half precision: time of a run, shorter is better",
        about: "NVIDIA H200 through the CUDA twin, 16 November 2026; no AMD GPU was measured",
        columns: [("ours", "amdgpu-ep"), ("PyTorch", "PyTorch, CUDA graph")],
        unit: "ms",
    },
    Plot {
        file: "docs/plots/kernels.svg",
        heading: "## Kernels that only move memory",
        title: "Kernels on 256 MiB: share of the driver's own copy, longer is better",
        about: "NVIDIA H200 through the CUDA twin, 16 November 2026; no AMD GPU was measured",
        columns: [("share", "single precision"), ("share", "half precision")],
        unit: "%",
    },
];

/// Every picture, as a file name and its text.
///
/// # Errors
/// When the page has no such table, or a cell is not a number.
pub fn all(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let page = fs::read_to_string(workspace.path(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    PLOTS.iter().map(|plot| Ok((plot.file.to_owned(), plot.draw(&rows(&page, plot)?)))).collect()
}

/// The bars of one table row.
#[derive(Debug, PartialEq)]
struct Row {
    label: String,
    values: [f64; 2],
}

fn rows(page: &str, plot: &Plot) -> Result<Vec<Row>> {
    let section = page.split_once(&format!("{}\n", plot.heading)).map(|(_, rest)| rest);
    let section = section.with_context(|| format!("{PAGE} has no heading {:?}", plot.heading))?;
    let mut lines = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let head = cells(lines.next().unwrap_or_default());
    let [first, second] = plot.columns.map(|(title, _)| title);
    let find = |title: &str, from: usize| head.iter().skip(from).position(|cell| cell == title).map(|at| at + from);
    // If two columns have the same title, the second is the next one.
    let first = find(first, 0).with_context(|| format!("{:?} has no column {first:?}", plot.heading))?;
    let second = find(second, first + 1).with_context(|| format!("{:?} has no column {second:?}", plot.heading))?;
    lines.skip(1).map(|line| row(&cells(line), first, second).with_context(|| format!("{PAGE}: {line}"))).collect()
}

fn row(cells: &[String], first: usize, second: usize) -> Result<Row> {
    let [Some(label), Some(one), Some(other)] = [0, first, second].map(|at| cells.get(at)) else {
        bail!("the row is too short");
    };
    Ok(Row { label: label.clone(), values: [number(one)?, number(other)?] })
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The number at the start of a cell.
fn number(cell: &str) -> Result<f64> {
    let digits: String = cell.chars().take_while(|one| one.is_ascii_digit() || *one == '.').collect();
    digits.parse().with_context(|| format!("{cell:?} does not begin with a number"))
}

const WIDTH: f64 = 820.0;
const LABELS: f64 = 330.0;
const BARS: f64 = 400.0;
const TOP: f64 = 86.0;
const BAR: f64 = 12.0;
const ROW: f64 = 2.0 * BAR + 12.0;
const COLOURS: [&str; 2] = ["#c0392b", "#7f8c8d"];

impl Plot {
    fn draw(&self, rows: &[Row]) -> String {
        let height = TOP + rows.len() as f64 * ROW + 12.0;
        let most = rows.iter().flat_map(|row| row.values).fold(f64::MIN_POSITIVE, f64::max);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{}</text>\n\
             <text x=\"16\" y=\"46\" fill=\"#555555\">{}</text>\n",
            escaped(self.title),
            escaped(self.about)
        );
        // Writing to a String cannot fail.
        for (index, (_, legend)) in self.columns.iter().enumerate() {
            let x = LABELS + index as f64 * 160.0;
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"58\" width=\"12\" height=\"12\" fill=\"{}\"/>", COLOURS[index]);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"69\">{}</text>", x + 18.0, escaped(legend));
        }
        for (index, row) in rows.iter().enumerate() {
            let y = TOP + index as f64 * ROW;
            let label = LABELS - 10.0;
            let _ = writeln!(
                svg,
                "<text x=\"{label}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                y + BAR + 4.0,
                escaped(&row.label)
            );
            for (series, value) in row.values.iter().enumerate() {
                let (top, width) = (y + series as f64 * BAR, value / most * BARS);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{LABELS}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>",
                    BAR - 1.0,
                    COLOURS[series]
                );
                let (x, y) = (LABELS + width + 5.0, top + BAR - 2.5);
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" font-size=\"11\">{value} {}</text>", self.unit);
            }
        }
        svg + "</svg>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Page\n\n## Networks on a GPU\n\nWords.\n\n| network | ours | PyTorch | ratio |\n|---|---|---|---|\n\
                         | a & b | 0.5 | 1.25, 2 | 2 |\n| c | 2 | 1 | 1 |\n\nMore words.\n\n| other | 1 |\n";

    #[test]
    fn rows_come_from_the_first_table_under_the_heading() {
        let rows = rows(TABLE, &PLOTS[0]).unwrap();
        let want = [("a & b", [0.5, 1.25]), ("c", [2.0, 1.0])];
        assert_eq!(rows, want.map(|(label, values)| Row { label: label.to_owned(), values }));
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let svg = PLOTS[0].draw(&rows(TABLE, &PLOTS[0]).unwrap());
        for wanted in
            ["a &amp; b", "width=\"100.0\"", "width=\"250.0\"", "width=\"400.0\"", "width=\"200.0\"", "1.25 ms"]
        {
            assert!(svg.contains(wanted), "{wanted} is not in\n{svg}");
        }
    }

    #[test]
    fn a_cell_without_a_number_is_an_error_that_shows_it() {
        let error = rows(&TABLE.replace("0.5", "fast"), &PLOTS[0]).unwrap_err();
        assert!(format!("{error:#}").contains("\"fast\""), "{error:#}");
        assert!(rows("# Page\n", &PLOTS[0]).is_err());
    }
}
