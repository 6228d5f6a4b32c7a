//! The lowest layer: cuDNN's backend API as numbers, handles and a function table that is filled at run time.

mod numbers;
mod search;

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use hip::sys::Library;

pub use numbers::*;
pub use search::Search;

/// `cudnnHandle_t`
pub type Handle = *mut c_void;
/// `cudnnBackendDescriptor_t`
pub type Descriptor = *mut c_void;

/// The oldest release that these numbers are valid for.
const LEAST_VERSION: usize = 90000;

/// Why cuDNN cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// No file could be loaded.
    #[error("no cuDNN 9 was found (tried {})\n  help: install cuDNN 9, or set AMDGPU_EP_CUDNN_LIBRARY to the full path of libcudnn.so.9", .tried.join("; "))]
    NotFound {
        /// What was tried, with the loader's reasons.
        tried: Vec<String>,
    },
    /// The library lacks functions.
    #[error("{} is not cuDNN 9: it lacks {}", .file.display(), .missing.join(", "))]
    Incomplete {
        /// The library.
        file: PathBuf,
        /// What it lacks.
        missing: Vec<&'static str>,
    },
    /// The library is of another major version.
    #[error("{} is cuDNN {version}, but 9 is needed", .file.display())]
    Version {
        /// The library.
        file: PathBuf,
        /// The version, as cuDNN numbers them.
        version: usize,
    },
    /// A library is missing without which cuDNN aborts the process.
    #[error("cuDNN {version} needs {name}, which was not found (tried {})\n  help: install it, or list the folders of CUDA in AMDGPU_EP_CUDA_LIBRARY_PATH", .tried.join("; "))]
    Needs {
        /// cuDNN's version.
        version: usize,
        /// The library it needs.
        name: String,
        /// What was tried, with the loader's reasons.
        tried: Vec<String>,
    },
}

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:ident: fn($($type:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                pub $field: unsafe extern "C" fn($($type),*) -> $result,
            )*
        }

        impl $name {
            fn fill(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the file has cuDNN's name, or the user named it as cuDNN; this is the signature that
                    // cuDNN 9 declares for the symbol.
                    let $field = unsafe { library.symbol(stringify!($symbol)) };
                    if $field.is_none() {
                        missing.push(stringify!($symbol));
                    }
                )*
                match ($($field,)*) {
                    ($(Some($field),)*) => Ok(Self { $($field,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

functions! {
    /// cuDNN's backend interface.
    Functions {
        version = cudnnGetVersion: fn() -> usize;
        cudart_version = cudnnGetCudartVersion: fn() -> usize;
        error_string = cudnnGetErrorString: fn(Status) -> *const c_char;
        last_error_string = cudnnGetLastErrorString: fn(*mut c_char, usize) -> ();
        create = cudnnCreate: fn(*mut Handle) -> Status;
        destroy = cudnnDestroy: fn(Handle) -> Status;
        set_stream = cudnnSetStream: fn(Handle, *mut c_void) -> Status;
        create_descriptor = cudnnBackendCreateDescriptor: fn(DescriptorType, *mut Descriptor) -> Status;
        destroy_descriptor = cudnnBackendDestroyDescriptor: fn(Descriptor) -> Status;
        finalize = cudnnBackendFinalize: fn(Descriptor) -> Status;
        set_attribute = cudnnBackendSetAttribute: fn(Descriptor, AttributeName, AttributeType, i64, *const c_void) -> Status;
        get_attribute = cudnnBackendGetAttribute: fn(Descriptor, AttributeName, AttributeType, i64, *mut i64, *mut c_void) -> Status;
        execute = cudnnBackendExecute: fn(Handle, Descriptor, Descriptor) -> Status;
    }
}

functions! {
    /// The parts of cuDNN's older interface in use, which a later release may lack.
    Older {
        create_tensor = cudnnCreateTensorDescriptor: fn(*mut Descriptor) -> Status;
        set_tensor = cudnnSetTensorNdDescriptor: fn(Descriptor, DataType, c_int, *const c_int, *const c_int) -> Status;
        destroy_tensor = cudnnDestroyTensorDescriptor: fn(Descriptor) -> Status;
        transform = cudnnTransformTensor: fn(Handle, *const c_void, Descriptor, *const c_void, *const c_void, Descriptor, *mut c_void) -> Status;
        create_reduction = cudnnCreateReduceTensorDescriptor: fn(*mut Descriptor) -> Status;
        set_reduction = cudnnSetReduceTensorDescriptor: fn(Descriptor, ReduceOp, DataType, c_int, c_int, c_int) -> Status;
        destroy_reduction = cudnnDestroyReduceTensorDescriptor: fn(Descriptor) -> Status;
        reduction_workspace = cudnnGetReductionWorkspaceSize: fn(Handle, Descriptor, Descriptor, Descriptor, *mut usize) -> Status;
        reduce = cudnnReduceTensor: fn(Handle, Descriptor, *mut c_void, usize, *mut c_void, usize, *const c_void, Descriptor, *const c_void, *const c_void, Descriptor, *mut c_void) -> Status;
    }
}

/// A loaded cuDNN.
pub struct Cudnn {
    functions: Functions,
    /// The older interface, if the library has one.
    pub older: Option<Older>,
    /// The file it was loaded from.
    pub file: PathBuf,
}

impl std::ops::Deref for Cudnn {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

const _: () = assert!(size_of::<Status>() == size_of::<c_int>());
const _: () = assert!(size_of::<AttributeName>() == size_of::<c_int>());

impl Cudnn {
    /// The process's cuDNN, searched for once.
    ///
    /// # Errors
    /// There is none.
    pub fn load() -> Result<&'static Self, &'static LoadError> {
        static LOADED: OnceLock<Result<Cudnn, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Self::load_with(&Search::from_env())).as_ref()
    }

    /// The cuDNN that a search finds.
    ///
    /// # Errors
    /// It finds no usable one.
    pub fn load_with(search: &Search) -> Result<Self, LoadError> {
        let (library, file) = search.cudnn().map_err(|tried| LoadError::NotFound { tried })?;
        let functions = match Functions::fill(&library) {
            Ok(functions) => functions,
            Err(missing) => return Err(LoadError::Incomplete { file, missing }),
        };
        let file = hip::sys::file_at(functions.version as usize).unwrap_or(file);
        let cudnn = Self { functions, older: Older::fill(&library).ok(), file };
        // SAFETY: takes nothing and returns a number.
        let (version, cudart) = unsafe { ((cudnn.version)(), (cudnn.cudart_version)()) };
        if version / LEAST_VERSION != 1 || version >= 100_000 {
            return Err(LoadError::Version { file: cudnn.file, version });
        }
        // cuDNN opens these by name when it first needs them, and aborts where cublasLt is missing.
        let major = cudart / 1000;
        search.preload(&cudnn.file, "nvrtc", major).ok();
        search.preload(&cudnn.file, "cublasLt", major).map_err(|tried| LoadError::Needs {
            version,
            name: format!("libcublasLt.so.{major}"),
            tried,
        })?;
        tracing::debug!(target: "hipdnn::cudnn", version, library = %cudnn.file.display(), "loaded cuDNN");
        Ok(cudnn)
    }

    /// The version as cuDNN numbers them: 91902 is 9.19.2.
    pub fn release(&self) -> usize {
        // SAFETY: takes nothing and returns a number.
        unsafe { (self.version)() }
    }
}
