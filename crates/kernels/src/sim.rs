//! The wave simulator: kernels run on the CPU, thread by thread. For tests.
//!
//! The host's C++ compiler builds a shared library from a kernel's source, which the host driver loads as a code
//! object. The library's entry point takes a `HostLaunch` and passes the threads to `sim/wavesim.cc`.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::{Arch, CompileError, Compiler, Kernel};

const HEADER: &str = include_str!("../sim/wavesim.h");
const RUNTIME: &str = include_str!("../sim/wavesim.cc");

/// What results depend on besides the sources; a change here invalidates cached libraries.
const FLAGS: [&str; 7] = ["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-w"];

/// The runtime is compiled once and switches between threads all the time; kernels are many and run briefly.
const RUNTIME_FLAGS: [&str; 1] = ["-O2"];

/// Flags for this machine. Conversions of half precision in software would take a third of a simulation of such kernels.
fn machine_flags() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("f16c") {
        return &["-mf16c"];
    }
    &[]
}

/// Compiles kernels for the simulator, and caches the results in a folder.
pub struct Simulator {
    folder: PathBuf,
    compiler: String,
}

impl Simulator {
    /// The simulator with its files in this folder, which is created if it does not exist.
    ///
    /// # Errors
    /// There is no C++ compiler (`CXX`, else `g++`), it cannot compile the runtime, or the folder cannot be written.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
        let simulator = Self { folder: folder.to_owned(), compiler };
        fs::create_dir_all(folder)?;
        let library = simulator.runtime();
        if !library.exists() {
            let scratch = tempfile::tempdir_in(folder)?;
            fs::write(scratch.path().join("wavesim.h"), HEADER)?;
            fs::write(scratch.path().join("wavesim.cc"), RUNTIME)?;
            let source = scratch.path().join("wavesim.cc");
            simulator.build(&source, &scratch.path().join("out.so"), &RUNTIME_FLAGS).map_err(io::Error::other)?;
            fs::rename(scratch.path().join("wavesim.h"), folder.join("wavesim.h"))?;
            fs::rename(scratch.path().join("out.so"), &library)?;
        }
        Ok(simulator)
    }

    /// The library that runs threads; it is configured with `wavesim_configure(wave, order)`.
    pub fn runtime(&self) -> PathBuf {
        self.folder.join(format!("libwavesim-{}.so", key(&[&RUNTIME_FLAGS.concat(), RUNTIME].concat())))
    }

    /// Sets the wave width for all launches of the process, with threads running in forward order.
    ///
    /// # Errors
    /// The runtime cannot be loaded.
    pub fn set_wave(&self, lanes: u32) -> io::Result<()> {
        // SAFETY: our own library, whose initialisers have no side effects.
        let library = unsafe { libloading::Library::new(self.runtime()) }.map_err(io::Error::other)?;
        type Configure = unsafe extern "C" fn(i32, i32);
        // SAFETY: the signature is the one in `sim/wavesim.cc`.
        let configure = unsafe { library.get::<Configure>("wavesim_configure") }.map_err(io::Error::other)?;
        // SAFETY: it waits for a running launch.
        unsafe { configure(lanes as i32, 0) };
        // Leaked on purpose: it keeps the settings and the threads' stacks.
        std::mem::forget(library);
        Ok(())
    }

    fn build(&self, source: &Path, library: &Path, extra: &[&str]) -> Result<(), String> {
        let output = Command::new(&self.compiler)
            .args(FLAGS)
            .args(machine_flags())
            .arg("-o")
            .arg(library)
            .arg(source)
            // After the source: a linker drops libraries that nothing before them needs.
            .args(extra)
            .output()
            .map_err(|error| format!("could not start {}: {error}", self.compiler))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Compiles nothing, and writes the source of each requested kernel into a folder, as `KERNEL-DIGEST.hip`. The steps that
/// need a kernel then run on the host.
pub struct Recorder(pub PathBuf);

impl Compiler for Recorder {
    fn version(&self) -> String {
        "recorder".to_owned()
    }

    fn compile(&self, kernel: &Kernel, _: &Arch) -> Result<Vec<u8>, CompileError> {
        let text = kernel.text();
        let file = self.0.join(format!("{}-{}.hip", kernel.name, key(&text)));
        let written = fs::create_dir_all(&self.0).and_then(|()| fs::write(file, text));
        let reason = written.map_or_else(|error| error.to_string(), |()| "it was only recorded".to_owned());
        Err(CompileError::Sim { kernel: kernel.name, reason })
    }
}

fn key(text: &str) -> String {
    blake3::hash([&FLAGS.concat(), &machine_flags().concat(), HEADER, text].concat().as_bytes()).to_hex()[..24]
        .to_owned()
}

impl Compiler for Simulator {
    fn version(&self) -> String {
        format!("simulator {}", self.runtime().display())
    }

    fn compile(&self, kernel: &Kernel, _: &Arch) -> Result<Vec<u8>, CompileError> {
        let refused = |reason: String| CompileError::Sim { kernel: kernel.name, reason };
        let text = kernel.text();
        // A library names the runtime by its path: one in a folder that was copied would load the other runtime.
        let runtime = self.runtime().display().to_string();
        let kept = self.folder.join(format!("{}-{}.so", kernel.name, key(&format!("{runtime}\n{text}"))));
        if !kept.exists() {
            let scratch = tempfile::tempdir_in(&self.folder).map_err(|error| refused(error.to_string()))?;
            let (source, made) = (scratch.path().join("kernel.cc"), scratch.path().join("kernel.so"));
            fs::write(&source, text).map_err(|error| refused(error.to_string()))?;
            let include = format!("-I{}", self.folder.display());
            let extra = ["-DGPU_SIM", &include, &runtime];
            self.build(&source, &made, &extra).map_err(refused)?;
            // The source stays next to the library, for other compilers to try.
            fs::rename(&source, kept.with_extension("hip")).map_err(|error| refused(error.to_string()))?;
            fs::rename(&made, &kept).map_err(|error| refused(error.to_string()))?;
        }
        fs::read(&kept).map_err(|error| refused(error.to_string()))
    }
}
