//! Finds and opens third-party libraries at run time, with one search for all of ROCm.
//!
//! ```
//! use dylib::{SearchContext, rocm};
//!
//! for candidate in SearchContext::of_process().candidates(&rocm::HIP, None) {
//!     println!("{candidate:?}");
//! }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`rocm::Library`] | the names of one library, and where installations have it |
//! | [`SearchContext`] | the parts of an environment that matter: variables, folders, loaded libraries |
//! | [`Candidate`] | one place to try |
//! | [`Loaded`], [`Failed`] | the library that opened, or every [`Attempt`] with its reason |
//! | [`Library`] | an open library |
//!
//! # Search order for ROCm's libraries
//!
//! | | place | libraries |
//! |---|---|---|
//! | 1 | the path in the library's own variable, such as `AMDGPU_EP_HIP_LIBRARY`, and nowhere else | any with one |
//! | 2 | a copy that the process has already loaded | HIP, MIGraphX |
//! | 3 | on Windows, the folder of our own library | MIGraphX |
//! | 4 | the installation of the HIP runtime in use | all but HIP |
//! | 5 | `THEROCK_DIST`, then `ROCM_PATH`, then `HIP_PATH` | all |
//! | 6 | `/opt/rocm`, then `/opt/rocm-*`, newest first | all |
//! | 7 | Python packages next to ours: `_rocm_sdk_*`, `rocm*`, `migraphx*` | all |
//! | 8 | the system loader, by bare name (`LD_LIBRARY_PATH`, `/etc/ld.so.conf`; on Windows the program's folder and System32) | all |
//!
//! Bare names come last, so the system loader is asked only for libraries that no known installation has. This way all
//! libraries of a process come from one installation if possible: combining the compiler of one ROCm with the runtime
//! of another is a classic failure. If the process runs with more privileges than its caller, the environment and the
//! folder of our own library are ignored.
//!
//! [`rocm`] holds the names. [`SearchContext`] turns an environment into [`Candidate`]s. [`load()`] opens the first
//! usable one, or says why each one failed.

mod candidate;
mod ffi;
mod load;
pub mod rocm;
mod search_context;
mod tree;
mod version;

pub use candidate::{Candidate, Candidates};
pub use ffi::{Library, file_at, file_name, folders_beside, is_privileged, open_to_close, own_folder};
pub use load::{Attempt, Failed, Loaded, listed, load};
pub use search_context::SearchContext;
pub use tree::{Origin, Tree};
pub use version::{file_version, release};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
