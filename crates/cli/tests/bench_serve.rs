//! Runs `bench-serve` against small servers that answer well or badly. The tests of tests/serve run it against ours.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A request: its first line, its headers in lower case, and its body.
struct Request {
    line: String,
    headers: Vec<String>,
    body: Value,
}

/// Starts a server that handles every connection with `handle`, which may leave it unanswered; returns its URL. It ends
/// with the test.
fn server(handle: impl Fn(&mut TcpStream, &Request) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, handle) = (stream.unwrap(), handle.clone());
            thread::spawn(move || {
                if let Some(request) = received(&stream) {
                    handle(&mut stream, &request);
                }
            });
        }
    });
    format!("http://{address}")
}

/// `None` if the client has gone away.
fn received(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<String> = lines.drain(1..).map(|line| line.to_lowercase()).collect();
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line: lines.remove(0), headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

/// Writes; a client that has gone away is not an error.
fn send(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

fn respond(stream: &mut TcpStream, status: &str, kind: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    send(stream, &(head + body));
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(stream: &mut TcpStream, text: &str) {
    send(stream, &format!("{:x}\r\n{text}\r\n", text.len()));
}

fn event(stream: &mut TcpStream, data: &str) {
    chunk(stream, &format!("data: {data}\n\n"));
}

fn piece(stream: &mut TcpStream, text: &str) {
    event(stream, &json!({"choices": [{"delta": {"content": text}}]}).to_string());
}

/// Answers with three pieces, and with token counts if there are any.
fn good(stream: &mut TcpStream, usage: Option<Value>) {
    send(stream, STREAM);
    ["Once", " upon", " a"].iter().for_each(|text| piece(stream, text));
    event(stream, &json!({"choices": [{"delta": {}, "finish_reason": "length"}]}).to_string());
    if let Some(usage) = usage {
        event(stream, &json!({"choices": [], "usage": usage}).to_string());
    }
    event(stream, "[DONE]");
    send(stream, "0\r\n\r\n");
}

/// Two tokens for each word of the prompt, and ten of a template.
fn counted(request: &Request) -> Value {
    let prompt = request.body["messages"][0]["content"].as_str().unwrap();
    json!({"prompt_tokens": 10 + 2 * prompt.split(' ').count(), "completion_tokens": 5})
}

fn bench(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
    command.env_remove("OPENAI_API_KEY").env("TEST_KEY", "secret");
    command.args(["bench-serve", url]).args(arguments).output().unwrap()
}

#[track_caller]
fn report(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    document
}

/// The kinds of failures in a measurement, and their numbers.
fn failures(measured: &Value) -> Vec<(String, u64)> {
    let failures = measured["failures"].as_array().unwrap();
    failures.iter().map(|one| (one["kind"].as_str().unwrap().to_owned(), one["count"].as_u64().unwrap())).collect()
}

#[test]
fn every_load_is_measured_and_tokens_are_the_servers() {
    let url = server(|stream, request| match request.line.as_str() {
        "GET /v1/models HTTP/1.1" => {
            respond(stream, "200 OK", "application/json", r#"{"data":[{"id":"small"},{"id":"large"}]}"#);
        }
        "POST /v1/chat/completions HTTP/1.1" => {
            assert_eq!(request.body["model"], "small");
            assert!(request.headers.contains(&"authorization: bearer secret".to_owned()), "{:?}", request.headers);
            good(stream, Some(counted(request)));
        }
        line => panic!("{line}"),
    });
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("load.svg");
    let key = ["--api-key-env", "TEST_KEY", "--prompt-tokens", "60"];
    let arguments = [&key[..], &["--concurrency", "1,3", "--requests", "6", "--plot", plot.to_str().unwrap()]].concat();
    let document = report(&bench(&url, &[&arguments[..], &["--json"]].concat()), 0);
    assert_eq!((&document["model"], &document["endpoint"]), (&json!("small"), &json!("chat")));
    let measurements = document["measurements"].as_array().unwrap();
    for (measured, clients) in measurements.iter().zip([1, 3]) {
        assert_eq!((&measured["clients"], &measured["rate"]), (&json!(clients), &Value::Null));
        assert_eq!((&measured["requests"], &measured["failed"]), (&json!(6), &json!(0)), "{measured}");
        // 25 words have 60 tokens.
        assert_eq!((&measured["mean_prompt_tokens"], &measured["tokens"]), (&json!(60.0), &json!(30)));
        assert_eq!(measured["answers_without_usage"], 0);
        let rate = 30.0 / measured["seconds"].as_f64().unwrap();
        assert!((measured["tokens_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{measured}");
        let [first, total] = ["first_token", "total"].map(|name| measured[name]["p99_ms"].as_f64().unwrap());
        assert!(0.0 < first && first <= total && total <= measured["seconds"].as_f64().unwrap() * 1e3, "{measured}");
    }
    assert!(std::fs::read_to_string(&plot).unwrap().contains(">clients<"));
    let text = String::from_utf8(bench(&url, &arguments).stdout).unwrap();
    assert!(text.contains("1 client ") && text.contains("3 clients ") && text.contains("p50 / p90 / p99"), "{text}");
}

#[test]
fn requests_arrive_at_a_rate_without_waiting_for_answers() {
    // Answers only when all requests are there, which clients that wait for answers would never reach.
    let waiting = std::sync::Arc::new(std::sync::Barrier::new(5));
    let url = server(move |stream, request| {
        // The two requests that show the length of prompts.
        if request.body["max_tokens"] != 1 {
            waiting.wait();
        }
        good(stream, Some(counted(request)));
    });
    let document = report(&bench(&url, &["--model", "m", "--rate", "200", "--requests", "5", "--json"]), 0);
    let measured = &document["measurements"][0];
    assert_eq!(
        (&measured["rate"], &measured["clients"], &measured["failed"]),
        (&json!(200.0), &Value::Null, &json!(0))
    );
    assert_eq!(measured["tokens"], 25);
}

#[test]
fn events_are_counted_if_the_server_sends_no_usage() {
    let url = server(|stream, _| good(stream, None));
    let output = bench(&url, &["--model", "m", "--concurrency", "2", "--requests", "4", "--json"]);
    let measured = &report(&output, 0)["measurements"][0];
    assert_eq!((&measured["tokens"], &measured["answers_without_usage"]), (&json!(12), &json!(4)));
    assert_eq!(measured["mean_prompt_tokens"], Value::Null);
    assert!(String::from_utf8_lossy(&output.stderr).contains("the server sends no token counts"));
}

#[test]
fn every_kind_of_failure_is_listed() {
    // A server for each kind, because the order of requests is not fixed.
    type Handler = fn(&mut TcpStream, &Request);
    let cases: [(&str, Handler); 9] = [
        ("status 500", |stream, _| {
            respond(stream, "500 Internal Server Error", "application/json", r#"{"error":{"message":"broken"}}"#);
        }),
        ("connection closed", |_, _| {}),
        ("connection closed", |stream, _| {
            send(stream, STREAM);
            piece(stream, "Once");
        }),
        ("connection closed", |stream, _| {
            send(stream, STREAM);
            piece(stream, "Once");
            send(stream, "0\r\n\r\n");
        }),
        ("malformed answer", |stream, _| {
            send(stream, STREAM);
            piece(stream, "Once");
            event(stream, "{not json");
        }),
        ("malformed answer", |stream, _| respond(stream, "200 OK", "application/json", "{}")),
        ("malformed answer", |stream, _| send(stream, "SSH-2.0-nonsense\r\n")),
        ("error in the stream", |stream, _| {
            send(stream, STREAM);
            piece(stream, "Once");
            event(stream, r#"{"error":{"message":"the device is lost"}}"#);
        }),
        ("timeout", |stream, _| {
            send(stream, STREAM);
            piece(stream, "Once");
            // Until the client has gone away.
            let _ = stream.read(&mut [0]);
        }),
    ];
    for (kind, handle) in cases {
        let load = ["--model", "m", "--concurrency", "2", "--requests", "3", "--timeout", "1"];
        let url = server(handle);
        let output = bench(&url, &[&load[..], &["--json"]].concat());
        let measured = &report(&output, 1)["measurements"][0];
        assert_eq!(failures(measured), [(kind.to_owned(), 3)], "{measured}");
        assert_eq!((&measured["tokens"], &measured["total"]), (&json!(0), &Value::Null));
        let text = String::from_utf8(bench(&url, &load).stdout).unwrap();
        assert!(text.contains(kind), "{kind} is not in\n{text}");
    }
}

#[test]
fn a_slow_server_that_fails_sometimes_is_measured() {
    let url = server(|stream, request| {
        let prompt = request.body["messages"][0]["content"].as_str().unwrap();
        if prompt.len() % 2 == 1 && request.body["max_tokens"] != 1 {
            return respond(stream, "503 Service Unavailable", "text/plain", "try later");
        }
        send(stream, STREAM);
        for text in ["a", "b"] {
            thread::sleep(Duration::from_millis(20));
            piece(stream, text);
        }
        event(stream, &json!({"choices": [], "usage": counted(request)}).to_string());
        // A comment, and the last event in two pieces.
        [": keep-alive\n\n", "data: [DO", "NE]\n\n", ""].iter().for_each(|text| chunk(stream, text));
    });
    let arguments = ["--model", "m", "--concurrency", "4", "--requests", "24", "--seed", "3", "--json"];
    let measured = &report(&bench(&url, &arguments), 0)["measurements"][0];
    let failed = measured["failed"].as_u64().unwrap();
    assert!(0 < failed && failed < 24, "{measured}");
    assert_eq!(failures(measured), [("status 503".to_owned(), failed)]);
    assert_eq!(measured["failures"][0]["example"], "try later");
    assert_eq!(measured["tokens"], 5 * (24 - failed));
    assert!(measured["first_token"]["p50_ms"].as_f64().unwrap() >= 20.0, "{measured}");
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error_with_help() {
    // The port is free again after this line.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}/v1");
    let output = bench(&url, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("could not be listed: no connection") && stderr.contains("help: start"), "{stderr}");
    let measured = &report(&bench(&url, &["--model", "m", "--concurrency", "1", "--json"]), 1)["measurements"][0];
    assert_eq!(failures(measured), [("no connection".to_owned(), 32)]);
}

#[test]
fn wrong_usage_is_explained() {
    for (arguments, wanted) in [
        (&["--concurrency", "0"][..], "--concurrency must be at least 1"),
        (&["--rate", "0"], "--rate more than 0"),
        (&["--rate", "1", "--concurrency", "2"], "cannot be used with"),
        (&["--max-tokens", "0"], "--max-tokens must be at least 1"),
        (&["--concurrency", "8", "--requests", "4"], "--requests must be at least 8"),
        (&["--field", "stop=x"], "is not JSON"),
    ] {
        let output = bench("http://127.0.0.1:1", arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(wanted), "{wanted} is not in\n{stderr}");
    }
}
