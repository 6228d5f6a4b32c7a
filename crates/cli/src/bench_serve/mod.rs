//! `amdgpu-ep bench-serve`: measures a server that is compatible with OpenAI's API, under load.

mod answer;
mod client;
mod events;
mod load;
mod prompts;
mod summary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::client::Client;
use self::load::{Load, Plan};
use self::prompts::Prompts;
use self::summary::Measurement;
use crate::progress::Progress;
use crate::replace;
use crate::report;
use crate::terminal::note;

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// All requests failed.
const ALL_FAILED: u8 = 1;

/// Defaults of `--requests`: requests of each client, and the minimum of a measurement.
const REQUESTS_PER_CLIENT: usize = 4;
const LEAST_REQUESTS: usize = 32;

/// The arguments of `bench-serve`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Address of the server, with or without /v1 at its end
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Name of the model [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Which endpoint to send requests to
    #[arg(long, value_name = "NAME", default_value = "chat")]
    endpoint: Endpoint,
    /// Environment variable that holds the API key, if the server needs one
    #[arg(long, value_name = "VARIABLE", default_value = "OPENAI_API_KEY")]
    api_key_env: String,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    request: RequestArguments,
    /// Write a plot of tokens per second over the load
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long)]
    json: bool,
}

/// How many requests, and when.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
struct LoadArguments {
    /// Clients that each send the next request after an answer, one measurement for each number
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 4, 8])]
    concurrency: Vec<usize>,
    /// Requests per second that arrive at random (a Poisson process) without waiting for answers, one measurement each
    #[arg(long, value_name = "R,...", value_delimiter = ',', conflicts_with = "concurrency")]
    rate: Vec<f64>,
    /// Requests per measurement [default: 4 per client, and at least 32]
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Seed of the prompts and of the arrivals
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Time after which a request has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

/// What a request asks for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
struct RequestArguments {
    /// Tokens of each prompt, as close as words allow
    #[arg(long, value_name = "N", default_value_t = 128)]
    prompt_tokens: usize,
    /// Most new tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_tokens: usize,
    /// Another field of the request, such as ignore_eos=true, or temperature=1 instead of 0
    #[arg(long = "field", value_name = "NAME=JSON", value_parser = field)]
    fields: Vec<(String, Value)>,
}

/// The value of `--endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Endpoint {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

impl Endpoint {
    fn path(self) -> &'static str {
        match self {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
        }
    }
}

fn field(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=JSON, found {text:?}"))?;
    let value = serde_json::from_str(value).map_err(|error| format!("{value:?} is not JSON: {error}"))?;
    Ok((name.to_owned(), value))
}

/// The complete report.
#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: u32,
    url: String,
    model: String,
    endpoint: Endpoint,
    /// The requested length of prompts; each measurement has the actual mean.
    prompt_tokens: usize,
    max_tokens: usize,
    seed: u64,
    measurements: Vec<Measurement>,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When an argument is invalid, no model is named and the server does not list any, or the plot cannot be written.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    arguments.check()?;
    // One thread is enough to read answers, and leaves the others to a server on the same machine.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("the network could not be used")?;
    let report = runtime.block_on(measure(arguments))?;
    if let Some(path) = &arguments.plot {
        replace::write(path, summary::plot(&report).as_bytes())?;
        note("note", &format!("the plot is in {}", path.display()));
    }
    let all_failed = report.measurements.iter().all(|measured| measured.failed == measured.requests);
    let text = report::written(&report, arguments.json, summary::text)?;
    Ok((if all_failed { ALL_FAILED } else { 0 }, text))
}

