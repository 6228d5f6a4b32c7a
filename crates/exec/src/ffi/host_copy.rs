//! A step of a GPU plan on the host: its operands are copied there.
use std::ops::Range;

use graph::plan::BufferPlace;
use graph::prim::BufferId;
use graph::{Plan, Step};
use hip::{CopyKind, HipError, RawStream};
use host_ops::{Context, OpError};

use super::run::RunMemory;

/// Host memory for a part of a buffer.
pub struct HostCopy {
    /// The byte range of the part in its buffer. It starts at a word, so that elements are aligned.
    range: Range<usize>,
    words: Vec<u128>,
}

impl HostCopy {
    /// Memory for a byte range of a buffer, filled with zeros.
    pub fn new(mut range: Range<usize>) -> Self {
        range.start -= range.start % size_of::<u128>();
        Self { words: vec![0; range.len().div_ceil(size_of::<u128>())], range }
    }

    /// Bytes of host memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Where the buffer would start in host memory, so that the part is at its offset.
    fn origin(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_sub(self.range.start)
    }

    /// Copies the part from its buffer. The caller waits for the stream before it reads or drops the copy.
    ///
    /// # Errors
    /// The driver's status.
    pub fn fetch(
        &mut self,
        _: RunMemory<'_>,
        buffer: *const u8,
        device: &hip::Device,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        let (to, from) = (self.words.as_mut_ptr().cast(), buffer.wrapping_add(self.range.start));
        // SAFETY: the buffer is an input, an output or in the run's block, and holds the views of the step; the copy is
        // large enough for the part, and `host_step::run` waits for the stream before it drops it.
        unsafe { device.copy_raw_async(to, from, self.range.len(), CopyKind::Default, stream) }
    }

    /// Copies some bytes back to the buffer. The caller waits for the stream before it changes or drops the copy.
    ///
    /// # Errors
    /// The driver's status.
    pub fn write_back(
        &mut self,
        _: RunMemory<'_>,
        range: Range<usize>,
        buffer: *mut u8,
        device: &hip::Device,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        assert!(range.is_empty() || self.range.start <= range.start && range.end <= self.range.end);
        let (to, from) = (buffer.wrapping_add(range.start), self.origin().wrapping_add(range.start));
        // SAFETY: as for `fetch`. Bytes between the view's elements are written back unchanged.
        unsafe { device.copy_raw_async(to, from, range.len(), CopyKind::Default, stream) }
    }
}

/// Runs a step of a plan on host copies of its buffers. `copy_of` says which copy holds a buffer; the others are
/// constants.
///
/// # Errors
/// As for [`host_ops::run`].
pub fn run_on_copies(
    step: &Step,
    plan: &Plan,
    copies: &mut [HostCopy],
    copy_of: impl Fn(BufferId) -> Option<usize>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let origins: Vec<*mut u8> = copies.iter_mut().map(HostCopy::origin).collect();
    let address = |buffer: BufferId| match (copy_of(buffer), &plan.places[buffer.0 as usize]) {
        (Some(copy), _) => origins[copy],
        (None, BufferPlace::Constant(number)) => plan.constants[*number].bytes().as_ptr().cast_mut(),
        (None, _) => std::ptr::null_mut(),
    };
    // SAFETY: `host_step::run` made the copies so that every view of a buffer lies within its copy, aligned as the
    // buffer is; constants are only read. The copies are borrowed exclusively during the call.
    unsafe { host_ops::run(step, address, cx) }
}
