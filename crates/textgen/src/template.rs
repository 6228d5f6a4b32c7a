//! Chat templates: Jinja texts that turn messages into a prompt.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{Config, Error, Message, Result};

const FILE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// The name that the template has inside.
const NAME: &str = "chat";

/// A model folder's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    tokens: SpecialTokens,
}

#[derive(Clone, Debug, Default, Serialize)]
struct SpecialTokens {
    bos_token: String,
    eos_token: String,
    pad_token: String,
    unk_token: String,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn from_folder(config: &Config) -> Result<ChatTemplate> {
        let folder = &config.tokenizer_folder;
        let (config_path, file_path) = (folder.join(CONFIG), folder.join(FILE));
        let config = read_config(&config_path)?;
        let tokens = special_tokens(&config);
        match std::fs::read_to_string(&file_path) {
            Ok(text) => ChatTemplate::new(text, file_path, tokens),
            Err(_) => {
                let text = default_template(&config["chat_template"]).ok_or_else(|| Error::Text {
                    path: config_path.clone(),
                    problem: "there is no chat template".to_owned(),
                    help: format!("add chat_template to it, or a file {FILE}; `generate` needs none"),
                })?;
                ChatTemplate::new(text, config_path, tokens)
            }
        }
    }

    fn new(text: String, path: PathBuf, tokens: SpecialTokens) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        // As the transformers library sets it up, for which templates are written.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        match syntax {
            Ok(syntax) => environment.set_syntax(syntax),
            Err(error) => return Err(wrong(&path, &error)),
        }
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        // A template cannot loop without end.
        environment.set_fuel(Some(10_000_000));
        match environment.add_template_owned(NAME, text) {
            Ok(()) => Ok(ChatTemplate { environment, path, tokens }),
            Err(error) => Err(wrong(&path, &error)),
        }
    }

    /// The prompt for messages, with the beginning of an answer where that is asked for.
    ///
    /// # Errors
    /// When the template refuses them.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        self.render_with(messages, &Json::Null, add_generation_prompt)
    }

    /// As [`ChatTemplate::render`], with descriptions of tools that the model may call.
    ///
    /// # Errors
    /// When the template refuses them.
    pub fn render_with(&self, messages: &[Message], tools: &Json, add_generation_prompt: bool) -> Result<String> {
        let SpecialTokens { bos_token, eos_token, pad_token, unk_token } = &self.tokens;
        let context = minijinja::context! {
            messages => Serde(messages), tools => Serde(tools), add_generation_prompt, bos_token, eos_token, pad_token, unk_token
        };
        let template = self.environment.get_template(NAME).map_err(|error| wrong(&self.path, &error))?;
        template.render(context).map_err(|error| wrong(&self.path, &error))
    }
}

fn wrong(path: &Path, error: &minijinja::Error) -> Error {
    Error::Text {
        path: path.to_path_buf(),
        problem: format!("the chat template failed: {error}"),
        help: "check the messages (some templates want user and assistant to take turns), or the template".to_owned(),
    }
}

fn read_config(path: &Path) -> Result<Json> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Json::Null),
        Err(source) => {
            let help = "make the file readable".to_owned();
            return Err(Error::File { path: path.to_path_buf(), source, help });
        }
    };
    serde_json::from_str(&text).map_err(|error| Error::Text {
        path: path.to_path_buf(),
        problem: format!("it is not JSON: {error}"),
        help: "copy the file again from the model that the folder was made of".to_owned(),
    })
}

/// The template, or of a list of named ones the one called `default`.
fn default_template(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Array(list) => {
            let named = list.iter().find(|entry| entry["name"] == "default").or(list.first())?;
            named["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// A token is its text, or an object with its text.
fn special_tokens(config: &Json) -> SpecialTokens {
    let token = |name: &str| -> String {
        let value = &config[name];
        value.as_str().or_else(|| value["content"].as_str()).unwrap_or_default().to_owned()
    };
    SpecialTokens {
        bos_token: token("bos_token"),
        eos_token: token("eos_token"),
        pad_token: token("pad_token"),
        unk_token: token("unk_token"),
    }
}

/// JSON as Python writes it, which is what models were trained on: a space after `,` and `:`.
fn to_json(value: Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Texts are written as they are in any case.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut bytes = Vec::new();
    match indent {
        Some(width) => {
            let spaces = vec![b' '; width];
            let pretty = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, pretty)).map_err(failed)?;
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced)).map_err(failed)?;
        }
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Today, in UTC, in the forms that templates ask for.
fn strftime_now(format: &str) -> String {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    strftime(format, elapsed.as_secs())
}

fn strftime(format: &str, seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let name = MONTHS[month as usize - 1];
    let mut written = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            written.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => written += &year.to_string(),
            Some('m') => written += &format!("{month:02}"),
            Some('d') => written += &format!("{day:02}"),
            Some('B') => written += name,
            Some('b') => written += &name[..3],
            Some('H') => written += &format!("{hour:02}"),
            Some('M') => written += &format!("{minute:02}"),
            Some('S') => written += &format!("{second:02}"),
            Some(other) => written.extend(['%', other]),
            None => written.push('%'),
        }
    }
    written
}

/// Year, month and day of a day since 1970, by the Gregorian calendar's cycle of 400 years that begins in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (month, day) = ((month + 2) % 12 + 1, day - (153 * month + 2) / 5 + 1);
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, messages: &[Message]) -> Result<String> {
        let tokens = SpecialTokens { bos_token: "<s>".into(), ..SpecialTokens::default() };
        ChatTemplate::new(text.to_owned(), PathBuf::from("t"), tokens)?.render(messages, true)
    }

    #[test]
    fn messages_become_a_prompt() {
        let text = "{{ bos_token }}{% for m in messages %}\n<{{ m['role'] }}>{{ m.content.strip() }}\n{% endfor %}\n\
                    {%- if add_generation_prompt %}<assistant>{% endif %}";
        let messages = [Message::new("user", " hi "), Message::new("assistant", "yes")];
        assert_eq!(render(text, &messages).unwrap(), "<s><user>hi\n<assistant>yes\n<assistant>");
    }

    #[test]
    fn a_template_can_refuse() {
        let error = render("{{ raise_exception('only users may speak') }}", &[]).unwrap_err().to_string();
        assert!(error.contains("only users may speak") && error.contains("help:"), "{error}");
        assert!(render("{% for %}", &[]).is_err());
    }

    #[test]
    fn a_template_ends() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &[]).unwrap_err().to_string().contains("chat template failed"));
    }

    #[test]
    fn json_is_written_as_python_does() {
        assert_eq!(render("{{ {'a': [1, 'é']} | tojson }}", &[]).unwrap(), "{\"a\": [1, \"é\"]}");
        assert_eq!(render("{{ [1] | tojson(indent=2) }}", &[]).unwrap(), "[\n  1\n]");
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(strftime("%d %b %Y", 0), "01 Jan 1970");
        assert_eq!(strftime("%Y-%m-%d %H:%M:%S", 951_827_696), "2000-02-29 12:34:56");
        assert_eq!(strftime("%B %d, 100%%%", 1_794_700_800), "November 15, 100%%%");
    }

    #[test]
    fn of_named_templates_the_default_is_taken() {
        let list = serde_json::json!([{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]);
        assert_eq!(default_template(&list).as_deref(), Some("d"));
        assert_eq!(default_template(&serde_json::json!(3)), None);
    }
}
