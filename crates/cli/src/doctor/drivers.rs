//! The three drivers: their libraries with all attempts to load them, and their devices.

use std::thread;

use hip::DriverKind;
use hip::sys::Role;
use kernels::Target;
use serde::{Deserialize, Serialize};

use super::{Asker, Question};
use crate::child::{Answer, Outcome};

/// A driver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Driver {
    /// `amd`, `nvidia` or `host`.
    pub kind: String,
    /// The outcome of examining the driver.
    pub probe: Outcome,
    /// Why examining it failed.
    pub probe_detail: Option<String>,
    /// The driver's answer.
    #[serde(flatten)]
    pub found: DriverProbe,
}

/// What a driver reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverProbe {
    /// Runtime, run-time compiler and BLASLt, if the driver has them.
    pub libraries: Vec<Library>,
    /// The version number of the kernel driver, as the driver reports it.
    pub driver_version: Option<i32>,
    /// The devices, in order.
    pub devices: Vec<Device>,
    /// Why there are none, if the runtime loaded.
    pub no_device_reason: Option<String>,
}

/// A library of a driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Library {
    /// `runtime`, `rtc` or `blaslt`.
    pub role: String,
    /// The file, if it was loaded.
    pub path: Option<String>,
    /// The version, if the library reports one.
    pub version: Option<String>,
    /// Every name that failed to load.
    pub attempts: Vec<Attempt>,
    /// The complete error message, if none was loaded.
    pub error: Option<String>,
}

/// A failed attempt to load a library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// A path, a name for the loader, or a folder.
    pub name: String,
    /// Why it failed.
    pub reason: String,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The name.
    pub name: String,
    /// The target, such as `gfx1100`.
    pub arch: String,
    /// The PCI address, if the driver reports one.
    pub pci_bus_id: Option<String>,
    /// The memory in bytes; 0 if the driver does not report it.
    pub memory_bytes: u64,
    /// Lanes per wave.
    pub wave_size: u32,
    /// Compute units.
    pub compute_units: u32,
    /// Local memory per block, in bytes.
    pub lds_bytes: u32,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Where its kernels come from, if it is an AMD GPU with a listed target.
    pub kernels: Option<String>,
}

impl Driver {
    /// The library for a role.
    pub fn library(&self, role: &str) -> Option<&Library> {
        self.found.libraries.iter().find(|library| library.role == role)
    }

    /// Whether the runtime loaded.
    pub fn is_loaded(&self) -> bool {
        self.library("runtime").is_some_and(|library| library.path.is_some())
    }

    fn from_answer(kind: DriverKind, answer: Answer<DriverProbe>) -> Driver {
        Driver {
            kind: kind.name().to_owned(),
            probe: answer.outcome,
            probe_detail: answer.detail,
            found: answer.value.unwrap_or_default(),
        }
    }
}

/// Examines all drivers at once, each in a child process.
pub fn collect(asker: &Asker) -> Vec<Driver> {
    thread::scope(|scope| {
        let threads = DriverKind::ALL.map(|kind| {
            let question = Question::Driver { kind: kind.name().to_owned() };
            (kind, scope.spawn(move || Driver::from_answer(kind, asker.ask(&question))))
        });
        let failed = |kind| {
            let detail = Some("the thread that queries it panicked".to_owned());
            Driver::from_answer(kind, Answer { outcome: Outcome::Failed, detail, value: None })
        };
        threads.into_iter().map(|(kind, thread)| thread.join().unwrap_or_else(|_| failed(kind))).collect()
    })
}

