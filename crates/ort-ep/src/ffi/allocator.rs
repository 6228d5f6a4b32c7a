//! [`OrtAllocator`](sys::OrtAllocator) over [`Allocator`].
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ort_ep_sys as sys;

use super::guard::Border;
use super::life::LifeToken;
use crate::allocator::{Allocator, Block};
use crate::view::{OwnedKeyValues, RawStream, mark_host_readable, unmark_host_readable};
use crate::{Error, MemoryDevice, Result};

/// An allocator to hand to ONNX Runtime.
pub struct AllocatorHandle(Box<dyn FnOnce(ServedMemory) -> *mut sys::OrtAllocator + Send>);

impl AllocatorHandle {
    /// Wraps an allocator.
    pub fn new<A: Allocator>(allocator: A) -> Self {
        Self(Box::new(move |served| AllocatorBox::into_raw(allocator, served)))
    }

    /// An allocator that fails every request with `error`.
    pub(super) fn refusing(error: Error) -> Self {
        Self::new(Refusing(error))
    }

    /// Creates the C object.
    pub(super) fn into_raw(self, served: ServedMemory) -> *mut sys::OrtAllocator {
        (self.0)(served)
    }
}

struct Refusing(Error);

/// A block type without values.
enum NoBlock {}

// SAFETY: no value of this type exists.
unsafe impl Block for NoBlock {
    fn address(&self) -> NonNull<u8> {
        match *self {}
    }
}

impl Allocator for Refusing {
    type Block = NoBlock;

    fn alloc(&self, _: usize, _: Option<RawStream>) -> Result<NoBlock> {
        Err(self.0.clone())
    }
}

/// The memory an allocator serves.
pub(super) struct ServedMemory {
    pub border: Border,
    pub memory: MemoryDevice,
    /// Outlives the allocator: the factory keeps it.
    pub info: *const sys::OrtMemoryInfo,
    pub _token: LifeToken,
}

// SAFETY: the memory info is immutable and kept by the factory.
unsafe impl Send for ServedMemory {}

/// The first fields of every [`AllocatorBox`], whatever its type.
#[repr(C)]
struct Header {
    raw: sys::OrtAllocator,
    release: unsafe fn(*mut sys::OrtAllocator),
}

#[repr(C)]
struct AllocatorBox<A: Allocator> {
    header: Header,
    inner: A,
    served: ServedMemory,
    held: Mutex<Held<A::Block>>,
}

const _: () = assert!(std::mem::offset_of!(Header, raw) == 0);

/// The blocks ONNX Runtime holds.
struct Held<B> {
    blocks: HashMap<usize, B>,
    /// Blocks that are being freed: their threads still use the allocator.
    leaving: usize,
    /// ONNX Runtime released the allocator but still holds some of its blocks: freeing the last one frees the
    /// allocator.
    released: bool,
}

impl<B> Held<B> {
    /// True if the allocator can be freed.
    fn is_over(&self) -> bool {
        self.released && self.blocks.is_empty() && self.leaving == 0
    }
}

impl<A: Allocator> Drop for AllocatorBox<A> {
    fn drop(&mut self) {
        if A::Block::HOST_READABLE {
            unmark_host_readable(self.served.memory);
        }
    }
}

impl<A: Allocator> AllocatorBox<A> {
    fn into_raw(inner: A, served: ServedMemory) -> *mut sys::OrtAllocator {
        if A::Block::HOST_READABLE {
            mark_host_readable(served.memory);
        }
        let mut raw = sys::OrtAllocator::empty(served.border.runtime.api_version());
        raw.Alloc = Some(alloc::<A>);
        raw.Free = Some(free::<A>);
        raw.Info = Some(info::<A>);
        raw.Reserve = Some(alloc::<A>);
        raw.GetStats = Some(stats::<A>);
        raw.AllocOnStream = if A::STREAM_AWARE { Some(alloc_on_stream::<A>) } else { None };
        raw.Shrink = if A::SHRINKS { Some(shrink::<A>) } else { None };
        let held = Mutex::new(Held { blocks: HashMap::new(), leaving: 0, released: false });
        let header = Header { raw, release: release::<A> };
        Box::into_raw(Box::new(Self { header, inner, served, held })).cast()
    }

    fn held(&self) -> MutexGuard<'_, Held<A::Block>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, bytes: usize, stream: Option<RawStream>) -> *mut c_void {
        self.served.border.value("Alloc", ptr::null_mut(), || {
            let block = self.inner.alloc(bytes, stream)?;
            let address = block.address().as_ptr();
            self.held().blocks.insert(address as usize, block);
            Ok(address.cast())
        })
    }
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `AllocatorBox::<A>::into_raw` and is alive.
unsafe fn of<'a, A: Allocator>(this: *const sys::OrtAllocator) -> &'a AllocatorBox<A> {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

unsafe extern "system" fn alloc<A: Allocator>(this: *mut sys::OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of::<A>(this) }.serve(size, None)
}

