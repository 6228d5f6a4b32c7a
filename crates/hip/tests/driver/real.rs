//! The vendors' real libraries, with or without a device, if a variable says that they are installed.

use std::thread;

use hip::{Driver, DriverKind, PointerKind, Rtc, RtcError, probe};
use libtest_mimic::{Failed, Trial};

use crate::{Outcome, kernels, skipped};

type Check = fn(&Vendor) -> Outcome;
type CompilerCheck = fn(&Vendor, &str) -> Outcome;

struct Vendor {
    kind: DriverKind,
    /// Set to `1` if the runtime must load.
    must_load: &'static str,
    /// Contains the target that the compiler must compile for.
    arch: &'static str,
    /// Statuses that the runtime may return if there is no device.
    no_device_codes: &'static [i32],
    /// The ELF machine number of compiled code.
    machine: u16,
}

const VENDORS: [Vendor; 2] = [
    Vendor {
        kind: DriverKind::Amd,
        must_load: "AMDGPU_EP_TEST_REAL_HIP",
        arch: "AMDGPU_EP_TEST_HIPRTC_ARCH",
        no_device_codes: &[100, 101],
        machine: 224,
    },
    Vendor {
        kind: DriverKind::Nvidia,
        must_load: "AMDGPU_EP_TEST_REAL_CUDA",
        arch: "AMDGPU_EP_TEST_NVRTC_ARCH",
        // 35: there is a runtime but no display driver, or the driver is too old for it.
        no_device_codes: &[35, 100],
        machine: 190,
    },
];

pub fn rows(trials: &mut Vec<Trial>) {
    for vendor in &VENDORS {
        let name = |row: &str| format!("real_{}::{row}", vendor.kind);
        let rows: [(&str, Check); 2] = [
            ("driver_loads_and_answers", driver_loads_and_answers),
            ("probe_agrees_with_the_driver", probe_agrees_with_the_driver),
        ];
        let must_load = std::env::var(vendor.must_load).is_ok_and(|value| value == "1");
        for (row, check) in rows {
            trials.push(match must_load {
                true => Trial::test(name(row), move || check(vendor)),
                false => skipped(name(row), &format!("{} is not 1", vendor.must_load)),
            });
        }
        let rows: [(&str, CompilerCheck); 2] =
            [("compiler_makes_a_code_object", compiles_for), ("threads_compile_at_once", threads_compile_at_once)];
        for (row, check) in rows {
            trials.push(match std::env::var(vendor.arch) {
                Ok(arch) => Trial::test(name(row), move || check(vendor, &arch)),
                Err(_) => skipped(name(row), &format!("{} is not set", vendor.arch)),
            });
        }
    }
}

fn driver_loads_and_answers(vendor: &Vendor) -> Outcome {
    let driver = Driver::load(vendor.kind)?;
    eprintln!("{driver:?}");
    assert!(driver.library().is_file(), "{}", driver.library().display());
    let version = driver.runtime_version().ok_or("no version")?;
    let table = driver.table();
    assert!(table.malloc_async.is_some() && table.stream_begin_capture.is_some() && table.graph_launch.is_some());
    assert!(table.graph_exec_update.is_some() || table.twin_graph_exec_update.is_some());
    if vendor.kind == DriverKind::Amd {
        assert!(version >= 50_100_000, "{version}");
        assert!(table.module_load_data.is_some() && table.module_launch_kernel.is_some());
        assert!(table.get_device_properties.is_some());
        assert_eq!(table.launch_host_func.is_some(), version >= 50_300_000);
    }
    let devices = driver.devices()?;
    match driver.no_device_reason() {
        Some(reason) => {
            eprintln!("no device: {reason}");
            assert!(devices.is_empty());
            let expected = |code: &i32| reason.contains(&format!(": {code} ("));
            assert!(vendor.no_device_codes.iter().any(expected), "{reason}");
        }
        None => assert!(devices.iter().all(|device| !device.info().arch.is_empty()), "{devices:?}"),
    }
    let on_the_stack = 0u8;
    assert_eq!(driver.pointer_info((&raw const on_the_stack).addr()).kind, PointerKind::Unknown);
    Ok(())
}

fn probe_agrees_with_the_driver(vendor: &Vendor) -> Outcome {
    let report = probe::driver(vendor.kind);
    assert!(report.is_loaded(), "{report:?}");
    assert_eq!(report.devices.is_empty(), report.no_device_reason.is_some(), "{report:?}");
    for library in report.libraries {
        eprintln!(
            "{:?}: {:?} {:?}, {} names tried before",
            library.role,
            library.path,
            library.version,
            library.attempts.len()
        );
    }
    Ok(())
}

fn compiles_for(vendor: &Vendor, arch: &str) -> Outcome {
    let rtc = Rtc::load(vendor.kind)?;
    eprintln!("{rtc:?}");
    let target = rtc.target_option(arch);
    let code = match rtc.compile(kernels::SAXPY, "saxpy.hip", &[&target]) {
        Ok(code) => code,
        Err(error @ RtcError::UnknownTarget { .. }) => {
            // HIP 5 would have terminated the process; this error is the expected outcome there.
            assert!(rtc.version_text().starts_with("5."), "{error}");
            eprintln!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    assert_eq!(code[..4], *b"\x7fELF");
    assert_eq!(u16::from_le_bytes([code[18], code[19]]), vendor.machine);
    let broken = rtc.compile("extern \"C\" __global__ void f() { undeclared_name = 1; }", "broken.hip", &[&target]);
    let error = broken.map(|_| ()).err().ok_or_else(|| Failed::from("a broken source compiled"))?;
    assert!(error.log().contains("undeclared_name"), "{error}");
    Ok(())
}

/// Sessions compile on several threads; HIP 5's compiler crashed the process if two of its calls began together.
fn threads_compile_at_once(vendor: &Vendor, arch: &str) -> Outcome {
    let rtc = Rtc::load(vendor.kind)?;
    let target = rtc.target_option(arch);
    let compile = || {
        for round in 0..12 {
            let code = rtc.compile(kernels::SAXPY, &format!("saxpy{round}.hip"), &[&target])?;
            assert_eq!(code[..4], *b"\x7fELF");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Failed::from("a thread panicked"))?)
    })
}