async fn measure(arguments: &Arguments) -> Result<Report> {
    let progress = Progress::new("asking the server ...");
    let key = std::env::var(&arguments.api_key_env).ok().filter(|key| !key.is_empty());
    let client = Client::new(&arguments.url, key.as_deref(), Duration::from_secs(arguments.load.timeout))?;
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => client.first_model().await?,
    };
    let body = arguments.body(&model);
    let (prompts, problem) = Prompts::calibrated(&client, &body, arguments.request.prompt_tokens).await;
    if let Some(problem) = problem {
        note("note", &format!("prompts have {} words instead of tokens: {problem}", prompts.words()));
    }
    let plan = Arc::new(Plan { client, body, prompts, seed: arguments.load.seed });
    let mut report = Report {
        schema: SCHEMA,
        url: arguments.url.clone(),
        model,
        endpoint: arguments.endpoint,
        prompt_tokens: arguments.request.prompt_tokens,
        max_tokens: arguments.request.max_tokens,
        seed: arguments.load.seed,
        measurements: Vec::new(),
    };
    for load in arguments.load.loads() {
        progress.say(format!("measuring {load}, {} requests ...", arguments.load.requests(load)));
        let (outcomes, time) = plan.run(load, arguments.load.requests(load)).await;
        report.measurements.push(Measurement::of(load, outcomes, time));
    }
    Ok(report)
}

impl Arguments {
    fn check(&self) -> Result<()> {
        let LoadArguments { concurrency, rate, .. } = &self.load;
        if concurrency.contains(&0) || rate.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
            bail!("the load is out of range\n  help: --concurrency must be at least 1, and --rate more than 0");
        }
        if self.request.prompt_tokens == 0 || self.request.max_tokens == 0 {
            bail!("nothing to generate\n  help: --prompt-tokens and --max-tokens must be at least 1");
        }
        for load in self.load.loads() {
            let (requests, least) = (self.load.requests(load), load.clients().unwrap_or(1));
            if requests < least {
                bail!("{requests} requests are too few for {load}\n  help: --requests must be at least {least}");
            }
        }
        Ok(())
    }

    /// Everything of a request but its prompt.
    fn body(&self, model: &str) -> Body {
        let mut fields = Map::new();
        let usual = json!({
            "model": model,
            "max_tokens": self.request.max_tokens,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        fields.extend(usual.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        fields.extend(self.request.fields.iter().cloned());
        Body { endpoint: self.endpoint, fields }
    }
}

/// The body of a request, without its prompt.
#[derive(Clone, Debug)]
struct Body {
    endpoint: Endpoint,
    fields: Map<String, Value>,
}

impl Body {
    fn with(&self, prompt: &str) -> Value {
        let mut fields = self.fields.clone();
        match self.endpoint {
            Endpoint::Chat => fields.insert("messages".to_owned(), json!([{"role": "user", "content": prompt}])),
            Endpoint::Completions => fields.insert("prompt".to_owned(), prompt.into()),
        };
        Value::Object(fields)
    }
}

impl LoadArguments {
    fn loads(&self) -> Vec<Load> {
        if self.rate.is_empty() {
            return self.concurrency.iter().copied().map(Load::Clients).collect();
        }
        self.rate.iter().copied().map(Load::Rate).collect()
    }

    fn requests(&self, load: Load) -> usize {
        self.requests.unwrap_or_else(|| LEAST_REQUESTS.max(load.clients().unwrap_or(0) * REQUESTS_PER_CLIENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_json_values() {
        assert_eq!(field("ignore_eos=true"), Ok(("ignore_eos".to_owned(), Value::Bool(true))));
        assert_eq!(field("stop=[\"a=b\"]"), Ok(("stop".to_owned(), json!(["a=b"]))));
        assert!(field("stop").is_err() && field("stop=a").is_err());
    }

    #[test]
    fn prompts_are_sent_in_the_form_of_the_endpoint() {
        let fields = Map::from_iter([("max_tokens".to_owned(), Value::from(4))]);
        let chat = Body { endpoint: Endpoint::Chat, fields: fields.clone() }.with("hello");
        assert_eq!(chat, json!({"max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}));
        let text = Body { endpoint: Endpoint::Completions, fields }.with("hello");
        assert_eq!(text, json!({"max_tokens": 4, "prompt": "hello"}));
    }
}
