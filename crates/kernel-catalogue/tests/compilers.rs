//! Compiles every kernel source of the catalogue with the vendors' runtime compilers, if variables say that they are
//! available: `AMDGPU_EP_TEST_KERNELS_AMD` and `AMDGPU_EP_TEST_KERNELS_NVIDIA` name the targets, separated by commas;
//! `AMDGPU_EP_TEST_PART` selects a part of them. `AMDGPU_EP_TEST_LISTED_TARGETS=1` compiles a few kernels for all
//! targets of the table. Also checks the set built by `cargo xtask kernels --arch`, which
//! `AMDGPU_EP_TEST_KERNEL_SET` names as `FOLDER=TARGET,...`.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hip::{DriverKind, Rtc};
use kernel_catalogue::catalogue;
use kernels::{Arch, CachedCompiler, Compiler, Kernel, NoCompiler, RtcCompiler, ShippedSet, Target};
use testkit::part;

#[test]
fn hiprtc_compiles_every_kernel() {
    compile_all(DriverKind::Amd, "AMDGPU_EP_TEST_KERNELS_AMD");
}

/// Kernels with matrix instructions and with products of bytes: these differ most between targets.
const OF_EVERY_TARGET: [&str; 2] = ["gemm", "quant_gemv"];

#[test]
fn hiprtc_compiles_for_every_listed_target() {
    if std::env::var_os("AMDGPU_EP_TEST_LISTED_TARGETS").is_none() {
        eprintln!("skipped: AMDGPU_EP_TEST_LISTED_TARGETS is not set");
        return;
    }
    let compiler = RtcCompiler(Rtc::load(DriverKind::Amd).unwrap());
    let steps: Vec<_> = catalogue().into_iter().filter(|sample| sample.label.ends_with(" f16")).collect();
    for target in &Target::ALL {
        let arch = Arch::new(target.name, 64);
        for name in OF_EVERY_TARGET {
            let launches = steps.iter().filter_map(|sample| kernels::work(&sample.step, &arch).ok());
            let mut kernels = launches.flat_map(|work| work.launches).map(|launch| launch.kernel);
            let kernel = kernels.find(|kernel| kernel.name == name).unwrap();
            let code = compiler.compile(&kernel, &arch).unwrap_or_else(|error| panic!("{}: {error}", target.name));
            assert_eq!(code[..4], *b"\x7fELF", "{}", target.name);
        }
    }
}

#[test]
fn nvrtc_compiles_every_kernel() {
    compile_all(DriverKind::Nvidia, "AMDGPU_EP_TEST_KERNELS_NVIDIA");
}

#[test]
fn a_precompiled_set_has_every_kernel_for_devices_with_features() {
    let Ok(named) = std::env::var("AMDGPU_EP_TEST_KERNEL_SET") else {
        eprintln!("skipped: AMDGPU_EP_TEST_KERNEL_SET is not set");
        return;
    };
    let (folder, targets) = named.rsplit_once('=').unwrap();
    let set = CachedCompiler::new(NoCompiler { reason: "a test".into() }, None, 0).with_shipped(folder.into());
    let samples = catalogue();
    for target in targets.split(',') {
        // A device of the target, or one that uses the generic set.
        let of = ShippedSet::ALL.iter().find(|set| set.target == target).map_or(target, |set| set.sources_of[0]);
        // The names that devices report; those without the features have plain names.
        let features = if target.starts_with("gfx9") { ":sramecc+:xnack-" } else { "" };
        let arch = Arch::new(&format!("{of}{features}"), 304);
        for sample in samples.iter().filter(|sample| part::is_due(&sample.label)) {
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
    let compiler = RtcCompiler(Rtc::load(kind).unwrap());
    for target in targets.split(',') {
        let arch = Arch::new(target, 64);
        let steps = catalogue();
        let launches = steps.iter().filter_map(|sample| kernels::work(&sample.step, &arch).ok());
        let kernels = launches.flat_map(|work| work.launches).map(|launch| launch.kernel);
        let texts: BTreeMap<String, Kernel> = kernels.map(|kernel| (kernel.text(), kernel)).collect();
        let texts: Vec<&Kernel> = part::due(texts.values());
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
