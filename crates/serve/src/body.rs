//! The JSON body of a request.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, header};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::app::App;
use crate::failure::Failure;

/// A client that sends its body more slowly than this is disconnected.
const SLOWEST: Duration = Duration::from_secs(60);

/// The most bytes of a body that is too large that are read and discarded.
const MOST_DISCARDED: usize = 64 << 20;

/// What the parser calls types, and words that clients understand.
const KINDS: [(&str, &str); 6] = [
    ("expected f32", "expected a number"),
    ("expected i64", "expected a whole number"),
    ("expected i32", "expected a whole number"),
    ("expected usize", "expected a whole number of 0 or more"),
    ("expected u32", "expected a whole number of 0 or more"),
    ("data did not match any variant of untagged enum", "unexpected type for"),
];

/// The name of a model in a path.
pub struct PathName(pub String);

impl FromRequestParts<App> for PathName {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<PathName, Failure> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(name)) => Ok(PathName(name)),
            // No model has a name that is not UTF-8.
            Err(_) => Err(Failure::unknown_model(parts.uri.path())),
        }
    }
}

/// A JSON object. Fields are read from it with [`Json::read`].
pub struct Json(Value);

impl Json {
    /// A body in the form of another API, translated.
    pub fn translated(value: Value) -> Json {
        Json(value)
    }

    /// Parses a document.
    pub fn parse(bytes: &[u8]) -> Result<Json, Failure> {
        // The parser limits how deeply values may be nested.
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| Failure::invalid(format!("the body is not valid JSON: {error}")))?;
        if !value.is_object() {
            return Err(Failure::invalid("the body must be a JSON object"));
        }
        Ok(Json(value))
    }

    /// Reads the fields that a type has. A value of the wrong type is an error that names its field.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_path_to_error::deserialize(&self.0).map_err(wrong_field)
    }

    /// Like [`Json::read`], without copying large values.
    pub fn into<T: DeserializeOwned>(self) -> Result<T, Failure> {
        serde_path_to_error::deserialize(self.0).map_err(wrong_field)
    }

    /// Rejects fields that change the answer's meaning and are not supported. `null` and `false` mean the default.
    pub fn without(&self, names: &[&str]) -> Result<(), Failure> {
        let is_set = |name: &&&str| !matches!(self.0.get(**name), None | Some(Value::Null | Value::Bool(false)));
        match names.iter().find(is_set) {
            Some(name) => Err(Failure::field(name, "this server does not support it")),
            None => Ok(()),
        }
    }
}

impl FromRequest<App> for Json {
    type Rejection = Failure;

    async fn from_request(request: Request<Body>, app: &App) -> Result<Json, Failure> {
        check_type(&request)?;
        Json::parse(&read(request, app).await?)
    }
}

fn wrong_field(error: serde_path_to_error::Error<serde_json::Error>) -> Failure {
    let (path, mut problem) = (error.path().to_string(), error.into_inner().to_string());
    for (kind, words) in KINDS {
        problem = problem.replace(kind, words);
    }
    match path.as_str() {
        // A missing field is an error of the object around it.
        "." => Failure::invalid(problem),
        path => Failure::field(path, problem),
    }
}

/// Reads the body of a request, within the limits of time and size.
pub async fn read(request: Request<Body>, app: &App) -> Result<Vec<u8>, Failure> {
    let limit = app.settings().max_body_bytes;
    match tokio::time::timeout(SLOWEST, read_up_to(request.into_body(), limit)).await {
        Ok(bytes) => bytes,
        Err(_) => {
            let message = format!("the body did not arrive within {} seconds", SLOWEST.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message))
        }
    }
}

/// Reads a body. One that is too large is read to its end, up to a limit, because many clients do not look at the answer
/// before they have sent everything.
async fn read_up_to(body: Body, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut stream = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0_usize);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| Failure::invalid(format!("the body ended early: {error}")))?;
        length = length.saturating_add(piece.len());
        if length > MOST_DISCARDED {
            break;
        }
        if length <= limit {
            bytes.extend_from_slice(&piece);
        } else {
            bytes = Vec::new();
        }
    }
    if length <= limit {
        return Ok(bytes);
    }
    let message = format!("the body of the request is larger than {limit} bytes");
    Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message))
}

/// Web pages of other sites can send any body, but only with a few types that do not include JSON.
pub fn check_type(request: &Request<Body>) -> Result<(), Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("the content type is {kind:?}, but must be application/json");
    Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}
