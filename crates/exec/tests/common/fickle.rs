//! A simulated GPU whose compiler starts to fail.
#![allow(dead_code, clippy::unwrap_used)]
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use exec::gpu::GpuDevice;
use kernels::sim::Simulator;
use kernels::{Arch, CompileError, Compiler, Kernel, NoCompiler};

/// The simulator, until it rejects kernels.
pub struct Fickle {
    simulator: Simulator,
    refused: Mutex<Option<&'static str>>,
}

impl Fickle {
    /// From now on, rejects new kernels whose names start with this: their steps run on the host.
    pub fn refuse(&self, start: &'static str) {
        *self.refused.lock().unwrap() = Some(start);
    }
}

impl Compiler for Fickle {
    fn version(&self) -> String {
        self.simulator.version()
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        let refused = *self.refused.lock().unwrap();
        if refused.is_some_and(|start| kernel.name.starts_with(start)) {
            return NoCompiler { reason: "it broke".into() }.compile(kernel, arch);
        }
        self.simulator.compile(kernel, arch)
    }
}

/// The host driver's device, with a compiler that works until `refuse` is called.
pub fn fickle() -> (GpuDevice, Arc<Fickle>) {
    let simulator = Simulator::new(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim")).unwrap();
    let arch = Arch::new("gfx1100", 4);
    simulator.set_wave(arch.wave).unwrap();
    let compiler = Arc::new(Fickle { simulator, refused: Mutex::default() });
    let device = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    (GpuDevice::new(device, arch, compiler.clone()), compiler)
}
