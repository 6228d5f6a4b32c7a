//! The real libamdhip64, with or without a device, where `AMDGPU_EP_TEST_REAL_HIP=1` says that it is there.

use hip::{Driver, DriverKind, PointerKind, Rtc, RtcError, probe};
use libtest_mimic::Trial;

use crate::{Outcome, kernels, skipped};

pub fn rows(trials: &mut Vec<Trial>) {
    if std::env::var("AMDGPU_EP_TEST_REAL_HIP").is_ok_and(|value| value == "1") {
        trials.push(Trial::test("real_amd::driver_loads_and_answers", driver_loads_and_answers));
        trials.push(Trial::test("real_amd::probe_agrees_with_the_driver", probe_agrees_with_the_driver));
    } else {
        trials.push(skipped("real_amd::driver_loads_and_answers".into(), "AMDGPU_EP_TEST_REAL_HIP is not 1"));
    }
    match std::env::var("AMDGPU_EP_TEST_HIPRTC_ARCH") {
        Ok(arch) => trials.push(Trial::test("real_amd::compiler_makes_a_code_object", move || compiles_for(&arch))),
        Err(_) => trials
            .push(skipped("real_amd::compiler_makes_a_code_object".into(), "AMDGPU_EP_TEST_HIPRTC_ARCH is not set")),
    }
}

fn driver_loads_and_answers() -> Outcome {
    let driver = Driver::load(DriverKind::Amd)?;
    eprintln!("{driver:?}");
    assert!(driver.library().is_file(), "{}", driver.library().display());
    let version = driver.runtime_version().ok_or("no version")?;
    assert!(version >= 50_000_000, "{version}");
    let table = driver.table();
    // HIP 5.1 has these; older ones are not supported.
    assert!(table.malloc_async.is_some() && table.stream_begin_capture.is_some() && table.graph_launch.is_some());
    assert!(table.module_load_data.is_some() && table.module_launch_kernel.is_some());
    assert!(table.get_device_properties.is_some() && table.graph_exec_update.is_some());
    assert!(version < 50_300_000 || table.launch_host_func.is_some());
    let devices = driver.devices()?;
    match driver.no_device_reason() {
        Some(reason) => {
            eprintln!("no device: {reason}");
            assert!(devices.is_empty());
            assert!(reason.contains(": 100 (") || reason.contains(": 101 ("), "{reason}");
        }
        None => assert!(devices.iter().all(|device| !device.info().arch.is_empty()), "{devices:?}"),
    }
    let on_the_stack = 0u8;
    assert_eq!(driver.pointer_info((&raw const on_the_stack).addr()).kind, PointerKind::Unknown);
    Ok(())
}

fn probe_agrees_with_the_driver() -> Outcome {
    let report = probe::driver(DriverKind::Amd);
    assert!(report.is_loaded(), "{report:?}");
    assert_eq!(report.devices.is_empty(), report.no_device_reason.is_some(), "{report:?}");
    eprintln!("{report:#?}");
    Ok(())
}

fn compiles_for(arch: &str) -> Outcome {
    const EM_AMDGPU: u16 = 224;
    let rtc = Rtc::load(DriverKind::Amd)?;
    eprintln!("{rtc:?}");
    let target = rtc.target_option(arch);
    let code = match rtc.compile(kernels::SAXPY, "saxpy.hip", &[&target]) {
        Ok(code) => code,
        Err(error @ RtcError::UnknownTarget { .. }) => {
            // HIP 5 would have ended the process; being told is the wanted outcome there.
            assert!(rtc.version_text().starts_with("5."), "{error}");
            eprintln!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    assert_eq!(code[..4], *b"\x7fELF");
    assert_eq!(u16::from_le_bytes([code[18], code[19]]), EM_AMDGPU);
    let broken = rtc.compile("extern \"C\" __global__ void f() { undeclared_name = 1; }", "broken.hip", &[&target]);
    let error = broken.map(|_| ()).err().ok_or("a broken source compiled")?;
    assert!(error.log().contains("undeclared_name"), "{error}");
    Ok(())
}
