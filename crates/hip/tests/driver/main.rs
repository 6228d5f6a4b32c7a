//! One set of named rows, run on every driver that loads on this machine and has a device.
//!
//! A driver that does not load, or has no device, is listed as one ignored row, with the reason on standard error. On
//! Linux, one more row runs the matrix products and some kernels in a process with stand-ins, see `standins`.
//!
//! | variable | effect |
//! |---|---|
//! | `AMDGPU_EP_HIP_HOST_LIBRARY` | the host driver; default: the one that cargo built next to this test |
//! | `AMDGPU_EP_CUDA_LIBRARY_PATH` | folders with the CUDA libraries |
//! | `AMDGPU_EP_TEST_REAL_HIP=1`, `AMDGPU_EP_TEST_REAL_CUDA=1` | the vendor's runtime must load, see `real` |
//! | `AMDGPU_EP_TEST_HIPRTC_ARCH`, `AMDGPU_EP_TEST_NVRTC_ARCH` | its compiler must compile for this target |
//! | `AMDGPU_EP_HOST_STREAMS` | how the host driver runs work; default here: `threads` |

use hip::{Device, Driver, DriverKind};
use libtest_mimic::{Arguments, Failed, Trial};

mod blas;
mod capture;
mod kernels;
mod memory;
mod real;
#[cfg(target_os = "linux")]
mod standins;
mod streams;

type Outcome = Result<(), Failed>;

/// A behaviour, checked on one device.
struct Row {
    name: &'static str,
    check: fn(&Device) -> Outcome,
    /// Returns the reason if the row cannot run on a device.
    skip: fn(&Device) -> Option<&'static str>,
}

impl Row {
    const fn new(name: &'static str, check: fn(&Device) -> Outcome) -> Row {
        Row { name, check, skip: |_| None }
    }

    const fn skip_where(self, skip: fn(&Device) -> Option<&'static str>) -> Row {
        Row { skip, ..self }
    }
}

/// Bytes that differ from their neighbours and from any fill value used here.
fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(37).wrapping_add(index as u8 >> 3).wrapping_add(seed)).collect()
}

fn skipped(name: String, reason: &str) -> Trial {
    eprintln!("skipped {name}: {reason}");
    let reason = reason.to_owned();
    Trial::test(name, move || Err(reason.into())).with_ignored_flag(true)
}

fn rows_of(kind: DriverKind, trials: &mut Vec<Trial>) {
    rows_on(kind, &[memory::ROWS, streams::ROWS, capture::ROWS, kernels::ROWS, blas::ROWS], trials);
}

fn rows_on(kind: DriverKind, all: &[&'static [Row]], trials: &mut Vec<Trial>) {
    let devices = match Driver::load(kind) {
        Ok(driver) => match driver.devices() {
            Ok(devices) if devices.is_empty() => Err(driver.no_device_reason().unwrap_or_default()),
            Ok(devices) => Ok(devices),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    };
    let device = match devices.map(|devices| devices.into_iter().next()) {
        Ok(Some(device)) => device,
        Ok(None) => return,
        Err(reason) => {
            // If the variable names a library, it must work; otherwise it may be absent.
            let named = kind == DriverKind::Host && std::env::var_os("AMDGPU_EP_HIP_HOST_LIBRARY").is_some();
            let name = format!("{kind}::driver");
            trials.push(match named {
                true => Trial::test(name, move || Err(reason.into())),
                false => skipped(name, &reason),
            });
            return;
        }
    };
    for row in all.iter().copied().flatten() {
        let name = format!("{kind}::{}", row.name);
        let device = device.clone();
        trials.push(match (row.skip)(&device) {
            Some(reason) => skipped(name, reason),
            None => Trial::test(name, move || (row.check)(&device)),
        });
    }
}

fn main() {
    let host_defaults =
        [("AMDGPU_EP_HOST_DEVICES", "2"), ("AMDGPU_EP_HOST_STREAMS", "threads"), ("AMDGPU_EP_HOST_MEMORY", "1G")];
    for (name, value) in host_defaults {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread runs yet, so nothing reads the environment at the same time.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let mut trials = Vec::new();
    #[cfg(target_os = "linux")]
    let has_stand_ins = standins::own_rows(&mut trials);
    #[cfg(not(target_os = "linux"))]
    let has_stand_ins = false;
    if !has_stand_ins {
        real::rows(&mut trials);
        for kind in DriverKind::ALL {
            rows_of(kind, &mut trials);
        }
        #[cfg(target_os = "linux")]
        standins::row(&mut trials);
    }
    let mut arguments = Arguments::from_args();
    // Waiting for a device while another row captures one of its streams invalidates that capture, on any driver.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit();
}
