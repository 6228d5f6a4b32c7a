//! Code size by crate: two columns of the table in docs/architecture.md, and a picture of the layers.
//!
//! Every commit changes the exact numbers, so a recorded number stays until it is off by more than a tenth.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::layers::{self, LayerRule};
use crate::workspace::Workspace;

const PAGE: &str = "docs/architecture.md";
const PICTURE: &str = "docs/crates.svg";

/// The first cells of the table: layer, crate, lines of sources, lines of tests.
const HEAD: &str = "| layer | crate | lines | tests |";
/// The last row: the sum of those above.
const TOTAL: &str = "**total**";
/// Extensions of the source files to count.
const EXTENSIONS: [&str; 4] = ["rs", "hip", "h", "cpp"];
/// Folders of a crate whose files count as tests.
const TEST_FOLDERS: [&str; 3] = ["tests", "benches", "examples"];
/// A recorded number may be off by this share of the real one, or by [`SLACK`] lines.
const TOLERANCE: f64 = 0.1;
const SLACK: usize = 50;

/// Line counts of a crate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    sources: usize,
    tests: usize,
}

/// The page with updated numbers, and the picture.
///
/// # Errors
/// When the table lacks a crate, or has one in the wrong layer.
pub fn all(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let page = fs::read_to_string(workspace.path(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut sizes = BTreeMap::new();
    for (name, _) in layers::TABLE {
        sizes.insert(name, size_of(&workspace.path("crates").join(name))?);
    }
    let (page, recorded) = update(&page, &sizes)?;
    Ok(vec![(PAGE.to_owned(), page), (PICTURE.to_owned(), draw(&recorded))])
}

/// Counts the lines under a crate's folder.
fn size_of(folder: &Path) -> Result<Size> {
    let mut size = Size::default();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let is_test = TEST_FOLDERS.iter().any(|name| path.ends_with(name));
        *(if is_test { &mut size.tests } else { &mut size.sources }) += lines_under(&path)?;
    }
    Ok(size)
}

fn lines_under(path: &Path) -> Result<usize> {
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        return entries.map(|entry| lines_under(&entry?.path())).sum();
    }
    if !path.extension().and_then(|name| name.to_str()).is_some_and(|name| EXTENSIONS.contains(&name)) {
        return Ok(0);
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().count())
}

/// Replaces outdated numbers, and returns the numbers that the table then has.
fn update(page: &str, sizes: &BTreeMap<&str, Size>) -> Result<(String, BTreeMap<String, Size>)> {
    let (mut text, mut recorded, mut in_table) = (String::new(), BTreeMap::new(), false);
    for line in page.lines() {
        in_table = line.starts_with(HEAD) || in_table && line.starts_with('|');
        let cells: Vec<&str> = line.splitn(6, '|').collect();
        let [_, layer, name, lines, tests, rest] = &cells[..] else {
            text += &format!("{line}\n");
            continue;
        };
        let [layer, name] = [layer, name].map(|cell| cell.trim());
        if in_table && name == TOTAL {
            let of = |count: fn(&Size) -> usize| spaced(recorded.values().map(count).sum());
            let _ =
                writeln!(text, "| {layer} | {name} | {} | {} |{rest}", of(|size| size.sources), of(|size| size.tests));
            continue;
        }
        // In "`umbrella` → `libamdgpu-ep.so`", the first name is the crate's.
        let key = name.split('`').nth(1).unwrap_or_default();
        let Some(size) = sizes.get(key).filter(|_| in_table) else {
            text += &format!("{line}\n");
            continue;
        };
        let want = layer_cell(key)?;
        if layer != want {
            bail!("{PAGE} has {key} in layer {layer:?}, but xtask/src/layers.rs has it in {want:?}");
        }
        let shown = Size { sources: keep_or_round(lines, size.sources), tests: keep_or_round(tests, size.tests) };
        recorded.insert(key.to_owned(), shown);
        let (lines, tests) = (spaced(shown.sources), spaced(shown.tests));
        let _ = writeln!(text, "| {layer} | {name} | {lines} | {tests} |{rest}");
    }
    let missing: Vec<_> = sizes.keys().filter(|name| !recorded.contains_key(**name)).collect();
    if !missing.is_empty() {
        bail!("the table of crates in {PAGE} has no row for {missing:?}\n  help: it starts with {HEAD:?}");
    }
    Ok((text, recorded))
}

