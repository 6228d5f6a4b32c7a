//! The log on stderr: one line per request, without prompts and answers.

use std::io::Write as _;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use textgen::engine::Usage;

use crate::LogFormat;
use crate::metrics::Metrics;

/// What is logged about a request when its last owner, the handler or the stream of the answer, is gone.
#[derive(Debug)]
pub struct Record {
    format: LogFormat,
    metrics: Arc<Metrics>,
    id: String,
    method: String,
    path: String,
    start: Instant,
    status: AtomicU16,
    key: OnceLock<String>,
    model: OnceLock<String>,
    usage: OnceLock<Usage>,
}

impl Record {
    pub fn new(format: LogFormat, metrics: Arc<Metrics>, id: String, method: String, path: String) -> Record {
        Record {
            format,
            metrics,
            id,
            method,
            path,
            start: Instant::now(),
            status: AtomicU16::new(0),
            key: OnceLock::new(),
            model: OnceLock::new(),
            usage: OnceLock::new(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub fn set_key(&self, name: &str) {
        // A request has one key.
        let _ = self.key.set(name.to_owned());
    }

    /// The name of the client's key; clients without keys have the same name.
    pub fn key(&self) -> &str {
        self.key.get().map_or("", String::as_str)
    }

    /// From here on the request runs a model.
    pub fn set_model(&self, name: &str) {
        let _ = self.model.set(name.to_owned());
    }

    /// The answer is complete.
    pub fn set_usage(&self, usage: Usage) {
        let _ = self.usage.set(usage);
    }

    fn document(&self) -> serde_json::Value {
        let mut line = json!({
            "time": unix_time(),
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status.load(Ordering::Relaxed),
            "seconds": self.start.elapsed().as_secs_f64(),
        });
        if let Some(key) = self.key.get() {
            line["key"] = json!(key);
        }
        if let Some(model) = self.model.get() {
            line["model"] = json!(model);
            line["complete"] = json!(self.usage.get().is_some());
        }
        if let Some(usage) = self.usage.get() {
            line["prompt_tokens"] = json!(usage.prompt_tokens);
            line["cached_tokens"] = json!(usage.cached_tokens);
            line["new_tokens"] = json!(usage.new_tokens);
            line["queued_seconds"] = json!(usage.queued.as_secs_f64());
            line["first_token_seconds"] = json!(usage.first_token.as_secs_f64());
        }
        line
    }

    fn text(&self) -> String {
        let milliseconds = self.start.elapsed().as_secs_f64() * 1e3;
        let status = self.status.load(Ordering::Relaxed);
        let mut line = format!("{status} {} {} {milliseconds:.0} ms", self.method, self.path);
        match (self.model.get(), self.usage.get()) {
            (Some(model), Some(usage)) => {
                line += &format!(" {model} {} + {} tokens", usage.prompt_tokens, usage.new_tokens);
            }
            (Some(model), None) => line += &format!(" {model} incomplete"),
            _ => {}
        }
        line + " " + &self.id
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.metrics.count(&self.path, self.status.load(Ordering::Relaxed));
        match self.format {
            LogFormat::Off => {}
            LogFormat::Json => write(&self.document().to_string()),
            LogFormat::Text => write(&self.text()),
        }
    }
}

/// Logs a problem of the server.
pub fn problem(doing: &str, error: &dyn std::fmt::Display) {
    write(&json!({"time": unix_time(), "problem": doing, "error": error.to_string()}).to_string());
}

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn write(line: &str) {
    // If stderr is closed, there is no one to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}
