//! Compiles every kernel source of the catalogue with the vendors' runtime compilers, if variables say that they are
//! available: `AMDGPU_EP_TEST_KERNELS_AMD` and `AMDGPU_EP_TEST_KERNELS_NVIDIA` name the targets, separated by commas;
//! `AMDGPU_EP_TEST_KERNELS_PART` is `1/3` for every third source from the second on. Also checks the set built by
//! `cargo xtask kernels --arch`, which `AMDGPU_EP_TEST_KERNEL_SET` names as `FOLDER=TARGET,...`.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hip::{DriverKind, Rtc};
use kernels::{Arch, CachedCompiler, Compiler, Kernel, NoCompiler, RtcCompiler, catalogue};

#[test]
fn hiprtc_compiles_every_kernel() {
    compile_all(DriverKind::Amd, "AMDGPU_EP_TEST_KERNELS_AMD");
}

#[test]
fn nvrtc_compiles_every_kernel() {
    compile_all(DriverKind::Nvidia, "AMDGPU_EP_TEST_KERNELS_NVIDIA");
}

#[test]
fn a_set_made_beforehand_has_every_kernel_for_devices_with_features() {
    let Ok(named) = std::env::var("AMDGPU_EP_TEST_KERNEL_SET") else {
        eprintln!("skipped: AMDGPU_EP_TEST_KERNEL_SET is not set");
        return;
    };
    let (folder, targets) = named.rsplit_once('=').unwrap();
    let set = CachedCompiler::new(NoCompiler { reason: "a test".into() }, None, 0).with_shipped(folder.into());
    for target in targets.split(',') {
        // The names that devices report; those without the features have plain names.
        let features = if target.starts_with("gfx9") { ":sramecc+:xnack-" } else { "" };
        let arch = Arch::new(&format!("{target}{features}"), 304);
        for sample in catalogue() {
            let Ok(work) = kernels::work(&sample.step, &arch) else { continue };
            for launch in work.launches {
                let code = set.compile(&launch.kernel, &arch).unwrap();
                // An ELF file for AMD's GPUs: its machine is 224.
                assert_eq!((&code[..4], code[18]), (&b"\x7fELF"[..], 224), "{}", sample.label);
            }
        }
    }
    let counts = set.counts().unwrap();
    assert!(counts.shipped > 0 && counts.compiled == 0, "{counts:?}");
}

fn compile_all(kind: DriverKind, variable: &str) {
    let Ok(targets) = std::env::var(variable) else {
        eprintln!("skipped: {variable} is not set");
        return;
    };
    let part = std::env::var("AMDGPU_EP_TEST_KERNELS_PART").unwrap_or_else(|_| "0/1".to_owned());
    let (part, parts) = part.split_once('/').expect("AMDGPU_EP_TEST_KERNELS_PART is PART/PARTS");
    let (part, parts): (usize, usize) = (part.parse().unwrap(), parts.parse().unwrap());
    let compiler = RtcCompiler(Rtc::load(kind).unwrap());
    for target in targets.split(',') {
        let arch = Arch::new(target, 64);
        let steps = catalogue();
        let launches = steps.iter().filter_map(|sample| kernels::work(&sample.step, &arch).ok());
        let kernels = launches.flat_map(|work| work.launches).map(|launch| launch.kernel);
        let texts: BTreeMap<String, Kernel> = kernels.map(|kernel| (kernel.text(), kernel)).collect();
        let texts: Vec<&Kernel> = texts.values().skip(part).step_by(parts).collect();
        let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(kernel) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match compiler.compile(kernel, &arch) {
                            Ok(code) => assert_eq!(code[..4], *b"\x7fELF"),
                            Err(error) => faults.lock().unwrap().push(format!("{:?}\n{error}", kernel.settings)),
                        }
                    }
                });
            }
        });
        let faults = faults.into_inner().unwrap();
        assert!(faults.is_empty(), "{target}: {} of {}\n{}", faults.len(), texts.len(), faults.join("\n"));
        eprintln!("{} made {} kernels for {target}", compiler.version(), texts.len());
    }
}
