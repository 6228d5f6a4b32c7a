//! Forms with files (`multipart/form-data`), read from a body that is in memory.

use crate::failure::Failure;

/// The longest boundary that the standard allows.
const LONGEST_BOUNDARY: usize = 70;

/// More fields than any form has.
const MOST_FIELDS: usize = 64;

/// A form.
#[derive(Debug, Default)]
pub struct Form<'a> {
    fields: Vec<(String, &'a [u8])>,
}

impl<'a> Form<'a> {
    /// Reads the form of a request with this content type.
    ///
    /// # Errors
    /// When the body is not such a form.
    pub fn parse(content_type: &str, body: &'a [u8]) -> Result<Form<'a>, Failure> {
        let boundary = boundary(content_type)
            .ok_or_else(|| Failure::invalid("the content type names no valid boundary for multipart/form-data"))?;
        let delimiter = format!("\r\n--{boundary}");
        let first = &delimiter.as_bytes()[2..];
        let mut rest = match body.strip_prefix(first) {
            Some(rest) => rest,
            None => find(body, delimiter.as_bytes()).map(|(_, rest)| rest).ok_or_else(|| wrong("it has no part"))?,
        };
        let mut fields = Vec::new();
        loop {
            if rest.starts_with(b"--") {
                return Ok(Form { fields });
            }
            let part = rest.strip_prefix(b"\r\n").ok_or_else(|| wrong("a boundary is followed by other text"))?;
            let (content, next) = find(part, delimiter.as_bytes()).ok_or_else(|| wrong("its last part has no end"))?;
            if fields.len() == MOST_FIELDS {
                return Err(wrong(&format!("it has more than {MOST_FIELDS} fields")));
            }
            fields.push(field(content)?);
            rest = next;
        }
    }

    /// The content of a field.
    pub fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().find(|(known, _)| known == name).map(|&(_, content)| content)
    }

    /// The text of a field; `None` if it is missing or empty.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        let text = self.bytes(name).map(std::str::from_utf8).transpose();
        Ok(text.map_err(|_| Failure::field(name, "it is not UTF-8"))?.filter(|text| !text.is_empty()))
    }
}

/// The boundary that a content type names.
fn boundary(content_type: &str) -> Option<String> {
    let mut parameters = content_type.split(';').map(str::trim);
    parameters.next().filter(|kind| kind.eq_ignore_ascii_case("multipart/form-data"))?;
    let value = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    ((1..=LONGEST_BOUNDARY).contains(&value.len()) && value.bytes().all(is_plain)).then(|| value.to_owned())
}

/// The name and the content of a part.
fn field(part: &[u8]) -> Result<(String, &[u8]), Failure> {
    let (head, content) = match part.strip_prefix(b"\r\n") {
        Some(content) => (&b""[..], content),
        None => find(part, b"\r\n\r\n").ok_or_else(|| wrong("a part has no content"))?,
    };
    let head = std::str::from_utf8(head).map_err(|_| wrong("the headers of a part are not UTF-8"))?;
    let name = head.split("\r\n").find_map(|line| {
        let (header, value) = line.split_once(':')?;
        header.eq_ignore_ascii_case("content-disposition").then(|| name(value)).flatten()
    });
    Ok((name.ok_or_else(|| wrong("a part has no name"))?, content))
}

/// The parameter `name` of a disposition, which clients write in quotes. `filename` is another parameter.
fn name(disposition: &str) -> Option<String> {
    let quoted = disposition.split("; ").find_map(|parameter| parameter.trim().strip_prefix("name="))?;
    Some(quoted.trim().trim_matches('"').to_owned())
}

/// What is before and after the first occurrence of `sought`.
fn find<'a>(text: &'a [u8], sought: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let &first = sought.first()?;
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.iter().position(|&byte| byte == first)?;
        if text[at..].starts_with(sought) {
            return Some((&text[..at], &text[at + sought.len()..]));
        }
        from = at + 1;
    }
}

fn wrong(problem: &str) -> Failure {
    Failure::invalid(format!("the body is not a form: {problem}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=B";

    fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, content) in fields {
            let head = format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a.wav\"\r\n");
            body.extend(head.bytes().chain(*b"Content-Type: audio/wav\r\n\r\n").chain(content.iter().copied()));
            body.extend(b"\r\n");
        }
        body.extend(b"--B--\r\n");
        body
    }

    #[test]
    fn fields_keep_their_bytes() {
        let content = b"\r\n-- \0\xff\r\n\r\n--A\r\n";
        let body = form(&[("model", b"whisper"), ("file", content), ("language", b"")]);
        let form = Form::parse(TYPE, &body).unwrap();
        assert_eq!(form.bytes("file"), Some(&content[..]));
        assert_eq!(form.text("model").unwrap(), Some("whisper"));
        assert_eq!((form.text("language").unwrap(), form.text("prompt").unwrap()), (None, None));
        assert!(form.text("file").is_err());
    }

    #[test]
    fn boundaries_may_be_quoted_and_follow_a_preamble() {
        let body = [b"this is not a part\r\n".to_vec(), form(&[("a", b"1")])].concat();
        let kind = "Multipart/Form-Data; charset=utf-8; Boundary=\"B\"";
        assert_eq!(Form::parse(kind, &body).unwrap().bytes("a"), Some(&b"1"[..]));
    }

    #[test]
    fn broken_forms_are_refused() {
        let whole = form(&[("a", b"1"), ("b", b"2")]);
        for kind in [
            "",
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\u{e9}",
        ] {
            assert!(Form::parse(kind, &whole).is_err(), "{kind}");
        }
        for length in 0..whole.len() - 4 {
            assert!(Form::parse(TYPE, &whole[..length]).is_err(), "{length} bytes");
        }
        assert!(Form::parse(TYPE, b"--B\r\nContent-Type: text/plain\r\n\r\n1\r\n--B--").is_err(), "no name");
        assert!(Form::parse(TYPE, &form(&[("a", &b"1"[..]); 65])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_form_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Form::parse(TYPE, &body);
            let _ = Form::parse(TYPE, &[b"--B\r\n".to_vec(), body].concat());
        }
    }
}
