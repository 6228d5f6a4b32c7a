//! LLVM's disassembler: bytes of machine code to the text of one instruction.

mod ffi;

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use dylib::{Candidates, listed, load};

use crate::{Fault, Target};

/// Names the library to use, and then no other is tried.
pub(crate) const VARIABLE: &str = "AMDGPU_EP_LLVM_LIBRARY";
/// Newest first: the text of older ones lacks the halves of 16-bit registers.
const FILES: [&str; 6] =
    ["libLLVM.so.22.1", "libLLVM.so.21.1", "libLLVM.so.20.1", "libLLVM.so.19.1", "libLLVM.so", "libLLVM-19.so"];

/// A disassembler for one target and wave size.
pub struct Disassembler(Mutex<ffi::Context>);

impl Disassembler {
    /// Loads LLVM on the first call and makes a disassembler.
    ///
    /// # Errors
    /// No usable library, or one that does not know the target.
    pub fn new(target: Target, wave_size: u32) -> Result<Disassembler, Fault> {
        static LLVM: OnceLock<Result<ffi::Llvm, String>> = OnceLock::new();
        let tried = |tried: &str| Fault::NoDisassembler { tried: tried.to_owned() };
        let llvm = LLVM.get_or_init(find).as_ref().map_err(|reason| tried(reason))?;
        let features = match (target.has_wave32(), wave_size) {
            (true, 64) => "+wavefrontsize64",
            (true, _) => "+wavefrontsize32",
            (false, _) => "",
        };
        if target.name() == "gfx950" && !llvm.is_at_least(20) {
            return Err(tried("the library is older than LLVM 20, the first that knows gfx950"));
        }
        let words = [target.name(), features].map(CString::new);
        let [Ok(cpu), Ok(features)] = words else { return Err(tried("the target's name has a zero byte")) };
        let context = llvm.context(&cpu, &features).ok_or_else(|| tried("it does not know the target"))?;
        Ok(Disassembler(Mutex::new(context)))
    }

    /// The text of the instruction that `code` starts with, and its number of bytes.
    pub fn instruction(&self, code: &[u8], address: u64) -> Option<(String, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).instruction(code, address)
    }
}

fn find() -> Result<ffi::Llvm, String> {
    let mut candidates = Candidates::of(&FILES);
    if let Some(file) = std::env::var_os(VARIABLE) {
        candidates.file(&PathBuf::from(file));
    } else {
        candidates.loaded();
        in_library_path().iter().for_each(|file| candidates.file(file));
        candidates.plain();
    }
    match load(candidates.list(), "LLVMDisasmInstruction", ffi::Llvm::of) {
        Ok(loaded) => Ok(loaded.table),
        Err(failed) => Err(listed(&failed.attempts)),
    }
}

/// Any libLLVM in the folders of `LD_LIBRARY_PATH`, whatever its version is. Cargo puts Rust's own there for tests, and
/// that one knows AMD GPUs. It is usually newer than the system's.
fn in_library_path() -> Vec<PathBuf> {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let entries = std::env::split_paths(&folders).filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libLLVM.so.")))
        .collect();
    files.sort_unstable_by(|a, b| b.file_name().cmp(&a.file_name()));
    files
}
