//! The emulated machine: AMD's unmodified user space, a topology, the model library, and how to start programs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::debian::Userland;
use crate::workspace::Workspace;
use crate::{built, output, rocm, shell};

/// Where the system's libraries are. Those of the userland are mounted over them.
const SYSTEM_LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Lays the folder `$1` over `$2`, then starts the rest.
const START: &str = r#"mount -t overlay overlay -o "lowerdir=$1:$2" "$2" && shift 2 && exec "$@""#;

/// Settings of AMD's runtime that the simulator hook needs.
const SETTINGS: [(&str, &str); 6] = [
    // Its copy kernels are not among the code objects of Debian's package: copies go through the SDMA queues.
    ("GPU_FORCE_BLIT_COPY_SIZE", "0"),
    // Pinning of user memory ends the process inside the hook: copies of pageable memory are staged (KiB).
    ("GPU_PINNED_MIN_XFER_SIZE", "1000000000"),
    // The hook has no virtual memory management.
    ("HIP_MEM_POOL_USE_VM", "0"),
    ("DEBUG_HIP_MEM_POOL_VMHEAP", "0"),
    // The machine has no debugger interface either.
    ("HSA_ENABLE_DEBUG", "0"),
    // While a program exits, ROCr now and then sets an event that it has destroyed, and the hook ends the process for that
    // ("model_set_event: event_id = 6 is not allocated"). Without interrupts there are no events: ROCr looks at signals.
    (INTERRUPTS, "0"),
];

/// Whether threads wait for signals by events; the variable of AMD's runtime.
pub const INTERRUPTS: &str = "HSA_ENABLE_INTERRUPT";

/// What all emulated machines share.
pub struct Base {
    folder: PathBuf,
    /// The command line that makes a program and its children use the userland's libraries.
    prefix: Vec<String>,
    model: PathBuf,
    topology: PathBuf,
}

impl Base {
    /// Unpacks the userland on first use and builds the model; an `Err` inside says why there is none here.
    ///
    /// # Errors
    /// When the build fails.
    pub fn prepare(workspace: &Workspace) -> Result<Result<Self, String>> {
        let usable = |folder: &PathBuf| has_hook(folder).and_then(|()| has_disassembler(folder));
        let userland = match rocm::newest(workspace).and_then(|folder| usable(&folder).map(|()| folder)) {
            Ok(userland) => userland,
            Err(reason) => return Ok(Err(reason)),
        };
        let [libraries, ..] = Userland::of(&userland).library_folders();
        let Some(mut prefix) = namespace(&libraries) else {
            return Ok(Err(
                "mounting an overlay in a namespace of its own is not permitted here (unshare --mount)".into()
            ));
        };
        let model = built::library(workspace, "amd-model", "machine")?;
        // Preloaded, it also keeps threads that wait for the GPU from taking all processors.
        prefix.extend(["env".to_owned(), format!("LD_PRELOAD={}", model.display())]);
        let topology = built::example(workspace, "amd-model", "topology")?;
        Ok(Ok(Self { folder: workspace.target().join("amd"), prefix, model, topology }))
    }

    /// A machine with one GPU; ROCr's hook stops at an assertion if there are two.
    ///
    /// # Errors
    /// When the GPU is not known, or a file cannot be written.
    pub fn machine(&self, target: &str) -> Result<Machine> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        let topology = folder.join("topology");
        let chips = shell::capture(Command::new(&self.topology).arg(&topology).arg(target))?;
        output::say(format_args!("{}", chips.trim_end()));
        let mut environment: Vec<(&'static str, PathBuf)> =
            SETTINGS.iter().map(|&(name, value)| (name, PathBuf::from(value))).collect();
        environment.push(("HSA_MODEL_TOPOLOGY", topology));
        environment.push(("HSA_MODEL_LIB", self.model.clone()));
        // Most of the time of tests with small tensors is compilation: what programs compile is kept for later ones. AMD's
        // compiler has a cache of its own.
        let cache = self.folder.join("cache");
        environment.push(("AMD_COMGR_CACHE_DIR", cache.join("comgr")));
        environment.push(("AMDGPU_EP_CACHE_DIR", cache));
        Ok(Machine { folder, prefix: self.prefix.clone(), environment })
    }
}

