//! ROCm's libraries: their files and versions, and whether they come from the same installation.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dylib::rocm::{HIP, HIPBLASLT, HIPDNN, HIPRTC, LIBRARIES, MIGRAPHX};
use dylib::{SearchContext, Tree};
use serde::{Deserialize, Serialize};

use super::drivers::{Attempt, Driver};
use super::hipdnn::Hipdnn;
use super::{Asker, Question};

/// A library.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Library {
    /// The name.
    pub name: String,
    /// The file that sessions on AMD GPUs use.
    pub path: Option<String>,
    /// The version in the file's name, after following links.
    pub version: Option<String>,
    /// The release of ROCm that the file was installed with.
    pub release: Option<String>,
    /// Whether it comes from a different installation than the HIP runtime.
    pub is_foreign: bool,
    /// Failed attempts, unless another section lists them.
    pub attempts: Vec<Attempt>,
    /// Why it could not be examined.
    pub error: Option<String>,
}

/// The findings of a child process about one library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RocmProbe {
    path: Option<String>,
    attempts: Vec<Attempt>,
}

/// Takes the findings about the drivers and hipDNN, and searches for MIGraphX in a child process.
pub fn collect(asker: &Asker, drivers: &[Driver], hipdnn: &[Hipdnn]) -> Vec<Library> {
    let driver = drivers.iter().find(|driver| driver.kind == "amd");
    let of_driver = |role| driver.and_then(|driver| driver.library(role)?.path.clone());
    let of_hipdnn =
        hipdnn.iter().find(|library| library.driver == "amd").and_then(|library| library.found.path.clone());
    let hip = of_driver("runtime");
    let question = Question::Rocm { library: MIGRAPHX.name.to_owned(), hip: hip.as_ref().map(PathBuf::from) };
    let answer = asker.ask::<RocmProbe>(&question);
    let migraphx = answer.value.unwrap_or_default();
    let found = [
        (HIP.name, hip.clone(), Vec::new(), None),
        (HIPRTC.name, of_driver("rtc"), Vec::new(), None),
        (HIPBLASLT.name, of_driver("blaslt"), Vec::new(), None),
        (HIPDNN.name, of_hipdnn, Vec::new(), None),
        (MIGRAPHX.name, migraphx.path, migraphx.attempts, answer.detail),
    ];
    let tree = hip.as_ref().and_then(|hip| Tree::of_hip(&real(hip)));
    let described = found.map(|(name, path, attempts, error)| {
        let file = path.as_deref().map(Path::new);
        let is_foreign = file.zip(tree.as_ref()).is_some_and(|(file, tree)| !tree.holds(file));
        let (version, release) = (file.and_then(dylib::file_version), file.and_then(dylib::release));
        Library { name: name.to_owned(), path, version, release, is_foreign, attempts, error }
    });
    described.into()
}

fn real(file: &str) -> PathBuf {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.into())
}

/// Opens one library in this process, as the plugin would; `hip` is the HIP runtime in use.
///
/// # Errors
/// When ROCm has no such library.
pub fn probe(name: &str, hip: Option<&Path>) -> Result<RocmProbe> {
    let library = LIBRARIES.into_iter().find(|library| library.name == name);
    let library = library.with_context(|| format!("ROCm has no library called {name:?}"))?;
    let has_anchor = |opened: dylib::Library| opened.has(library.anchor).then_some(()).ok_or(vec![library.anchor]);
    let candidates = SearchContext::of_process().candidates(library, hip);
    let (path, attempts) = match dylib::load(candidates, library.anchor, has_anchor) {
        Ok(found) => (Some(found.file.display().to_string()), found.attempts),
        Err(failed) => (None, failed.attempts),
    };
    let attempt = |attempt: dylib::Attempt| Attempt { name: attempt.name, reason: attempt.reason };
    Ok(RocmProbe { path, attempts: attempts.into_iter().map(attempt).collect() })
}

#[cfg(test)]
pub(in crate::doctor) mod tests {
    use super::*;

    /// A runtime, and a MIGraphX from another installation.
    pub fn rocm() -> Vec<Library> {
        let hip = Library {
            name: HIP.name.into(),
            path: Some("/opt/rocm/lib/libamdhip64.so.7".into()),
            version: Some("7.2.53211".into()),
            release: Some("7.2.0-43".into()),
            ..Library::default()
        };
        let migraphx = Library {
            name: MIGRAPHX.name.into(),
            path: Some("/usr/lib/libmigraphx_c.so.3".into()),
            is_foreign: true,
            attempts: vec![Attempt { name: "/opt/rocm/lib/libmigraphx_c.so.3".into(), reason: "no such file".into() }],
            ..Library::default()
        };
        vec![hip, Library { name: HIPBLASLT.name.into(), ..Library::default() }, migraphx]
    }

    #[test]
    fn only_libraries_of_rocm_are_opened() {
        assert!(probe("libc", None).unwrap_err().to_string().contains("\"libc\""));
    }
}
