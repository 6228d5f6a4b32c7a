//! A handle of the library.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use hip::RawStream;

use crate::sys::{self, Backend, Status};
use crate::{Error, Result};

/// The longest error message that is read.
const ERROR_TEXT_BYTES: usize = 1024;

/// Turns a status into a result with the backend's own message, which the backend stores per thread.
pub(crate) fn check(backend: &dyn Backend, attempted: impl FnOnce() -> String, status: Status) -> Result<()> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    let text = last_error(backend);
    Err(Error::Backend { attempted: attempted(), status, text })
}

/// The backend's message about this thread's last failure; reading it clears it.
pub(crate) fn last_error(backend: &dyn Backend) -> String {
    let mut text = [0; ERROR_TEXT_BYTES];
    // SAFETY: the buffer has the given size.
    unsafe { backend.last_error_string(text.as_mut_ptr(), text.len()) };
    text[ERROR_TEXT_BYTES - 1] = 0;
    // SAFETY: the text ends in a NUL, at the latest in the last byte.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

/// Requires a function that older libraries lack.
pub(crate) fn require(backend: &dyn Backend, function: &'static str) -> Result<()> {
    if backend.has(function) {
        return Ok(());
    }
    Err(Error::Absent { backend: backend.describe(), function })
}

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
    /// Its id: a hash of its name.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// The plugin that it comes from.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
}

