//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use textgen::speech::{SpeechOptions, Task, Transcriber, Transcript};

use crate::access_log::Record;
use crate::app::App;
use crate::body;
use crate::failure::Failure;
use crate::generation::Admission;
use crate::multipart::Form;
use crate::queue::Turn;

/// The path of transcripts.
pub const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// The path of translations to English.
pub const TRANSLATIONS: &str = "/v1/audio/translations";

/// Fields that change the answer's meaning and are not supported, unless they have this value.
const UNSUPPORTED: [(&str, &str); 4] =
    [("prompt", ""), ("stream", "false"), ("temperature", "0"), ("timestamp_granularities[]", "segment")];

/// The form of an answer.
#[derive(Clone, Copy)]
enum Format {
    Json,
    Text,
    VerboseJson,
}

/// What is said in a recording.
pub async fn transcribe(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    request: Request<Body>,
) -> Result<Response, Failure> {
    create(app, record, request, Task::Transcribe).await
}

/// What is said in a recording, in English.
pub async fn translate(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    request: Request<Body>,
) -> Result<Response, Failure> {
    create(app, record, request, Task::Translate).await
}

async fn create(app: App, record: Arc<Record>, request: Request<Body>, task: Task) -> Result<Response, Failure> {
    check_origin(&app, request.headers())?;
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    if !content_type.to_ascii_lowercase().starts_with("multipart/form-data") {
        let kind = content_type.split(';').next().unwrap_or_default();
        let message = format!("the content type is {kind:?}, but must be multipart/form-data");
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let body = body::read(request, &app).await?;
    let form = Form::parse(&content_type, &body)?;
    for (name, supported) in UNSUPPORTED {
        if form.text(name)?.is_some_and(|value| value != supported) {
            return Err(Failure::field(name, "this server does not support it"));
        }
    }
    let format = format(form.text("response_format")?)?;
    let options = SpeechOptions { language: form.text("language")?.map(str::to_owned), task };
    let audio = form.bytes("file").ok_or_else(|| Failure::field("file", "it is missing"))?.to_vec();
    let served = app.models().find_transcriber(form.text("model")?).await?;
    drop(form);
    drop(body);
    let mut admission = Admission::of(&app, record)?;
    admission.runs();
    let work = move |transcriber: &mut Transcriber, turn: &Turn| {
        let canceller = transcriber.canceller();
        let transcript = transcriber.transcribe(&*audio, &options, |_| {
            if turn.check().is_err() {
                canceller.cancel();
            }
        });
        canceller.reset();
        turn.check()?;
        Ok(transcript?)
    };
    let transcript = served.run(app.settings(), work).await?;
    admission.spend(transcript.segments.iter().map(|segment| segment.tokens.len()).sum());
    Ok(answer(transcript, format, task))
}

fn format(name: Option<&str>) -> Result<Format, Failure> {
    match name {
        None | Some("json") => Ok(Format::Json),
        Some("text") => Ok(Format::Text),
        Some("verbose_json") => Ok(Format::VerboseJson),
        Some(_) => Err(Failure::field("response_format", "it must be json, text or verbose_json")),
    }
}

fn answer(transcript: Transcript, format: Format, task: Task) -> Response {
    let Transcript { text, language, seconds, segments } = transcript;
    match format {
        Format::Json => axum::Json(json!({"text": text})).into_response(),
        Format::Text => format!("{text}\n").into_response(),
        Format::VerboseJson => {
            let segment = |(id, segment): (usize, &textgen::speech::Segment)| {
                json!({
                    "id": id, "start": segment.start, "end": segment.end, "text": segment.text,
                    "tokens": segment.tokens, "temperature": 0.0,
                })
            };
            let task = match task {
                Task::Transcribe => "transcribe",
                Task::Translate => "translate",
            };
            axum::Json(json!({
                "task": task,
                "language": language.as_deref().unwrap_or("en"),
                "duration": seconds,
                "text": text,
                "segments": segments.iter().enumerate().map(segment).collect::<Vec<_>>(),
            }))
            .into_response()
        }
    }
}

/// Web pages of any site can send forms, which browsers mark with the site's origin. Only the server's own page and
/// the origins of the settings may.
fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = !host.is_empty() && origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host));
    if is_own || app.settings().cors_origins.iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    let message = format!("the origin {origin:?} is not allowed; add it to cors_origins");
    Err(Failure::new(StatusCode::FORBIDDEN, "origin_not_allowed", message))
}
