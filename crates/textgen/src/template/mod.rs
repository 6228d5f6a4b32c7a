//! Chat templates: Jinja templates that turn messages into a prompt.

mod functions;
mod meter;
mod metered;
mod rewrite;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::machinery::{self, CodeGenerator, Instructions, Token, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, ErrorKind};
use serde::Serialize;
use serde_json::Value as Json;

use crate::caught::caught;
use crate::files::{self, largest};
use crate::{Config, Error, Message, Result};

use self::meter::{Allowance, Meter};
use self::metered::FUEL;

const FILE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// The template's name in the engine.
const NAME: &str = "chat";

/// The largest template in bytes. Those of known families have up to 20 thousand bytes.
const LARGEST: usize = largest::TEMPLATE as usize;

/// The most tokens in one tag: consecutive operators become nested.
const MAX_TAG_WORDS: usize = 8192;

/// The most `elif` branches: each is nested in the previous one.
const MAX_BRANCHES: usize = 1024;

/// Stack size in bytes for parsing and rendering, sufficient for both limits above.
const STACK: usize = 64 << 20;

/// The maximum length of an error message in characters.
const LONGEST_MESSAGE: usize = 1000;

/// A model folder's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    text: String,
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
    /// Reads `chat_template.jinja`, or the `chat_template` field of `tokenizer_config.json`.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn from_folder(config: &Config) -> Result<ChatTemplate> {
        let folder = &config.tokenizer_folder;
        let (config_path, file_path) = (folder.join(CONFIG), folder.join(FILE));
        let config = read_config(&config_path)?;
        let tokens = special_tokens(&config);
        match files::read_text(&file_path, largest::TEMPLATE, "make the file readable, or remove it") {
            Ok(text) => ChatTemplate::new(text, file_path, tokens),
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let text = default_template(&config["chat_template"]).ok_or_else(|| Error::Text {
                    path: config_path.clone(),
                    problem: "the model folder has no chat template".to_owned(),
                    help: format!("add chat_template to this file, or add a file {FILE}; `generate` needs no template"),
                })?;
                ChatTemplate::new(text, config_path, tokens)
            }
            Err(error) => Err(error),
        }
    }

    /// A template from this text; errors name `path`.
    ///
    /// # Errors
    /// When it is longer than 1 MiB, or is not a valid template.
    pub fn from_text(text: impl Into<String>, path: &Path) -> Result<ChatTemplate> {
        ChatTemplate::new(text.into(), path.to_path_buf(), SpecialTokens::default())
    }

    fn new(text: String, path: PathBuf, tokens: SpecialTokens) -> Result<ChatTemplate> {
        let template = ChatTemplate { text, path, tokens };
        if template.text.len() > LARGEST {
            return Err(template.limit(&format!("it has {} bytes, more than {LARGEST}", template.text.len())));
        }
        let meter = Arc::new(Meter::new(Allowance::new(0)));
        template
            .on_own_stack(|| compiled(&template.text, |_| Ok(())).map_err(|error| template.wrong(&meter, &error)))?;
        Ok(template)
    }

    /// The template itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renders the prompt for messages, optionally with the beginning of an answer.
    ///
    /// # Errors
    /// When the template rejects them, or exceeds a limit.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        self.render_with(messages, &Json::Null, add_generation_prompt)
    }

    /// Like [`ChatTemplate::render`], with descriptions of tools that the model may call.
    ///
    /// # Errors
    /// When the template rejects them, or exceeds a limit.
    pub fn render_with(&self, messages: &[Message], tools: &Json, add_generation_prompt: bool) -> Result<String> {
        let said = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        self.render_any(&messages, said, tools, add_generation_prompt)
    }

    /// Like [`ChatTemplate::render_with`], for messages with more fields, such as `tool_calls`.
    ///
    /// # Errors
    /// When the template rejects them, or exceeds a limit.
    pub fn render_values(&self, messages: &[Json], tools: &Json, add_generation_prompt: bool) -> Result<String> {
        let said = messages.iter().map(|message| message.to_string().len()).sum();
        self.render_any(&messages, said, tools, add_generation_prompt)
    }

    /// Renders messages with `said` bytes of text.
    fn render_any(
        &self,
        messages: &(impl Serialize + Sync),
        said: usize,
        tools: &Json,
        add_generation_prompt: bool,
    ) -> Result<String> {
        let input = said + self.text.len() + tools.to_string().len();
        let meter = Arc::new(Meter::new(Allowance::new(input)));
        self.on_own_stack(|| {
            let SpecialTokens { bos_token, eos_token, pad_token, unk_token } = &self.tokens;
            let context = minijinja::context! {
                messages => Serde(messages), tools => Serde(tools), add_generation_prompt, bos_token, eos_token, pad_token, unk_token
            };
            let rendered = render(&self.text, &meter, context);
            match (meter.passed(), rendered) {
                (None, Ok(prompt)) => Ok(prompt),
                (Some(passed), Ok(_)) => Err(self.limit(passed)),
                (_, Err(error)) => Err(self.wrong(&meter, &error)),
            }
        })
    }

    /// Runs `work` on a stack of known size, because nested templates are processed recursively.
    fn on_own_stack<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let failed = |problem: &str| Error::Text {
            path: self.path.clone(),
            problem: format!("the chat template failed: {problem}"),
            help: "use the template of the folder's original model".to_owned(),
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
            match thread.spawn_scoped(scope, || caught(work)) {
                // The engine asserts on unexpected input.
                Ok(thread) => {
                    thread.join().ok().flatten().unwrap_or_else(|| Err(failed("the template engine panicked")))
                }
                Err(error) => Err(failed(&format!("could not start a thread for it: {error}"))),
            }
        })
    }

    fn limit(&self, passed: &str) -> Error {
        Error::Text {
            path: self.path.clone(),
            problem: format!("the chat template exceeded a limit: {passed}"),
            help: "use the template of the folder's original model; docs/textgen.md lists the limits".to_owned(),
        }
    }

    fn wrong(&self, meter: &Meter, error: &minijinja::Error) -> Error {
        if let Some(passed) = meter.passed() {
            return self.limit(passed);
        }
        if error.kind() == ErrorKind::OutOfFuel {
            return self.limit(&format!("it takes more than {FUEL} steps"));
        }
        // `raise_exception` accepts any text.
        let mut problem = error.to_string();
        if let Some((end, _)) = problem.char_indices().nth(LONGEST_MESSAGE) {
            problem.truncate(end);
            problem += "...";
        }
        Error::Text {
            path: self.path.clone(),
            problem: format!("the chat template failed: {problem}"),
            help:
                "check the messages (some templates require user and assistant messages to alternate), or the template"
                    .to_owned(),
        }
    }
}

