//! Endpoints about the server itself.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use textgen::engine::{Phase, SlotState};

use crate::app::App;

/// The process is alive, whatever it is doing.
pub async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Whether requests can be answered now.
pub async fn ready(State(app): State<App>) -> Response {
    let state = app.state();
    let status = if state == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"status": state}))).into_response()
}

/// Prometheus metrics.
pub async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics().text(app.models()))
}

/// What every slot does.
pub async fn slots(State(app): State<App>) -> Json<Value> {
    let of_model = |model: &std::sync::Arc<crate::served::ServedModel>| {
        let stats = model.engine.stats();
        let slots: Vec<Value> = stats.slots.iter().enumerate().map(slot).collect();
        json!({
            "model": model.name,
            "provider": model.provider,
            "max_length": model.engine.max_length(),
            "waiting": stats.waiting,
            "slots": slots,
        })
    };
    Json(app.models().ready().iter().map(of_model).collect())
}

fn slot((index, slot): (usize, &SlotState)) -> Value {
    let state = match slot.phase {
        Phase::Idle => "idle",
        Phase::Prompt => "prompt",
        Phase::Decoding => "decoding",
    };
    json!({"slot": index, "state": state, "request": slot.request, "tokens": slot.tokens, "generated": slot.generated})
}
