//! Failed requests, answered in the JSON form that OpenAI's clients understand.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use textgen::engine::Rejected;

/// The part of an error message that is for people who read the server's log.
const HELP: &str = "\n  help: ";

/// A failed request.
#[derive(Clone, Debug)]
pub struct Failure {
    status: StatusCode,
    /// OpenAI's `code`, for programs.
    code: &'static str,
    /// The field of the request that is wrong.
    param: Option<String>,
    message: String,
    retry_after: Option<Duration>,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, code, param: None, message: message.into(), retry_after: None }
    }

    /// The request is malformed, or a value is out of range.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_value", message)
    }

    /// A field is wrong.
    pub fn field(name: &str, problem: impl std::fmt::Display) -> Failure {
        Failure::invalid(format!("{name}: {problem}")).about(name)
    }

    /// The request is well-formed, but this model cannot do it.
    pub fn unprocessable(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message)
    }

    pub fn unknown_model(name: &str) -> Failure {
        let message = format!("the model {name:?} does not exist; GET /v1/models lists all models");
        Failure::new(StatusCode::NOT_FOUND, "model_not_found", message).about("model")
    }

    pub fn loading(name: &str) -> Failure {
        let message = format!("the model {name} is not loaded yet; try again later");
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "model_loading", message).retry_after(Duration::from_secs(1))
    }

    /// A fault of the server. The details go to its log, because they may name files.
    pub fn internal(doing: &str, error: &dyn std::fmt::Display) -> Failure {
        crate::access_log::problem(doing, error);
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("{doing} failed; the server's log says why"),
        )
    }

    /// Names the field that is wrong.
    pub fn about(mut self, param: &str) -> Failure {
        self.param = Some(param.to_owned());
        self
    }

    pub fn retry_after(mut self, time: Duration) -> Failure {
        self.retry_after = Some(time);
        self
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// OpenAI's names for groups of errors.
    pub fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The JSON document.
    pub fn document(&self) -> Value {
        let Failure { message, param, code, .. } = self;
        json!({"error": {"message": message, "type": self.kind(), "param": param, "code": code}})
    }

    /// Replaces names of fields by those of another API.
    pub fn renamed(mut self, names: &[(&str, &str)]) -> Failure {
        let Some(param) = &self.param else { return self };
        let is_in = |name: &str| param.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['));
        if let Some((_, new)) = names.iter().find(|(old, _)| is_in(old)) {
            if let Some(problem) = self.message.strip_prefix(&format!("{param}: ")) {
                self.message = format!("{new}: {problem}");
            }
            self.param = Some((*new).to_owned());
        }
        self
    }

    /// The engine did not accept a request, whose prompt is in this field.
    pub fn rejected(rejected: Rejected, prompt_field: &str) -> Failure {
        match rejected {
            Rejected::QueueFull { waiting, retry_after } => {
                let message = format!("{waiting} requests are already waiting; try again later");
                Failure::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after(retry_after)
            }
            Rejected::TooLong { tokens, limit } => {
                // Clients that shorten conversations look for these first words.
                let message =
                    format!("the prompt is too long: it has {tokens} tokens, but at most {limit} fit with an answer");
                Failure::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).about(prompt_field)
            }
            Rejected::Invalid(error) => error.into(),
            other => {
                let message = other.to_string();
                let message = message.split(HELP).next().unwrap_or_default();
                Failure::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
                    .retry_after(Duration::from_secs(1))
            }
        }
    }
}

impl IntoResponse for Failure {
    /// The response contains the failure as an extension, so that it can still get the form of another API.
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.document())).into_response();
        if let Some(time) = self.retry_after {
            // Whole seconds; a client that comes back too early is refused again.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<textgen::Error> for Failure {
    /// Only errors that a request can cause are described to the client.
    fn from(error: textgen::Error) -> Failure {
        match error {
            textgen::Error::Request { problem, help } => Failure::invalid(format!("{problem}; {help}")),
            textgen::Error::Text { problem, .. } => Failure::unprocessable(problem),
            error => Failure::internal("running the model", &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_when_to_retry() {
        for (millis, wanted) in [(0, "1"), (200, "1"), (1000, "1"), (1001, "2"), (2900, "3")] {
            let rejected = Rejected::QueueFull { waiting: 3, retry_after: Duration::from_millis(millis) };
            let response = Failure::rejected(rejected, "prompt").into_response();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(response.headers()[header::RETRY_AFTER], wanted, "{millis} ms");
        }
    }

    #[test]
    fn fields_have_the_names_of_the_api() {
        let names = [("messages", "input")];
        let renamed = |param: &str| {
            let failure = Failure::field(param, "it is wrong").renamed(&names);
            (failure.param.unwrap(), failure.message)
        };
        assert_eq!(renamed("messages"), ("input".to_owned(), "input: it is wrong".to_owned()));
        assert_eq!(renamed("messages[1].role"), ("input".to_owned(), "input: it is wrong".to_owned()));
        assert_eq!(renamed("top_p"), ("top_p".to_owned(), "top_p: it is wrong".to_owned()));
        let too_long = Failure::rejected(Rejected::TooLong { tokens: 9, limit: 8 }, "messages").renamed(&names);
        assert_eq!(too_long.param.as_deref(), Some("input"));
    }

    #[test]
    fn errors_of_the_server_do_not_name_files() {
        let error = textgen::Error::Model { path: "/secret/place".into(), problem: "x".into(), help: "y".into() };
        let failure = Failure::from(error);
        assert_eq!(failure.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!failure.document().to_string().contains("secret"));
        let bug = textgen::Error::Internal { problem: "the request's filter panicked".into(), help: "y".into() };
        assert_eq!(Failure::from(bug).status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
