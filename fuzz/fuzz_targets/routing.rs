//! Arbitrary routing tables and queries: parse errors list the problems, and routing returns candidates or an error
//! with help.
#![no_main]

use std::path::Path;

use amdgpu_ep::routing::{Platform, Query, RoutingTable, route};
use arbitrary::Arbitrary;
use hip::DriverKind;
use libfuzzer_sys::fuzz_target;
use options::{Hint, Profile};

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    table: &'i str,
    arch: &'i str,
    model_arch: &'i str,
    model_fw: &'i str,
    profile: u8,
    driver: u8,
    windows: bool,
    library: Option<&'i str>,
}

fuzz_target!(|input: Input<'_>| {
    let table = match RoutingTable::parse(input.table, Path::new("/tables")) {
        Ok(table) => table,
        Err(error) => {
            assert!(!error.problems.is_empty() && error.to_string().contains("\n  help: "));
            RoutingTable::default()
        }
    };
    let (model_arch, model_fw) = (Hint::new(input.model_arch), Hint::new(input.model_fw));
    let query = Query {
        arch: input.arch,
        driver: DriverKind::ALL[usize::from(input.driver) % DriverKind::ALL.len()],
        platform: if input.windows { Platform::Windows } else { Platform::Linux },
        model_arch: model_arch.as_ref(),
        model_fw: model_fw.as_ref(),
        profile: Profile::ALL[usize::from(input.profile) % Profile::ALL.len()],
        backend_library: input.library.map(Path::new),
        overrides: &table,
        ruled_out: &[],
    };
    match route(&query) {
        Ok(candidates) => assert!(if query.is_explicit() { candidates.len() == 1 } else { !candidates.is_empty() }),
        Err(refusal) => assert!(query.is_explicit() && refusal.to_string().contains("\n  help: ")),
    }
});
