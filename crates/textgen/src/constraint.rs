//! Constrained answers: a JSON schema, a regular expression or a grammar decides which tokens may come next.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie, TokenId};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::caught::caught;
use crate::files::{self, largest};
use crate::sampler::{NEVER, TokenFilter};
use crate::{Config, Error, Result, Tokenizer};

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A JSON document that matches this schema (itself JSON).
    JsonSchema(String),
    /// Text that matches this regular expression as a whole.
    Regex(String),
    /// Text of this grammar, in Lark notation.
    Lark(String),
}

impl Form {
    fn grammar(&self) -> Result<TopLevelGrammar> {
        match self {
            Form::Regex(text) => Ok(TopLevelGrammar::from_regex(text)),
            Form::Lark(text) => Ok(TopLevelGrammar::from_lark(text.clone())),
            Form::JsonSchema(text) => match serde_json::from_str::<Value>(text) {
                Ok(mut schema) => {
                    // Without this, a small model may write whitespace until the sequence is full.
                    if let Some(schema) = schema.as_object_mut() {
                        schema.entry("x-guidance").or_insert_with(|| json!({"whitespace_flexible": false}));
                    }
                    Ok(TopLevelGrammar::from_json_schema(schema))
                }
                Err(error) => {
                    Err(Error::request(format!("the schema is not JSON: {error}"), "pass a valid JSON schema"))
                }
            },
        }
    }
}

/// The state of a form while one answer is generated ([`Generator::constrain`](crate::Generator::constrain)).
pub struct Constraint {
    matcher: Matcher,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

impl Constraint {
    /// Starts at the beginning of a form.
    ///
    /// # Errors
    /// When the tokenizer's tokens have no byte representation, or the form is invalid.
    pub fn new(config: &Config, tokenizer: &Tokenizer, form: &Form) -> Result<Constraint> {
        let grammar = form.grammar()?;
        let factory = tokenizer.grammars().factory(config, tokenizer)?;
        // Forms come from users, and the library asserts on unexpected input.
        let parser = caught(|| factory.create_parser(grammar));
        let matcher = match parser {
            Some(parser) => Matcher::new(parser),
            None => return Err(refused("the grammar library failed on it")),
        };
        match matcher.get_error() {
            None => Ok(Constraint { matcher }),
            Some(error) => Err(refused(&error)),
        }
    }

    /// Whether the text so far satisfies the form.
    pub fn is_complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }
}

/// What all forms of a tokenizer share. It takes up to seconds for a large vocabulary, so it is made once.
#[derive(Clone, Default)]
pub(crate) struct Grammars(Arc<Mutex<Option<Made>>>);

/// The end token that a factory was made for, and the factory.
type Made = (u32, Arc<ParserFactory>);

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    fn factory(&self, config: &Config, tokenizer: &Tokenizer) -> Result<Arc<ParserFactory>> {
        let end = config.eos_tokens.first().copied().unwrap_or(config.pad_token);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, factory)) = &*made
            && *known == end
        {
            return Ok(Arc::clone(factory));
        }
        let environment = environment(end, tokenizer)?;
        let factory = caught(|| ParserFactory::new_simple(&environment))
            .ok_or_else(|| refused("the grammar library failed on the vocabulary"))?;
        let mut factory = factory.map_err(|error| refused(&format!("{error:#}")))?;
        factory.quiet();
        let factory = Arc::new(factory);
        *made = Some((end, Arc::clone(&factory)));
        Ok(factory)
    }
}

fn refused(problem: &str) -> Error {
    Error::request(format!("the constraint failed: {problem}"), "check the schema, expression or grammar")
}

impl TokenFilter for Constraint {
    fn filter(&mut self, scores: &mut [f32]) -> Result<()> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| refused(&format!("{error:#}")))?;
        let mut any = false;
        for (token, score) in scores.iter_mut().enumerate() {
            // There may be more scores than tokens.
            if token < allowed.len() && allowed.is_allowed(token as TokenId) {
                any = true;
            } else {
                *score = NEVER;
            }
        }
        if any { Ok(()) } else { Err(refused("no token is allowed next")) }
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        // The end token comes after the end of the form.
        if self.matcher.is_stopped() {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(|error| refused(&format!("{error:#}")))
    }

    fn fork(&self) -> Option<Box<dyn TokenFilter>> {
        Some(Box::new(Constraint { matcher: self.matcher.deep_clone() }))
    }
}

/// The bytes of every token.
fn environment(end: u32, tokenizer: &Tokenizer) -> Result<TokEnv> {
    let path = tokenizer.path();
    let wrong = |problem: String| Error::Text {
        path: path.to_path_buf(),
        problem,
        help: "constraints need a byte-level tokenizer or one with byte fallback".to_owned(),
    };
    let bytes = files::read(path, largest::TOKENIZER, "make the file readable")?;
    let json = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let words = caught(|| llguidance::token_bytes_from_tokenizer_json(&json))
        .ok_or_else(|| wrong("its tokens have no bytes".to_owned()))?
        .map_err(|error| wrong(format!("{error:#}")))?;
    let info = TokRxInfo::new(words.len() as u32, end);
    Ok(Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words))))
}
