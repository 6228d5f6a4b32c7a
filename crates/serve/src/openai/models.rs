//! `GET /v1/models`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;
use crate::body::PathName;
use crate::failure::Failure;
use crate::models::ModelState;
use crate::served::Served;

/// All models and their states.
pub async fn list(State(app): State<App>) -> Json<Value> {
    let models: Vec<Value> = app.models().states().iter().map(document).collect();
    Json(json!({"object": "list", "data": models}))
}

/// One model.
pub async fn one(State(app): State<App>, PathName(wanted): PathName) -> Result<Json<Value>, Failure> {
    let models = app.models().states();
    let found = models.iter().find(|model| model.name == wanted);
    found.map(|model| Json(document(model))).ok_or_else(|| Failure::unknown_model(&wanted))
}

fn document(found: &ModelState<'_>) -> Value {
    let mut model = json!({
        "id": found.name,
        "object": "model",
        "created": 0,
        "owned_by": "amdgpu-ep",
        "state": found.state,
        "memory_bytes": found.bytes,
    });
    match &found.served {
        Some(Served::Text(served)) => {
            model["created"] = json!(served.created);
            model["kind"] = json!("text");
            model["max_model_len"] = json!(served.engine.max_length());
            model["provider"] = json!(served.provider);
            model["has_chat_template"] = json!(served.template().is_ok());
        }
        Some(Served::Embedder(_)) => model["kind"] = json!("embeddings"),
        Some(Served::Transcriber(_)) => model["kind"] = json!("transcripts"),
        Some(Served::Tensors(served)) => {
            model["kind"] = json!("tensors");
            model["provider"] = json!(served.provider);
        }
        None => {}
    }
    model
}
