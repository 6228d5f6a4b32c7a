//! `amdgpu-ep doctor`: finds out why there is no GPU.
//!
//! Everything is collected into one [`Report`], evaluated by a pure function, and printed as text or JSON. Libraries of
//! others are only opened in child processes, so that one that aborts or hangs becomes a finding.

mod cache;
mod drivers;
mod environment;
mod hipdnn;
mod iree;
mod kernel;
mod onnxruntime;
mod plugin;
pub mod render;
mod rocm;
mod routing;
mod verdict;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::child::{self, Answer};

/// The version of the JSON document. It is increased when a field changes its meaning or disappears, not when one is
/// added.
pub const SCHEMA: u32 = 1;

/// The complete report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of this command.
    pub version: &'static str,
    /// The conclusion.
    pub verdict: verdict::Verdict,
    /// The findings that it is based on.
    #[serde(flatten)]
    pub findings: Findings,
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The amd, nvidia and host drivers.
    pub drivers: Vec<drivers::Driver>,
    /// The environment variables that have an effect.
    pub environment: environment::Settings,
    /// What the Linux kernel reports about AMD GPUs; absent on other systems.
    pub kernel: Option<kernel::Kernel>,
    /// The ONNX Runtime libraries.
    pub onnxruntime: onnxruntime::Search,
    /// The hipDNN libraries.
    pub hipdnn: Vec<hipdnn::Hipdnn>,
    /// ROCm's libraries, as sessions on AMD GPUs would load them.
    pub rocm: Vec<rocm::Library>,
    /// Our own libraries.
    pub plugin: plugin::Plugin,
    /// The backends that a session tries.
    pub routing: routing::Routing,
    /// The cache of compiled kernels.
    pub cache: cache::Cache,
}

/// A question that a child process answers.
#[derive(Clone, Debug, Subcommand)]
pub enum Question {
    /// Load one driver and list its devices
    Driver {
        /// amd, nvidia or host
        kind: String,
    },
    /// Open a library as ONNX Runtime
    Onnxruntime {
        /// A path, or a name for the loader
        name: OsString,
    },
    /// Open a hipDNN library and list its engines
    Hipdnn {
        /// amd, nvidia or host
        driver: String,
        /// AMD's HIP runtime, or a library of ours
        file: Option<PathBuf>,
    },
    /// Open a library of ROCm
    Rocm {
        /// Its name
        library: String,
        /// AMD's HIP runtime
        hip: Option<PathBuf>,
    },
    /// Open the execution provider library
    Plugin {
        /// Its path
        file: PathBuf,
    },
    /// Register a backend by itself
    Backend {
        /// Its path
        file: PathBuf,
        /// The ONNX Runtime to register it with
        onnxruntime: Option<PathBuf>,
    },
}

impl Question {
    fn arguments(&self) -> Vec<OsString> {
        let (name, argument, more) = match self {
            Question::Driver { kind } => ("driver", OsString::from(kind), None),
            Question::Onnxruntime { name } => ("onnxruntime", name.clone(), None),
            Question::Hipdnn { driver, file } => ("hipdnn", OsString::from(driver), file.as_ref()),
            Question::Rocm { library, hip } => ("rocm", OsString::from(library), hip.as_ref()),
            Question::Plugin { file } => ("plugin", file.into(), None),
            Question::Backend { file, onnxruntime } => ("backend", file.into(), onnxruntime.as_ref()),
        };
        // A file may be named `--help`.
        let fixed = ["probe".into(), name.into(), "--".into(), argument];
        fixed.into_iter().chain(more.map(OsString::from)).collect()
    }
}

/// How questions are asked: with this executable, and with a timeout.
#[derive(Clone, Debug)]
struct Asker {
    executable: PathBuf,
    timeout: Duration,
}

impl Asker {
    fn ask<T: DeserializeOwned>(&self, question: &Question) -> Answer<T> {
        let arguments = question.arguments();
        let arguments: Vec<_> = arguments.iter().map(OsString::as_os_str).collect();
        child::ask(&self.executable, &arguments, self.timeout)
    }

