//! The loaded C library, its features and its targets.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ort_ep::ElementType;

use super::handle::{Owned, c_path, c_text, serialised};
use super::loader::{self, Loaded};
use super::options::ParseOptions;
use super::program::Program;
use super::sys::{Datatype, Table};
use super::{MgxError, saved};

/// A release of MIGraphX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Features that not every release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// A folder for external data.
    ExternalDataPath,
    /// Quantising to fp8.
    Fp8,
    /// Quantising to bfloat16.
    Bf16,
    /// The list of operators the parser knows.
    OperatorList,
    /// A compile mode between eager and maximum.
    CompileMode,
    /// Options without a dedicated function.
    BackendOptions,
}

impl Feature {
    /// The release that introduced it.
    pub fn since(self) -> &'static str {
        match self {
            Self::ExternalDataPath => "2.10, ROCm 6.2",
            Self::Fp8 => "2.12, ROCm 6.4",
            Self::Bf16 => "2.13, ROCm 7.0",
            Self::OperatorList => "2.15, ROCm 7.2",
            Self::CompileMode | Self::BackendOptions => "2.17",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExternalDataPath => "folder for external data",
            Self::Fp8 => "fp8 quantisation",
            Self::Bf16 => "bf16 quantisation",
            Self::OperatorList => "list of operators",
            Self::CompileMode => "compile mode",
            Self::BackendOptions => "backend options",
        })
    }
}

/// A loaded MIGraphX C library. Clones share it; it is never unloaded.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

impl Library {
    /// Opens `explicit` (a file, or a folder that contains the library), or the library named by
    /// `AMDGPU_EP_MIGRAPHX_LIBRARY`, or the first one found by the search of [`dylib`].
    ///
    /// The system loader keeps one copy of a file per process, so opening it again is cheap. A failure is not cached.
    ///
    /// # Errors
    /// Every name that was tried, with the loader's reason.
    pub fn open(explicit: Option<&Path>) -> Result<Library, MgxError> {
        let _guard = serialised();
        loader::load(loader::candidates(explicit)).map(|loaded| Library(Arc::new(loaded)))
    }

    /// The file, as resolved by the loader.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// The release of the core library it is linked with; unknown on Windows.
    pub fn version(&self) -> Option<Version> {
        self.0.version
    }

    /// The operators that the parser supports, by name without a domain.
    pub fn operators(&self) -> &BTreeSet<String> {
        &self.0.operators
    }

    /// Whether this release has this feature.
    pub fn has(&self, feature: Feature) -> bool {
        let table = self.table();
        match feature {
            Feature::ExternalDataPath => table.onnx_options_set_external_data_path.is_some(),
            Feature::Fp8 => table.quantize_fp8.is_some(),
            Feature::Bf16 => table.quantize_bf16.is_some(),
            Feature::OperatorList => table.get_onnx_operators_size.is_some(),
            Feature::CompileMode => table.compile_options_set_compile_mode.is_some(),
            Feature::BackendOptions => table.compile_options_set_advance_backend_options.is_some(),
        }
    }

    /// Whether tensors of this type can be parameters and outputs.
    pub fn has_element(&self, element: ElementType) -> bool {
        self.0.numbering.has(element)
    }

    /// A target by name: `gpu`, `ref`.
    ///
    /// # Errors
    /// MIGraphX has no such target, or its library cannot be loaded. A `gpu` target can be created without a GPU; check
    /// with HIP first.
    pub fn target(&self, name: &str) -> Result<Target, MgxError> {
        let text = c_text("the target", name)?;
        let table = self.table();
        let _guard = serialised();
        loader::preload_target(self.file(), self.version(), name);
        let doing = || format!("creating the target {name}");
        let raw = Owned::make("target_create", table.target_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer. The name is only read during the call.
            unsafe { (table.target_create)(out, text.as_ptr()) }
        })?;
        Ok(Target { name: name.to_owned(), raw })
    }

    /// Parses an ONNX model.
    ///
    /// # Errors
    /// MIGraphX cannot read the model: an unknown operator, mismatched types or shapes, or missing external data.
    pub fn parse(&self, model: &[u8], options: &ParseOptions) -> Result<Program, MgxError> {
        let options = options.make(self)?;
        let table = self.table();
        let _guard = serialised();
        let doing = || format!("parsing a model of {} bytes", model.len());
        let raw = Owned::make("parse_onnx_buffer", table.program_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer. The model is only read during the call. The options are alive.
            unsafe { (table.parse_onnx_buffer)(out, model.as_ptr().cast(), model.len(), options.raw()) }
        })?;
        Ok(Program::new(self.clone(), raw))
    }

    /// Loads a saved, already compiled program (`.mxr`).
    ///
    /// # Errors
    /// The file is missing, damaged, or has another format version.
    pub fn load(&self, file: &Path) -> Result<Program, MgxError> {
        self.load_from(&c_path(file)?, || format!("loading the program {}", file.display()))
    }

    /// Loads a saved program from memory.
    ///
    /// # Errors
    /// As [`Library::load`], and if no private file can be created for the bytes.
    pub fn load_bytes(&self, bytes: &[u8]) -> Result<Program, MgxError> {
        let file = saved::PrivateFile::new(bytes)?;
        self.load_from(&c_path(file.path())?, || format!("loading a program of {} bytes", bytes.len()))
    }

    fn load_from(&self, path: &CString, doing: impl Fn() -> String) -> Result<Program, MgxError> {
        let options = self.file_options(&doing)?;
        let table = self.table();
        let _guard = serialised();
        let raw = Owned::make("load", table.program_destroy, &doing, |out| {
            // SAFETY: `out` is a valid out-pointer. The path is only read during the call. The options are alive.
            unsafe { (table.load)(out, path.as_ptr(), options.raw()) }
        })?;
        let program = Program::new(self.clone(), raw);
        program.check_shapes()?;
        Ok(program)
    }

    pub(super) fn file_options(&self, doing: impl FnOnce() -> String) -> Result<Owned, MgxError> {
        let table = self.table();
        Owned::make("file_options_create", table.file_options_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (table.file_options_create)(out) }
        })
    }

    pub(super) fn table(&self) -> &Table {
        &self.0.table
    }

    pub(super) fn element(&self, number: Datatype) -> Option<ElementType> {
        self.0.numbering.element(number)
    }

    /// Unwraps a function that this release may lack.
    pub(super) fn need<F>(&self, feature: Feature, function: Option<F>) -> Result<F, MgxError> {
        function.ok_or_else(|| MgxError::Unsupported { feature, file: self.file().to_owned() })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("file", &self.0.file).field("version", &self.0.version).finish()
    }
}

/// A target that programs are compiled for.
pub struct Target {
    name: String,
    raw: Owned,
}

// SAFETY: MIGraphX only reads a target after creating it, and a single lock guards every call that takes one.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> super::sys::Handle {
        self.raw.raw()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}
