//! Text to token ids and back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::caught::caught;
use crate::files::{self, largest};
use crate::growth::{self, Growth};
use crate::{Config, Error, Result, TokenStream};

pub(crate) const FILE: &str = "tokenizer.json";

/// Base time limit of the tokenizer. A hostile file may contain slow regular expressions.
const SLOWEST: Duration = Duration::from_secs(20);

/// Input bytes that extend the time limit by a second. A normal tokenizer needs a hundredth of that time.
const BYTES_A_SECOND: usize = 64 << 10;

const COPY: &str = "copy the file again from the folder's original model";

/// A model folder's tokenizer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    growth: Growth,
    path: PathBuf,
    #[cfg(feature = "constrained")]
    grammars: crate::constraint::Grammars,
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
        read(path).map(|read| Tokenizer::new(read, path))
    }

    /// Like [`Tokenizer::from_file`], from the file's content; errors name `path`.
    ///
    /// # Errors
    /// When the content is not a tokenizer, or exceeds a limit.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Tokenizer> {
        parse(bytes, path).map(|parsed| Tokenizer::new(parsed, path))
    }

    fn new((inner, growth): (tokenizers::Tokenizer, Growth), path: &Path) -> Tokenizer {
        Tokenizer {
            inner: Arc::new(inner),
            growth,
            path: path.to_path_buf(),
            #[cfg(feature = "constrained")]
            grammars: Default::default(),
        }
    }

    /// What constraints on the tokenizer's texts share.
    #[cfg(feature = "constrained")]
    pub(crate) fn grammars(&self) -> &crate::constraint::Grammars {
        &self.grammars
    }

    /// The token ids of a text, without special tokens added at its ends.
    ///
    /// # Errors
    /// When the tokenizer rejects the text, might expand it too much, or takes too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.growth.check(text.len()).map_err(|problem| limit(&self.path, &problem))?;
        let (inner, text) = (Arc::clone(&self.inner), text.to_owned());
        let encoded = timed(&self.path, text.len(), move || inner.encode_fast(text, false))?;
        Ok(encoded.map_err(|error| self.wrong(&error.to_string()))?.get_ids().to_vec())
    }

    /// The text of token ids, without special tokens.
    ///
    /// # Errors
    /// When the tokenizer rejects them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        // The library assumes that every token has the form that its decoder expects, and panics otherwise.
        match caught(|| self.inner.decode(tokens, true)) {
            Some(decoded) => decoded.map_err(|error| self.wrong(&error.to_string())),
            None => Err(self.wrong(PANICKED)),
        }
    }

    /// Decodes token by token.
    pub fn stream(&self) -> TokenStream {
        TokenStream::new(self.clone())
    }

    /// The id of a token, such as `<|im_end|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn wrong(&self, problem: &str) -> Error {
        Error::Text {
            path: self.path.clone(),
            problem: problem.to_owned(),
            help: "the tokenizer rejected this text".to_owned(),
        }
    }
}

/// Reads a tokenizer's file, and computes how much it can expand a text.
pub(crate) fn read(path: &Path) -> Result<(tokenizers::Tokenizer, Growth)> {
    let help = "the model folder needs a tokenizer.json; if it has only tokenizer.model, export the model again";
    parse(files::read(path, largest::TOKENIZER, help)?, path)
}

fn parse(bytes: Vec<u8>, path: &Path) -> Result<(tokenizers::Tokenizer, Growth)> {
    let wrong = |problem: String| Error::Text {
        path: path.to_path_buf(),
        problem: format!("it is not a tokenizer: {problem}"),
        help: COPY.to_owned(),
    };
    growth::check_words(&bytes).map_err(wrong)?;
    // Files are untrusted: one that the library cannot handle must not crash the process.
    let parsed = timed(path, bytes.len(), move || tokenizers::Tokenizer::from_bytes(&bytes))?;
    let mut tokenizer = parsed.map_err(|error| wrong(error.to_string()))?;
    // Prompts are neither truncated nor padded, whatever the file says. Other libraries do the same.
    tokenizer.with_padding(None);
    if let Err(error) = tokenizer.with_truncation(None) {
        return Err(wrong(error.to_string()));
    }
    let growth = Growth::new(&tokenizer).map_err(|problem| limit(path, &problem))?;
    Ok((tokenizer, growth))
}

pub(crate) fn limit(path: &Path, problem: &str) -> Error {
    Error::Text {
        path: path.to_path_buf(),
        problem: format!("the tokenizer exceeded a limit: {problem}"),
        help: "use the tokenizer of the folder's original model; docs/textgen.md lists the limits".to_owned(),
    }
}

const PANICKED: &str = "the tokenizer's library panicked";

/// Runs work on this many bytes that may hang or panic. A thread cannot be stopped: after the time limit it keeps
/// running, and its result is dropped.
pub(crate) fn timed<T: Send + 'static>(
    path: &Path,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let time = SLOWEST + Duration::from_secs((bytes / BYTES_A_SECOND) as u64);
    let (sender, receiver) = mpsc::channel();
    let failed =
        |problem: &str| Error::Text { path: path.to_path_buf(), problem: problem.to_owned(), help: COPY.to_owned() };
    let thread = std::thread::Builder::new().name("tokenizer".to_owned());
    // The receiver may have given up.
    let thread = thread.spawn(move || drop(sender.send(caught(work))));
    thread.map_err(|error| failed(&format!("could not start a thread for the tokenizer: {error}")))?;
    match receiver.recv_timeout(time) {
        Ok(Some(done)) => Ok(done),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(limit(path, &format!("it took longer than {} seconds", time.as_secs())))
        }
        Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => Err(failed(PANICKED)),
    }
}
