//! Conversations: what all chat endpoints share, whatever the form of their requests and answers.

mod choice;
mod collected;

use std::sync::Arc;

use serde::Deserialize;
use textgen::engine::Request;

use crate::access_log::Record;
use crate::app::App;
use crate::body::Json;
use crate::failure::Failure;
use crate::fields::{LimitFields, MOST_LOGPROBS, ResponseFormat, SamplingFields, constrain};
use crate::generation::{Admission, Generation};
use crate::messages::{self, ClientMessage};
use crate::served::ServedModel;
use crate::tools::Tools;

pub use choice::ChatChoice;
pub use collected::Collected;

use choice::Reading;

#[derive(Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<ClientMessage>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    response_format: Option<ResponseFormat>,
}

/// A conversation whose answers are being generated.
pub struct Running {
    pub model: Arc<ServedModel>,
    pub generation: Generation,
    pub choices: Vec<ChatChoice>,
    pub prompt_tokens: usize,
}

struct Prepared {
    request: Request,
    reading: Reading,
}

/// Starts the answers to a request in the form of OpenAI's chat endpoint.
pub async fn start(app: &App, record: Arc<Record>, body: Json) -> Result<Running, Failure> {
    let request: ChatRequest = body.read()?;
    let model = app.models().find(request.model.as_deref()).await?;
    let admission = Admission::of(app, record)?;
    let (settings, served) = (app.clone(), Arc::clone(&model));
    let Prepared { request, reading } = blocking(move || prepare(&settings, &served, request, &body)).await?;
    let record = admission.record();
    record.set_model(&model.name);
    let prompt_tokens = request.prompt.len();
    let choice = |index| ChatChoice::new(Arc::clone(&model), reading, format!("{}_{index}", record.id()));
    let choices = (0..request.choices).map(choice).collect();
    let generation = Generation::start(admission, &model.engine, vec![request], "messages")?;
    Ok(Running { model, generation, choices, prompt_tokens })
}

fn prepare(app: &App, model: &ServedModel, request: ChatRequest, body: &Json) -> Result<Prepared, Failure> {
    let limits: LimitFields = body.read()?;
    let sampling = body.read::<SamplingFields>()?.sampling(&model.config)?;
    let template = model.template()?;
    let tools = body.read::<Tools>()?.used(template)?;
    let messages = messages::for_template(request.messages)?;
    let text = template.render_values(&messages, &tools.described, true)?;
    let mut prepared = limits.request(model.encode(&text)?, sampling, app.settings())?;
    prepared.separators = model.markers.tokens();
    prepared.top_logprobs = wanted_logprobs(request.logprobs, request.top_logprobs)?;
    constrain(model, request.response_format.as_ref(), &mut prepared)?;
    if let Some(form) = &tools.forced {
        if prepared.filter.is_some() {
            return Err(Failure::field("response_format", "it cannot be combined with a required call"));
        }
        prepared.filter = Some(Box::new(model.constraint(form)?));
    }
    let thinks = text.trim_end().ends_with("<think>");
    let reading = Reading { format: tools.format, thinks, is_forced: tools.forced.is_some() };
    Ok(Prepared { request: prepared, reading })
}

fn wanted_logprobs(logprobs: Option<bool>, top: Option<usize>) -> Result<Option<usize>, Failure> {
    match (logprobs.unwrap_or(false), top) {
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(Failure::field("top_logprobs", "it needs logprobs to be true")),
        (true, Some(top)) if top > MOST_LOGPROBS => {
            Err(Failure::field("top_logprobs", format!("it is {top}, but must be at most {MOST_LOGPROBS}")))
        }
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}

/// Runs work that tokenizes, renders or compiles, which would delay other requests.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Failure::internal("preparing the request", &error)),
    }
}
