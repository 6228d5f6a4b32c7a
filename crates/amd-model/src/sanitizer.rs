//! The sanitizer for kernels, if it is switched on.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;

use gfx_emu::sanitize::{Sanitizer, Visibility};

use crate::trace::complain;

/// Set to `1` to look for bugs in kernels.
const VARIABLE: &str = "AMD_MODEL_SANITIZE";

/// Names a file that findings are added to, for programs that start others and want to know.
const LOG: &str = "AMD_MODEL_SANITIZE_LOG";

/// The content of new memory. Bytes with another value were written by the runtime without a queue.
const NEW: u8 = 0;

/// Memory of the device, as opposed to memory of the host (`KFD_IOC_ALLOC_MEM_FLAGS_VRAM`).
const VRAM: u32 = 1;

/// The sanitizer, if it is on.
pub(crate) fn active() -> Option<&'static Sanitizer> {
    static ACTIVE: OnceLock<Option<Sanitizer>> = OnceLock::new();
    let is_on = || std::env::var(VARIABLE).is_ok_and(|value| value == "1");
    ACTIVE.get_or_init(|| is_on().then(Sanitizer::new)).as_ref()
}

/// Notes an allocation with ROCr's flags for it.
pub(crate) fn allocated(address: u64, bytes: u64, flags: u32) {
    let Some(sanitizer) = active() else { return };
    let visibility = if flags & VRAM != 0 { Visibility::Filled(NEW) } else { Visibility::Host };
    sanitizer.shadow().allocated(address, bytes, visibility);
}

/// Notes that memory was freed.
pub(crate) fn freed(address: u64) {
    if let Some(sanitizer) = active() {
        sanitizer.shadow().freed(address);
    }
}

/// Notes that a queue wrote memory.
pub(crate) fn written(address: u64, bytes: u64) {
    if let Some(sanitizer) = active() {
        sanitizer.shadow().written(address, bytes);
    }
}

/// Prints what was found since the last call.
pub(crate) fn print(sanitizer: &Sanitizer) {
    for finding in sanitizer.new_findings() {
        complain(format_args!("sanitizer: {finding}"));
        if let Some(file) = std::env::var_os(LOG)
            && let Ok(mut log) = OpenOptions::new().create(true).append(true).open(file)
        {
            // One call, so that findings of several processes do not mix.
            let _ = log.write_all(format!("{finding}\n\n").as_bytes());
        }
    }
}
