//! Prompts of a wanted length. The server's tokenizer is unknown, so two short requests show how many tokens a word has.

use std::time::Instant;

use super::Body;
use super::client::Client;
use crate::random::Random;

/// Common words, which most tokenizers know as one token.
const WORDS: [&str; 48] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
    "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business",
];

/// Makes prompts of one length.
#[derive(Clone, Debug)]
pub struct Prompts {
    words: usize,
}

impl Prompts {
    /// Prompts of about `tokens` tokens, by the server's count for two short ones. If it does not tell, a word counts
    /// as a token, and the reason is returned too.
    pub async fn calibrated(client: &Client, body: &Body, tokens: usize) -> (Prompts, Option<String>) {
        let mut body = body.clone();
        body.fields.insert("max_tokens".to_owned(), 1.into());
        let (few, more) = ((tokens / 8).max(1), (tokens / 4).max(2));
        let mut counts = Vec::new();
        for words in [few, more] {
            let prompt = Prompts { words }.text("calibration");
            let answer = client.answer(body.endpoint.path(), &body.with(&prompt), Instant::now()).await;
            match answer.map(|answer| answer.usage) {
                Ok(Some(usage)) => counts.push(usage.prompt),
                Ok(None) => return (Prompts { words: tokens }, Some("the server sends no token counts".to_owned())),
                Err(failure) => {
                    let problem = format!("the first request failed: {}: {}", failure.kind(), failure.message());
                    return (Prompts { words: tokens }, Some(problem));
                }
            }
        }
        let words = words_for(tokens, (few, counts[0]), (more, counts[1]));
        (Prompts { words }, None)
    }

    pub fn words(&self) -> usize {
        self.words
    }

    /// The prompt of the request with this name. Other names give other words from the first one on, so that servers
    /// cannot reuse what they computed before.
    pub fn text(&self, name: &str) -> String {
        // FNV-1a, which does not change with the release of the standard library.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let mut random = Random::new(name.bytes().fold(0xcbf2_9ce4_8422_2325, step));
        let words: Vec<&str> = (0..self.words).map(|_| *random.choose(&WORDS)).collect();
        words.join(" ")
    }
}

/// The number of words for `wanted` tokens, on the line through two pairs of words and tokens. The line need not start
/// at zero, because chat templates add tokens.
fn words_for(wanted: usize, few: (usize, usize), more: (usize, usize)) -> usize {
    let per_word = (more.1 as f64 - few.1 as f64) / (more.0 as f64 - few.0 as f64).max(1.0);
    // A word has at least a token, unless the server counts only the part that it had not cached.
    let per_word = per_word.max(1.0);
    let words = few.0 as f64 + (wanted as f64 - few.1 as f64) / per_word;
    words.round().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_and_long_words_are_taken_into_account() {
        // Ten tokens of a template, and two for each word.
        assert_eq!(words_for(128, (16, 42), (32, 74)), 59);
        assert_eq!(words_for(128, (16, 16), (32, 32)), 128);
        // The template alone is longer.
        assert_eq!(words_for(8, (1, 30), (2, 31)), 1);
        // A server whose token counts make no sense.
        assert_eq!(words_for(128, (16, 0), (32, 0)), 144);
    }

    #[test]
    fn prompts_differ_from_their_first_words_on() {
        let prompts = Prompts { words: 12 };
        let texts: Vec<String> = (0..20).map(|index| prompts.text(&format!("0 1 client {index}"))).collect();
        assert!(texts.iter().all(|text| text.split(' ').count() == 12));
        let mut starts: Vec<String> = texts.iter().map(|text| text.split(' ').take(3).collect()).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), 20);
        assert_eq!(prompts.text("0 1 client 3"), texts[3]);
    }
}
