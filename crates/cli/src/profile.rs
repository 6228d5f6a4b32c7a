//! Times of a model's steps, from the backend's report `profile`.

use std::collections::BTreeMap;

use reports::{Profile, TimedStep};

use crate::table;

/// What all runs of one plan share: the partition, and the steps with their bytes.
type Look = (String, Vec<(String, u64)>);

/// The steps of all plans that ran with their median times, slowest first. Runs are grouped by their partition and
/// steps. The first run of each group is left out if there are others, because it includes initialisation.
pub fn medians(report: Vec<Profile>) -> Vec<TimedStep> {
    let mut runs: BTreeMap<Look, Vec<Vec<TimedStep>>> = BTreeMap::new();
    for Profile { partition, times } in report {
        let look = times.iter().map(|step| (step.step.clone(), step.bytes)).collect();
        runs.entry((partition, look)).or_default().push(times);
    }
    let mut steps = Vec::new();
    for mut runs in runs.into_values() {
        if runs.len() > 1 {
            runs.remove(0);
        }
        let count = runs.first().map_or(0, Vec::len);
        steps.extend((0..count).filter_map(|at| median(runs.iter().filter_map(|run| run.get(at)))));
    }
    steps.sort_by(|one, other| other.micros.total_cmp(&one.micros));
    steps
}

fn median<'a>(runs: impl Iterator<Item = &'a TimedStep>) -> Option<TimedStep> {
    let mut runs: Vec<&TimedStep> = runs.collect();
    runs.sort_by(|one, other| one.micros.total_cmp(&other.micros));
    runs.get(runs.len() / 2).map(|&step| step.clone())
}

/// A table of at most `most` steps, and the sum of all.
pub fn text(steps: &[TimedStep], most: usize) -> String {
    if steps.is_empty() {
        return "No step was timed: the hip backend ran no partition.\n".to_owned();
    }
    let total: f64 = steps.iter().map(|step| step.micros).sum();
    let rows = steps.iter().take(most).map(|step| {
        let seconds = step.micros.max(f64::MIN_POSITIVE) * 1e-6;
        [
            step.op.clone(),
            step.node.clone(),
            step.run_by.clone(),
            format!("{:.1} µs", step.micros),
            format!("{:.1} %", 100.0 * step.micros / total.max(f64::MIN_POSITIVE)),
            format!("{:.3} MB", step.bytes as f64 / 1e6),
            format!("{:.1}", step.bytes as f64 / seconds / 1e9),
            format!("{:.1}", step.flops as f64 / seconds / 1e9),
            step.share_of_peak.map_or_else(String::new, |share| format!("{:.0} %", 100.0 * share)),
        ]
    });
    // If the chip's peak is not known, the column stays empty.
    let peak = if steps.iter().any(|step| step.share_of_peak.is_some()) { "of peak" } else { "" };
    let head = ["operator", "node", "run by", "time", "of all", "moves", "GB/s", "GFLOP/s", peak];
    let rest = match steps.len().saturating_sub(most) {
        0 => String::new(),
        rest => format!("  ... and {rest} more\n"),
    };
    let (table, count) = (table::text(head, rows.collect()), steps.len());
    format!("{table}{rest}\n{count} steps: {total:.1} µs on the device's clock, each timed separately\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(micros: [f64; 2], share: &str) -> String {
        let step = |name: &str, micros: f64, bytes: u64| {
            format!(
                r#"{{"node":"{name}","op":"Add","step":"map","run_by":"own: map","micros":{micros},"bytes":{bytes},"flops":10,"share_of_peak":{share}}}"#
            )
        };
        let steps = [step("a", micros[0], 1000), step("b", micros[1], 2000)].join(",");
        format!("{{\"partition\":\"p\",\"times\":[{steps}]}}\n")
    }

    #[test]
    fn the_median_of_warm_runs_counts_and_the_slowest_step_comes_first() {
        let lines = [
            line([900.0, 900.0], "null"),
            line([1.0, 5.0], "null"),
            line([2.0, 4.0], "null"),
            line([3.0, 9.0], "null"),
        ];
        let steps = medians(reports::parse(&lines.concat()).unwrap());
        let found: Vec<(&str, f64)> = steps.iter().map(|step| (step.node.as_str(), step.micros)).collect();
        assert_eq!(found, [("b", 5.0), ("a", 2.0)]);
        let text = text(&steps, 1);
        for want in ["71.4 %", "and 1 more", "2 steps: 7.0 µs"] {
            assert!(text.contains(want), "{want}: {text}");
        }
        assert!(!text.contains("of peak"));
    }

    #[test]
    fn one_run_is_better_than_none_and_a_known_peak_is_shown() {
        let steps = medians(reports::parse(&line([1.0, 2.0], "0.5")).unwrap());
        assert_eq!(steps.len(), 2);
        assert!(text(&steps, 9).contains("50 %"));
        assert!(text(&[], 9).contains("No step was timed"));
        assert!(reports::parse::<Profile>("nonsense").is_err());
    }
}