fn layer_cell(name: &str) -> Result<String> {
    let place = layers::TABLE.iter().find(|(known, _)| *known == name).map(|(_, place)| *place);
    Ok(match place.with_context(|| format!("{name} has no layer"))? {
        LayerRule::Layer(layer) => layer.to_string(),
        LayerRule::Floor => "floor".to_owned(),
        LayerRule::User(_) => "user".to_owned(),
        LayerRule::Development => "dev".to_owned(),
    })
}

fn keep_or_round(recorded: &str, real: usize) -> usize {
    let digits: String = recorded.chars().filter(char::is_ascii_digit).collect();
    let old = digits.parse::<usize>().ok().filter(|old| {
        let allowed = SLACK.max((real as f64 * TOLERANCE) as usize);
        old.abs_diff(real) <= allowed
    });
    old.unwrap_or_else(|| if real < 1000 { real.next_multiple_of(10) } else { (real + 50) / 100 * 100 })
}

/// 21227 becomes `21 227`.
fn spaced(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{} {:03}", number / 1000, number % 1000) }
}

const LEFT: usize = 110;
const BOX: usize = 160;
const STEP: usize = 168;
const ROW: usize = 66;
const TOP: usize = 62;
/// The number of lines that fill a box's bar.
const FULL: usize = 22_000;

