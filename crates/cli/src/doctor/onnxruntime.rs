//! The ONNX Runtime libraries that programs on this machine would load, and their API versions.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ort_client::{LoadError, MAX_API_VERSION, MIN_API_VERSION, NegotiationError};
use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::{Asker, Question};
use crate::child::{self, Answer, Outcome};

/// The libraries found, and where they were searched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Search {
    /// Places where no library was found, with the reason.
    pub places: Vec<SearchedPlace>,
    /// Every library, each file once.
    pub libraries: Vec<Library>,
}

/// A place where a library may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchedPlace {
    /// A description of the place.
    pub place: String,
    /// What was there, or why it could not be searched.
    pub result: String,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Library {
    /// The place where it was found, as in [`SearchedPlace`].
    pub place: String,
    /// The file.
    pub path: String,
    /// The version, such as `1.31.1`.
    pub version: Option<String>,
    /// The API version that the plugin uses with it, if it can be used.
    pub api_version: Option<u32>,
    /// Whether the plugin can be used with it.
    pub support: Support,
    /// Why it cannot.
    pub reason: Option<String>,
}

/// Whether the plugin can be used with a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Support {
    /// Yes.
    Supported,
    /// Yes, with the newest API version that this build knows.
    Newer,
    /// No: too old.
    TooOld,
    /// No: it does not open, crashes, or is not ONNX Runtime.
    Broken,
}

/// What a child reports about a library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryProbe {
    file: Option<String>,
    version: Option<String>,
    api_version: Option<u32>,
    too_old: bool,
    error: Option<String>,
}

/// Examines a library in this process.
pub fn probe(name: &OsStr) -> LibraryProbe {
    let said = LibraryProbe { file: None, version: None, api_version: None, too_old: false, error: None };
    match ort_client::Library::open(name) {
        Err(LoadError::NotOnnxRuntime) => {
            let error = "it opens, but has no OrtGetApiBase: this is not ONNX Runtime".to_owned();
            LibraryProbe { error: Some(error), ..said }
        }
        Err(error) => LibraryProbe { error: Some(error.to_string()), ..said },
        Ok(found) => LibraryProbe {
            file: found.file().map(|file| file.display().to_string()),
            version: Some(found.version().to_owned()).filter(|version| !version.is_empty()),
            too_old: matches!(found.api_version(), Err(NegotiationError::TooOld(_))),
            error: found.api_version().err().map(NegotiationError::to_string),
            api_version: found.api_version().ok(),
        },
    }
}

/// A candidate library: a file, or a name that only the loader can resolve.
struct Candidate {
    place: String,
    name: OsString,
    is_name: bool,
}

const LOADER_NAMES: &[&str] =
    if cfg!(windows) { &["onnxruntime.dll"] } else { &["libonnxruntime.so", "libonnxruntime.so.1"] };

/// Searches every place, and examines each library in a child process.
pub fn collect(asker: &Asker, environment: &Environment) -> Search {
    let mut search = Search::default();
    let mut candidates = Vec::new();
    match environment.path("ORT_DYLIB_PATH") {
        Some(file) => {
            candidates.push(Candidate { place: "ORT_DYLIB_PATH".to_owned(), name: file.into(), is_name: false })
        }
        None => search.note("ORT_DYLIB_PATH", "not set"),
    }
    for folder in asker.own_folders() {
        search.folder(&mut candidates, format!("beside {}", asker_name(asker)), &folder);
    }
    for package in python_packages(asker.timeout, environment, &mut search) {
        search.package(&mut candidates, &package);
    }
    for name in LOADER_NAMES {
        candidates.push(Candidate { place: "the system's loader".to_owned(), name: name.into(), is_name: true });
    }
    search.ask(asker, candidates);
    search
}

