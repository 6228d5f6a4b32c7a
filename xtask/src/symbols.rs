//! Checks what a staged library exports and needs. A plugin linked against a GPU runtime would not load on other
//! machines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionHeader, Sym};
use object::{Endianness, StringTable};

use crate::output;
use crate::stage::Stage;

/// Libraries every glibc machine has.
const SYSTEM_LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"];

/// Symbol prefixes of the libraries that we load only at run time.
const RUN_TIME_PREFIXES: [&str; 6] = ["hip", "cu", "Ort", "nvrtc", "hsa", "roc"];

const PLUGIN_EXPORTS: [&str; 2] = ["CreateEpFactories", "ReleaseEpFactory"];

/// The umbrella's exports: the third marks session options as trusted, and the fourth returns a session's backend.
const UMBRELLA_EXPORTS: [&str; 4] =
    ["CreateEpFactories", "ReleaseEpFactory", "amdgpu_ep_trust_options", "amdgpu_ep_last_backend"];

/// The declarations of hipDNN's entry points, one per line: `method = symbol(arguments) -> result;`.
const HIPDNN_ENTRY_POINTS: &str = include_str!("../../crates/hipdnn/src/sys/entry_points.rs");

/// The functions that a library with hipDNN's interface must export.
pub fn hipdnn_exports() -> Vec<&'static str> {
    let symbol = |line: &'static str| line.split_once(" = ")?.1.split_once('(').map(|(symbol, _)| symbol);
    HIPDNN_ENTRY_POINTS.lines().filter_map(symbol).filter(|symbol| symbol.starts_with("hipdnn")).collect()
}

/// The dynamic interface of one library or program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub exports: BTreeSet<String>,
    pub undefined: BTreeSet<String>,
    pub needed: BTreeSet<String>,
    /// The newest glibc version that a symbol needs, as major and minor number.
    pub glibc: Option<(u32, u32)>,
}

/// Checks every staged library.
///
/// # Errors
/// Lists every unexpected export, undefined symbol and needed library.
pub fn run(stage: &Stage) -> Result<()> {
    let mut faults = Vec::new();
    let hipdnn = hipdnn_exports();
    for path in stage.libraries() {
        let interface = read(&path)?;
        let file = file_name(&path);
        let exports = if path == stage.umbrella() {
            Some(&UMBRELLA_EXPORTS[..])
        } else if stage.plugins().contains(&path) {
            Some(&PLUGIN_EXPORTS[..])
        } else {
            stage.hipdnn_libraries().contains(&path).then_some(&hipdnn[..])
        };
        faults.extend(interface.faults(exports).into_iter().map(|fault| format!("{file}: {fault}")));
        output::say(format_args!("{file}: {} exports, needs {}", interface.exports.len(), listed(&interface.needed)));
    }
    if !faults.is_empty() {
        bail!("a library has unexpected exports or dependencies\n  {}", faults.join("\n  "));
    }
    Ok(())
}

/// Reads the interface of a file.
///
/// # Errors
/// When the file cannot be read, or is not a 64-bit ELF file.
pub fn read(path: &Path) -> Result<Interface> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    interface(&bytes).with_context(|| format!("cannot parse {}", path.display()))
}

impl Interface {
    fn faults(&self, exports: Option<&[&str]>) -> Vec<String> {
        let mut faults = Vec::new();
        let run_time = |symbol: &&String| RUN_TIME_PREFIXES.iter().any(|prefix| symbol.starts_with(prefix));
        faults.extend(self.undefined.iter().filter(run_time).map(|symbol| format!("{symbol} is undefined")));
        let foreign = self.needed.iter().filter(|library| !SYSTEM_LIBRARIES.contains(&library.as_str()));
        faults.extend(foreign.map(|library| format!("{library} is an unexpected dependency")));
        if let Some(wanted) = exports {
            let wanted: BTreeSet<String> = wanted.iter().map(|&symbol| symbol.to_owned()).collect();
            faults.extend(self.exports.difference(&wanted).map(|symbol| format!("{symbol} is exported")));
            faults.extend(wanted.difference(&self.exports).map(|symbol| format!("{symbol} is not exported")));
        }
        faults
    }
}

