//! Opens the first usable candidate, or says why each one failed.

use std::fmt;
use std::path::PathBuf;

use crate::{Candidate, Library};

/// A name that was tried, and the reason it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// A path, a bare name, or a folder that does not exist.
    pub name: String,
    /// The loader's reason, or the symbols that were missing.
    pub reason: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The attempts as one line of text.
pub fn listed(attempts: &[Attempt]) -> String {
    attempts.iter().map(Attempt::to_string).collect::<Vec<_>>().join("; ")
}

/// A usable library.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The value that `fill` returned.
    pub table: T,
    /// The file, as resolved by the loader.
    pub file: PathBuf,
    /// The attempts that failed before.
    pub attempts: Vec<Attempt>,
}

/// No candidate is usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Everything that was tried, in order.
    pub attempts: Vec<Attempt>,
    /// The first file that was opened, and the symbols it lacks.
    pub incomplete: Option<(PathBuf, Vec<&'static str>)>,
}

/// Opens the candidates in order until `fill` accepts one. `anchor` is a function that every version of the library
/// has; it is used to ask the loader which file it opened.
///
/// # Errors
/// No candidate can be opened, or `fill` names the symbols that each one lacks.
pub fn load<T>(
    candidates: impl IntoIterator<Item = Candidate>,
    anchor: &str,
    mut fill: impl FnMut(Library) -> Result<T, Vec<&'static str>>,
) -> Result<Loaded<T>, Failed> {
    let (mut attempts, mut incomplete) = (Vec::new(), None);
    for candidate in candidates {
        let Some(library) = candidate.open(&mut attempts) else { continue };
        let file = library.file_of(anchor).unwrap_or_else(|| PathBuf::from(candidate.to_string()));
        match fill(library) {
            Ok(table) => return Ok(Loaded { table, file, attempts }),
            Err(missing) => {
                let reason = format!("lacks {}", missing.join(", "));
                attempts.push(Attempt { name: candidate.to_string(), reason });
                incomplete.get_or_insert((file, missing));
            }
        }
    }
    Err(Failed { attempts, incomplete })
}