fn asker_name(asker: &Asker) -> String {
    asker.executable.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl Search {
    /// The first library that the plugin can be used with.
    pub fn usable(&self) -> Option<&Library> {
        let is_usable = |library: &&Library| matches!(library.support, Support::Supported | Support::Newer);
        self.libraries.iter().find(is_usable)
    }

    /// Every place and library, with its problem.
    pub fn attempts(&self) -> Vec<String> {
        let places = self.places.iter().map(|place| format!("{}: {}", place.place, place.result));
        let libraries = self.libraries.iter().map(|library| {
            let version = library.version.as_deref().unwrap_or("no version");
            format!("{}: {version}, {}", library.path, library.reason.as_deref().unwrap_or("too old"))
        });
        places.chain(libraries).collect()
    }

    fn note(&mut self, place: impl Into<String>, result: impl Into<String>) {
        self.places.push(SearchedPlace { place: place.into(), result: result.into() });
    }

    fn folder(&mut self, candidates: &mut Vec<Candidate>, place: String, folder: &Path) -> bool {
        let files = libraries_in(folder);
        if files.is_empty() {
            self.note(place, format!("none in {}", folder.display()));
            return false;
        }
        candidates.extend(files.into_iter().map(|file| Candidate {
            place: place.clone(),
            name: file.into(),
            is_name: false,
        }));
        true
    }

    /// A Python package: its library, or the version that it states if it has none.
    fn package(&mut self, candidates: &mut Vec<Candidate>, package: &Package) {
        if self.folder(candidates, package.place.clone(), &package.folder.join("capi")) {
            return;
        }
        let initial = fs::read_to_string(package.folder.join("__init__.py")).unwrap_or_default();
        let Some(version) = stated_version(&initial) else { return };
        let too_old = minor_version(&version).is_some_and(|minor| minor < MIN_API_VERSION);
        self.libraries.push(Library {
            place: package.place.clone(),
            path: package.folder.display().to_string(),
            reason: Some("the package does not contain the library".to_owned()),
            version: Some(version),
            api_version: None,
            support: if too_old { Support::TooOld } else { Support::Broken },
        });
    }

    fn ask(&mut self, asker: &Asker, mut candidates: Vec<Candidate>) {
        let mut asked = BTreeSet::new();
        candidates.retain(|candidate| candidate.is_name || asked.insert(real_path(Path::new(&candidate.name))));
        let answers: Vec<Answer<LibraryProbe>> = thread::scope(|scope| {
            let ask = |candidate: &Candidate| asker.ask(&Question::Onnxruntime { name: candidate.name.clone() });
            let threads: Vec<_> = candidates.iter().map(|candidate| scope.spawn(move || ask(candidate))).collect();
            let failed = || Answer {
                outcome: Outcome::Failed,
                detail: Some("the thread that opens it panicked".to_owned()),
                value: None,
            };
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).collect()
        });
        for (candidate, answer) in candidates.into_iter().zip(answers) {
            if candidate.is_name {
                let file = answer.value.as_ref().and_then(|said| said.file.as_ref());
                match (file, &answer.value) {
                    (Some(file), _) if !asked.insert(real_path(Path::new(file))) => continue,
                    (None, Some(said)) if said.version.is_none() => {
                        let reason = said.error.clone().unwrap_or_default();
                        self.note(candidate.place, format!("{}: {reason}", candidate.name.display()));
                        continue;
                    }
                    _ => {}
                }
            }
            self.libraries.push(judge(candidate, answer));
        }
    }
}

fn judge(candidate: Candidate, answer: Answer<LibraryProbe>) -> Library {
    let mut library = Library {
        place: candidate.place,
        path: candidate.name.to_string_lossy().into_owned(),
        version: None,
        api_version: None,
        support: Support::Broken,
        reason: answer.detail,
    };
    if answer.outcome == Outcome::TimedOut || answer.outcome == Outcome::Crashed {
        library.reason = library.reason.map(|how| format!("opening it failed: {how}"));
    }
    let Some(said) = answer.value else { return library };
    library.path = said.file.unwrap_or(library.path);
    library.reason = said.error.or(library.reason);
    library.support = match (said.api_version, said.version.as_deref().and_then(minor_version)) {
        (Some(_), Some(minor)) if minor > MAX_API_VERSION => Support::Newer,
        (Some(_), _) => Support::Supported,
        (None, _) if said.too_old => Support::TooOld,
        (None, _) => Support::Broken,
    };
    library.version = said.version;
    library.api_version = said.api_version;
    library
}

