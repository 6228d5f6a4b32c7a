//! The chat page: its files are part of the program, and it loads nothing else.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;

/// A file of the page: path, type and content.
type File = (&'static str, &'static str, &'static str);

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 7] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/page/chats.js", SCRIPT, include_str!("../page/chats.js")),
    ("/page/render.js", SCRIPT, include_str!("../page/render.js")),
    ("/page/server.js", SCRIPT, include_str!("../page/server.js")),
];

/// Nothing but the page's own files runs or is loaded, no other page can show this one in a frame, and the only
/// requests go to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Whether a path belongs to the page.
pub fn is_file(path: &str) -> bool {
    FILES.iter().any(|(known, ..)| *known == path)
}

/// Sends a file of the page.
pub async fn file(uri: axum::http::Uri) -> Result<Response, Failure> {
    let Some((_, kind, content)) = FILES.iter().find(|(path, ..)| *path == uri.path()) else {
        return Err(crate::app::unknown_path(uri).await);
    };
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, *content).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_refers_only_to_its_own_files() {
        for (path, _, content) in FILES {
            let addresses =
                content.split("http").skip(1).filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
            let names: Vec<&str> = addresses.filter_map(|rest| rest.split(['"', ' ']).next()).collect();
            assert!(names.iter().all(|name| *name == "://www.w3.org/2000/svg"), "{path} names {names:?}");
        }
        let html = FILES[0].2;
        for attribute in ["href=\"", "src=\""] {
            for target in html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(target.starts_with('#') || is_file(target), "{target} is not part of the page");
            }
        }
    }

    #[test]
    fn scripts_never_parse_text_as_html() {
        for (path, _, content) in FILES {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!content.contains(word), "{path} uses {word}");
            }
        }
    }
}
