//! The selection of backends to build, stage and pack (`--backends`), and the step that tests partial selections.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use anyhow::{Error, Result, bail};

use crate::platform::Platform;
use crate::test::{Context, Outcome};
use crate::{pytest, wheel};

/// The name for the umbrella alone.
const NONE: &str = "none";

/// Every backend by its profile name, and whether it exists on Windows only.
const KNOWN: [(&str, bool); 4] = [("migraphx", false), ("hip", false), ("hipgpu", false), ("directx", true)];

/// The selections that the step stages: all but our own engine, and the umbrella alone.
const PARTS: [(&str, &str); 2] = [("without-hip", "migraphx,hipgpu"), ("umbrella-alone", NONE)];

/// A selection of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backends(BTreeSet<&'static str>);

impl Backends {
    /// All backends of this machine's platform.
    pub fn all() -> Self {
        Self::all_of(Platform::Host)
    }

    /// All backends of a platform.
    pub fn all_of(platform: Platform) -> Self {
        let there = KNOWN.iter().filter(|(_, only_windows)| platform.is_windows() || !only_windows);
        Self(there.map(|&(name, _)| name).collect())
    }

    /// Whether files that belong to `backend` are included; files without a backend always are.
    pub fn include(&self, backend: Option<&str>) -> bool {
        backend.is_none_or(|name| self.0.contains(name))
    }
}

impl fmt::Display for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = KNOWN.iter().map(|&(name, _)| name).filter(|name| self.0.contains(name)).collect();
        f.write_str(if names.is_empty() { NONE.to_owned() } else { names.join(",") }.as_str())
    }
}

impl FromStr for Backends {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self> {
        if list.trim() == NONE {
            return Ok(Self(BTreeSet::new()));
        }
        list.split(',').map(|name| backend(name.trim())).collect::<Result<_>>().map(Self)
    }
}

fn backend(name: &str) -> Result<&'static str> {
    match KNOWN.iter().find(|(known, _)| *known == name) {
        Some((known, true)) if !cfg!(windows) => bail!("the backend {known} exists on Windows only"),
        Some((known, _)) => Ok(known),
        None => {
            let names = || KNOWN.iter().map(|&(name, _)| name);
            let meant = options::nearest(name, names()).first().map(|meant| format!("; did you mean {meant}?"));
            let all = names().collect::<Vec<_>>().join(", ");
            bail!("unknown backend {name:?}: expected {all}, or only {NONE}{}", meant.unwrap_or_default())
        }
    }
}

/// Stages partial selections of the build, runs sessions with each, and packs the smallest one as a wheel.
///
/// # Errors
/// When a test fails.
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let mut notes = Vec::new();
    for (name, list) in PARTS {
        let backends: Backends = list.parse()?;
        let part = context.stage()?.part(&backends, context.workspace.target().join("stage").join(name))?;
        match pytest::backend_choice(context, name, &part)? {
            Outcome::Passed(note) => notes.push(format!("{name}: {note}")),
            skipped => return Ok(skipped),
        }
        if list == NONE {
            wheel::check_part(context, &part)?;
            notes.push("its wheel".into());
        }
    }
    Ok(Outcome::Passed(notes.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_printed_in_the_tables_order() {
        for (list, printed) in [("hip", "hip"), ("hip, migraphx", "migraphx,hip"), ("none", "none")] {
            assert_eq!(list.parse::<Backends>().unwrap().to_string(), printed);
        }
        let all = Backends::all();
        assert_eq!(all.to_string().parse::<Backends>().unwrap(), all);
        assert_eq!(all.include(Some("directx")), cfg!(windows));
        assert_eq!(Backends::all_of(Platform::Windows).to_string(), "migraphx,hip,hipgpu,directx");
        let none: Backends = "none".parse().unwrap();
        assert!(none.include(None) && !none.include(Some("hip")));
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_spelling() {
        for (typo, words) in [
            ("migrafx", "did you mean migraphx?"),
            ("hip,hipgpuu", "unknown backend \"hipgpuu\""),
            ("hip,hipgpuu", "did you mean hipgpu?"),
            ("", "expected migraphx, hip, hipgpu, directx, or only none"),
            ("none,hip", "unknown backend \"none\""),
        ] {
            let message = typo.parse::<Backends>().unwrap_err().to_string();
            assert!(message.contains(words), "{typo}: {message}");
        }
    }

    #[cfg(not(windows))]
    #[test]
    fn a_backend_of_another_platform_is_refused_with_the_reason() {
        let message = "hip,directx".parse::<Backends>().unwrap_err().to_string();
        assert!(message.contains("Windows only"), "{message}");
    }
}