fn real_path(path: &Path) -> PathBuf {
    dunce::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The files in a folder with ONNX Runtime's name.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let is_library = |name: &str| match name.strip_prefix("libonnxruntime.so") {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => cfg!(windows) && name.eq_ignore_ascii_case("onnxruntime.dll"),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.file_name().is_some_and(|name| is_library(&name.to_string_lossy()))).collect();
    files.sort();
    files
}

/// An installed `onnxruntime` package.
struct Package {
    place: String,
    folder: PathBuf,
}

/// Finds the package without importing it, and not in the current folder, which may be a download or a checkout of its
/// sources. Python runs isolated (`-I`), because otherwise modules that this script imports would come from there too.
/// The script restores what `-I` also leaves out: folders that the user configured, and packages that the user
/// installed.
const FIND_PACKAGE: &str = "\
import os, site, sys, importlib.util
configured = os.environ.get('PYTHONPATH', '').split(os.pathsep)
if sys.prefix == sys.base_prefix and not os.environ.get('PYTHONNOUSERSITE'):
    sys.path.insert(0, site.getusersitepackages())
sys.path[:0] = [folder for folder in configured if os.path.isabs(folder)]
found = importlib.util.find_spec('onnxruntime')
folders = list(found.submodule_search_locations or []) if found else []
print('\\n'.join(['folder:' + folder for folder in folders] + ['done']))
";

fn python_packages(timeout: Duration, environment: &Environment, search: &mut Search) -> Vec<Package> {
    let mut packages = Vec::new();
    let pythons: &[&str] = if cfg!(windows) { &["python", "py"] } else { &["python3", "python"] };
    // The first one that exists: the second name is usually the same interpreter.
    for python in pythons {
        let place = format!("{python} on PATH");
        let Some(path) = environment.program(python) else {
            search.note(place, "not found");
            continue;
        };
        match child::capture(Command::new(path).args(["-I", "-c", FIND_PACKAGE]), timeout) {
            Ok(captured) => {
                let folders: Vec<&str> =
                    captured.stdout.lines().filter_map(|line| line.strip_prefix("folder:")).collect();
                if folders.is_empty() {
                    let answered = captured.stdout.lines().any(|line| line == "done");
                    search.note(&place, if answered { "has no onnxruntime" } else { "did not answer" });
                }
                packages
                    .extend(folders.into_iter().map(|folder| Package { place: place.clone(), folder: folder.into() }));
                break;
            }
            Err(error) => search.note(place, format!("could not be started: {error}")),
        }
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        match environment.path(variable).filter(|prefix| prefix.is_absolute()) {
            None => search.note(variable, "not set"),
            Some(prefix) => {
                let found: Vec<_> = site_packages(&prefix).into_iter().filter(|folder| folder.is_dir()).collect();
                if found.is_empty() {
                    search.note(variable, format!("no onnxruntime below {}", prefix.display()));
                }
                packages.extend(found.into_iter().map(|folder| Package { place: variable.to_owned(), folder }));
            }
        }
    }
    let mut seen = BTreeSet::new();
    packages.retain(|package| seen.insert(real_path(&package.folder)));
    packages
}

/// Possible folders of the package below `prefix`, for any Python version.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec![prefix.join("Lib/site-packages/onnxruntime")];
    }
    let entries = fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_python = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let mut folders: Vec<PathBuf> =
        entries.filter(is_python).map(|python| python.join("site-packages/onnxruntime")).collect();
    folders.sort();
    folders
}