/// Examines one driver in this process.
pub fn probe(kind: DriverKind) -> DriverProbe {
    let report = hip::probe::driver(kind);
    let libraries = report.libraries.into_iter().map(|library| Library {
        role: role_name(library.role).to_owned(),
        path: library.path.map(|path| path.display().to_string()),
        version: library.version,
        attempts: library
            .attempts
            .into_iter()
            .map(|attempt| Attempt { name: attempt.name, reason: attempt.reason })
            .collect(),
        error: library.error,
    });
    let devices = report.devices.into_iter().map(|device| Device {
        kernels: Target::level_of(&device.arch).map(|level| level.to_string()),
        name: device.name,
        arch: device.arch,
        pci_bus_id: device.pci_bus_id,
        memory_bytes: device.total_memory as u64,
        wave_size: device.wave_size,
        compute_units: device.compute_units,
        lds_bytes: device.lds_bytes,
        integrated: device.integrated,
    });
    DriverProbe {
        libraries: libraries.collect(),
        driver_version: report.driver_version,
        devices: devices.collect(),
        no_device_reason: report.no_device_reason,
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Runtime => "runtime",
        Role::Rtc => "rtc",
        Role::BlasLt => "blaslt",
    }
}

/// Merges consecutive attempts with the same reason into one line each, because most have the same reason. Files of one
/// folder share its name, as in `/opt/rocm/lib/{libamdhip64.so.7, libamdhip64.so}`.
pub fn grouped(attempts: &[Attempt]) -> Vec<String> {
    attempts
        .chunk_by(|one, next| one.reason == next.reason && split(&one.name).0 == split(&next.name).0)
        .map(|group| {
            let folder = split(&group[0].name).0;
            let files: Vec<&str> = group.iter().map(|attempt| split(&attempt.name).1).collect();
            let files = files.join(", ");
            let files = if group.len() > 1 && !folder.is_empty() { format!("{{{files}}}") } else { files };
            format!("{folder}{files}: {}", group[0].reason)
        })
        .collect()
}

/// Splits a path into folder, with the trailing slash, and file. A plain name has no folder.
fn split(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('/').map_or(0, |slash| slash + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documented_targets_are_the_listed_ones() {
        let mut text = String::from("| target | chips, for example | kernels |\n|---|---|---|\n");
        for Target { name, chips, .. } in Target::ALL {
            let level = Target::level_of(name).unwrap();
            text += &format!("| {name} | {chips} | {level} |\n");
        }
        testkit::generated::check("crates/cli/src/doctor/targets.md", &text).unwrap();
    }

    fn attempt(name: &str, reason: &str) -> Attempt {
        Attempt { name: name.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn attempts_with_one_reason_and_folder_share_a_line() {
        let attempts = [
            attempt("/opt", "no such folder"),
            attempt("/rocm/lib/a.so.7", "no such file"),
            attempt("/rocm/lib/a.so", "no such file"),
            attempt("/hip/a.so", "no such file"),
            attempt("a.so.7", "missing"),
            attempt("a.so", "missing"),
        ];
        let lines = [
            "/opt: no such folder",
            "/rocm/lib/{a.so.7, a.so}: no such file",
            "/hip/a.so: no such file",
            "a.so.7, a.so: missing",
        ];
        assert_eq!(grouped(&attempts), lines);
    }

    #[test]
    fn every_library_of_this_machine_has_a_path_or_an_error() {
        for kind in DriverKind::ALL {
            let found = probe(kind);
            assert_eq!(found.libraries[0].role, "runtime");
            assert!(found.libraries.iter().all(|library| library.path.is_some() != library.error.is_some()));
        }
    }

    proptest! {
        #[test]
        fn grouping_keeps_every_name_and_the_order(rows in prop::collection::vec(("(/[ab]/)?[a-z]{3}", 0u8..3), 0..12)) {
            let attempts: Vec<_> = rows.iter().map(|(name, reason)| attempt(name, &format!("r{reason}"))).collect();
            let mut back = Vec::new();
            for line in grouped(&attempts) {
                let (names, reason) = line.rsplit_once(": ").unwrap();
                let (folder, files) = split(names);
                let files = files.trim_start_matches('{').trim_end_matches('}');
                back.extend(files.split(", ").map(|file| attempt(&format!("{folder}{file}"), reason)));
            }
            prop_assert_eq!(back, attempts);
        }
    }
}
