//! A handle of the library.

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use hip::RawStream;

use crate::result::{handle as result, plugins};
use crate::sys::{self, Backend};
use crate::{Error, Result};

/// Requires that both come from one library: another one would interpret the handle or descriptor as its own.
pub(crate) fn require_same(one: &Arc<dyn Backend>, other: &Arc<dyn Backend>) -> Result<()> {
    if ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other)) {
        return Ok(());
    }
    Err(Error::invalid(one.describe(), format!("it cannot use objects of {}", other.describe())))
}

/// A handle: the engines of a backend, and the stream that it queues work on. Used by one thread at a time.
pub struct Handle {
    raw: sys::Handle,
    backend: Arc<dyn Backend>,
    shared: Arc<RawHandle>,
}

// SAFETY: the library does not tie a handle to the thread that created it; `&Handle` does not leave its thread.
unsafe impl Send for Handle {}

/// Keeps a raw handle alive: graphs and plans refer to the one they were created with.
pub(crate) struct RawHandle {
    raw: sys::Handle,
    backend: Arc<dyn Backend>,
}

// SAFETY: the handle is not used through a reference, and the last owner may destroy it from any thread.
unsafe impl Send for RawHandle {}
// SAFETY: as above.
unsafe impl Sync for RawHandle {}

/// An engine of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The id: a hash of the name.
    pub id: i64,
    /// The name.
    pub name: String,
    /// The plugin that it comes from.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
}

/// A heuristic policy of a backend: it orders engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// The id: a hash of the name.
    pub id: i64,
    /// The name.
    pub name: String,
    /// The plugin that it comes from.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
}

impl Handle {
    /// Creates a handle; the first one loads the backend's plugins.
    ///
    /// # Errors
    /// The backend rejects the call.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let raw = result::create(&*backend)?;
        let shared = Arc::new(RawHandle { raw, backend: backend.clone() });
        Ok(Self { raw, backend, shared })
    }

    /// Keeps the handle alive as long as the result lives.
    pub(crate) fn shared(&self) -> Arc<RawHandle> {
        self.shared.clone()
    }

    /// The library.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The raw C handle, valid while this one lives.
    pub fn raw(&self) -> sys::Handle {
        self.raw
    }

    /// Queues work on this stream from now on.
    ///
    /// # Errors
    /// The backend rejects the call.
    ///
    /// # Safety
    /// The stream stays alive until another one is set, or until the handle and everything created with it is dropped.
    /// It belongs to the driver that the backend uses.
    pub unsafe fn set_stream(&self, stream: RawStream<'_>) -> Result<()> {
        // SAFETY: the handle is alive; the caller vouches for the stream.
        unsafe { result::set_stream(&*self.backend, self.raw, stream.as_ptr()) }
    }

    /// The driver's handle of the stream that work is queued on; null is the driver's default stream.
    ///
    /// # Errors
    /// The backend rejects the call, or cannot report the stream.
    pub fn stream(&self) -> Result<*mut c_void> {
        // SAFETY: the handle is alive.
        unsafe { result::stream(&*self.backend, self.raw) }
    }

    /// The engines of all plugins, by name.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn engines(&self) -> Result<Vec<EngineInfo>> {
        // SAFETY: the handle is alive.
        let count = unsafe { result::engine_count(&*self.backend, self.raw)? };
        let engine = |index| {
            // SAFETY: the handle is alive.
            let (id, [name, plugin, version, _]) = unsafe { result::engine_info(&*self.backend, self.raw, index)? };
            Ok(EngineInfo { id, name, plugin, version })
        };
        (0..count).map(engine).collect()
    }

    /// The policies that order engines.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>> {
        // SAFETY: the handle is alive.
        let count = unsafe { result::policy_count(&*self.backend, self.raw)? };
        let policy = |index| {
            // SAFETY: the handle is alive.
            let (id, [name, plugin, version, _]) = unsafe { result::policy_info(&*self.backend, self.raw, index)? };
            Ok(PolicyInfo { id, name, plugin, version })
        };
        (0..count).map(policy).collect()
    }

    /// An engine's id.
    ///
    /// # Errors
    /// There is no engine with this name.
    pub fn engine_id(&self, name: &str) -> Result<i64> {
        if !self.backend.has("hipdnnGetEngineIdByName_ext") {
            // By definition an id is the hash of the name, so older backends need not be asked.
            return Ok(engine_id_of(name));
        }
        let text = CString::new(name).map_err(|_| Error::invalid(name, "an engine's name must not contain NUL"))?;
        // SAFETY: the handle is alive.
        unsafe { result::engine_id(&*self.backend, self.raw, &text) }
    }

    /// An engine's name.
    ///
    /// # Errors
    /// There is no engine with this id, or the backend cannot report the name.
    pub fn engine_name(&self, id: i64) -> Result<String> {
        // SAFETY: the handle is alive.
        unsafe { result::engine_name(&*self.backend, self.raw, id) }
    }

    /// The files of the engine plugins that are loaded.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn plugins(&self) -> Result<Vec<PathBuf>> {
        // SAFETY: the handle is alive.
        let files = unsafe { plugins::loaded(&*self.backend, self.raw)? };
        Ok(files.into_iter().map(PathBuf::from).collect())
    }
}

impl Drop for RawHandle {
    fn drop(&mut self) {
        // SAFETY: created by `create` on this backend, and destroyed only here.
        if let Err(error) = unsafe { result::destroy(&*self.backend, self.raw) } {
            tracing::warn!(target: "hipdnn::lifetime", %error, "a hipDNN handle leaked");
        }
    }
}

/// The id of the engine with this name: FNV-1a over its bytes.
pub fn engine_id_of(name: &str) -> i64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_ids_are_hashes_of_names() {
        assert_eq!(engine_id_of("MIOPEN_ENGINE") as u64, 0x15B4_6865_C717_A122);
        assert_eq!(engine_id_of("HIPBLASLT_ENGINE") as u64, 0x79AE_B174_32D4_A22B);
        assert_eq!(engine_id_of("FUSILLI_ENGINE") as u64, 0xD3B0_0D1F_8F0B_DF92);
    }
}
