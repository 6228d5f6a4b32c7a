//! Tokens that a transcript must not contain, as `generation_config.json` lists them: markers of sounds that are not
//! speech, and tokens that must not come first. The model builder does not write this file; copied from the original
//! model into the folder, it has the same effect as in the transformers library.

use std::io::ErrorKind;
use std::sync::Arc;

use serde::Deserialize;

use crate::files::{self, largest};
use crate::sampler::NEVER;
use crate::{Config, Error, Result, TokenFilter};

const FILE: &str = "generation_config.json";

/// The lists of a folder.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Suppressed {
    #[serde(default, deserialize_with = "list")]
    suppress_tokens: Arc<[u32]>,
    #[serde(default, deserialize_with = "list")]
    begin_suppress_tokens: Arc<[u32]>,
}

/// A list of tokens; `null` is an empty one. Some files have -1, which is not a token, in it.
fn list<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Arc<[u32]>, D::Error> {
    let ids = Option::<Vec<i64>>::deserialize(source)?.unwrap_or_default();
    Ok(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}

impl Suppressed {
    /// Reads the lists. A folder without the file has empty ones.
    pub fn from_folder(config: &Config) -> Result<Suppressed> {
        let path = config.folder.join(FILE);
        let text = match files::read_text(&path, largest::CONFIG, "make the file readable, or remove it") {
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(Suppressed::default()),
            text => text?,
        };
        serde_json::from_str(&text).map_err(|error| Error::Text {
            path,
            problem: error.to_string(),
            help: "copy the file again from the folder's original model, or remove it".to_owned(),
        })
    }

    /// A filter for one transcript.
    pub fn filter(&self) -> SuppressFilter {
        SuppressFilter { suppressed: self.clone(), is_first: true }
    }
}

/// Excludes the tokens of the lists.
#[derive(Debug)]
pub(super) struct SuppressFilter {
    suppressed: Suppressed,
    is_first: bool,
}

impl TokenFilter for SuppressFilter {
    fn filter(&mut self, scores: &mut [f32]) -> Result<()> {
        let Suppressed { suppress_tokens, begin_suppress_tokens } = &self.suppressed;
        let first = begin_suppress_tokens.iter().filter(|_| self.is_first);
        for &token in suppress_tokens.iter().chain(first) {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = NEVER;
            }
        }
        Ok(())
    }

    fn accept(&mut self, _: u32) -> Result<()> {
        self.is_first = false;
        Ok(())
    }
}
