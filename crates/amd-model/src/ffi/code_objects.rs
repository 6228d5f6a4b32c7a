//! The code objects that ROCr has loaded, by the list that it keeps for debuggers (`_amdgpu_r_debug`).
//!
//! Other threads may change the list at any time, and the memory of a code object may be gone. Everything is read through
//! `/proc/self/mem`, which returns an error where a pointer would end the process.

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;

use dylib::Library;

use crate::trace::trace;

/// ROCr, under the names that it is loaded by.
pub const ROCR: [&str; 2] = ["libhsa-runtime64.so.1", "libhsa-runtime64.so"];
/// The most entries of the list that are read, and the most bytes of a code object.
const MOST_ENTRIES: usize = 100_000;
const MOST_BYTES: u64 = 1 << 30;

/// Calls `each` with the address and the bytes of each loaded code object.
pub(super) fn each(mut each: impl FnMut(u64, &[u8])) {
    let Some(list) = list() else { return };
    let Ok(memory) = File::open("/proc/self/mem") else { return };
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).is_ok().then(|| u64::from_le_bytes(bytes))
    };
    // struct r_debug: the version, then the first entry.
    let mut entry = word(list + 8).unwrap_or(0);
    for _ in 0..MOST_ENTRIES {
        // struct link_map: the load address, the name, the dynamic section, the next entry.
        let (Some(base), Some(name), Some(next)) = (word(entry), word(entry + 8), word(entry + 24)) else { return };
        let mut text = vec![0; 4096];
        let read = memory.read_at(&mut text, name).unwrap_or(0);
        let text = text[..read].split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(code) = std::str::from_utf8(text).ok().and_then(|uri| load(uri, &memory)) {
            trace(format_args!("code object {} at {base:#x}", String::from_utf8_lossy(text)));
            each(base, &code);
        }
        if next == 0 {
            return;
        }
        entry = next;
    }
}

/// The address of the list.
fn list() -> Option<u64> {
    let library = ROCR.iter().find_map(|name| Library::already_open(name))?;
    // SAFETY: the symbol is a variable; only its address is used.
    let list = unsafe { library.symbol::<*const c_void>("_amdgpu_r_debug") };
    list.map(|list| list.addr() as u64)
}

/// The bytes of a code object: `file:///path#offset=1&size=2` or `memory://process#offset=0x1&size=2`.
fn load(uri: &str, memory: &File) -> Option<Vec<u8>> {
    let (place, range) = uri.split_once('#').unwrap_or((uri, ""));
    let number = |name: &str| {
        let text = range.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?;
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    };
    let read = |file: &File, offset: u64, size: u64| {
        let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= MOST_BYTES)?];
        file.read_exact_at(&mut bytes, offset).is_ok().then_some(bytes)
    };
    if place.starts_with("memory://") {
        return read(memory, number("offset")?, number("size")?);
    }
    let file = File::open(place.strip_prefix("file://")?).ok()?;
    let whole = file.metadata().ok()?.len();
    read(&file, number("offset").unwrap_or(0), number("size").unwrap_or(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_objects_are_read_from_files_and_from_memory() {
        let memory = File::open("/proc/self/mem").unwrap();
        let content = b"0123456789".to_vec();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("code");
        std::fs::write(&file, &content).unwrap();
        let uri = format!("file://{}", file.display());
        assert_eq!(load(&uri, &memory).as_deref(), Some(&content[..]));
        assert_eq!(load(&format!("{uri}#offset=2&size=3"), &memory).as_deref(), Some(&content[2..5]));
        let address = content.as_ptr().addr();
        let uri = format!("memory://1#offset={address:#x}&size=10");
        assert_eq!(load(&uri, &memory).as_deref(), Some(&content[..]));
    }

    #[test]
    fn addresses_that_are_not_mapped_give_nothing() {
        let memory = File::open("/proc/self/mem").unwrap();
        for uri in [
            "memory://1#offset=16&size=10",
            "memory://1#size=10",
            "file:///nowhere",
            "x",
            "",
            "memory://1#offset=1&size=99999999999999",
        ] {
            assert_eq!(load(uri, &memory), None, "{uri}");
        }
    }
}
