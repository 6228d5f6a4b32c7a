//! An HTTP client for one server. Every request has its own connection.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant as Deadline, timeout_at};

use super::answer::{Answer, Reader};
use super::events::Decoder;

/// Longer answers without events, such as errors, are cut off.
const LONGEST: usize = 1 << 20;

/// Longer messages of the server are shortened in reports.
const MESSAGE_LETTERS: usize = 200;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no connection.
    NotConnected(String),
    /// The answer took too long.
    TimedOut(Duration),
    /// The server answered with an error.
    Status(u16, String),
    /// The connection or the stream ended too early.
    Closed(String),
    /// The answer does not have the form of OpenAI's API.
    Malformed(String),
    /// The server reported an error after it had begun to answer.
    InStream(String),
}

impl Failure {
    /// The same text for failures of one kind.
    pub fn kind(&self) -> String {
        match self {
            Failure::NotConnected(_) => "no connection".to_owned(),
            Failure::TimedOut(_) => "timeout".to_owned(),
            Failure::Status(status, _) => format!("status {status}"),
            Failure::Closed(_) => "connection closed".to_owned(),
            Failure::Malformed(_) => "malformed answer".to_owned(),
            Failure::InStream(_) => "error in the stream".to_owned(),
        }
    }

    /// What happened in this request.
    pub fn message(&self) -> String {
        let text = match self {
            Failure::TimedOut(time) => return format!("no complete answer after {} s", time.as_secs()),
            Failure::NotConnected(text)
            | Failure::Status(_, text)
            | Failure::Closed(text)
            | Failure::Malformed(text)
            | Failure::InStream(text) => text,
        };
        text.chars().take(MESSAGE_LETTERS).collect()
    }
}

/// A server, and how to talk to it.
pub struct Client {
    url: String,
    authority: String,
    /// The host and port to connect to.
    address: (String, u16),
    /// The path before `/v1`.
    base: String,
    key: Option<HeaderValue>,
    timeout: Duration,
}

impl Client {
    /// A client of the server at `url`, which may end with `/v1`.
    ///
    /// # Errors
    /// When the URL is not of the form `http://HOST[:PORT][/PATH]`, or the key cannot be sent.
    pub fn new(url: &str, key: Option<&str>, timeout: Duration) -> Result<Client> {
        let wrong = || format!("{url:?} is not the address of a server\n  help: write http://HOST:PORT");
        let uri: Uri = url.parse().with_context(wrong)?;
        if uri.scheme_str() == Some("https") {
            bail!("https is not supported: {url}\n  help: measure the server itself, without the proxy in front of it");
        }
        let (Some("http"), Some(authority), None) = (uri.scheme_str(), uri.authority(), uri.query()) else {
            bail!(wrong());
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path().trim_end_matches('/');
        let key = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}")));
        let mut key = key.transpose().context("the API key has characters that a header cannot hold")?;
        key.iter_mut().for_each(|key| key.set_sensitive(true));
        Ok(Client {
            url: url.to_owned(),
            authority: authority.to_string(),
            address: (host, authority.port_u16().unwrap_or(80)),
            base: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
            key,
            timeout,
        })
    }

    /// The name of the first model that the server lists.
    ///
    /// # Errors
    /// When it lists none.
    pub async fn first_model(&self) -> Result<String> {
        let help = "\n  help: start the server, or name a model with --model";
        let failed = |why: &str| format!("the models of {} could not be listed: {why}{help}", self.url);
        let list = match self.within(Instant::now(), self.get("/v1/models")).await {
            Ok(list) => list,
            Err(failure) => bail!(failed(&format!("{}: {}", failure.kind(), failure.message()))),
        };
        let name = list["data"][0]["id"].as_str();
        name.map(str::to_owned).with_context(|| failed("the list is empty or malformed"))
    }

    /// Sends a request for a stream, and reads its answer. Its times count from `start`.
    pub async fn answer(&self, path: &str, body: &Value, start: Instant) -> Result<Answer, Failure> {
        self.within(start, self.read_stream(path, body, start)).await
    }

