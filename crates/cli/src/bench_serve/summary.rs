//! The results of a measurement, as a table, a document and a plot.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Report;
use super::load::{Load, Outcome};
use crate::plot::{Line, Plot};
use crate::table;
use crate::times::Percentiles;

/// The figures of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// In a closed loop: the clients.
    pub clients: Option<usize>,
    /// In an open loop: requests that arrive per second.
    pub rate: Option<f64>,
    pub requests: usize,
    pub failed: usize,
    /// From the first request to the last answer.
    pub seconds: f64,
    pub requests_per_second: f64,
    /// By the server's count; absent if it sends none.
    pub mean_prompt_tokens: Option<f64>,
    /// New tokens of all complete answers.
    pub tokens: usize,
    /// Complete answers whose tokens the server did not count; their events were counted instead.
    pub answers_without_usage: usize,
    pub tokens_per_second: f64,
    pub first_token: Option<Percentiles>,
    pub between_tokens: Option<Percentiles>,
    pub total: Option<Percentiles>,
    pub failures: Vec<Failures>,
}

/// Requests that failed in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failures {
    pub kind: String,
    pub count: usize,
    /// The message of the first one.
    pub example: String,
}

impl Measurement {
    pub fn of(load: Load, outcomes: Vec<Outcome>, time: Duration) -> Measurement {
        let requests = outcomes.len();
        let (mut answers, mut failures) = (Vec::new(), BTreeMap::new());
        for outcome in outcomes {
            match outcome {
                Ok(answer) => answers.push(answer),
                Err(failure) => {
                    let kind = failure.kind();
                    let example = failure.message();
                    failures.entry(kind.clone()).or_insert(Failures { kind, count: 0, example }).count += 1;
                }
            }
        }
        let prompts: Vec<f64> = answers.iter().filter_map(|answer| Some(answer.usage?.prompt as f64)).collect();
        let tokens = answers.iter().map(|answer| answer.tokens()).sum();
        let seconds = time.as_secs_f64();
        Measurement {
            clients: load.clients(),
            rate: if let Load::Rate(rate) = load { Some(rate) } else { None },
            requests,
            failed: requests - answers.len(),
            seconds,
            requests_per_second: answers.len() as f64 / seconds,
            mean_prompt_tokens: (!prompts.is_empty()).then(|| prompts.iter().sum::<f64>() / prompts.len() as f64),
            tokens,
            answers_without_usage: answers.len() - prompts.len(),
            tokens_per_second: tokens as f64 / seconds,
            first_token: Percentiles::of(answers.iter().filter_map(|answer| answer.first).collect()),
            between_tokens: Percentiles::of(answers.iter().flat_map(|answer| answer.gaps.clone()).collect()),
            total: Percentiles::of(answers.iter().map(|answer| answer.total).collect()),
            failures: failures.into_values().collect(),
        }
    }

    fn load(&self) -> Load {
        self.rate.map_or_else(|| Load::Clients(self.clients.unwrap_or(0)), Load::Rate)
    }
}

pub fn text(report: &Report) -> String {
    let Report { url, model, max_tokens, prompt_tokens, .. } = report;
    let mut out = format!("{url}, model {model}\n");
    let measured = || report.measurements.iter();
    let means: Vec<String> =
        measured().filter_map(|measured| Some(format!("{:.0}", measured.mean_prompt_tokens?))).collect();
    let actual = if means.is_empty() { String::new() } else { format!(" (actual mean: {})", means.join(", ")) };
    out += &format!("prompts of {prompt_tokens} tokens{actual}, at most {max_tokens} new ones\n\n");
    let rows = measured().map(|measured| {
        [
            measured.load().to_string(),
            measured.requests.to_string(),
            measured.failed.to_string(),
            format!("{:.1}", measured.tokens_per_second),
            cell(measured.first_token.as_ref()),
            cell(measured.between_tokens.as_ref()),
            cell(measured.total.as_ref()),
        ]
    });
    let head = ["load", "requests", "failed", "tokens/s", "first token", "between tokens", "total"];
    out += &table::text(head, rows.collect());
    out += "\nTimes in ms: p50 / p90 / p99\n";
    let uncounted: usize = measured().map(|measured| measured.answers_without_usage).sum();
    if uncounted > 0 {
        out += &format!("{uncounted} answers came without token counts: each event with text counts as one token\n");
    }
    let failures: Vec<[String; 4]> = measured()
        .flat_map(|measured| {
            measured.failures.iter().map(|Failures { kind, count, example }| {
                [measured.load().to_string(), count.to_string(), kind.clone(), example.clone()]
            })
        })
        .collect();
    if !failures.is_empty() {
        out += &format!("\n{}", table::text(["load", "failed", "kind", "example"], failures));
    }
    out
}