/// An emulated machine.
pub struct Machine {
    folder: PathBuf,
    prefix: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Machine {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets a variable for all programs on it.
    pub fn set(&mut self, name: &'static str, value: impl Into<PathBuf>) {
        self.environment.push((name, value.into()));
    }

    /// The variables of the machine, for programs that start others through [`Machine::interpreter`].
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_path()))
    }

    /// A program on the machine, which may run for `seconds`.
    pub fn command(&self, program: &Path, seconds: u64) -> Command {
        let mut command = shell::user_program("timeout");
        command.args(["--kill-after=10", &seconds.to_string()]).args(&self.prefix).arg(program);
        command.envs(self.environment());
        command
    }

    /// A script that starts a Python interpreter on the machine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn interpreter(&self, python: &Path) -> Result<PathBuf> {
        self.script("python", Some(python))
    }

    /// A script that starts the program that its arguments name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn starter(&self) -> Result<PathBuf> {
        self.script("start", None)
    }

    fn script(&self, name: &str, program: Option<&Path>) -> Result<PathBuf> {
        let script = self.folder.join(name);
        let words = self.prefix.iter().cloned().chain(program.map(|program| program.display().to_string()));
        let quoted: Vec<String> = words.map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" ")))?;
        shell::capture(Command::new("chmod").arg("+x").arg(&script))?;
        Ok(script)
    }
}

/// Whether the userland's ROCr has the simulator hook, which is a debugging aid and may disappear.
fn has_hook(userland: &Path) -> Result<(), String> {
    let found = Userland::of(userland)
        .library("libhsa-runtime64.so.1")
        .and_then(|library| fs::read(&library).with_context(|| format!("cannot read {}", library.display())))
        .map_err(|error| error.to_string())?;
    let name = b"HSA_MODEL_LIB";
    let has_name = found.windows(name.len()).any(|window| window == name);
    has_name.then_some(()).ok_or_else(|| "this release of ROCr has no simulator hook (HSA_MODEL_LIB)".to_owned())
}

/// Whether the userland has LLVM, which decodes instructions for the emulator and is part of AMD's compiler.
fn has_disassembler(userland: &Path) -> Result<(), String> {
    let folders = Userland::of(userland).library_folders();
    let mut files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let found = files.any(|file| file.file_name().to_string_lossy().starts_with("libLLVM"));
    found.then_some(()).ok_or_else(|| "the packages of the HIP runtime contain no libLLVM".to_owned())
}

/// The command line that starts a program with `libraries` laid over the system's: as root, or as a user where user
/// namespaces are permitted.
fn namespace(libraries: &Path) -> Option<Vec<String>> {
    let ways: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--user", "--map-root-user", "--mount"]];
    ways.into_iter().find_map(|way| {
        let libraries = libraries.display().to_string();
        let rest = ["sh", "-c", START, "sh", &libraries, SYSTEM_LIBRARIES];
        let prefix: Vec<String> = way.iter().copied().chain(rest).map(str::to_owned).collect();
        let arguments: Vec<&str> = prefix[1..].iter().map(String::as_str).chain(["true"]).collect();
        shell::succeeds(&prefix[0], &arguments).then_some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_userland_without_the_hook_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("root/usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        assert!(has_hook(folder.path()).unwrap_err().contains("libhsa-runtime64.so.1"));
        fs::write(libraries.join("libhsa-runtime64.so.1"), b"\x7fELF nothing").unwrap();
        assert!(has_hook(folder.path()).unwrap_err().contains("no simulator hook"));
        fs::write(libraries.join("libhsa-runtime64.so.1"), b"\x7fELF HSA_MODEL_LIB\0").unwrap();
        assert_eq!(has_hook(folder.path()), Ok(()));
    }

    #[test]
    fn a_userland_without_a_disassembler_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("root/usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        assert!(has_disassembler(folder.path()).unwrap_err().contains("no libLLVM"));
        fs::write(libraries.join("libLLVM.so.22.1"), b"\x7fELF").unwrap();
        assert_eq!(has_disassembler(folder.path()), Ok(()));
    }
}