/// A heuristic policy of a backend: it orders engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its id: a hash of its name.
    pub id: i64,
    /// Its name.
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
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { backend.create(&mut raw) };
        check(&*backend, || "creating a handle".into(), status)?;
        let shared = Arc::new(RawHandle { raw, backend: backend.clone() });
        Ok(Self { raw, backend, shared })
    }

    /// Keeps the handle alive as long as the result lives.
    pub(crate) fn shared(&self) -> Arc<RawHandle> {
        self.shared.clone()
    }

    /// Its library.
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
        let status = unsafe { self.backend.set_stream(self.raw, stream.as_ptr()) };
        check(&*self.backend, || "setting the stream".into(), status)
    }

    /// The driver's handle of the stream that work is queued on; null is the driver's default stream.
    ///
    /// # Errors
    /// The backend rejects the call, or cannot report the stream.
    pub fn stream(&self) -> Result<*mut c_void> {
        require(&*self.backend, "hipdnnGetStream")?;
        let mut stream = ptr::null_mut();
        // SAFETY: the handle is alive, the out-pointer valid.
        let status = unsafe { self.backend.get_stream(self.raw, &mut stream) };
        check(&*self.backend, || "reading the stream".into(), status)?;
        Ok(stream)
    }

    /// The engines of all plugins, by name.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn engines(&self) -> Result<Vec<EngineInfo>> {
        require(&*self.backend, "hipdnnGetEngineCount_ext")?;
        require(&*self.backend, "hipdnnGetEngineInfo_ext")?;
        let mut count = 0;
        // SAFETY: the handle is alive, the out-pointer valid.
        let status = unsafe { self.backend.engine_count(self.raw, &mut count) };
        check(&*self.backend, || "counting engines".into(), status)?;
        let engine = |index| {
            // SAFETY: the handle is alive; `four_texts` provides the buffers that the function requires.
            let ask = |id, [a, b, c, d]: Texts, [sa, sb, sc, sd]: Sizes| unsafe {
                self.backend.engine_info(self.raw, index, id, a, sa, b, sb, c, sc, d, sd)
            };
            let (id, [name, plugin, version, _]) = self.four_texts(|| format!("reading engine {index}"), ask)?;
            Ok(EngineInfo { id, name, plugin, version })
        };
        (0..count).map(engine).collect()
    }

    /// The policies that order engines.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>> {
        require(&*self.backend, "hipdnnGetHeuristicPolicyCount_ext")?;
        require(&*self.backend, "hipdnnGetHeuristicPolicyInfo_ext")?;
        let mut count = 0;
        // SAFETY: the handle is alive, the out-pointer valid.
        let status = unsafe { self.backend.heuristic_policy_count(self.raw, &mut count) };
        check(&*self.backend, || "counting policies".into(), status)?;
        let policy = |index| {
            // SAFETY: the handle is alive; `four_texts` provides the buffers that the function requires.
            let ask = |id, [a, b, c, d]: Texts, [sa, sb, sc, sd]: Sizes| unsafe {
                self.backend.heuristic_policy_info(self.raw, index, id, a, sa, b, sb, c, sc, d, sd)
            };
            let (id, [name, plugin, version, _]) = self.four_texts(|| format!("reading policy {index}"), ask)?;
            Ok(PolicyInfo { id, name, plugin, version })
        };
        (0..count).map(policy).collect()
    }

    /// Calls `ask` twice: without buffers for the sizes of four strings, then for the strings.
    fn four_texts(
        &self,
        attempted: impl Fn() -> String,
        ask: impl Fn(*mut i64, Texts, Sizes) -> Status,
    ) -> Result<(i64, [String; 4])> {
        let (mut id, mut sizes) = (0, [0usize; 4]);
        let status = ask(&mut id, [ptr::null_mut(); 4], sizes.each_mut().map(ptr::from_mut));
        check(&*self.backend, &attempted, status)?;
        let mut sizes = sizes.map(|size| size.max(1));
        let mut texts = sizes.map(|size| vec![0u8; size]);
        let room = texts.each_mut().map(|text| text.as_mut_ptr().cast());
        let status = ask(&mut id, room, sizes.each_mut().map(ptr::from_mut));
        check(&*self.backend, &attempted, status)?;
        Ok((id, texts.map(|text| until_nul(&text))))
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
        let mut id = 0;
        // SAFETY: the text and the out-pointer are valid for the call.
        let status = unsafe { self.backend.engine_id_by_name(self.raw, text.as_ptr(), &mut id) };
        check(&*self.backend, || format!("looking for engine {name}"), status)?;
        Ok(id)
    }

    /// An engine's name.
    ///
    /// # Errors
    /// There is no engine with this id, or the backend cannot report the name.
    pub fn engine_name(&self, id: i64) -> Result<String> {
        require(&*self.backend, "hipdnnGetEngineNameById_ext")?;
        let attempted = || format!("looking for engine {id:#x}");
        let mut size = 0;
        // SAFETY: without a buffer the call only returns the size.
        let status = unsafe { self.backend.engine_name_by_id(self.raw, id, ptr::null_mut(), &mut size) };
        check(&*self.backend, attempted, status)?;
        let mut text = vec![0u8; size.max(1)];
        size = text.len();
        // SAFETY: the buffer has the given size.
        let status = unsafe { self.backend.engine_name_by_id(self.raw, id, text.as_mut_ptr().cast(), &mut size) };
        check(&*self.backend, attempted, status)?;
        Ok(until_nul(&text))
    }

    /// The files of the engine plugins that are loaded.
    ///
    /// # Errors
    /// The backend rejects the call, or does not provide this list.
    pub fn plugins(&self) -> Result<Vec<PathBuf>> {
        require(&*self.backend, "hipdnnGetLoadedEnginePluginPaths_ext")?;
        let attempted = || "listing the engine plugins".to_owned();
        let (mut count, mut longest) = (0, 0);
        let null = ptr::null_mut();
        // SAFETY: without buffers the call only returns the count and the size of the longest string.
        let status = unsafe { self.backend.loaded_engine_plugin_paths(self.raw, &mut count, null, &mut longest) };
        check(&*self.backend, attempted, status)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        longest = longest.max(1);
        let mut texts = vec![vec![0u8; longest]; count];
        let mut places: Vec<*mut c_char> = texts.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
        // SAFETY: there are as many buffers as given, each large enough for the longest string.
        let status =
            unsafe { self.backend.loaded_engine_plugin_paths(self.raw, &mut count, places.as_mut_ptr(), &mut longest) };
        check(&*self.backend, attempted, status)?;
        Ok(texts.iter().take(count).map(|text| until_nul(text).into()).collect())
    }
}

/// Buffers for four strings, and their sizes.
type Texts = [*mut c_char; 4];
type Sizes = [*mut usize; 4];

impl Drop for RawHandle {
    fn drop(&mut self) {
        // SAFETY: created by `create` on this backend, and destroyed only here.
        let status = unsafe { self.backend.destroy(self.raw) };
        if let Err(error) = check(&*self.backend, || "destroying a handle".into(), status) {
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

pub(crate) fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
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
