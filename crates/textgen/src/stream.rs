//! Text of tokens as they come. A token may end inside of a character, and how it is written may depend on the tokens before
//! it (a space at the beginning, for one), so text is what a longer run of tokens says more than a shorter one.

use crate::{Result, Tokenizer};

/// What decoders write for bytes that are no character yet.
const BROKEN: char = '\u{fffd}';

/// Characters have at most four bytes: a broken end that is older is no beginning of a character.
const LONGEST_WAIT: usize = 4;

/// Decodes token by token; gives whole characters only.
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    /// Tokens whose text was given, kept because the next ones may depend on them; then tokens that wait.
    tokens: Vec<u32>,
    /// How many of them were given.
    given: usize,
}

impl TokenStream {
    pub(crate) fn new(tokenizer: Tokenizer) -> TokenStream {
        TokenStream { tokenizer, tokens: Vec::new(), given: 0 }
    }

    /// Takes a token, and gives the characters that are complete now.
    ///
    /// # Errors
    /// When the tokenizer refuses the token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let (text, before) = self.texts()?;
        let waits = text.ends_with(BROKEN) && self.tokens.len() - self.given < LONGEST_WAIT;
        if waits || text.len() <= before.len() {
            return Ok(String::new());
        }
        Ok(self.give(&text, &before))
    }

    /// Gives what is left, broken or not, and starts anew.
    ///
    /// # Errors
    /// When the tokenizer refuses the tokens.
    pub fn finish(&mut self) -> Result<String> {
        let (text, before) = self.texts()?;
        let rest = self.give(&text, &before);
        (self.tokens, self.given) = (Vec::new(), 0);
        Ok(rest)
    }

    /// The text of all tokens, and of those that were given.
    fn texts(&self) -> Result<(String, String)> {
        Ok((self.tokenizer.decode(&self.tokens)?, self.tokenizer.decode(&self.tokens[..self.given])?))
    }

    fn give(&mut self, text: &str, before: &str) -> String {
        // Where a later token changes how an earlier one is written, the common part was given already.
        let same = text.chars().zip(before.chars()).take_while(|(new, old)| new == old).map(|(new, _)| new.len_utf8());
        let new = text[same.sum::<usize>()..].to_owned();
        self.tokens.drain(..self.given);
        self.given = self.tokens.len();
        new
    }
}
