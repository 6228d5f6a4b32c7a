//! What every request passes: an id, the check of the host and of the API key, and the log.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access_log::Record;
use crate::app::App;
use crate::failure::Failure;
use crate::{anthropic, inference, openapi, page};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer ids from clients are replaced.
const LONGEST_ID: usize = 128;

/// Longer paths are cut in the log.
const LONGEST_PATH: usize = 256;

/// Checks a request, answers it and logs it.
pub async fn check(State(app): State<App>, mut request: Request<Body>, next: Next) -> Response {
    let id = client_id(request.headers()).unwrap_or_else(|| app.new_id());
    let path: String = request.uri().path().chars().take(LONGEST_PATH).collect();
    let method = request.method().as_str().to_owned();
    let record = Arc::new(Record::new(app.settings().log, Arc::clone(app.metrics()), id, method, path));
    request.extensions_mut().insert(Arc::clone(&record));
    let allowed = check_host(&app, &request).and_then(|()| check_key(&app, &request, &record));
    let form = error_form(request.uri().path());
    let mut response = match allowed {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    if let Some(form) = form {
        use_form(form, &mut response);
    }
    record.set_status(response.status().as_u16());
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(record.id()) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The document of an error in the form of an API.
type ErrorForm = fn(&Failure) -> serde_json::Value;

/// The form of errors at a path, if it is not OpenAI's.
fn error_form(path: &str) -> Option<ErrorForm> {
    let is_inference = path.strip_prefix(inference::PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        anthropic::PATH => Some(anthropic::error),
        _ if is_inference => Some(inference::error),
        _ => None,
    }
}

/// Replaces the document of an error.
fn use_form(form: ErrorForm, response: &mut Response) {
    if let Some(failure) = response.extensions().get::<Failure>() {
        let document = form(failure).to_string();
        *response.body_mut() = Body::from(document);
        // It was the length of the other document.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

/// An id that the client chose, if it is fit for a log.
fn client_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    ((1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(is_plain)).then(|| id.to_owned())
}

/// A server on a loopback address answers only to loopback names. Otherwise a web page could use it through a name of
/// its own that resolves to 127.0.0.1.
fn check_host(app: &App, request: &Request<Body>) -> Result<(), Failure> {
    if !app.settings().host.is_loopback() {
        return Ok(());
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host_name(host);
    if is_loopback(name) || app.settings().allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let message = format!("the host {name:?} is not allowed; add it to allowed_hosts if a proxy sends it");
    Err(Failure::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
}

/// A host without its port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn check_key(app: &App, request: &Request<Body>, record: &Record) -> Result<(), Failure> {
    if app.keys().is_empty() || is_open(request) {
        return Ok(());
    }
    let headers = request.headers();
    let bearer = || {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    };
    // The header of Anthropic's clients.
    let plain = || headers.get("x-api-key")?.to_str().ok();
    match bearer().or_else(plain).and_then(|key| app.keys().name_of(key)) {
        Some(name) => {
            record.set_key(name);
            Ok(())
        }
        None => {
            let message = "send a valid API key in the header `Authorization: Bearer KEY` or `x-api-key: KEY`";
            Err(Failure::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
        }
    }
}

/// Probes, the page and the description of the API need no key; they reveal nothing about models.
fn is_open(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let is_probe = matches!(path, "/health" | "/ready" | "/v2/health/live" | "/v2/health/ready");
    request.method() == Method::GET && (is_probe || page::is_file(path) || openapi::PATHS.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:80", "127.9.9.9", "[::1]:8080", "[::1]"] {
            assert!(is_loopback(host_name(host)), "{host}");
        }
        for host in ["", "example.org", "127.0.0.1.example.org:80", "localhost.example.org", "10.0.0.1", "[::2]:80"] {
            assert!(!is_loopback(host_name(host)), "{host}");
        }
    }

    #[test]
    fn ids_of_clients_cannot_forge_log_lines() {
        let id = |text: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(text))]);
            client_id(&headers)
        };
        assert_eq!(id("abc-1.2:3_4").as_deref(), Some("abc-1.2:3_4"));
        assert_eq!(id("a b"), None);
        assert_eq!(id("a\"b"), None);
        assert_eq!(id(""), None);
    }
}
