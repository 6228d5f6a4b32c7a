//! Arbitrary config entries: parsing never panics, accepted options round-trip through their canonical form, errors are
//! not empty.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use options::{OPTIONS, Options, Origin};

/// A key that reaches the parser more often than plain bytes would.
#[derive(Arbitrary, Debug)]
enum Key<'i> {
    Any(&'i str),
    Own { prefix: u8, option: &'i str },
    Known { prefix: u8, option: u8, is_legacy: bool },
}

const PREFIXES: [&str; 6] =
    ["ep.amdgpu.", "ep.amdgpuexecutionprovider.", "ep.fuzzed.", "ep.migraphx.", "ep.hip.", "ep.directml."];

impl Key<'_> {
    fn render(&self) -> String {
        let prefix_of = |prefix: u8| PREFIXES[usize::from(prefix) % PREFIXES.len()];
        match self {
            Self::Any(key) => (*key).to_owned(),
            Self::Own { prefix, option } => format!("{}{option}", prefix_of(*prefix)),
            Self::Known { prefix, option, is_legacy } => {
                let name = OPTIONS[usize::from(*option) % OPTIONS.len()].name;
                format!("{}{}{name}", prefix_of(*prefix), if *is_legacy { "migraphx_" } else { "" })
            }
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    is_trusted: bool,
    registration_name: Option<&'i str>,
    entries: Vec<(Key<'i>, &'i str)>,
}

fn borrowed(entries: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

fuzz_target!(|input: Input<'_>| {
    let name = input.registration_name.unwrap_or("Fuzzed");
    let entries: Vec<_> = input.entries.iter().map(|(key, value)| (key.render(), (*value).to_owned())).collect();
    let origin = if input.is_trusted { Origin::Trusted } else { Origin::Untrusted };
    match Options::parse(name, origin, borrowed(&entries)) {
        Ok((options, warnings)) => {
            assert!(warnings.iter().all(|warning| !warning.to_string().contains('\n')));
            let canonical = options.config_entries();
            let again = Options::parse(name, origin, borrowed(&canonical));
            let withheld = options.withheld.clone();
            assert_eq!(again.map(|(again, _)| Options { withheld, ..again }), Ok(options));
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            // One line each, between the heading and the help: user text cannot break the layout of a log.
            assert_eq!(error.to_string().split('\n').count(), error.problems.len().min(21) + 2);
        }
    }
});