    async fn within<T>(&self, start: Instant, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let deadline = Deadline::from_std(start + self.timeout);
        timeout_at(deadline, work).await.unwrap_or(Err(Failure::TimedOut(self.timeout)))
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let (_sender, response) = self.send(Method::GET, path, Bytes::new()).await?;
        let bytes = accepted(response, "application/json").await?.collect().await;
        let bytes = bytes.map_err(broken)?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| Failure::Malformed(error.to_string()))
    }

    async fn read_stream(&self, path: &str, body: &Value, start: Instant) -> Result<Answer, Failure> {
        let (_sender, response) = self.send(Method::POST, path, body.to_string().into()).await?;
        let mut body = accepted(response, "text/event-stream").await?;
        let (mut decoder, mut reader) = (Decoder::default(), Reader::default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            let Ok(bytes) = frame.into_data() else { continue };
            let time = start.elapsed();
            for event in decoder.push(&bytes)? {
                reader.event(&event, time)?;
            }
        }
        reader.end(start.elapsed())
    }

    /// Sends a request on a new connection, which lives as long as the sender and the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header(HOST, &self.authority).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        let request = request.body(Full::new(body)).map_err(|error| Failure::NotConnected(error.to_string()))?;
        let not_connected = |error: io::Error| Failure::NotConnected(error.to_string());
        let stream = TcpStream::connect((self.address.0.as_str(), self.address.1)).await.map_err(not_connected)?;
        stream.set_nodelay(true).map_err(not_connected)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // The response reports the errors of the connection too.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok((sender, response))
    }
}

/// The body of a response that succeeded and has the expected type.
async fn accepted(response: Response<Incoming>, wanted: &str) -> Result<Incoming, Failure> {
    let status = response.status();
    if !status.is_success() {
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
        return Err(Failure::Status(status.as_u16(), message_of(&bytes)));
    }
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    match kind {
        Some(kind) if kind.starts_with(wanted) => Ok(response.into_body()),
        Some(kind) => Err(Failure::Malformed(format!("expected {wanted}, found {kind}"))),
        None => Err(Failure::Malformed(format!("expected {wanted}, found no content type"))),
    }
}

/// The message of an error document, or its whole text.
fn message_of(bytes: &[u8]) -> String {
    let document: Option<Value> = serde_json::from_slice(bytes).ok();
    let message = document.as_ref().and_then(|document| document["error"]["message"].as_str());
    message.map_or_else(|| String::from_utf8_lossy(bytes).trim().to_owned(), str::to_owned)
}

/// The failure of a connection, with its causes: hyper's own text does not name them.
fn broken(error: hyper::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    if error.is_parse() { Failure::Malformed(text) } else { Failure::Closed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client> {
        Client::new(url, Some("secret"), Duration::from_secs(1))
    }

    #[test]
    fn the_path_before_v1_is_kept() {
        for (url, address, base) in [
            ("http://127.0.0.1:8080", ("127.0.0.1", 8080), ""),
            ("http://127.0.0.1:8080/v1/", ("127.0.0.1", 8080), ""),
            ("http://[::1]:81", ("::1", 81), ""),
            ("http://models.example/llm/v1", ("models.example", 80), "/llm"),
        ] {
            let client = client(url).unwrap();
            assert_eq!((client.address.0.as_str(), client.address.1), address, "{url}");
            assert_eq!(client.base, base, "{url}");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_help() {
        for url in ["", "127.0.0.1:8080", "https://a", "ftp://a", "http://a?b", "http://a b"] {
            let error = client(url).err().unwrap().to_string();
            assert!(error.contains("help: "), "{url}: {error}");
        }
    }

    #[test]
    fn messages_come_from_error_documents() {
        assert_eq!(message_of(br#"{"error": {"message": "too long"}}"#), "too long");
        assert_eq!(message_of(b"Bad Gateway\n"), "Bad Gateway");
    }
}
