//! A handle of the library.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

use hip::RawStream;

use crate::sys::{self, Backend, Status};
use crate::{Error, Result};

/// The longest error text that is read.
const ERROR_TEXT_BYTES: usize = 1024;

/// Turns a status into a result with the backend's own words, which it keeps per thread.
pub(crate) fn check(backend: &dyn Backend, attempted: impl FnOnce() -> String, status: Status) -> Result<()> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    let mut text = [0; ERROR_TEXT_BYTES];
    // SAFETY: the buffer is as large as said.
    unsafe { backend.last_error_string(text.as_mut_ptr(), text.len()) };
    text[ERROR_TEXT_BYTES - 1] = 0;
    // SAFETY: the text ends in a NUL, if nowhere else then in the last byte.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    Err(Error::Backend { attempted: attempted(), status, text })
}

/// A handle: the engines of a backend, and the stream that work goes to. Used by one thread at a time.
pub struct Handle {
    raw: sys::Handle,
    backend: Arc<dyn Backend>,
}

// SAFETY: the library does not tie a handle to the thread that made it; `&Handle` does not leave its thread.
unsafe impl Send for Handle {}

/// An engine of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its id: a hash of its name.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// The plugin it comes from.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
}

impl Handle {
    /// Makes a handle; the first one loads the backend's plugins.
    ///
    /// # Errors
    /// The backend refuses.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { backend.create(&mut raw) };
        check(&*backend, || "making a handle".into(), status)?;
        Ok(Self { raw, backend })
    }

    /// The library behind it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn raw(&self) -> sys::Handle {
        self.raw
    }

    /// Sends work to a stream from now on.
    ///
    /// # Errors
    /// The backend refuses.
    ///
    /// # Safety
    /// The stream stays alive until another one is set or the handle is gone, and belongs to the driver that the
    /// backend works with.
    pub unsafe fn set_stream(&self, stream: RawStream<'_>) -> Result<()> {
        // SAFETY: the handle is alive; the caller vouches for the stream.
        let status = unsafe { self.backend.set_stream(self.raw, stream.as_ptr()) };
        check(&*self.backend, || "setting the stream".into(), status)
    }

    /// The engines of all plugins, by name.
    ///
    /// # Errors
    /// The backend refuses, or has no such list.
    pub fn engines(&self) -> Result<Vec<EngineInfo>> {
        self.require("hipdnnGetEngineCount_ext")?;
        self.require("hipdnnGetEngineInfo_ext")?;
        let mut count = 0;
        // SAFETY: the handle is alive, the out-pointer valid.
        let status = unsafe { self.backend.engine_count(self.raw, &mut count) };
        check(&*self.backend, || "counting engines".into(), status)?;
        (0..count).map(|index| self.engine(index)).collect()
    }

    fn engine(&self, index: usize) -> Result<EngineInfo> {
        let (mut id, mut sizes) = (0, [0usize; 4]);
        let [name, plugin, version, kind] = &mut sizes;
        let null: *mut c_char = ptr::null_mut();
        // SAFETY: null texts ask for the four sizes, whose out-pointers are valid.
        let status = unsafe {
            let backend = &self.backend;
            backend.engine_info(self.raw, index, &mut id, null, name, null, plugin, null, version, null, kind)
        };
        check(&*self.backend, || format!("asking for engine {index}"), status)?;
        let mut texts = sizes.map(|size| vec![0u8; size.max(1)]);
        let mut room = sizes.map(|size| size.max(1));
        {
            let [name, plugin, version, kind] = &mut texts;
            let [name_size, plugin_size, version_size, kind_size] = &mut room;
            // SAFETY: each text has the room that its size says.
            let status = unsafe {
                self.backend.engine_info(
                    self.raw,
                    index,
                    &mut id,
                    name.as_mut_ptr().cast(),
                    name_size,
                    plugin.as_mut_ptr().cast(),
                    plugin_size,
                    version.as_mut_ptr().cast(),
                    version_size,
                    kind.as_mut_ptr().cast(),
                    kind_size,
                )
            };
            check(&*self.backend, || format!("asking for engine {index}"), status)?;
        }
        let [name, plugin, version, _] = texts.map(|text| until_nul(&text));
        Ok(EngineInfo { id, name, plugin, version })
    }

    /// An engine's id.
    ///
    /// # Errors
    /// There is no engine of this name.
    pub fn engine_id(&self, name: &str) -> Result<i64> {
        if !self.backend.has("hipdnnGetEngineIdByName_ext") {
            // An id is the hash of its name by rule, so an older backend need not be asked.
            return Ok(engine_id_of(name));
        }
        let text = CString::new(name).map_err(|_| Error::invalid(name, "an engine's name has no NUL"))?;
        let mut id = 0;
        // SAFETY: the text and the out-pointer are valid for the call.
        let status = unsafe { self.backend.engine_id_by_name(self.raw, text.as_ptr(), &mut id) };
        check(&*self.backend, || format!("looking for engine {name}"), status)?;
        Ok(id)
    }

    fn require(&self, function: &'static str) -> Result<()> {
        if self.backend.has(function) {
            return Ok(());
        }
        Err(Error::Absent { backend: self.backend.describe(), function })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `create` on this backend and never handed out.
        let status = unsafe { self.backend.destroy(self.raw) };
        if let Err(error) = check(&*self.backend, || "destroying a handle".into(), status) {
            tracing::warn!(%error, "a hipDNN handle leaked");
        }
    }
}

/// The id of an engine of this name: FNV-1a over its bytes.
pub fn engine_id_of(name: &str) -> i64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash.cast_signed()
}

fn until_nul(bytes: &[u8]) -> String {
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
