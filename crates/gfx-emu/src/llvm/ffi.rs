//! The C interface of LLVM's disassembler (llvm-c/Core.h, llvm-c/Disassembler.h, llvm-c/Target.h).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use dylib::Library;

type Initialise = unsafe extern "C" fn();
type Create = unsafe extern "C" fn(
    triple: *const c_char,
    cpu: *const c_char,
    features: *const c_char,
    info: *mut c_void,
    tag_type: c_int,
    op_info: *const c_void,
    look_up: *const c_void,
) -> *mut c_void;
type Version = unsafe extern "C" fn(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
type Dispose = unsafe extern "C" fn(context: *mut c_void);
type Instruction = unsafe extern "C" fn(
    context: *mut c_void,
    bytes: *const u8,
    count: u64,
    address: u64,
    text: *mut c_char,
    text_bytes: usize,
) -> usize;

/// The functions of a loaded libLLVM. The library is never closed.
pub struct Llvm {
    create: Create,
    dispose: Dispose,
    instruction: Instruction,
    /// Absent before LLVM 16.
    version: Option<Version>,
}

impl Llvm {
    /// Looks up the functions and initialises LLVM's AMDGPU target.
    ///
    /// # Errors
    /// The names that the library lacks.
    pub fn of(library: Library) -> Result<Llvm, Vec<&'static str>> {
        let mut missing = Vec::new();
        let initialisers =
            ["LLVMInitializeAMDGPUTargetInfo", "LLVMInitializeAMDGPUTargetMC", "LLVMInitializeAMDGPUDisassembler"]
                // SAFETY: each of these takes and returns nothing (llvm-c/Target.h).
                .map(|name| unsafe { library.symbol::<Initialise>(name) }.or_else(|| note(&mut missing, name)));
        // SAFETY: the types are those of llvm-c/Disassembler.h, unchanged since LLVM 3.
        let functions = unsafe {
            (
                library.symbol::<Create>("LLVMCreateDisasmCPUFeatures"),
                library.symbol::<Dispose>("LLVMDisasmDispose"),
                library.symbol::<Instruction>("LLVMDisasmInstruction"),
            )
        };
        let (Some(create), Some(dispose), Some(instruction)) = functions else {
            missing.push("LLVMCreateDisasmCPUFeatures, LLVMDisasmDispose or LLVMDisasmInstruction");
            return Err(missing);
        };
        if !missing.is_empty() {
            return Err(missing);
        }
        // SAFETY: the type is that of llvm-c/Core.h.
        let version = unsafe { library.symbol::<Version>("LLVMGetVersion") };
        for initialise in initialisers.into_iter().flatten() {
            // SAFETY: registers a target in the library's own table; the caller runs this once in a process.
            unsafe { initialise() };
        }
        Ok(Llvm { create, dispose, instruction, version })
    }

    /// Whether the library has this major version or a newer one.
    pub fn is_at_least(&self, wanted: u32) -> bool {
        let mut major = 0;
        if let Some(version) = self.version {
            // SAFETY: `major` is a valid out-pointer for the length of the call; the others are optional.
            unsafe { version(&mut major, ptr::null_mut(), ptr::null_mut()) };
        }
        major >= wanted
    }

    /// A disassembler for a processor. An unknown processor ends the process at the first instruction, so the caller asks
    /// [`Self::is_at_least`] first.
    pub fn context(&self, cpu: &CStr, features: &CStr) -> Option<Context> {
        let triple = c"amdgcn-amd-amdhsa";
        // SAFETY: the three names end with a zero byte; the other arguments are optional.
        let handle = unsafe {
            let (triple, cpu, features) = (triple.as_ptr(), cpu.as_ptr(), features.as_ptr());
            (self.create)(triple, cpu, features, ptr::null_mut(), 0, ptr::null(), ptr::null())
        };
        (!handle.is_null()).then_some(Context { handle, dispose: self.dispose, instruction: self.instruction })
    }
}

fn note<T>(missing: &mut Vec<&'static str>, name: &'static str) -> Option<T> {
    missing.push(name);
    None
}

/// One disassembler.
pub struct Context {
    handle: *mut c_void,
    dispose: Dispose,
    instruction: Instruction,
}

// SAFETY: the handle has no tie to the thread that made it, and `instruction` takes it by `&mut`.
unsafe impl Send for Context {}

impl Context {
    /// The text of the instruction that `code` starts with, and its number of bytes.
    pub fn instruction(&mut self, code: &[u8], address: u64) -> Option<(String, usize)> {
        let mut text = [0 as c_char; 512];
        // SAFETY: `code` and `text` are valid for the lengths given with them, and LLVM ends the text with a zero.
        let (bytes, text) = unsafe {
            let count = code.len() as u64;
            let bytes = (self.instruction)(self.handle, code.as_ptr(), count, address, text.as_mut_ptr(), text.len());
            (bytes, CStr::from_ptr(text.as_ptr()))
        };
        (bytes > 0).then(|| (text.to_string_lossy().trim().to_owned(), bytes))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` and is not used again.
        unsafe { (self.dispose)(self.handle) };
    }
}
