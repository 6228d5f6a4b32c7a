//! Every text of the catalogue through the vendors' run-time compilers, where variables say that they are there:
//! `AMDGPU_EP_TEST_KERNELS_AMD` and `AMDGPU_EP_TEST_KERNELS_NVIDIA` name the targets, separated by commas.
#![allow(clippy::unwrap_used)]
use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use hip::{DriverKind, Rtc};
use kernels::{Arch, Compiler, Kernel, RtcCompiler, catalogue};

#[test]
fn hiprtc_compiles_every_kernel() {
    compile_all(DriverKind::Amd, "AMDGPU_EP_TEST_KERNELS_AMD");
}

#[test]
fn nvrtc_compiles_every_kernel() {
    compile_all(DriverKind::Nvidia, "AMDGPU_EP_TEST_KERNELS_NVIDIA");
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
        let texts: HashMap<String, Kernel> = kernels.map(|kernel| (kernel.text(), kernel)).collect();
        let texts: Vec<&Kernel> = texts.values().collect();
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
