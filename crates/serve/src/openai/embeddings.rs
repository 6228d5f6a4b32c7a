//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use textgen::embed::Embedder;

use crate::access_log::Record;
use crate::app::App;
use crate::body::Json;
use crate::failure::Failure;
use crate::fields::OneOrMany;
use crate::generation::Admission;
use crate::queue::Turn;

/// The most sentences of a request.
const MOST: usize = 2048;

/// Sentences that run together.
const BATCH: usize = 32;

#[derive(Deserialize)]
struct EmbeddingsRequest {
    model: Option<String>,
    input: OneOrMany,
    encoding_format: Option<Encoding>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

/// The vectors of sentences.
pub async fn create(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    body: Json,
) -> Result<axum::Json<Value>, Failure> {
    body.without(&["dimensions"])?;
    let request: EmbeddingsRequest = body.read()?;
    let served = app.models().find_embedder(request.model.as_deref()).await?;
    let sentences = request.input.into_vec();
    if sentences.len() > MOST || sentences.is_empty() || sentences.iter().any(String::is_empty) {
        return Err(Failure::field("input", format!("it must be 1 to {MOST} texts that are not empty")));
    }
    let mut admission = Admission::of(&app, record)?;
    admission.runs();
    let work = move |embedder: &mut Embedder, turn: &Turn| {
        in_batches(&sentences, || turn.check(), |batch| Ok(embedder.embed_counted(batch)?))
    };
    let (vectors, tokens) = served.run(app.settings(), work).await?;
    admission.spend(tokens);
    let encoding = request.encoding_format.unwrap_or_default();
    let document = |(index, vector): (usize, &Vec<f32>)| json!({"object": "embedding", "index": index, "embedding": encoded(vector, encoding)});
    Ok(axum::Json(json!({
        "object": "list",
        "model": request.model,
        "data": vectors.iter().enumerate().map(document).collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// Runs sentences in batches, until `check` gives a reason to stop.
fn in_batches(
    sentences: &[String],
    check: impl Fn() -> Result<(), Failure>,
    mut embed: impl FnMut(&[&str]) -> Result<(Vec<Vec<f32>>, usize), Failure>,
) -> Result<(Vec<Vec<f32>>, usize), Failure> {
    let (mut vectors, mut tokens) = (Vec::new(), 0);
    for batch in sentences.chunks(BATCH) {
        check()?;
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        let (found, count) = embed(&batch)?;
        vectors.extend(found);
        tokens += count;
    }
    Ok((vectors, tokens))
}

fn encoded(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            json!(base64::encode(vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_runs_after_the_request_ended() {
        let sentences = vec!["a".to_owned(); 3 * BATCH];
        for most in 0..=3 {
            let ran = std::cell::Cell::new(0);
            let check = || if ran.get() == most { Err(Failure::invalid("the end")) } else { Ok(()) };
            let embed = |batch: &[&str]| {
                ran.set(ran.get() + 1);
                Ok((vec![vec![0.0]; batch.len()], batch.len()))
            };
            let result = in_batches(&sentences, check, embed).map(|(vectors, tokens)| (vectors.len(), tokens));
            assert_eq!(ran.get(), most);
            assert_eq!(result.ok(), (most == 3).then_some((3 * BATCH, 3 * BATCH)));
        }
    }

    #[test]
    fn vectors_are_encoded_as_little_endian_floats() {
        assert_eq!(encoded(&[1.0, -2.0], Encoding::Base64), "AACAPwAAAMA=");
        assert_eq!(encoded(&[0.5], Encoding::Float), json!([0.5]));
    }
}
