//! `/tokenize` and `/detokenize`.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::body::Json;
use crate::chat::blocking;
use crate::failure::Failure;
use crate::messages::{self, ClientMessage};

#[derive(Deserialize)]
struct TokenizeRequest {
    model: Option<String>,
    /// The text; other servers call it `content` or `prompt`.
    #[serde(alias = "content")]
    prompt: Option<String>,
    /// Rendered with the chat template.
    messages: Option<Vec<ClientMessage>>,
}

/// The token ids of a text or of messages.
pub async fn tokenize(State(app): State<App>, body: Json) -> Result<axum::Json<Value>, Failure> {
    let request: TokenizeRequest = body.read()?;
    let model = app.models().find(request.model.as_deref()).await?;
    blocking(move || {
        let text = match (request.prompt, request.messages) {
            (Some(text), None) => text,
            (None, Some(messages)) => {
                let messages = messages::for_template(messages)?;
                model.template()?.render_values(&messages, &Value::Null, true)?
            }
            _ => return Err(Failure::invalid("send either prompt or messages")),
        };
        let tokens = model.tokenizer.encode(&text)?;
        let count = tokens.len();
        Ok(axum::Json(json!({"tokens": tokens, "count": count, "max_model_len": model.engine.max_length()})))
    })
    .await
}

#[derive(Deserialize)]
struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// The text of token ids.
pub async fn detokenize(State(app): State<App>, body: Json) -> Result<axum::Json<Value>, Failure> {
    let request: DetokenizeRequest = body.read()?;
    let model = app.models().find(request.model.as_deref()).await?;
    blocking(move || {
        let text = model.tokenizer.decode(&request.tokens)?;
        Ok(axum::Json(json!({"content": text, "prompt": text})))
    })
    .await
}
