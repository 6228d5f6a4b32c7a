//! Metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use textgen::engine::{Phase, Usage};

use crate::models::Models;
use crate::served::ServedModel;

/// Upper bounds of times in seconds.
const BOUNDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Paths of other requests are counted together, so that clients cannot grow the table.
const OTHER: &str = "other";

/// What the server counts itself; the engines count the rest.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<(&'static str, u16), u64>,
    first_token: Histogram,
    per_token: Histogram,
    queued: Histogram,
    total: Histogram,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {bucket}");
        }
        let Histogram { count, sum, .. } = self;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }
}

impl Metrics {
    /// Counts an answered request.
    pub fn count(&self, path: &str, status: u16) {
        let path = crate::app::ROUTES.iter().find(|&&route| route == path).copied().unwrap_or(OTHER);
        *self.counts().requests.entry((path, status)).or_default() += 1;
    }

    /// Counts a finished generation.
    pub fn observe(&self, usage: &Usage) {
        let mut counts = self.counts();
        counts.queued.observe(usage.queued.as_secs_f64());
        counts.total.observe(usage.total.as_secs_f64());
        if usage.new_tokens > 0 {
            counts.first_token.observe(usage.first_token.as_secs_f64());
        }
        if usage.new_tokens > 1 {
            let rest = usage.total.saturating_sub(usage.first_token).as_secs_f64();
            counts.per_token.observe(rest / (usage.new_tokens - 1) as f64);
        }
    }

    /// The page.
    pub fn text(&self, models: &Models) -> String {
        let mut out = String::new();
        let counts = self.counts();
        let name = "amdgpu_ep_http_requests_total";
        let _ = writeln!(out, "# HELP {name} Answered requests.\n# TYPE {name} counter");
        for ((path, status), count) in &counts.requests {
            let _ = writeln!(out, "{name}{{path=\"{path}\",status=\"{status}\"}} {count}");
        }
        counts.first_token.write(&mut out, "amdgpu_ep_time_to_first_token_seconds", "From submission to first token.");
        counts.per_token.write(&mut out, "amdgpu_ep_time_per_token_seconds", "Mean time of later tokens of a request.");
        counts.queued.write(&mut out, "amdgpu_ep_queue_seconds", "Time a request waited for a slot.");
        counts.total.write(&mut out, "amdgpu_ep_generation_seconds", "From submission to last token.");
        drop(counts);
        memory(&mut out, models);
        engines(&mut out, models);
        out
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the models take, and may take.
fn memory(out: &mut String, models: &Models) {
    let mut gauge = |name: &str, help: &str, value: u64| {
        let _ =
            writeln!(out, "# HELP amdgpu_ep_{name} {help}\n# TYPE amdgpu_ep_{name} gauge\namdgpu_ep_{name} {value}");
    };
    gauge("models_bytes", "Memory of the models that are loaded: weights and caches.", models.bytes_in_use());
    if let Some(budget) = models.memory_budget() {
        gauge("memory_budget_bytes", "Memory that the models may take.", budget);
    }
}

/// One sample per model for each of the engine's figures.
fn engines(out: &mut String, models: &Models) {
    let models = models.ready();
    let stats: Vec<_> = models.iter().map(|model| (model, model.engine.stats())).collect();
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&textgen::engine::Stats) -> u64| {
        let _ = writeln!(out, "# HELP amdgpu_ep_{name} {help}\n# TYPE amdgpu_ep_{name} {kind}");
        for (model, stats) in &stats {
            let _ = writeln!(out, "amdgpu_ep_{name}{{{}}} {}", label(model), value(stats));
        }
    };
    let busy =
        |stats: &textgen::engine::Stats| stats.slots.iter().filter(|slot| slot.phase != Phase::Idle).count() as u64;
    family("slots", "gauge", "Sequences that can run at once.", &|stats| stats.slots.len() as u64);
    family("slots_busy", "gauge", "Slots that a request uses.", &busy);
    family("requests_waiting", "gauge", "Requests that wait for a slot.", &|stats| stats.waiting as u64);
    family("requests_submitted_total", "counter", "Requests that the engine accepted.", &|stats| stats.submitted);
    family("requests_finished_total", "counter", "Requests that ended normally.", &|stats| stats.finished);
    family("requests_cancelled_total", "counter", "Requests whose client went away.", &|stats| stats.cancelled);
    family("requests_failed_total", "counter", "Requests that failed.", &|stats| stats.failed);
    family("requests_rejected_total", "counter", "Requests that were not accepted.", &|stats| stats.rejected);
    family("prompt_tokens_total", "counter", "Tokens of prompts.", &|stats| stats.prompt_tokens);
    family("cached_tokens_total", "counter", "Prompt tokens found in the prefix cache.", &|stats| stats.cached_tokens);
    family("new_tokens_total", "counter", "Generated tokens.", &|stats| stats.new_tokens);
    family("steps_total", "counter", "Decoding steps.", &|stats| stats.steps);
    family("step_rows_total", "counter", "Rows of all decoding steps.", &|stats| stats.step_rows);
    let on_device = "Tokens that were chosen on the device, without a copy of their scores.";
    family("device_choices_total", "counter", on_device, &|stats| stats.chosen_on_device);
    family("drafted_tokens_total", "counter", "Drafted tokens that were verified.", &|stats| stats.drafted_tokens);
    family("accepted_tokens_total", "counter", "Drafted tokens that were right.", &|stats| stats.accepted_tokens);
    let preempted = "Sequences that lost their blocks to older ones, and ran again.";
    family("preempted_total", "counter", preempted, &|stats| stats.preempted);
    family("cache_bytes", "gauge", "Size of the key-value cache.", &|stats| stats.cache_bytes);
}

fn label(model: &ServedModel) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("model=\"{}\",provider=\"{}\"", escaped(&model.name), escaped(&model.provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::default();
        [0.002, 0.2, 100.0].iter().for_each(|&seconds| histogram.observe(seconds));
        let mut out = String::new();
        histogram.write(&mut out, "x", "help");
        for wanted in ["le=\"0.001\"} 0", "le=\"0.0025\"} 1", "le=\"30\"} 2", "le=\"+Inf\"} 3", "x_count 3"] {
            assert!(out.contains(wanted), "{wanted} is not in\n{out}");
        }
    }

    #[test]
    fn unknown_paths_share_one_counter() {
        let metrics = Metrics::default();
        (0..100).for_each(|number| metrics.count(&format!("/{number}"), 404));
        assert_eq!(metrics.counts().requests.len(), 1);
    }
}
