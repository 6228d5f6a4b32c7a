//! Words to token ids and back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Config, Error, Result, TokenStream};

pub(crate) const FILE: &str = "tokenizer.json";

/// A model folder's tokenizer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    path: PathBuf,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn from_folder(config: &Config) -> Result<Tokenizer> {
        Tokenizer::from_file(&config.tokenizer_folder.join(FILE))
    }

    /// Reads a tokenizer's file.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn from_file(path: &Path) -> Result<Tokenizer> {
        Ok(Tokenizer { inner: Arc::new(read(path)?), path: path.to_path_buf() })
    }

    /// The token ids of a text, without any added at its ends.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false).map_err(|error| self.wrong(&error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of token ids, without special tokens.
    ///
    /// # Errors
    /// When the tokenizer refuses them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.inner.decode(tokens, true).map_err(|error| self.wrong(&error))
    }

    /// Decodes token by token.
    pub fn stream(&self) -> TokenStream {
        TokenStream::new(self.clone())
    }

    /// The id of a token, such as `<|im_end|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn wrong(&self, error: &tokenizers::Error) -> Error {
        Error::Text {
            path: self.path.clone(),
            problem: error.to_string(),
            help: "the tokenizer does not take this text".to_owned(),
        }
    }
}

/// Reads a tokenizer's file.
pub(crate) fn read(path: &Path) -> Result<tokenizers::Tokenizer> {
    let bytes = std::fs::read(path).map_err(|source| Error::File {
        path: path.to_path_buf(),
        source,
        help: "the model folder needs a tokenizer.json; older folders have only tokenizer.model: make them again"
            .to_owned(),
    })?;
    // Files come from anywhere: what the library does not take must not end the process.
    let problem = match std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(&bytes)) {
        Ok(Ok(tokenizer)) => return Ok(tokenizer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the tokenizer's library failed on it".to_owned(),
    };
    Err(Error::Text {
        path: path.to_path_buf(),
        problem: format!("it is not a tokenizer: {problem}"),
        help: "copy the file again from the model that the folder was made of".to_owned(),
    })
}
