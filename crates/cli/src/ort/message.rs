//! Cleans up ONNX Runtime's messages: removes details that only its developers can use.

/// The prefix of a status in a message, at any depth of wrapping.
const STATUS: &str = "[ONNXRuntimeError] : ";

/// The prefix of a provider's message about its options.
const CREATING_PROVIDER: &str = "Error creating execution provider: ";

/// A message of ONNX Runtime for its users: without source files and lines, C++ signatures and status codes, and
/// without the name of the model, which the caller knows.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // A provider's message may start anywhere, because ONNX Runtime prepends its own text.
    while let Some(at) = next_mark(rest) {
        let (before, marked) = rest.split_at(at);
        out += before;
        rest = without_status(marked).or_else(|| without_location(marked)).unwrap_or_else(|| {
            let first = marked.chars().next().map_or(0, char::len_utf8);
            out += &marked[..first];
            &marked[first..]
        });
    }
    out += rest;
    let out =
        out.strip_prefix("Load model from ").and_then(|rest| rest.split_once(" failed:")).map_or(&*out, |it| it.1);
    out.trim().to_owned()
}

/// The provider's message when it rejects a session, usually because of an option.
pub fn refusal(plain: &str) -> Option<&str> {
    plain.split_once(CREATING_PROVIDER).map(|(_, refusal)| refusal)
}

/// Where a status or a source location begins.
fn next_mark(text: &str) -> Option<usize> {
    let status = text.find(STATUS);
    let path = text.char_indices().find(|&(at, c)| {
        let begins = at == 0 || text[..at].ends_with(char::is_whitespace);
        let drive = c.is_ascii_alphabetic() && text[at + 1..].starts_with(":\\");
        begins && (c == '/' || drive) && source_line(&text[at..]).is_some()
    });
    [status, path.map(|(at, _)| at)].into_iter().flatten().min()
}

/// `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : message`.
fn without_status(text: &str) -> Option<&str> {
    let (_, rest) = text.strip_prefix(STATUS)?.split_once(" : ")?;
    let (name, message) = rest.split_once(" : ")?;
    name.chars().all(|c| c.is_ascii_uppercase() || c == '_').then_some(message)
}

/// `/src/file.cc:71 void onnxruntime::f(int) message`.
fn without_location(text: &str) -> Option<&str> {
    let rest = source_line(text)?;
    Some(after_signature(rest).unwrap_or(rest))
}

/// The text after `/src/file.cc:71 `.
fn source_line(text: &str) -> Option<&str> {
    let (location, rest) = text.split_once(' ')?;
    let (file, line) = location.rsplit_once(':')?;
    let is_source = [".cc", ".cpp", ".h", ".hpp", ".cu"].iter().any(|suffix| file.ends_with(suffix));
    (is_source && !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
}

/// The text after a function's signature. The signature ends with the closing bracket of the outermost pair, unless the
/// name continues after it.
fn after_signature(text: &str) -> Option<&str> {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            // The arrow of a return type is not a bracket.
            '>' if text[..at].ends_with('-') => {}
            ')' | '>' | ']' | '}' => depth -= 1,
            // This is an ordinary sentence.
            '.' | ',' | '"' | '\n' if depth == 0 => return None,
            _ => {}
        }
        let rest = &text[at + c.len_utf8()..];
        if depth != 0 || c != ')' || rest.starts_with("::") || rest.starts_with('(') {
            continue;
        }
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("const ").unwrap_or(rest);
        let rest = rest.strip_prefix("noexcept ").unwrap_or(rest);
        return match rest.starts_with("[with ") {
            true => closed(rest),
            false => Some(rest),
        };
    }
    None
}

/// The text after the bracket that closes the first one.
fn closed(text: &str) -> Option<&str> {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if depth == 0 {
            return Some(text[at + 1..].trim_start());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn source_locations_are_removed_from_messages() {
        for (text, want) in [
            (
                "/onnxruntime_src/onnxruntime/core/session/plugin_ep/interfaces.cc:71 virtual \
                 std::unique_ptr<onnxruntime::IExecutionProvider> onnxruntime::Factory::CreateProvider(const \
                 OrtSessionOptions&, const OrtLogger&) Error creating execution provider: [ONNXRuntimeError] : 2 : \
                 INVALID_ARGUMENT : 1 problem with the options:\n  - unknown option \"foo\"\n  help: remove it",
                "Error creating execution provider: 1 problem with the options:\n  - unknown option \"foo\"\n  help: remove it",
            ),
            ("Load model from /tmp/m.onnx failed:Protobuf parsing failed.", "Protobuf parsing failed."),
            (
                "/a/b.h:9 auto f(std::function<void(int)>)::<lambda(int)>(int) const x was false. Why",
                "x was false. Why",
            ),
            ("/a/b.cc:9 T g(X) [with T = A<B[2]>; X = int] no", "no"),
            ("C:\\a\\b.cc:9 bool operator()(int) no", "no"),
            ("Non-zero status code: /a/b.cc:31 void f() broken", "Non-zero status code: broken"),
            ("/a/b.cc:31 it ends here, without a signature", "it ends here, without a signature"),
            (
                "could not open /tmp/x.onnx: it is a file (of text)",
                "could not open /tmp/x.onnx: it is a file (of text)",
            ),
            ("[ONNXRuntimeError] : nonsense", "[ONNXRuntimeError] : nonsense"),
            ("", ""),
        ] {
            assert_eq!(plain(text), want, "{text}");
        }
    }

    #[test]
    fn a_refusal_is_the_message_of_the_provider() {
        assert_eq!(refusal("Error creating execution provider: unknown option"), Some("unknown option"));
        assert_eq!(refusal("Protobuf parsing failed."), None);
    }

    proptest! {
        #[test]
        fn any_text_terminates(text in ".*", tail in "[/a-z.():<> 0-9\\[\\]]*") {
            let text = format!("{text} /a/b.cc:3 {tail}");
            prop_assert!(plain(&text).len() <= text.len());
        }
    }
}
