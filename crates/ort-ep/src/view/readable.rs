//! Device memories that are ordinary RAM.
//!
//! ONNX Runtime treats the memory of a host device like that of any GPU. The allocator that created it declares here
//! that it is RAM, and only then may a tensor in it be read through its address.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::MemoryDevice;

static MARKED: LazyLock<Mutex<HashMap<MemoryDevice, usize>>> = LazyLock::new(Mutex::default);
/// Avoids the lock in processes where no device memory is RAM.
static ANY: AtomicBool = AtomicBool::new(false);

/// Declares that the host may read and write every buffer of this memory, until [`unmark_host_readable`] was called as
/// many times.
pub(crate) fn mark_host_readable(memory: MemoryDevice) {
    let mut marked = MARKED.lock().unwrap_or_else(PoisonError::into_inner);
    *marked.entry(memory).or_default() += 1;
    ANY.store(true, Ordering::Release);
}

/// Undoes one [`mark_host_readable`].
pub(crate) fn unmark_host_readable(memory: MemoryDevice) {
    let mut marked = MARKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = marked.get_mut(&memory) {
        *count -= 1;
        if *count == 0 {
            marked.remove(&memory);
        }
    }
    // The library may be unmapped next, together with this static: it must not hold memory then.
    if marked.is_empty() {
        *marked = HashMap::new();
    }
    ANY.store(!marked.is_empty(), Ordering::Release);
}

/// Declares, while it lives, that the host may access every buffer of a memory that another library allocates.
#[derive(Debug)]
pub struct HostReadable(MemoryDevice);

impl HostReadable {
    /// # Safety
    /// Every buffer of `memory` is RAM, for as long as the result lives.
    pub unsafe fn new(memory: MemoryDevice) -> Self {
        mark_host_readable(memory);
        Self(memory)
    }
}

impl Drop for HostReadable {
    fn drop(&mut self) {
        unmark_host_readable(self.0);
    }
}

/// True if the host may access the memory.
pub(super) fn is_host_readable(memory: MemoryDevice) -> bool {
    memory.is_host_readable()
        || (ANY.load(Ordering::Acquire) && MARKED.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_memory_is_readable_only_while_it_is_declared_so() {
        let memory = MemoryDevice::gpu(0xfff0, 7);
        assert!(!is_host_readable(memory));
        mark_host_readable(memory);
        mark_host_readable(memory);
        unmark_host_readable(memory);
        assert!(is_host_readable(memory));
        assert!(!is_host_readable(MemoryDevice::gpu(0xfff0, 8)));
        unmark_host_readable(memory);
        unmark_host_readable(memory);
        assert!(!is_host_readable(memory));
    }

    #[test]
    fn host_and_pinned_memory_need_no_mark() {
        assert!(is_host_readable(MemoryDevice::CPU));
        assert!(is_host_readable(MemoryDevice::gpu(0xfff1, 0).host_accessible()));
    }
}