/// Draws the layers, highest first, with a box for each crate.
fn draw(sizes: &BTreeMap<String, Size>) -> String {
    let is_at = |wanted: LayerRule| {
        move |place: LayerRule| match (place, wanted) {
            (LayerRule::Layer(layer), LayerRule::Layer(wanted)) => layer == wanted,
            (LayerRule::User(_), LayerRule::User(_))
            | (LayerRule::Floor, LayerRule::Floor)
            | (LayerRule::Development, LayerRule::Development) => true,
            _ => false,
        }
    };
    let layers = (0..=6u8).rev().map(|layer| (format!("layer {layer}"), LayerRule::Layer(layer), "#eaf2f8", "#2874a6"));
    let rows: Vec<_> = [("users".to_owned(), LayerRule::User(&[]), "#fbe9e7", "#c0392b")]
        .into_iter()
        .chain(layers)
        .chain([("floor".to_owned(), LayerRule::Floor, "#eaf2f8", "#2874a6")])
        .chain([("tests only".to_owned(), LayerRule::Development, "#f4f4f4", "#999999")])
        .collect();
    let crates_at = |place| layers::TABLE.iter().filter(move |(_, found)| is_at(place)(*found)).map(|(name, _)| *name);
    let columns = rows.iter().map(|(_, place, ..)| crates_at(*place).count()).max().unwrap_or_default();
    let (width, height) = (LEFT + columns * STEP + 8, TOP + rows.len() * ROW + 8);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">Crates, their layers and their size</text>\n\
         <text x=\"16\" y=\"46\" fill=\"#555555\">A crate uses only crates of lower layers. Lines of source, without tests/, benches/ and examples/.</text>\n"
    );
    // Writing to a String cannot fail.
    for (at, (label, place, fill, stroke)) in rows.into_iter().enumerate() {
        let y = TOP + at * ROW;
        let _ = writeln!(svg, "<text x=\"16\" y=\"{}\" fill=\"#555555\">{label}</text>", y + 31);
        for (column, name) in crates_at(place).enumerate() {
            let lines = sizes.get(name).map_or(0, |size| size.sources);
            let (x, bar) = (LEFT + column * STEP, (BOX - 16) * lines.min(FULL) / FULL);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX}\" height=\"{}\" rx=\"6\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n\
                 <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{name}</text>\n\
                 <text x=\"{}\" y=\"{}\" fill=\"#555555\" font-size=\"12\">{} lines</text>\n\
                 <rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"5\" fill=\"{stroke}\"/>",
                ROW - 12,
                x + 8,
                y + 18,
                x + 8,
                y + 34,
                spaced(lines),
                x + 8,
                y + 42,
                bar.max(1)
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(rows: &[(&'static str, usize, usize)]) -> BTreeMap<&'static str, Size> {
        rows.iter().map(|&(name, sources, tests)| (name, Size { sources, tests })).collect()
    }

    const TABLE: &str = "# Page\n\n| layer | crate | lines | tests | holds |\n|---|---|---|---|---|\n\
                         | 0 | `graph` | 20 000 | 100 | plans |\n| 6 | `umbrella` → `x.so` |  |  | a \\| b |\n\
                         | | **total** | | | |\n\n| 0 | `graph` | other | table | |\n";

    #[test]
    fn numbers_stay_until_they_are_off_by_a_tenth() {
        let (same, _) = update(TABLE, &sizes(&[("graph", 21_500, 140), ("umbrella", 4_449, 3)])).unwrap();
        assert!(same.contains("| 0 | `graph` | 20 000 | 100 | plans |\n"), "{same}");
        assert!(same.contains("| 6 | `umbrella` → `x.so` | 4 400 | 10 | a \\| b |"), "{same}");
        let (new, recorded) = update(TABLE, &sizes(&[("graph", 23_450, 300), ("umbrella", 50, 0)])).unwrap();
        assert!(new.contains("| 0 | `graph` | 23 500 | 300 | plans |\n"), "{new}");
        assert!(new.contains("|  | **total** | 23 550 | 300 | |\n"), "{new}");
        assert_eq!(recorded["graph"], Size { sources: 23_500, tests: 300 });
        assert!(new.ends_with("| 0 | `graph` | other | table | |\n"), "another table is left alone: {new}");
    }

    #[test]
    fn an_updated_page_is_up_to_date() {
        let sizes = sizes(&[("graph", 23_450, 300), ("umbrella", 50, 0)]);
        let (once, _) = update(TABLE, &sizes).unwrap();
        assert_eq!(update(&once, &sizes).unwrap().0, once);
    }

    #[test]
    fn a_missing_crate_and_a_wrong_layer_are_errors() {
        let error = update(TABLE, &sizes(&[("graph", 1, 1), ("umbrella", 1, 1), ("exec", 1, 1)])).unwrap_err();
        assert!(error.to_string().contains("no row for [\"exec\"]"), "{error}");
        let wrong = TABLE.replace("| 6 |", "| 5 |");
        let error = update(&wrong, &sizes(&[("graph", 1, 1), ("umbrella", 1, 1)])).unwrap_err();
        assert!(error.to_string().contains("umbrella in layer \"5\""), "{error}");
    }

    #[test]
    fn tests_are_counted_separately_and_data_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [("src/lib.rs", "1\n2\n"), ("hip/a.hip", "3\n"), ("tests/t.rs", "4\n"), ("src/x.md", "5\n")]
        {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(size_of(folder.path()).unwrap(), Size { sources: 3, tests: 1 });
    }

    #[test]
    fn every_crate_has_a_box_with_its_lines() {
        let recorded = layers::TABLE.iter().map(|(name, _)| ((*name).to_owned(), Size { sources: 1200, tests: 0 }));
        let svg = draw(&recorded.collect());
        assert_eq!(svg.matches("1 200 lines").count(), layers::TABLE.len());
        assert!(svg.contains(">umbrella<") && svg.contains(">layer 6<"));
        let numbers = |before: &str| -> Vec<usize> {
            svg.split(before).skip(1).filter_map(|rest| rest.split([' ', '"']).next()?.parse().ok()).collect()
        };
        let ends = numbers("<rect x=\"").into_iter().map(|x| x + BOX).max();
        assert!(ends <= numbers("viewBox=\"0 0 ").first().copied(), "a box lies outside of the picture: {ends:?}");
    }
}
