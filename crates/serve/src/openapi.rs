//! The description of all endpoints: `/openapi.json` for programs, and `/docs` for people, made from the same document.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// Nothing but the style of the page is loaded, and nothing runs.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("../openapi/style.css");

/// The document. Tests check that the files are JSON, and describe every route.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut document = parsed(include_str!("../openapi/paths.json"));
    document["components"]["schemas"] = parsed(include_str!("../openapi/schemas.json"));
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document
});

static PAGE: LazyLock<String> = LazyLock::new(|| page_of(&DOCUMENT));

/// The paths of this module, which need no key: they are the same on every server.
pub const PATHS: [&str; 3] = ["/openapi.json", "/docs", "/docs/style.css"];

/// The description for programs.
pub async fn document() -> Json<&'static Value> {
    Json(&DOCUMENT)
}

/// The description for people.
pub async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE.as_str()).into_response()
}

/// The style of the page.
pub async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

fn page_of(document: &Value) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>API of amdgpu-ep serve</title>\n\
         <link rel=\"stylesheet\" href=\"/docs/style.css\">\n<h1>API of amdgpu-ep serve</h1>\n\
         <p>Programs can read the same description at <a href=\"/openapi.json\">/openapi.json</a>.</p>\n\
         <h2>Endpoints</h2>\n",
    );
    for (path, methods) in fields(&document["paths"]) {
        for (method, operation) in fields(methods) {
            endpoint(&mut out, document, &method.to_uppercase(), path, operation);
        }
    }
    out += "<h2>Schemas</h2>\n";
    for (name, schema) in fields(&document["components"]["schemas"]) {
        let _ = writeln!(out, "<h3 id=\"{name}\">{name}</h3>");
        let _ = writeln!(out, "<p>{}</p>", text(&schema["description"]));
        if schema["properties"].is_object() {
            properties(&mut out, schema);
        } else {
            let _ = writeln!(out, "<p>{}</p>", kind(schema));
        }
    }
    out
}

fn endpoint(out: &mut String, document: &Value, method: &str, path: &str, operation: &Value) {
    let _ = writeln!(out, "<h3><code>{method} {}</code></h3>\n<p>{}.</p>", escaped(path), text(&operation["summary"]));
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "<p><code>{}</code>: {}</p>", text(&parameter["name"]), text(&parameter["description"]));
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = writeln!(out, "<p>Body: {}</p>", kind(body));
    }
    *out += "<table>\n<tr><th>status<th>meaning<th>content\n";
    for (status, response) in fields(&operation["responses"]) {
        let shared = response["$ref"].as_str().and_then(|place| document.pointer(place.strip_prefix('#')?));
        let response = shared.unwrap_or(response);
        let contents = fields(&response["content"]).map(|(media, content)| match &content["schema"] {
            schema if schema["$ref"].is_string() => kind(schema),
            _ => escaped(media),
        });
        let contents: Vec<String> = contents.collect();
        let _ = writeln!(out, "<tr><td>{status}<td>{}<td>{}", text(&response["description"]), contents.join(" or "));
    }
    *out += "</table>\n";
}

fn properties(out: &mut String, schema: &Value) {
    let is_required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    *out += "<table>\n<tr><th>field<th>type<th>meaning\n";
    for (name, property) in fields(&schema["properties"]) {
        let needed = if is_required(name) { "" } else { " (optional)" };
        let meaning = text(&property["description"]);
        let _ = writeln!(out, "<tr><td><code>{}</code>{needed}<td>{}<td>{meaning}", escaped(name), kind(property));
    }
    *out += "</table>\n";
}

/// A schema in words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next()) {
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let list = |values: &Value, word: &dyn Fn(&Value) -> String| {
        values.as_array().into_iter().flatten().map(word).collect::<Vec<_>>().join(" or ")
    };
    match schema {
        _ if schema["enum"].is_array() => list(&schema["enum"], &text),
        _ if schema["anyOf"].is_array() => list(&schema["anyOf"], &kind),
        _ if schema["type"] == "array" => format!("list of {}", kind(&schema["items"])),
        _ if schema["type"].is_array() => list(&schema["type"], &text),
        _ if schema["properties"].is_object() => {
            let names: Vec<String> = fields(&schema["properties"]).map(|(name, _)| escaped(name)).collect();
            format!("object: {}", names.join(", "))
        }
        _ if schema["type"].is_string() => text(&schema["type"]),
        _ => "anything".to_owned(),
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_every_description_has_a_route() {
        let routes = crate::app::routes().into_iter().chain(crate::app::page_routes());
        let routes: BTreeSet<String> =
            routes.map(|(method, path, _)| format!("{method} {}", path.replace('*', ""))).collect();
        let described = fields(&DOCUMENT["paths"])
            .flat_map(|(path, methods)| fields(methods).map(move |(method, _)| format!("{method} {path}")));
        assert_eq!(described.collect::<BTreeSet<String>>(), routes);
    }

    #[test]
    fn references_have_targets() {
        fn check(value: &Value) {
            match value {
                Value::Object(entries) => {
                    if let Some(place) = entries.get("$ref").and_then(Value::as_str) {
                        assert!(DOCUMENT.pointer(place.strip_prefix('#').unwrap()).is_some(), "{place}");
                    }
                    entries.values().for_each(check);
                }
                Value::Array(values) => values.iter().for_each(check),
                _ => {}
            }
        }
        check(&DOCUMENT);
    }

    #[test]
    fn the_page_describes_every_endpoint_and_loads_nothing_from_elsewhere() {
        let page = page_of(&DOCUMENT);
        for (path, _) in fields(&DOCUMENT["paths"]) {
            assert!(page.contains(&escaped(path)), "{path}");
        }
        for name in fields(&DOCUMENT["components"]["schemas"]).map(|(name, _)| name) {
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
    }
}
