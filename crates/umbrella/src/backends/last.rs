//! Which backend the calling thread's last session went to. ONNX Runtime has no way to ask a session, and a program that
//! feeds sequences must know whether every new shape is compiled for minutes.
use std::cell::Cell;
use std::ffi::CStr;

use crate::routing::BackendName;

thread_local! {
    /// Without a destructor: the library may be unloaded first.
    static LAST: Cell<&'static CStr> = const { Cell::new(c"") };
}

/// Remembers where the session that is being made on this thread goes; `None` is nowhere.
pub(super) fn remember(backend: Option<&BackendName>) {
    LAST.set(match backend {
        None => c"",
        Some(BackendName::MiGraphX) => c"migraphx",
        Some(BackendName::Hip) => c"hip",
        Some(BackendName::DirectX) => c"directx",
        Some(BackendName::HipGpu) => c"hipgpu",
        Some(BackendName::Library(_)) => c"library",
    });
}

/// What `amdgpu_ep_last_backend` gives.
pub(crate) fn last() -> &'static CStr {
    LAST.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_backends_and_of_this_thread() {
        for backend in BackendName::NAMED {
            remember(Some(&backend));
            assert_eq!(last().to_str().unwrap(), backend.to_string());
        }
        assert_eq!(std::thread::spawn(last).join().unwrap(), c"");
        remember(None);
        assert_eq!(last(), c"");
    }
}