fn render(text: &str, meter: &Arc<Meter>, context: Value) -> Result<String, minijinja::Error> {
    compiled(text, |(instructions, blocks)| {
        let environment = metered::environment(meter);
        let mut prompt = String::new();
        let mut output = make_string_output(&mut prompt);
        machinery::eval(&environment, &instructions, context, &blocks, &mut output, AutoEscape::None)?;
        meter.output(prompt.len())?;
        Ok(prompt)
    })
}

type CompiledTemplate<'a> = (Instructions<'a>, BTreeMap<&'a str, Instructions<'a>>);

/// Compiles a template and passes it to `then`, because it borrows the text.
fn compiled<T>(
    text: &str,
    then: impl FnOnce(CompiledTemplate<'_>) -> Result<T, minijinja::Error>,
) -> Result<T, minijinja::Error> {
    // The same settings as in the transformers library, for which templates are written.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    check_nesting(text, &syntax)?;
    let tree = machinery::parse(text, NAME, syntax)?;
    let tree = rewrite::metered(&tree).map_err(|tag| {
        let problem = format!("{{% {tag} %}} is not supported: there is no other template");
        minijinja::Error::new(ErrorKind::SyntaxError, problem)
    })?;
    let mut generator = CodeGenerator::new(NAME, text);
    generator.compile_stmt(&tree);
    then(generator.finish())
}

/// Rejects templates that nest too deeply for the parser. It counts brackets, but neither consecutive operators nor
/// `elif`.
fn check_nesting(text: &str, syntax: &SyntaxConfig) -> Result<(), minijinja::Error> {
    let (mut length, mut branches) = (0, 0);
    for token in machinery::tokenize(text, false, syntax.clone()) {
        match token?.0 {
            Token::VariableStart | Token::BlockStart => length = 0,
            Token::Ident("elif") => branches += 1,
            _ => length += 1,
        }
        let problem = match (length > MAX_TAG_WORDS, branches > MAX_BRANCHES) {
            (true, _) => format!("a tag has more than {MAX_TAG_WORDS} words"),
            (_, true) => format!("it has more than {MAX_BRANCHES} elif branches"),
            _ => continue,
        };
        return Err(minijinja::Error::new(ErrorKind::SyntaxError, problem));
    }
    Ok(())
}

fn read_config(path: &Path) -> Result<Json> {
    let text = match files::read_text(path, largest::TOKENIZER_CONFIG, "make the file readable") {
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Json::Null),
        text => text?,
    };
    serde_json::from_str(&text).map_err(|error| Error::Text {
        path: path.to_path_buf(),
        problem: format!("it is not JSON: {error}"),
        help: "copy the file again from the folder's original model".to_owned(),
    })
}

/// The template; from a list of named templates, the one called `default`.
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

/// A token is a string, or an object that contains it.
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

#[cfg(test)]
mod tests;
