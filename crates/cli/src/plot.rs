//! A small line plot as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 730.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 340.0;
const COLOURS: [&str; 6] = ["#c0392b", "#7f8c8d", "#2980b9", "#27ae60", "#8e44ad", "#d68910"];

/// Lines over a shared x axis. The y axis starts at 0.
pub struct Plot<'a> {
    pub title: &'a str,
    pub across: &'a str,
    pub lines: &'a [Line],
}

/// Points, from left to right.
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

impl Plot<'_> {
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let mut stops: Vec<f64> = points().map(|point| point.0).collect();
        stops.sort_by(f64::total_cmp);
        stops.dedup();
        let most = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        // Lengths usually double from one to the next, so they are evenly spaced on the axis.
        let x = |value: f64| {
            let at = stops.iter().position(|stop| *stop == value).unwrap_or(0) as f64;
            LEFT + (RIGHT - LEFT) * (at + 0.5) / stops.len().max(1) as f64
        };
        let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / (most * 1.1);
        let height = BOTTOM + 60.0 + 18.0 * self.lines.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>\n\
             <path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#555555\"/>\n",
            escaped(self.title)
        );
        // Writing to a `String` cannot fail.
        for quarter in 1..=4 {
            let value = most * f64::from(quarter) / 4.0;
            let (at, end) = (y(value), LEFT - 8.0);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#dddddd\"/>");
            let _ = writeln!(svg, "<text x=\"{end}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>", at + 4.0);
        }
        for stop in &stops {
            let at = x(*stop);
            let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{stop}</text>", BOTTOM + 18.0);
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 38.0,
            escaped(self.across)
        );
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let places: Vec<String> = line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            let path = places.join(" ");
            let _ = writeln!(svg, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
            for (across, up) in &line.points {
                let (across, up) = (x(*across), y(*up));
                let _ = writeln!(svg, "<circle cx=\"{across:.1}\" cy=\"{up:.1}\" r=\"4\" fill=\"{colour}\"/>");
            }
            let y = BOTTOM + 60.0 + 18.0 * index as f64;
            let _ =
                writeln!(svg, "<rect x=\"{LEFT}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y - 10.0);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 18.0, escaped(&line.label));
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

    #[test]
    fn points_are_at_their_coordinates() {
        let line = |label: &str, points: &[(f64, f64)]| Line { label: label.to_owned(), points: points.to_vec() };
        let lines = [line("a & b", &[(128.0, 110.0), (512.0, 55.0)]), line("c", &[(512.0, 0.0)])];
        let svg = Plot { title: "t", across: "tokens", lines: &lines }.svg();
        // Two positions between 80 and 730; 121 would be at the top (60), and 0 is at the bottom (340).
        for wanted in ["a &amp; b", "points=\"242.5,85.5 567.5,212.7\"", "cx=\"567.5\" cy=\"340.0\"", ">512<"] {
            assert!(svg.contains(wanted), "{wanted} is not in\n{svg}");
        }
    }
}
