//! OpenAI's API.

pub mod chat;
mod chat_stream;
pub mod completions;
pub mod embeddings;
mod logprobs;
pub mod models;
pub mod responses;
mod responses_stream;
pub mod tokens;
pub mod transcriptions;

use serde_json::{Value, json};
use textgen::engine::Usage;

/// The name, id and time of an answer, which all of its parts repeat.
#[derive(Clone)]
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
}

/// `usage` of an answer. The prompt is counted once, also for several choices.
fn usage(prompt_tokens: usize, usage: &Usage) -> Value {
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": usage.new_tokens,
        "total_tokens": prompt_tokens + usage.new_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens.min(prompt_tokens)},
    })
}
