//! API keys. Only their hashes are kept.

use std::ffi::OsStr;
use std::path::Path;

use crate::Error;
use crate::files::read_text;

/// The environment variable with one or more keys, separated by commas.
const VARIABLE: &str = "AMDGPU_EP_API_KEYS";

/// The fewest characters of a key: shorter ones can be guessed.
const SHORTEST: usize = 16;

const NO_KEY: &str = "there is no key in it";

const HELP: &str = "each line is a name and a hash, as `amdgpu-ep serve --hash-key NAME` prints it";

/// One key.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    hash: blake3::Hash,
}

/// The accepted API keys. None means that everyone may use the server.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Reads the keys of a file, if there is one, and of the environment variable `AMDGPU_EP_API_KEYS`.
    ///
    /// # Errors
    /// When the file cannot be read, a line is wrong, a key is too short, or the file or the variable has no key: a
    /// server with an empty list of keys would let everyone in.
    pub fn read(file: Option<&Path>) -> Result<Keys, Error> {
        let mut keys = Keys::default();
        if let Some(path) = file {
            keys.add_lines(&read_text(path, HELP)?, path)?;
        }
        if let Some(plain) = std::env::var_os(VARIABLE) {
            keys.add_plain(&plain)?;
        }
        Ok(keys)
    }

    fn add_lines(&mut self, text: &str, path: &Path) -> Result<(), Error> {
        let before = self.len();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace).and_then(|(name, hash)| {
                let hash = blake3::Hash::from_hex(hash.trim()).ok()?;
                Some(Key { name: name.to_owned(), hash })
            });
            match parsed {
                Some(key) => self.0.push(key),
                None => {
                    let origin = format!("{}, line {}", path.display(), number + 1);
                    let problem = "expected a name and 64 hexadecimal digits".to_owned();
                    return Err(Error::Setting { origin, problem, help: HELP.to_owned() });
                }
            }
        }
        if self.len() == before {
            let origin = path.display().to_string();
            return Err(Error::Setting { origin, problem: NO_KEY.to_owned(), help: HELP.to_owned() });
        }
        Ok(())
    }

    fn add_plain(&mut self, value: &OsStr) -> Result<(), Error> {
        let wrong = |problem: &str| Error::Setting {
            origin: VARIABLE.to_owned(),
            problem: problem.to_owned(),
            help: "separate keys with commas, or unset the variable".to_owned(),
        };
        let text = value.to_str().ok_or_else(|| wrong("it is not valid UTF-8"))?;
        let before = self.len();
        for (index, key) in text.split(',').map(str::trim).filter(|key| !key.is_empty()).enumerate() {
            let name = format!("environment-{}", index + 1);
            self.0.push(Key { name, hash: hash(key).map_err(|problem| too_weak(VARIABLE, problem))? });
        }
        if self.len() == before { Err(wrong(NO_KEY)) } else { Ok(()) }
    }

    /// Whether no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The name of a client's key. The time depends neither on the key nor on its position.
    pub(crate) fn name_of(&self, key: &str) -> Option<&str> {
        let hash = blake3::hash(key.as_bytes());
        // Hashes are compared in constant time, and every key is compared.
        self.0.iter().fold(None, |found, known| if known.hash == hash { Some(known.name.as_str()) } else { found })
    }
}

fn hash(key: &str) -> Result<blake3::Hash, String> {
    match key.len() {
        SHORTEST.. => Ok(blake3::hash(key.as_bytes())),
        length => Err(format!("a key has {length} characters, but needs at least {SHORTEST}")),
    }
}

fn too_weak(origin: &str, problem: String) -> Error {
    Error::Setting { origin: origin.to_owned(), problem, help: "use long random keys".to_owned() }
}

/// The line of a key file for a key.
///
/// # Errors
/// When the key is too short, or the name has a space.
pub fn hashed_line(name: &str, key: &str) -> Result<String, Error> {
    if name.is_empty() || name.contains(char::is_whitespace) || name.starts_with('#') {
        return Err(too_weak("the key's name", format!("{name:?} is empty, has spaces or begins with #")));
    }
    Ok(format!("{name} {}", hash(key).map_err(|problem| too_weak("the key", problem))?.to_hex()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a-key-of-enough-characters";

    fn from_lines(text: &str) -> Result<Keys, Error> {
        let mut keys = Keys::default();
        keys.add_lines(text, Path::new("keys.txt")).map(|()| keys)
    }

    #[test]
    fn a_hashed_key_is_recognised_by_its_name() {
        let keys = from_lines(&format!("# people\n\n{}\n", hashed_line("ann", KEY).unwrap())).unwrap();
        assert_eq!(keys.name_of(KEY), Some("ann"));
        assert_eq!(keys.name_of("another-key-of-enough-characters"), None);
        assert_eq!(keys.name_of(""), None);
    }

    #[test]
    fn the_file_does_not_hold_the_key() {
        assert!(!hashed_line("ann", KEY).unwrap().contains(KEY));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = from_lines("ann 12\n").unwrap_err().to_string();
        assert!(error.contains("keys.txt, line 1"), "{error}");
    }

    #[test]
    fn short_keys_and_strange_names_are_rejected() {
        assert!(hashed_line("ann", "short").is_err());
        assert!(hashed_line("ann smith", KEY).is_err());
        assert!(Keys::default().add_plain("short".as_ref()).is_err());
    }

    #[test]
    fn a_source_without_keys_does_not_open_the_server() {
        for text in ["", "\n", "# nobody\n\n"] {
            let error = from_lines(text).unwrap_err().to_string();
            assert!(error.contains("keys.txt: there is no key in it"), "{error}");
        }
        for text in ["", ",", " , ,"] {
            let error = Keys::default().add_plain(text.as_ref()).unwrap_err().to_string();
            assert!(error.contains("AMDGPU_EP_API_KEYS: there is no key in it"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_text_is_rejected() {
        use std::os::unix::ffi::OsStrExt;

        let value = OsStr::from_bytes(b"a-key-of-enough-characters\xff");
        assert!(Keys::default().add_plain(value).unwrap_err().to_string().contains("UTF-8"));
    }
}
