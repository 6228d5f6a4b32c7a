//! The device under test: the host, a GPU, or kernels in the wave simulator.
//!
//! `EXEC_TEST_DEVICE` selects it: `host` (the default), `sim:gfx1100` and the like, or `gpu` (the first one of the AMD
//! driver, else of the CUDA twin). With `EXEC_TEST_HIPDNN=1`, it offers its steps to the hipDNN library of its driver.
//! `EXEC_TEST_COUNTS` names a file that gets a line for each step that ran on a GPU device or on hipDNN.
//! `EXEC_TEST_THREADS` names a file that gets a line for each run on a GPU device: how many threads our kernels start
//! for it, and the test's name. A folder in `AMDGPU_EP_CACHE_DIR` keeps compiled kernels for later
//! runs.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use exec::dnn::{Libraries, Mode, Offering};
use exec::gpu::{GpuDevice, GpuSettings};
use exec::host::HostDevice;
use exec::{CompiledPartition, Device, ExecError, Input, RunBy};
use graph::{Graph, Tensor};
use kernels::sim::Simulator;
use kernels::{Arch, CachedCompiler, RtcCompiler};

/// The most bytes of compiled kernels that are kept: as many as in sessions, which may share the folder.
const MOST_KEPT_BYTES: u64 = 256 << 20;

static GPU: LazyLock<Option<GpuDevice>> = LazyLock::new(|| {
    let wanted = std::env::var("EXEC_TEST_DEVICE").unwrap_or_default();
    match wanted.as_str() {
        "" | "host" => None,
        "gpu" => Some(with_dnn(gpu())),
        other => match other.strip_prefix("sim:") {
            Some(target) => Some(with_dnn(simulated(target))),
            None => panic!("EXEC_TEST_DEVICE is {other:?}, expected host, gpu or sim:TARGET"),
        },
    }
});

static DEVICE: LazyLock<Box<dyn Device>> = LazyLock::new(|| match &*GPU {
    Some(gpu) => Box::new(gpu.clone()),
    None => Box::new(host()),
});

fn wants_dnn() -> bool {
    std::env::var_os("EXEC_TEST_HIPDNN").is_some_and(|value| value == "1")
}

/// The library that the device offers its steps to, if requested. Never dropped, as in a factory.
fn offering(device: &hip::Device) -> Option<Offering> {
    static LIBRARIES: LazyLock<Libraries> = LazyLock::new(Libraries::default);
    let offering = if wants_dnn() { LIBRARIES.offering(device, Mode::On)? } else { return None };
    assert!(offering.fault().is_none(), "{:?}", offering.fault());
    Some(offering)
}

fn host() -> HostDevice {
    let host = HostDevice::new();
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    offering(&driver).map_or_else(|| host.clone(), |offering| host.with_dnn(offering))
}

fn with_dnn(gpu: GpuDevice) -> GpuDevice {
    let dnn = offering(gpu.device()).map(Arc::new);
    gpu.with(GpuSettings { dnn, ..GpuSettings::default() })
}

/// The device under test.
pub fn get() -> &'static dyn Device {
    &**DEVICE
}

/// True if it is the host.
pub fn is_host() -> bool {
    get().name() == "host"
}

/// True if a product gives the same bits with and without an epilogue, as the host's own code does.
pub fn keeps_bits() -> bool {
    is_host() && !wants_dnn()
}

/// The host driver's device, with kernels in the wave simulator.
pub fn simulated(target: &str) -> GpuDevice {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim");
    let simulator = Simulator::new(&folder).unwrap();
    let arch = Arch::new(target, 4);
    simulator.set_wave(arch.wave).unwrap();
    GpuDevice::new(driver.devices().unwrap().remove(0), arch, Arc::new(simulator))
}

fn gpu() -> GpuDevice {
    let found = [hip::DriverKind::Amd, hip::DriverKind::Nvidia].into_iter().find_map(|kind| {
        let device = hip::Driver::load(kind).ok()?.devices().ok()?.into_iter().next()?;
        Some((kind, device))
    });
    let (kind, device) = found.unwrap_or_else(|| panic!("there is no GPU"));
    let kept = std::env::var_os("AMDGPU_EP_CACHE_DIR").map(|folder| PathBuf::from(folder).join("kernels"));
    let compiler = CachedCompiler::new(RtcCompiler(hip::Rtc::load(kind).unwrap()), kept, MOST_KEPT_BYTES);
    let arch = Arch::of(device.info()).unwrap();
    GpuDevice::new(device, arch, Arc::new(compiler))
}

/// Runs a graph once.
pub fn run_once(graph: Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    run(&CompiledPartition::new(graph, get())?, inputs)
}

/// Runs a compiled partition once.
pub fn run(program: &CompiledPartition, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    let outputs = crate::common::run::run_partition(program, inputs);
    let (counts, threads) = (std::env::var_os("EXEC_TEST_COUNTS"), std::env::var_os("EXEC_TEST_THREADS"));
    if counts.is_none() && threads.is_none() {
        return outputs;
    }
    let given = inputs.iter().enumerate().map(|(at, tensor)| {
        let value = program.needs_value(at).then(|| tensor.bytes());
        Input { shape: tensor.shape(), value }
    });
    let Ok(prepared) = program.plan(&given.collect::<Vec<_>>()) else { return outputs };
    let steps = &prepared.plan().steps;
    if let Some(file) = counts {
        let lines = steps.iter().enumerate().map(|(at, step)| match prepared.run_by(at) {
            RunBy::Host { why } => format!("{}\thost\t{}\n", step.prim.name(), why.lines().next().unwrap_or("")),
            RunBy::HipDnn { engine, .. } => format!("{}\tdevice\t{engine}\n", step.prim.name()),
            _ => format!("{}\tdevice\n", step.prim.name()),
        });
        append(&file, &lines.collect::<String>());
    }
    if let (Some(file), Some(gpu)) = (threads, &*GPU) {
        let own = steps.iter().enumerate().filter(|(at, _)| matches!(prepared.run_by(*at), RunBy::Own { .. }));
        let work = own.filter_map(|(_, step)| kernels::work(step, gpu.arch()).ok());
        let (threads, thread) = (work.map(|work| work.threads()).sum::<u64>(), std::thread::current());
        append(&file, &format!("{threads}\t{}\n", thread.name().unwrap_or_default()));
    }
    outputs
}

fn append(file: &OsStr, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