/// The version in `__version__ = "1.17.0"`.
fn stated_version(python: &str) -> Option<String> {
    python.lines().find_map(|line| {
        let value = line.trim().strip_prefix("__version__")?.trim_start().strip_prefix('=')?.trim();
        let version = value.trim_matches(|c| c == '"' || c == '\'');
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    })
}

/// The API version of a release: 31 for `1.31.1`.
fn minor_version(version: &str) -> Option<u32> {
    let (major, rest) = version.trim().split_once('.')?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    match major.parse::<u32>().ok()? {
        0 => Some(0),
        1 => digits.parse().ok(),
        _ => Some(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(outcome: Outcome, value: Option<LibraryProbe>) -> Library {
        let candidate = Candidate { place: "here".into(), name: "/x/libonnxruntime.so".into(), is_name: false };
        let detail = (outcome != Outcome::Answered).then(|| "ended by SIGABRT (signal 6)".to_owned());
        judge(candidate, Answer { outcome, detail, value })
    }

    fn said(version: &str, api_version: Option<u32>) -> Option<LibraryProbe> {
        let too_old = api_version.is_none();
        let error = too_old.then(|| "too old".to_owned());
        Some(LibraryProbe {
            file: Some("/x/real.so".into()),
            version: Some(version.into()),
            api_version,
            too_old,
            error,
        })
    }

    #[test]
    fn support_follows_the_version() {
        for (version, api_version, want) in [
            ("1.24.4", Some(24), Support::Supported),
            ("1.31.1", Some(31), Support::Supported),
            ("1.32.0", Some(31), Support::Newer),
            ("2.0.0", Some(31), Support::Newer),
            ("1.23.2", None, Support::TooOld),
        ] {
            let library = judged(Outcome::Answered, said(version, api_version));
            assert_eq!((library.support, library.api_version), (want, api_version), "{version}");
            assert_eq!(library.path, "/x/real.so");
            assert_eq!(library.reason.is_some(), api_version.is_none());
        }
    }

    #[test]
    fn crash_is_a_broken_library() {
        let library = judged(Outcome::Crashed, None);
        assert_eq!((library.support, library.path.as_str()), (Support::Broken, "/x/libonnxruntime.so"));
        assert_eq!(library.reason.unwrap(), "opening it failed: ended by SIGABRT (signal 6)");
    }

    #[test]
    fn only_the_main_library_is_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "libonnxruntime.so",
            "libonnxruntime.so.1.31.1",
            "libonnxruntime_providers_shared.so",
            "libonnxruntime-genai.so",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            libraries_in(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["libonnxruntime.so", "libonnxruntime.so.1.31.1"]);
        assert!(libraries_in(&folder.path().join("missing")).is_empty());
    }

    #[test]
    fn package_without_a_library_gives_its_stated_version() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("__init__.py"), "import x\n__version__ = \"1.17.0\"\n").unwrap();
        let mut search = Search::default();
        search.package(&mut Vec::new(), &Package { place: "python3 on PATH".into(), folder: folder.path().into() });
        assert_eq!(search.libraries[0].version.as_deref(), Some("1.17.0"));
        assert_eq!(search.libraries[0].support, Support::TooOld);
    }

    #[cfg(unix)]
    #[test]
    fn environment_of_any_python_version_is_searched() {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir_all(prefix.path().join("lib/python3.12")).unwrap();
        fs::create_dir_all(prefix.path().join("lib/pkgconfig")).unwrap();
        assert_eq!(site_packages(prefix.path()), [prefix.path().join("lib/python3.12/site-packages/onnxruntime")]);
    }

    #[test]
    fn minor_version_reads_releases() {
        for (text, want) in [
            ("1.31.1", Some(31)),
            ("1.30.0-dev", Some(30)),
            ("1.27rc1", Some(27)),
            ("0.5.0", Some(0)),
            ("x", None),
            ("1.x", None),
        ] {
            assert_eq!(minor_version(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_handled(text in ".*") {
            minor_version(&text);
            stated_version(&text);
        }
    }
}