    /// The folders for our own files: beside the executable, and the `lib` folder of its prefix.
    fn own_folders(&self) -> Vec<PathBuf> {
        let executable = dunce::canonicalize(&self.executable).unwrap_or_else(|_| self.executable.clone());
        let Some(folder) = executable.parent() else { return Vec::new() };
        let libraries = folder.parent().map(|prefix| prefix.join("lib"));
        [Some(folder.to_owned()), libraries].into_iter().flatten().collect()
    }
}

/// Answers a question in this process. Returns the text for the parent process.
///
/// # Errors
/// When there is no such driver or library.
pub fn answer(question: &Question) -> Result<String> {
    let line = match question {
        Question::Driver { kind } => child::answer_line(&drivers::probe(kind.parse()?)),
        Question::Onnxruntime { name } => child::answer_line(&onnxruntime::probe(name)),
        Question::Hipdnn { driver, file } => child::answer_line(&hipdnn::probe(driver.parse()?, file.as_deref())),
        Question::Rocm { library, hip } => child::answer_line(&rocm::probe(library, hip.as_deref())?),
        Question::Plugin { file } => child::answer_line(&plugin::probe(file)),
        Question::Backend { file, onnxruntime } => {
            child::answer_line(&plugin::probe_backend(file, onnxruntime.as_deref()))
        }
    };
    line.context("the answer could not be written as JSON")
}

/// The timeout for each ONNX Runtime library during a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);

/// The ONNX Runtime library that a command uses.
pub struct Chosen {
    /// The library.
    pub path: PathBuf,
    /// What selected it, unless the user named the library on the command line.
    from: Option<String>,
}

impl Chosen {
    /// Prints which library is used and why, unless the user named it.
    pub fn announce(&self) {
        if let Some(from) = &self.from {
            // If stderr is closed, there is no one to tell.
            let _ = writeln!(io::stderr(), "note: using ONNX Runtime from {} ({from})", self.path.display());
        }
    }
}

/// The ONNX Runtime library to use: `named`, or `ORT_DYLIB_PATH`, or the first usable one that is found. The current
/// folder is never searched.
///
/// # Errors
/// When there is none; the message lists the places that were searched.
pub fn onnxruntime_library(named: Option<&Path>) -> Result<Chosen> {
    if let Some(path) = named {
        return Ok(Chosen { path: path.to_owned(), from: None });
    }
    let environment = environment::Environment::from_process();
    if let Some(path) = environment.path("ORT_DYLIB_PATH") {
        return Ok(Chosen { path, from: Some("ORT_DYLIB_PATH".to_owned()) });
    }
    let executable = std::env::current_exe().context("the path of this executable could not be found")?;
    let search = onnxruntime::collect(&Asker { executable, timeout: SEARCH_TIMEOUT }, &environment);
    let found = search.usable();
    found.map(|library| Chosen { path: PathBuf::from(&library.path), from: Some(library.place.clone()) }).with_context(|| {
        let tried = search.attempts().join("; ");
        format!("no ONNX Runtime of version 1.24 or newer was found (tried {tried})\n  help: pip install -U 'onnxruntime>=1.24', or name {} with --ort", dylib::file_name("onnxruntime"))
    })
}

/// The execution provider library for the other commands, if none is named.
///
/// # Errors
/// When there is none; the message lists the places that were searched.
pub fn plugin_library() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("the path of this executable could not be found")?;
    let asker = Asker { executable, timeout: Duration::ZERO };
    let found = plugin::find(&asker.own_folders(), &environment::Environment::from_process());
    found.path.map(PathBuf::from).with_context(|| {
        let tried = found.looked_for.join(", ");
        format!(
            "the provider's library was not found (tried {tried})\n  help: name {} with --library",
            dylib::file_name("amdgpu-ep")
        )
    })
}

