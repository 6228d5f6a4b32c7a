//! Finding and opening the libraries of others at run time: one search for all of ROCm.
//!
//! # Where ROCm's libraries are looked for
//!
//! | | place | libraries |
//! |---|---|---|
//! | 1 | what the library's own variable names, such as `AMDGPU_EP_HIP_LIBRARY`, and nothing else | all that have one |
//! | 2 | a copy that the process has open already | HIP, MIGraphX |
//! | 3 | on Windows, the folder of our own library | MIGraphX |
//! | 4 | the installation that the HIP runtime in use comes from | all but HIP |
//! | 5 | `THEROCK_DIST`, then `ROCM_PATH`, then `HIP_PATH` | all |
//! | 6 | `/opt/rocm`, then `/opt/rocm-*`, newest first | all |
//! | 7 | Python packages beside ours: `_rocm_sdk_*`, `rocm*`, `migraphx*` | all |
//! | 8 | the system's loader, by bare name (`LD_LIBRARY_PATH`, `/etc/ld.so.conf`) | all |
//!
//! Bare names come last: by then the loader is asked for what no known installation has, and the libraries of one process
//! come from one installation wherever that is possible. The compiler of one ROCm and the runtime of another are a
//! classic failure. Where a process runs with more rights than its caller, its environment and the folder of our
//! own library choose nothing.
//!
//! [`rocm`] holds the names and [`Surroundings`], which turns an environment into [`Candidate`]s; [`load`] opens the first
//! one that can be used, or says why each cannot.

mod candidate;
mod ffi;
mod load;
pub mod rocm;
mod surroundings;
mod tree;
mod version;

pub use candidate::{Candidate, Candidates};
pub use ffi::{Library, file_at, folders_beside, is_privileged, own_folder};
pub use load::{Attempt, Failed, Loaded, listed, load};
pub use surroundings::Surroundings;
pub use tree::{Origin, Tree};
pub use version::{file_version, release};