fn cell(times: Option<&Percentiles>) -> String {
    times.map_or("-".to_owned(), |times| format!("{:.1} / {:.1} / {:.1}", times.p50_ms, times.p90_ms, times.p99_ms))
}

/// Tokens per second of all requests together, and of a single one.
pub fn plot(report: &Report) -> String {
    let points = |value: fn(&Measurement) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |measured: &Measurement| {
            let across = measured.rate.or(measured.clients.map(|clients| clients as f64))?;
            Some((across, value(measured)?))
        };
        report.measurements.iter().filter_map(point).collect()
    };
    let single = |measured: &Measurement| {
        let gap = measured.between_tokens.as_ref()?.p50_ms;
        (gap > 0.0).then_some(1e3 / gap)
    };
    let lines = [
        Line { label: "all requests".to_owned(), points: points(|measured| Some(measured.tokens_per_second)) },
        Line { label: "one request, after its first token (median)".to_owned(), points: points(single) },
    ];
    let is_open = report.measurements.iter().any(|measured| measured.rate.is_some());
    let across = if is_open { "requests per second" } else { "clients" };
    Plot { title: &format!("{}: tokens per second", report.model), across, lines: &lines }.svg()
}

#[cfg(test)]
mod tests {
    use super::super::Endpoint;
    use super::super::answer::{Answer, Usage};
    use super::super::client::Failure;
    use super::*;

    fn answer(first: u64, gaps: &[u64], usage: Option<Usage>) -> Outcome {
        let milliseconds = Duration::from_millis;
        let total = milliseconds(first + gaps.iter().sum::<u64>());
        let gaps: Vec<Duration> = gaps.iter().copied().map(milliseconds).collect();
        Ok(Answer { first: Some(milliseconds(first)), events: gaps.len() + 1, gaps, total, usage })
    }

    fn measurement() -> Measurement {
        let outcomes = vec![
            answer(100, &[10, 30], Some(Usage { prompt: 20, answer: 6 })),
            answer(200, &[20], None),
            Err(Failure::Status(500, "broken".to_owned())),
            Err(Failure::Status(500, "broken again".to_owned())),
            Err(Failure::TimedOut(Duration::from_secs(3))),
        ];
        Measurement::of(Load::Clients(2), outcomes, Duration::from_secs(4))
    }

    #[test]
    fn only_complete_answers_count() {
        let measured = measurement();
        assert_eq!((measured.requests, measured.failed, measured.tokens), (5, 3, 6 + 2));
        assert_eq!((measured.tokens_per_second, measured.requests_per_second), (2.0, 0.5));
        assert_eq!((measured.mean_prompt_tokens, measured.answers_without_usage), (Some(20.0), 1));
        let wanted = |p50_ms, p90_ms, p99_ms| Some(Percentiles { p50_ms, p90_ms, p99_ms });
        assert_eq!(measured.first_token, wanted(100.0, 200.0, 200.0));
        assert_eq!(measured.between_tokens, wanted(20.0, 30.0, 30.0));
        assert_eq!(measured.total, wanted(140.0, 220.0, 220.0));
        let failures =
            |kind: &str, count, example: &str| Failures { kind: kind.to_owned(), count, example: example.to_owned() };
        let wanted = [failures("status 500", 2, "broken"), failures("timeout", 1, "no complete answer after 3 s")];
        assert_eq!(measured.failures, wanted);
    }

    #[test]
    fn the_report_names_failures_and_guessed_tokens() {
        let report = Report {
            schema: 1,
            url: "http://127.0.0.1:1".to_owned(),
            model: "small".to_owned(),
            endpoint: Endpoint::Chat,
            prompt_tokens: 24,
            max_tokens: 8,
            seed: 0,
            measurements: vec![measurement()],
        };
        let text = text(&report);
        for wanted in [
            "http://127.0.0.1:1, model small",
            "prompts of 24 tokens (actual mean: 20), at most 8 new ones",
            "2 clients",
            "140.0 / 220.0 / 220.0",
            "1 answers came without token counts",
            "status 500",
            "broken",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        let svg = plot(&report);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
    }
}
