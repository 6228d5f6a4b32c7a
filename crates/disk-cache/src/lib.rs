//! Files kept between runs, in folders that no other user can write to.
//!
//! Caches hold compiled code, so anyone who can write to a cache folder can run code as its user. A [`Folder`] is only
//! opened if no other user could have put anything into it. Otherwise the caller works without a cache and logs the
//! [`CacheError`] once ([`CacheError::is_news`]).
//!
//! On Unix, the folder must be owned by the user or by root, and must not be writable by its group or by others. Every
//! folder above it must have the same owners; it may be writable by others only if it is sticky, like `/tmp`, because
//! then users can only rename what they own. Symbolic links are followed if the user or root made them, and the path
//! they point to is checked in the same way. Entries must be regular files with the same owners and must not be
//! writable by others, because they may be older than the folder's current mode. Missing folders are created with mode
//! 700, and files with mode 600. On Windows, folders are created as usual and not checked: the default place,
//! `%LOCALAPPDATA%`, is private to its user.
//!
//! | module | contains |
//! |---|---|
//! | `folder` | opening, reading, replacing files atomically |
//! | `trust` | the check above |
//! | `sealed` | files that begin with a digest of their content |
//! | `room` | size limit (least recently used first) and removal of unfinished files |
//! | `cache_root` | the user's cache folder, and listing and clearing it |
//!
//! ```
//! let scratch = tempfile::tempdir()?;
//! let folder = disk_cache::Folder::create(&scratch.path().join("kernels"))?;
//! folder.write_sealed("matmul-0123.co", b"code")?;
//! assert_eq!(folder.read_sealed("matmul-0123.co")?, b"code");
//! folder.make_room("co", 1 << 20, "matmul-0123.co")?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cache_root;
mod error;
mod folder;
mod room;
mod sealed;
mod trust;

pub use cache_root::{CachedFile, Cleared, FileLeft, KINDS, Kind, clear, list, root};
pub use error::CacheError;
pub use folder::Folder;
pub use room::Entry;
pub use sealed::{digest, read_sealed, write_sealed};