/// Collects everything. Each library has `timeout` to answer.
///
/// # Errors
/// When this executable cannot be found, so that no child process can be started.
pub fn examine(timeout: Duration) -> Result<Report> {
    let executable = std::env::current_exe().context("the path of this executable could not be found")?;
    let asker = Asker { executable, timeout };
    let environment = environment::Environment::from_process();
    if io::stderr().is_terminal() {
        let seconds = timeout.as_secs();
        // A failure to show progress is no reason to stop.
        let _ = writeln!(io::stderr(), "checking drivers and ONNX Runtime libraries, at most {seconds} s each ...");
    }
    let (drivers, onnxruntime) = std::thread::scope(|scope| {
        let drivers = scope.spawn(|| drivers::collect(&asker));
        let onnxruntime = onnxruntime::collect(&asker, &environment);
        (drivers.join(), onnxruntime)
    });
    let drivers = drivers.map_err(|_| anyhow::anyhow!("the thread that queries the drivers panicked"))?;
    let kernel = cfg!(target_os = "linux").then(|| kernel::collect(Path::new("/"), &environment, kernel::open));
    let plugin = plugin::collect(&asker, &environment, onnxruntime.usable().map(|library| library.path.as_str()));
    let settings = environment::Settings::read(&environment);
    let hipdnn = hipdnn::collect(&asker, &drivers, &environment);
    let findings = Findings {
        routing: routing::collect(&asker, &settings, &drivers, &plugin),
        rocm: rocm::collect(&asker, &drivers, &hipdnn),
        hipdnn,
        drivers,
        environment: settings,
        kernel,
        onnxruntime,
        plugin,
        cache: cache::collect(&environment),
    };
    let verdict = verdict::judge(&findings);
    Ok(Report { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), verdict, findings })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const MANUAL: &str = include_str!("../../../../docs/doctor.md");

    fn keys(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    found.insert(key.clone());
                    keys(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn every_field_and_verdict_is_in_the_manual() {
        let mut findings = verdict::tests::healthy();
        let attempt = drivers::Attempt { name: "libamdhip64.so".into(), reason: "not found".into() };
        findings.drivers[0].found.libraries[0].attempts.push(attempt);
        findings.plugin.backends.push(plugin::tests::backend("hip", None));
        findings.routing = routing::tests::routing("gfx1100");
        findings.hipdnn = hipdnn::tests::hipdnn();
        findings.rocm = rocm::tests::rocm();
        findings.onnxruntime.places.push(onnxruntime::SearchedPlace { place: "here".into(), result: "none".into() });
        let verdict = verdict::judge(&findings);
        let report = serde_json::to_value(Report { schema: SCHEMA, version: "0", verdict, findings }).unwrap();
        let mut found = BTreeSet::new();
        keys(&report, &mut found);
        assert!(found.contains("wave_size") && found.contains("backend_folders") && found.contains("reason"));
        let is_missing = |word: &&String| !MANUAL.contains(word.as_str());
        assert_eq!(found.iter().filter(is_missing).collect::<Vec<_>>(), [""; 0]);
        for code in verdict::tests::CODES {
            let word = serde_json::to_value(code).unwrap();
            assert!(MANUAL.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
        }
    }

    #[test]
    fn a_question_survives_a_round_trip_through_its_arguments() {
        #[derive(clap::Parser)]
        struct Probe {
            #[command(subcommand)]
            question: Question,
        }
        for question in [
            Question::Driver { kind: "amd".into() },
            Question::Onnxruntime { name: "--help".into() },
            Question::Hipdnn { driver: "host".into(), file: None },
            Question::Hipdnn { driver: "amd".into(), file: Some("--help".into()) },
            Question::Rocm { library: "MIGraphX".into(), hip: None },
            Question::Rocm { library: "MIGraphX".into(), hip: Some("--help".into()) },
            Question::Plugin { file: "-x".into() },
            Question::Backend { file: "-x".into(), onnxruntime: None },
            Question::Backend { file: "-x".into(), onnxruntime: Some("--y".into()) },
        ] {
            let arguments = question.arguments();
            let back = <Probe as clap::Parser>::try_parse_from(&arguments).map_err(|error| error.to_string()).unwrap();
            assert_eq!(back.question.arguments(), arguments);
        }
    }
}
