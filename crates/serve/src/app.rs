//! The state that all requests share, and the routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, CorsLayer};

use crate::access_log::problem;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::openai::transcriptions;
use crate::rates::Rates;
use crate::{Error, Settings, anthropic, guard, inference, openai, openapi, page, status};

/// The paths that metrics tell apart.
pub const ROUTES: [&str; 20] = [
    "/health",
    "/ready",
    "/metrics",
    "/slots",
    "/tokenize",
    "/detokenize",
    "/v1/models",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    transcriptions::TRANSCRIPTIONS,
    transcriptions::TRANSLATIONS,
    anthropic::PATH,
    "/v1/responses",
    inference::PATH,
    "/v2/health/live",
    "/v2/health/ready",
    "/openapi.json",
    "/docs",
    "/",
];

/// The shared state. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    settings: Settings,
    keys: Keys,
    models: Arc<Models>,
    metrics: Arc<Metrics>,
    rates: Rates,
    /// Different in every run of the server, so that ids are not repeated.
    run: u64,
    requests: AtomicU64,
    is_stopping: AtomicBool,
}

impl App {
    pub fn new(settings: Settings, keys: Keys) -> App {
        use std::hash::{BuildHasher, RandomState};

        App(Arc::new(Shared {
            models: Arc::new(Models::new(&settings)),
            rates: Rates::new(settings.requests_per_minute, settings.tokens_per_minute),
            settings,
            keys,
            metrics: Arc::default(),
            run: RandomState::new().hash_one(0),
            requests: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        }))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub fn models(&self) -> &Arc<Models> {
        &self.0.models
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    pub fn rates(&self) -> &Rates {
        &self.0.rates
    }

    /// An id that no other request has.
    pub fn new_id(&self) -> String {
        format!("{:016x}{:08x}", self.0.run, self.0.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// From now on the server is not ready.
    pub fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }

    /// One word for what the server does; requests can be answered when it is `ready`.
    pub fn state(&self) -> &'static str {
        match () {
            () if self.0.is_stopping.load(Ordering::Relaxed) => "stopping",
            () if self.models().has_stopped() => "failed",
            () if !self.models().are_loaded() => "loading",
            () => "ready",
        }
    }
}

/// A method, a path and its handler.
pub type Route = (&'static str, &'static str, MethodRouter<App>);

/// All routes but those of the page. `openapi` describes them.
pub fn routes() -> Vec<Route> {
    vec![
        ("get", "/health", get(status::health)),
        ("get", "/ready", get(status::ready)),
        ("get", "/metrics", get(status::metrics)),
        ("get", "/slots", get(status::slots)),
        ("get", "/openapi.json", get(openapi::document)),
        ("get", "/docs", get(openapi::page)),
        ("get", "/docs/style.css", get(openapi::style)),
        ("post", "/tokenize", post(openai::tokens::tokenize)),
        ("post", "/detokenize", post(openai::tokens::detokenize)),
        ("get", "/v1/models", get(openai::models::list)),
        ("get", "/v1/models/{*name}", get(openai::models::one)),
        ("post", "/v1/chat/completions", post(openai::chat::complete)),
        ("post", "/v1/completions", post(openai::completions::complete)),
        ("post", "/v1/embeddings", post(openai::embeddings::create)),
        ("post", transcriptions::TRANSCRIPTIONS, post(transcriptions::transcribe)),
        ("post", transcriptions::TRANSLATIONS, post(transcriptions::translate)),
        ("post", "/v1/responses", post(openai::responses::create)),
        ("post", anthropic::PATH, post(anthropic::create)),
        ("get", inference::PATH, get(inference::server)),
        ("get", "/v2/health/live", get(inference::live)),
        ("get", "/v2/health/ready", get(inference::ready)),
        ("get", "/v2/models/{name}", get(inference::model)),
        ("get", "/v2/models/{name}/ready", get(inference::model_ready)),
        ("post", "/v2/models/{name}/infer", post(inference::infer)),
    ]
}

/// The routes of the page.
pub fn page_routes() -> Vec<Route> {
    vec![("get", "/", get(page::file)), ("get", "/page/{file}", get(page::file))]
}

/// The routes, behind the checks that all requests share.
///
/// # Errors
/// When an origin is not valid.
pub fn router(app: App) -> Result<Router, Error> {
    let origins = app.settings().origins()?;
    let pages = if app.settings().page { page_routes() } else { Vec::new() };
    let routes = routes().into_iter().chain(pages);
    let mut router = routes.fold(Router::new(), |router, (_, path, handler)| router.route(path, handler));
    router = router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        // `body::Json` applies the limit of the settings.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::check));
    if !origins.is_empty() {
        // Outside of the check of keys: browsers send no key when they ask for permission.
        router = router.layer(cors(origins));
    }
    Ok(router.with_state(app))
}

pub async fn unknown_path(uri: axum::http::Uri) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "unknown_path", format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: axum::http::Uri) -> Failure {
    let message = format!("{} does not accept {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    problem("a request panicked", &text.unwrap_or("without a message"));
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log says why").into_response()
}

fn cors(origins: Vec<HeaderValue>) -> CorsLayer {
    let exposed = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        // Clients send headers of their own, such as `x-stainless-lang` and `anthropic-version`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
}
