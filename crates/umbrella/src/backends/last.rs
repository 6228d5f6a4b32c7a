//! The backend of the calling thread's last session. ONNX Runtime has no function that returns it, and a program that
//! runs many sequence lengths must know whether each new shape takes minutes to compile.
use std::cell::Cell;
use std::ffi::CStr;

use crate::routing::BackendName;

thread_local! {
    /// Without a destructor: the library may be unloaded first.
    static LAST: Cell<&'static CStr> = const { Cell::new(c"") };
}

/// Records the backend of the session that this thread is creating; `None` if no backend took it.
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

/// The result of `amdgpu_ep_last_backend`.
pub(crate) fn last() -> &'static CStr {
    LAST.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_backend_is_tracked_per_thread() {
        for backend in BackendName::NAMED {
            remember(Some(&backend));
            assert_eq!(last().to_str().unwrap(), backend.to_string());
        }
        assert_eq!(std::thread::spawn(last).join().unwrap(), c"");
        remember(None);
        assert_eq!(last(), c"");
    }
}
