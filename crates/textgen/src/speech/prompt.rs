//! The tokens before a transcript, which say what the model is to write.

use crate::{Config, Error, Result, Tokenizer};

use super::{SpeechOptions, Task};

/// The languages that Whisper models know, by the codes in their tokens.
const LANGUAGES: [&str; 100] = [
    "en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv", "it", "id", "hi", "fi",
    "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no", "th", "ur", "hr", "bg", "lt", "la", "mi", "ml",
    "cy", "sk", "te", "fa", "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br", "eu", "is", "hy", "ne", "mn", "bs",
    "kk", "sq", "sw", "gl", "mr", "pa", "si", "km", "sn", "yo", "so", "af", "oc", "ka", "be", "tg", "sd", "gu", "am",
    "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my", "bo", "tl", "mg", "as", "tt", "haw", "ln",
    "ha", "ba", "jw", "su", "yue",
];

/// The number of tokens in models that know only English. They have tokens for languages, too, but were not trained with
/// them.
const ENGLISH_VOCABULARY: usize = 51_864;

/// The tokens of prompts.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The first token.
    pub start: u32,
    /// Whether the language and the task are part of the prompt.
    pub is_multilingual: bool,
    transcribe: u32,
    translate: u32,
    no_timestamps: u32,
    /// Codes and tokens.
    languages: Vec<(&'static str, u32)>,
}

impl Prompt {
    pub fn new(config: &Config, tokenizer: &Tokenizer) -> Result<Prompt> {
        // A token that the decoder does not know would be an error of the first run.
        let known = |token: &str| tokenizer.id(token).filter(|&id| (id as usize) < config.vocab_size);
        let special = |token: &str| {
            known(token).ok_or_else(|| Error::Text {
                path: tokenizer.path().to_path_buf(),
                problem: format!("the vocabulary has no token {token:?}, which begins transcripts"),
                help: "use the tokenizer of a Whisper model".to_owned(),
            })
        };
        let languages: Vec<_> =
            LANGUAGES.iter().filter_map(|&code| Some((code, known(&format!("<|{code}|>"))?))).collect();
        Ok(Prompt {
            start: special("<|startoftranscript|>")?,
            transcribe: special("<|transcribe|>")?,
            translate: special("<|translate|>")?,
            no_timestamps: special("<|notimestamps|>")?,
            is_multilingual: config.vocab_size != ENGLISH_VOCABULARY && !languages.is_empty(),
            languages,
        })
    }

    /// The token of the language that the caller names.
    ///
    /// # Errors
    /// When the model does not know it, or the task.
    pub fn language(&self, options: &SpeechOptions) -> Result<Option<u32>> {
        if !self.is_multilingual {
            return match &options.language {
                Some(code) if code != "en" => {
                    Err(Error::request(format!("the model does not know the language {code:?}"), "it knows only en"))
                }
                _ if options.task == Task::Translate => Err(Error::request(
                    "the model knows only English, so it does not translate",
                    "use a multilingual one",
                )),
                _ => Ok(None),
            };
        }
        let Some(code) = &options.language else { return Ok(None) };
        let found = self.languages.iter().find(|(known, _)| known == code);
        found.map(|&(_, token)| Some(token)).ok_or_else(|| {
            let known: Vec<&str> = self.languages.iter().map(|&(code, _)| code).collect();
            Error::request(
                format!("the model does not know the language {:?}", code.chars().take(32).collect::<String>()),
                format!("use one of {}", known.join(", ")),
            )
        })
    }

    /// The language with the highest score, on a tie the first.
    pub fn most_likely(&self, scores: &[f32]) -> u32 {
        let score = |token: u32| scores.get(token as usize).copied().unwrap_or(f32::MIN);
        let mut tokens = self.languages.iter().map(|&(_, token)| token);
        let first = tokens.next().unwrap_or(self.start);
        tokens.fold(first, |best, token| if score(token) > score(best) { token } else { best })
    }

    /// The code of a language's token.
    pub fn code(&self, language: u32) -> &'static str {
        self.languages.iter().find(|&&(_, token)| token == language).map_or("en", |&(code, _)| code)
    }

    /// The prompt after its first token.
    pub fn rest(&self, language: Option<u32>, task: Task) -> Vec<u32> {
        let task = match task {
            Task::Transcribe => self.transcribe,
            Task::Translate => self.translate,
        };
        match language {
            Some(language) => vec![language, task, self.no_timestamps],
            None => vec![self.no_timestamps],
        }
    }
}
