//! Streaming decoding. A token may end inside a character, and its text may depend on earlier tokens (a leading space,
//! for example). So the new text is the difference between decoding with and without the new tokens.

use crate::{Result, Tokenizer};

/// What decoders write for bytes that are not a complete character.
const BROKEN: char = '\u{fffd}';

/// A character has at most four bytes, so only the last three bytes or tokens can still become one.
const LONGEST_WAIT: usize = 3;

/// Decodes token by token, and emits only whole characters.
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    /// Emitted tokens, kept because later ones may depend on them, followed by pending ones.
    tokens: Vec<u32>,
    /// How many of them were emitted.
    given: usize,
    /// Bytes at the end of the emitted tokens' text that were held back, because they may begin a character.
    held: usize,
}

impl TokenStream {
    pub(crate) fn new(tokenizer: Tokenizer) -> TokenStream {
        TokenStream { tokenizer, tokens: Vec::new(), given: 0, held: 0 }
    }

    /// Adds a token, and returns the characters that are now complete.
    ///
    /// # Errors
    /// When the tokenizer rejects the token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        self.give(LONGEST_WAIT)
    }

    /// Returns the rest, complete or not, and resets the stream.
    ///
    /// # Errors
    /// When the tokenizer rejects the tokens.
    pub fn finish(&mut self) -> Result<String> {
        let rest = self.give(0)?;
        (self.tokens, self.given, self.held) = (Vec::new(), 0, 0);
        Ok(rest)
    }

    /// Returns the text that was not emitted yet. Holds back up to `wait` marks of broken characters at the end.
    fn give(&mut self, wait: usize) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        let before = self.tokenizer.decode(&self.tokens[..self.given])?;
        let before = &before[..before.len() - self.held];
        let mut held = broken_end(&text).min(wait * BROKEN.len_utf8());
        if let Some(rest) = text.strip_prefix(before) {
            // The kept tokens may begin inside a character: they decode to marks here, although the character itself
            // was emitted.
            held = held.min(rest.len());
        }
        let Some(new) = text[..text.len() - held].strip_prefix(before) else {
            // Some decoders mark a character as broken if broken bytes follow it. Wait if the rest may still come.
            // Otherwise decode the new tokens on their own, because emitted text cannot be taken back.
            if held > 0 && self.tokens.len() - self.given <= wait {
                return Ok(String::new());
            }
            self.forget(self.given, 0);
            self.given = 0;
            return self.give(wait);
        };
        if !new.is_empty() {
            // Tokens emitted earlier are no longer needed, unless the held bytes began in them.
            let mut start = self.given;
            while start > 0 && held > 0 && broken_end(&self.tokenizer.decode(&self.tokens[start..])?) < held {
                start -= 1;
            }
            self.forget(start, held);
        }
        Ok(new.to_owned())
    }

    /// Drops the first `count` tokens, and counts all others as emitted.
    fn forget(&mut self, count: usize, held: usize) {
        self.tokens.drain(..count);
        (self.given, self.held) = (self.tokens.len(), held);
    }
}

/// Length in bytes of the marks of broken characters at the end.
fn broken_end(text: &str) -> usize {
    text.len() - text.trim_end_matches(BROKEN).len()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::llm::printable;

    use super::*;

    /// A tokenizer with these tokens and this decoder.
    fn tokenizer(vocabulary: &HashMap<String, u32>, decoder: &Value) -> Tokenizer {
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "added_tokens": [], "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, file.to_string()).unwrap();
        Tokenizer::from_file(&path).unwrap()
    }

    /// The pieces when these tokens are decoded one by one, and the text when they are decoded at once.
    fn decoded(words: impl Iterator<Item = String>, decoder: &Value) -> (Vec<String>, String) {
        let mut vocabulary = HashMap::new();
        let mut id = |word| {
            let next = vocabulary.len() as u32;
            *vocabulary.entry(word).or_insert(next)
        };
        let tokens: Vec<u32> = words.map(&mut id).collect();
        let tokenizer = tokenizer(&vocabulary, decoder);
        let mut stream = tokenizer.stream();
        let mut given: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
        given.push(stream.finish().unwrap());
        (given, tokenizer.decode(&tokens).unwrap())
    }

    /// Tokens of a byte-level vocabulary.
    fn byte_level(pieces: &[&[u8]]) -> Vec<String> {
        let decoder = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let words = pieces.iter().map(|piece| piece.iter().copied().map(printable).collect());
        decoded(words, &decoder).0
    }

    /// Tokens of one byte each, as in vocabularies that store most characters whole.
    fn byte_fallback(bytes: &[u8]) -> (String, String) {
        let decoder = json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]});
        let (given, whole) = decoded(bytes.iter().map(|byte| format!("<0x{byte:02X}>")), &decoder);
        (given.concat(), whole)
    }

    /// Splits bytes into pieces of these lengths, repeated until the end.
    fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for &length in lengths.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (piece, rest) = bytes.split_at(length.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    #[test]
    fn characters_come_with_the_token_that_completes_them() {
        let pieces: [&[u8]; 5] = [b"\xe2", b"\x82\xac\xe2", b"\x82\xac\xe2", b"\x82\xac\xe2", b"\x82\xac"];
        assert_eq!(byte_level(&pieces), ["", "€", "€", "€", "€", ""]);
        // The text itself may contain the mark of broken characters.
        assert_eq!(byte_level(&cut("\u{fffd}".repeat(5).as_bytes(), &[1])).concat(), "\u{fffd}".repeat(5));
    }

    #[test]
    fn kept_tokens_that_begin_inside_of_a_character_add_no_marks() {
        let text = "€é€\u{fffd}\u{fffd}";
        assert_eq!(byte_level(&cut(text.as_bytes(), &[1, 2])).concat(), text);
    }

    #[test]
    fn emitted_text_stays_when_invalid_bytes_follow() {
        assert_eq!(byte_fallback("€€".as_bytes()).0, "€€");
        assert_eq!(byte_fallback(b"\xe2\x82\xac\xff").0, "€\u{fffd}");
        assert_eq!(byte_fallback(b"\xe2\x82\xac\xff\xff\xff\xff\xff").0, "€\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    }

    fn pieces() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1usize..7, 1..12)
    }

    proptest! {
        #[test]
        fn texts_in_pieces_are_put_together(
            text in prop_oneof![".{0,40}", "[aé€🦀\u{fffd} ]{0,40}"], lengths in pieces(),
        ) {
            prop_assert_eq!(byte_level(&cut(text.as_bytes(), &lengths)).concat(), text);
        }

        #[test]
        fn invalid_bytes_in_pieces_are_replaced_as_in_a_whole(
            parts in prop::collection::vec(prop_oneof![
                any::<u8>().prop_map(|byte| vec![byte]),
                "[aé€🦀\u{fffd}]".prop_map(String::into_bytes),
                ("[é€🦀]", 1usize..4).prop_map(|(text, length)| text.into_bytes().into_iter().take(length).collect()),
            ], 0..40),
            lengths in pieces(),
        ) {
            let bytes = parts.concat();
            prop_assert_eq!(byte_level(&cut(&bytes, &lengths)).concat(), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn texts_of_single_bytes_are_put_together(text in "[aé€🦀漢]{0,40}") {
            let (given, whole) = byte_fallback(text.as_bytes());
            prop_assert_eq!(&given, &text);
            prop_assert_eq!(given, whole);
        }
    }
}
