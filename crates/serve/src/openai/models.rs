//! `GET /v1/models`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;
use crate::body::PathName;
use crate::failure::Failure;
use crate::served::Served;

/// All models and their states.
pub async fn list(State(app): State<App>) -> Json<Value> {
    let models = app.models().names();
    let models: Vec<Value> =
        models.iter().map(|(name, state, served)| document(name, state, served.as_ref())).collect();
    Json(json!({"object": "list", "data": models}))
}

/// One model.
pub async fn one(State(app): State<App>, PathName(wanted): PathName) -> Result<Json<Value>, Failure> {
    let models = app.models().names();
    let found = models.iter().find(|(name, ..)| *name == wanted);
    let (name, state, served) = found.ok_or_else(|| Failure::unknown_model(&wanted))?;
    Ok(Json(document(name, state, served.as_ref())))
}

fn document(name: &str, state: &str, served: Option<&Served>) -> Value {
    let mut model = json!({
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "amdgpu-ep",
        "state": state,
    });
    match served {
        Some(Served::Text(served)) => {
            model["created"] = json!(served.created);
            model["kind"] = json!("text");
            model["max_model_len"] = json!(served.engine.max_length());
            model["provider"] = json!(served.provider);
            model["has_chat_template"] = json!(served.template().is_ok());
        }
        Some(Served::Embedder(_)) => model["kind"] = json!("embeddings"),
        Some(Served::Tensors(served)) => {
            model["kind"] = json!("tensors");
            model["provider"] = json!(served.provider);
        }
        None => {}
    }
    model
}
