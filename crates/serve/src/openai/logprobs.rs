//! Probabilities of tokens, in the forms of both endpoints.

use serde_json::{Value, json};
use textgen::Tokenizer;
use textgen::engine::TokenLogprob;

/// The form of `/v1/chat/completions`.
pub fn chat(tokenizer: &Tokenizer, token: u32, found: &TokenLogprob) -> Value {
    let top: Vec<Value> = found.top.iter().map(|&(token, logprob)| entry(tokenizer, token, logprob)).collect();
    let mut chosen = entry(tokenizer, token, found.logprob);
    chosen["top_logprobs"] = json!(top);
    chosen
}

fn entry(tokenizer: &Tokenizer, token: u32, logprob: f32) -> Value {
    let text = text(tokenizer, token);
    // A part of a character has no text of its own, so its bytes are unknown here.
    let bytes = (!text.contains(char::REPLACEMENT_CHARACTER)).then(|| text.bytes().collect::<Vec<u8>>());
    json!({"token": text, "logprob": finite(logprob), "bytes": bytes})
}

/// JSON has no infinity. OpenAI writes a very small number for tokens that cannot be chosen.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

fn text(tokenizer: &Tokenizer, token: u32) -> String {
    tokenizer.decode(&[token]).unwrap_or_default()
}

/// The form of `/v1/completions`, collected token by token.
#[derive(Default)]
pub struct Legacy {
    tokens: Vec<String>,
    logprobs: Vec<f32>,
    top: Vec<Value>,
    offsets: Vec<usize>,
}

impl Legacy {
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32, found: &TokenLogprob, offset: usize) {
        let best = found.top.iter().map(|&(token, logprob)| (text(tokenizer, token), json!(finite(logprob))));
        self.top.push(Value::Object(best.collect()));
        self.tokens.push(text(tokenizer, token));
        self.logprobs.push(finite(found.logprob));
        self.offsets.push(offset);
    }

    pub fn document(&self) -> Value {
        let Legacy { tokens, logprobs, top, offsets } = self;
        json!({"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
    }
}
