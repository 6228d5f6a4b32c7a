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
        if text == before {
            // Special tokens have no text, and do not wait for any.
            self.given += usize::from(self.given + 1 == self.tokens.len());
            return Ok(String::new());
        }
        if !text.ends_with(BROKEN) {
            return self.give(self.tokens.len(), &text, &before);
        }
        if self.tokens.len() - self.given < LONGEST_WAIT {
            return Ok(String::new());
        }
        // The oldest is no part of a character that is still coming; the others may be.
        let upto = self.given + 1;
        self.give(upto, &self.tokenizer.decode(&self.tokens[..upto])?, &before)
    }

    /// Gives what is left, broken or not, and starts anew.
    ///
    /// # Errors
    /// When the tokenizer refuses the tokens.
    pub fn finish(&mut self) -> Result<String> {
        let (text, before) = self.texts()?;
        let rest = self.give(self.tokens.len(), &text, &before)?;
        (self.tokens, self.given) = (Vec::new(), 0);
        Ok(rest)
    }

    /// The text of all tokens, and of those that were given.
    fn texts(&self) -> Result<(String, String)> {
        Ok((self.tokenizer.decode(&self.tokens)?, self.tokenizer.decode(&self.tokens[..self.given])?))
    }

    /// Gives the text of the tokens up to `upto`; those that were given before are not needed any more.
    fn give(&mut self, upto: usize, text: &str, before: &str) -> Result<String> {
        let new = match text.strip_prefix(before) {
            Some(new) => new.to_owned(),
            // Later bytes made earlier ones unreadable, which cannot be taken back: the new ones speak for themselves.
            None => self.tokenizer.decode(&self.tokens[self.given..upto])?,
        };
        self.tokens.drain(..self.given);
        self.given = upto - self.given;
        Ok(new)
    }
}