fn interface(bytes: &[u8]) -> Result<Interface> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let mut interface = Interface::default();
    let symbols = sections.symbols(endian, bytes, object::elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned();
        if name.is_empty() {
            continue;
        }
        let list = if symbol.is_undefined(endian) { &mut interface.undefined } else { &mut interface.exports };
        list.insert(name);
    }
    for section in sections.iter() {
        let Some((entries, strings)) = section.dynamic(endian, bytes)? else { continue };
        let strings = sections.strings(endian, bytes, strings)?;
        interface.needed.extend(needed(entries, endian, strings)?);
    }
    if let Some((mut libraries, strings)) = sections.gnu_verneed(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        while let Some((_, mut versions)) = libraries.next()? {
            while let Some(version) = versions.next()? {
                interface.glibc =
                    interface.glibc.max(glibc_version(&String::from_utf8_lossy(version.name(endian, strings)?)));
            }
        }
    }
    Ok(interface)
}

/// The numbers of `GLIBC_2.34`; `None` for versions of other libraries. Only very old versions have a third number.
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn needed<D: Dyn<Endian = Endianness>>(
    entries: &[D],
    endian: Endianness,
    strings: StringTable<'_>,
) -> Result<Vec<String>> {
    let entries = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
    entries.map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned())).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn hipdnn_has_38_functions() {
        let symbols = hipdnn_exports();
        assert_eq!((symbols.len(), symbols[0]), (38, "hipdnnCreate"));
        assert!(symbols.contains(&"hipdnnVersionString_ext"));
    }

    #[test]
    fn clean_plugin_has_no_faults() {
        let interface = Interface {
            exports: set(&PLUGIN_EXPORTS),
            undefined: set(&["malloc", "dlopen", "_Unwind_Resume"]),
            needed: set(&["libc.so.6", "libgcc_s.so.1"]),
            glibc: Some((2, 28)),
        };
        assert_eq!(interface.faults(Some(&PLUGIN_EXPORTS)), Vec::<String>::new());
    }

    #[test]
    fn names_each_symbol_and_library_that_should_not_be_there() {
        let interface = Interface {
            exports: set(&["CreateEpFactories", "rust_eh_personality"]),
            undefined: set(&["hipMalloc", "cuInit", "OrtGetApiBase", "free"]),
            needed: set(&["libc.so.6", "libamdhip64.so.7"]),
            glibc: None,
        };
        let faults = interface.faults(Some(&PLUGIN_EXPORTS));
        for wanted in [
            "hipMalloc is undefined",
            "cuInit is undefined",
            "OrtGetApiBase is undefined",
            "libamdhip64.so.7 is an unexpected dependency",
            "rust_eh_personality is exported",
            "ReleaseEpFactory is not exported",
        ] {
            assert!(faults.iter().any(|fault| fault == wanted), "{wanted} is not in {faults:?}");
        }
        assert_eq!(faults.len(), 6, "{faults:?}");
    }

    #[test]
    fn versions_of_glibc_are_numbers() {
        assert_eq!(glibc_version("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        for other in ["GCC_3.0", "GLIBC_PRIVATE", "GLIBC_", "CXXABI_1.3"] {
            assert_eq!(glibc_version(other), None, "{other}");
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_program_uses_symbols_of_the_installed_glibc() {
        let interface = read(&std::env::current_exe().unwrap()).unwrap();
        assert!(interface.glibc.is_some_and(|version| version > (2, 2)), "{:?}", interface.glibc);
    }

    /// The C library is a real library whose interface is known.
    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn reads_the_interface_of_a_real_library() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            maps.lines().find_map(|line| line.split_whitespace().last().filter(|path| path.ends_with("libc.so.6")));
        let interface = interface(&fs::read(libc.unwrap()).unwrap()).unwrap();
        assert!(interface.exports.contains("malloc"));
        assert_eq!(interface.needed, set(&["ld-linux-x86-64.so.2"]));
        assert!(interface.undefined.iter().any(|symbol| symbol == "__tls_get_addr"));
    }
}