unsafe extern "system" fn alloc_on_stream<A: Allocator>(
    this: *mut sys::OrtAllocator,
    size: usize,
    stream: *mut sys::OrtSyncStream,
) -> *mut c_void {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of::<A>(this) };
    // SAFETY: the stream is null or alive for the call.
    let stream = unsafe { super::stream::native_handle(this.served.border.runtime, stream) };
    this.serve(size, stream)
}

unsafe extern "system" fn free<A: Allocator>(this: *mut sys::OrtAllocator, address: *mut c_void) {
    if address.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let allocator = unsafe { of::<A>(this) };
    let border = allocator.served.border;
    let block = {
        let mut held = allocator.held();
        let block = held.blocks.remove(&(address as usize));
        held.leaving += usize::from(block.is_some());
        block
    };
    let Some(block) = block else {
        return border.value("Free", (), || {
            tracing::warn!(target: "ort_ep::memory", ?address, "ignored a free of an address we did not allocate");
            Ok(())
        });
    };
    border.value("Free", (), || {
        allocator.inner.free(block);
        Ok(())
    });
    let is_over = {
        let mut held = allocator.held();
        held.leaving -= 1;
        held.is_over()
    };
    if is_over {
        // SAFETY: ONNX Runtime has released the allocator, this was the last block it held, and no other thread is in
        // `inner.free`: only the last thread to leave sees `is_over`.
        unsafe { delete::<A>(this) };
    }
}

unsafe extern "system" fn info<A: Allocator>(this: *const sys::OrtAllocator) -> *const sys::OrtMemoryInfo {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of::<A>(this) }.served.info
}

unsafe extern "system" fn stats<A: Allocator>(
    this: *const sys::OrtAllocator,
    out: *mut *mut sys::OrtKeyValuePairs,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of::<A>(this) };
    this.served.border.status("GetStats", || {
        let entries = this.inner.stats().map(|stats| stats.entries().map(|(name, value)| (name, value.to_string())));
        let pairs = OwnedKeyValues::from_pairs(this.served.border.runtime, entries.into_iter().flatten())?;
        // SAFETY: a valid out-pointer; ownership of the pairs goes to the caller.
        unsafe { out.write(pairs.into_raw()) };
        Ok(())
    })
}

unsafe extern "system" fn shrink<A: Allocator>(this: *mut sys::OrtAllocator) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of::<A>(this) };
    this.served.border.status("Shrink", || this.inner.shrink())
}

/// Frees the box now, or together with its last block.
unsafe fn release<A: Allocator>(this: *mut sys::OrtAllocator) {
    // SAFETY: as for `release_allocator`.
    let allocator = unsafe { of::<A>(this) };
    let (border, is_over, left) = {
        let mut held = allocator.held();
        held.released = true;
        (allocator.served.border, held.is_over(), held.blocks.len())
    };
    if is_over {
        // SAFETY: ONNX Runtime holds neither the allocator nor a block of it.
        unsafe { delete::<A>(this) };
    } else {
        let _scope = border.logger.enter();
        // The blocks can still be freed through us, but ONNX Runtime's own objects around this allocator are gone.
        // Logged as an error, because GenAI hides lower levels.
        tracing::error!(
            target: "ort_ep::memory",
            "an allocator was released while {left} of its blocks are in use; freeing them later may crash in ONNX Runtime\n  \
             help: with ONNX Runtime GenAI 0.18, delete all generators before you create another model"
        );
    }
}

/// Frees the box.
///
/// # Safety
/// Same as for `of`, and the allocator is no longer used.
unsafe fn delete<A: Allocator>(this: *mut sys::OrtAllocator) {
    // SAFETY: made by `Box::into_raw`; the rest is guaranteed by the caller.
    let allocator = unsafe { Box::from_raw(this.cast::<AllocatorBox<A>>()) };
    let border = allocator.served.border;
    border.value("ReleaseAllocator", (), move || {
        drop(allocator);
        Ok(())
    });
}

/// Releases an allocator.
///
/// # Safety
/// `this` is null, or came from an [`AllocatorHandle`] of this library and was not released before.
pub(super) unsafe fn release_allocator(this: *mut sys::OrtAllocator) {
    if !this.is_null() {
        // SAFETY: every allocator of ours starts with a `Header`.
        unsafe { ((*this.cast::<Header>()).release)(this) }
    }
}
