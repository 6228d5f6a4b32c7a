//! Routing for a session in this process: adds the inputs of [`routing`](crate::routing) that come from files and the
//! environment.
//!
//! | environment | meaning |
//! |---|---|
//! | `AMDGPU_EP_FORCE_ARCH` | the architecture to route by, instead of the device's own |
//! | `ORT_AMDGPU_TRACE_ROUTING` | on: logs one line per session with the routing inputs and the result |
#![forbid(unsafe_code)]

use std::path::Path;
use std::{env, fs};

use hip::DriverKind;
use options::{Hint, Options};
use ort_ep::{Error, Result};

use crate::routing::{Candidate, Platform, Query, Refusal, RoutingTable, RuledOut, route};
use crate::variables::is_switched_on;

/// The environment variable that overrides the architecture to route by.
pub const FORCE_ARCH_VARIABLE: &str = "AMDGPU_EP_FORCE_ARCH";

/// The environment variable that enables a log line per session.
pub const TRACE_VARIABLE: &str = "ORT_AMDGPU_TRACE_ROUTING";

/// The backends that a session may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRoute {
    /// The backends to try, best first; never empty.
    pub candidates: Vec<Candidate>,
    /// True if the user named the backend: then only that backend is tried.
    pub is_explicit: bool,
}

/// Finds the backends to try for a session with these options, on a device with this architecture and driver.
///
/// # Errors
/// The routing table cannot be read, or there is no backend to try.
pub fn session_route(
    options: &Options,
    arch: &str,
    driver: DriverKind,
    ruled_out: &[RuledOut],
) -> Result<SessionRoute> {
    let overrides = match &options.routing_table {
        Some(file) => read_table(file).map_err(Error::invalid_argument)?,
        None => RoutingTable::default(),
    };
    let forced = forced_arch();
    let query = Query {
        arch: forced.as_deref().unwrap_or(arch),
        driver,
        platform: Platform::HERE,
        model_arch: options.model_arch.as_ref(),
        model_fw: options.model_fw.as_ref(),
        profile: options.profile,
        backend_library: options.backend_library.as_deref(),
        overrides: &overrides,
        ruled_out,
    };
    let candidates = route(&query);
    if is_switched_on(TRACE_VARIABLE) {
        // Logged as a warning, because sessions show warnings by default.
        tracing::warn!(target: "amdgpu_ep::load", "{}", trace_line(&query, &candidates));
    }
    let candidates = candidates.map_err(refused)?;
    Ok(SessionRoute { candidates, is_explicit: query.is_explicit() })
}

/// The architecture override from the environment.
pub fn forced_arch() -> Option<String> {
    let text = env::var(FORCE_ARCH_VARIABLE).ok()?;
    let arch = text.trim().to_ascii_lowercase();
    (!arch.is_empty()).then_some(arch)
}

/// Reads a routing table from a file.
///
/// # Errors
/// The file cannot be read or has invalid lines; the message names the file and the lines.
pub fn read_table(file: &Path) -> Result<RoutingTable, String> {
    let shown = file.display();
    let text =
        fs::read_to_string(file).map_err(|error| format!("the routing table {shown} cannot be read: {error}"))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    RoutingTable::parse(&text, folder).map_err(|error| format!("the routing table {shown} has errors:\n{error}"))
}

/// The routing inputs and the result, on one line.
fn trace_line(query: &Query<'_>, found: &Result<Vec<Candidate>, Refusal>) -> String {
    let hint = |hint: Option<&Hint>| hint.map_or("-", Hint::as_str).to_owned();
    let result = match found {
        Ok(candidates) => {
            let shown = candidates.iter().map(|Candidate { backend, reason }| format!("{backend} ({reason})"));
            shown.collect::<Vec<_>>().join(", ")
        }
        Err(refusal) => refusal.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    let (arch, driver, profile) = (query.arch, query.driver, query.profile);
    let (model_arch, model_fw) = (hint(query.model_arch), hint(query.model_fw));
    format!(
        "[amdgpu-routing] arch={arch} driver={driver} model_arch={model_arch} model_fw={model_fw} profile={profile} -> {result}"
    )
}

fn refused(refusal: Refusal) -> Error {
    let text = refusal.to_string();
    match refusal {
        Refusal::Contradiction { .. } => Error::invalid_argument(text),
        Refusal::WindowsOnly { .. } => Error::not_implemented(text),
        // A library or device that the session needs is missing.
        Refusal::Unusable(_) | Refusal::NoneLeft(_) => Error::ep_fail(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use options::{Origin, Profile};

    use crate::routing::BackendName;

    fn options(entries: &[(&str, &str)]) -> Options {
        let keys: Vec<_> = entries.iter().map(|(name, text)| (format!("ep.amdgpu.{name}"), *text)).collect();
        Options::parse("x", Origin::Trusted, keys.iter().map(|(key, text)| (key.as_str(), *text))).unwrap().0
    }

    fn table(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my rows.txt");
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap().to_owned();
        (folder, file)
    }

    #[test]
    fn the_table_file_is_read_and_its_relative_paths_start_beside_it() {
        let (folder, file) = table("gfx11 * ./libother.so\n");
        let found = session_route(&options(&[("routing_table", &file)]), "gfx1100", DriverKind::Amd, &[]).unwrap();
        let want = BackendName::Library(folder.path().join("./libother.so"));
        assert_eq!((&found.candidates[0].backend, found.is_explicit), (&want, false));
    }

    #[test]
    fn a_bad_table_is_an_argument_error_that_names_file_and_line() {
        let (_folder, file) = table("# rows\ngfx11 hip\n");
        let asked = |file: &str| session_route(&options(&[("routing_table", file)]), "", DriverKind::Amd, &[]);
        let error = asked(&file).unwrap_err();
        assert_eq!(error.code(), ort_ep::ErrorCode::InvalidArgument);
        assert!(
            error.message().contains(&file) && error.message().contains("\nline 2: expected 3 columns, found 2"),
            "{error}"
        );
        let error = asked("/no/such/table").unwrap_err();
        assert!(error.message().starts_with("the routing table /no/such/table cannot be read: "), "{error}");
    }

    #[test]
    fn refusals_keep_their_kind() {
        let code = |entries: &[(&str, &str)]| {
            session_route(&options(entries), "gfx1100", DriverKind::Amd, &[]).unwrap_err().code()
        };
        let both = [("profile", "hip"), ("backend_library", "/x.so")];
        assert_eq!(code(&both), ort_ep::ErrorCode::InvalidArgument);
        if Platform::HERE == Platform::Linux {
            assert_eq!(code(&[("profile", "dml")]), ort_ep::ErrorCode::NotImplemented);
        }
    }

    #[test]
    fn the_trace_is_one_line_with_all_inputs() {
        let llama = Hint::new("Llama");
        let query = Query {
            arch: "gfx1151",
            driver: DriverKind::Amd,
            platform: Platform::Linux,
            model_arch: llama.as_ref(),
            model_fw: None,
            profile: Profile::Auto,
            backend_library: None,
            overrides: &RoutingTable::default(),
            ruled_out: &[],
        };
        assert_eq!(
            trace_line(&query, &route(&query)),
            "[amdgpu-routing] arch=gfx1151 driver=amd model_arch=llama model_fw=- profile=auto -> \
             hip (a language model), migraphx (if hip cannot run it)"
        );
        let query = Query { profile: Profile::Directx, ..query };
        let line = trace_line(&query, &route(&query));
        assert!(
            line.ends_with("-> profile directx runs on the directx backend, which exists on Windows only"),
            "{line}"
        );
    }
}
