//! The loaded C library and its targets.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ort_ep::ElementType;

use super::handle::{Owned, c_path, c_text, serialised};
use super::options::ParseOptions;
use super::program::Program;
use super::types::Numbering;
use super::{operators, saved};
use crate::mgx::result::{self, Doing};
use crate::mgx::sys::{Datatype, Handle, Loaded, loader};
use crate::mgx::{Feature, MgxError, Version};

/// A loaded MIGraphX C library. Clones share it; it is never unloaded.
#[derive(Clone)]
pub struct Library(Arc<Described>);

/// A library, and what was read from it once.
struct Described {
    loaded: Loaded,
    version: Option<Version>,
    numbering: Numbering,
    operators: BTreeSet<String>,
}

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
        let loaded = loader::load(loader::candidates(explicit))?;
        let numbering = Numbering::probe(&loaded)
            .ok_or_else(|| MgxError::answer("an element type numbered 4 that is neither float nor double"))?;
        let (version, operators) = (loaded.version(), operators::of(&loaded));
        tracing::debug!(
            target: "amdgpu_ep::load",
            library = %loaded.file.display(),
            version = %version.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
            operators = operators.len(),
            "loaded MIGraphX"
        );
        Ok(Library(Arc::new(Described { loaded, version, numbering, operators })))
    }

    /// The file, as resolved by the loader.
    pub fn file(&self) -> &Path {
        &self.0.loaded.file
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
        let table = &self.loaded().table;
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
        let _guard = serialised();
        loader::preload_target(self.file(), self.version(), name);
        let raw = result::compile::create_target(self.loaded(), &text, &|| format!("creating the target {name}"))?;
        Ok(Target { name: name.to_owned(), raw: Owned::new(raw) })
    }

    /// Parses an ONNX model.
    ///
    /// # Errors
    /// MIGraphX cannot read the model: an unknown operator, mismatched types or shapes, or missing external data.
    pub fn parse(&self, model: &[u8], options: &ParseOptions) -> Result<Program, MgxError> {
        let options = options.make(self)?;
        let _guard = serialised();
        let doing = || format!("parsing a model of {} bytes", model.len());
        // SAFETY: the options are alive.
        let raw = unsafe { result::onnx::parse(self.loaded(), model, options.raw(), &doing)? };
        Ok(Program::new(self.clone(), Owned::new(raw)))
    }

    /// Loads a saved, already compiled program (`.mxr`).
    ///
    /// # Errors
    /// The file is missing, damaged, or has another format version.
    pub fn load(&self, file: &Path) -> Result<Program, MgxError> {
        self.load_from(&c_path(file)?, &|| format!("loading the program {}", file.display()))
    }

    /// Loads a saved program from memory.
    ///
    /// # Errors
    /// As [`Library::load`], and if no private file can be created for the bytes.
    pub fn load_bytes(&self, bytes: &[u8]) -> Result<Program, MgxError> {
        let file = saved::PrivateFile::new(bytes)?;
        self.load_from(&c_path(file.path())?, &|| format!("loading a program of {} bytes", bytes.len()))
    }

    fn load_from(&self, path: &CString, doing: Doing<'_>) -> Result<Program, MgxError> {
        let options = self.file_options(doing)?;
        let _guard = serialised();
        // SAFETY: the options are alive.
        let raw = unsafe { result::program::load(self.loaded(), path, options.raw(), doing)? };
        let program = Program::new(self.clone(), Owned::new(raw));
        program.check_shapes()?;
        Ok(program)
    }

    pub(super) fn file_options(&self, doing: Doing<'_>) -> Result<Owned, MgxError> {
        result::program::create_file_options(self.loaded(), doing).map(Owned::new)
    }

    pub(super) fn loaded(&self) -> &Loaded {
        &self.0.loaded
    }

    pub(super) fn element(&self, number: Datatype) -> Option<ElementType> {
        self.0.numbering.element(number)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("file", &self.file()).field("version", &self.0.version).finish()
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
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw.raw()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}
