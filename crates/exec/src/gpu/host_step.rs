//! Runs a step on the host: copies its operands there and its results back.
use std::ops::Range;

use graph::plan::BufferPlace;
use graph::prim::BufferId;
use graph::{Plan, Step, View};
use hip::{CopyKind, RawStream};
use host_ops::{Context, Parallel, Scratch};

use crate::ExecError;
use crate::memory::{Purpose, Share};

/// Host memory for a part of a buffer.
struct Copy {
    buffer: BufferId,
    /// The byte range of the part in its buffer. It starts at a word, so that elements are aligned.
    range: Range<usize>,
    words: Vec<u128>,
}

/// The byte range of its buffer that a view covers, from the first element to the last.
pub(super) fn view_range(view: &View) -> Range<usize> {
    if view.elems() == 0 {
        return 0..0;
    }
    let (mut first, mut last) = (view.offset, view.offset);
    for (&extent, &stride) in view.shape.iter().zip(&view.strides) {
        let reach = stride * (extent.cast_signed() - 1);
        if reach < 0 { first += reach } else { last += reach }
    }
    let bytes = view.dtype.bytes();
    first.cast_unsigned() * bytes..(last.cast_unsigned() + 1) * bytes
}

/// Runs a step on the host, after waiting for the stream's earlier work.
///
/// # Safety
/// `address` gives memory that the driver can copy and that holds the views' parts of their buffers. Nothing except the
/// stream's earlier work may change it during the call.
pub(super) unsafe fn run(
    step: &Step,
    node: impl FnOnce() -> String,
    plan: &Plan,
    address: impl Fn(BufferId) -> *mut u8,
    device: &hip::Device,
    stream: RawStream<'_>,
    parallel: &dyn Parallel,
) -> Result<(), ExecError> {
    let mut copies: Vec<Copy> = Vec::new();
    // Buffers at the same address are the same buffer: a cache may be updated in place.
    let same = |a: BufferId, b: BufferId| a == b || address(a) == address(b);
    for view in step.inputs.iter().chain(&step.outputs) {
        if matches!(plan.place(view), BufferPlace::Constant(_)) {
            continue;
        }
        let range = view_range(view);
        match copies.iter_mut().find(|copy| same(copy.buffer, view.buffer)) {
            Some(copy) => copy.range = copy.range.start.min(range.start)..copy.range.end.max(range.end),
            None => copies.push(Copy { buffer: view.buffer, range, words: Vec::new() }),
        }
    }
    for copy in &mut copies {
        copy.range.start -= copy.range.start % size_of::<u128>();
        copy.words = vec![0; copy.range.len().div_ceil(size_of::<u128>())];
        let from = address(copy.buffer).wrapping_add(copy.range.start);
        // SAFETY: the caller guarantees the source; the copy is large enough for the part and lives until the wait
        // below.
        unsafe {
            let to = copy.words.as_mut_ptr().cast::<u8>();
            device.copy_raw_async(to, from, copy.range.len(), CopyKind::Default, stream)?;
        }
    }
    device.stream_synchronize(stream)?;
    let copied = copies.iter().map(|copy| size_of_val(&copy.words[..])).sum();
    let (mut working, mut scratch) = (Share::new(Purpose::Working, copied), Scratch::default());
    let mut cx = Context { parallel, scratch: &mut scratch };
    let on_host = |buffer: BufferId| {
        let copy = copies.iter().find(|copy| same(copy.buffer, buffer));
        copy.map(|copy| copy.words.as_ptr().cast::<u8>().cast_mut().wrapping_sub(copy.range.start)).unwrap_or_else(
            || match &plan.places[buffer.0 as usize] {
                BufferPlace::Constant(number) => plan.constants[*number].bytes().as_ptr().cast_mut(),
                _ => std::ptr::null_mut(),
            },
        )
    };
    // SAFETY: every view of a buffer lies within its copy, aligned as the buffer is; constants are only read.
    let done = unsafe { host_ops::run(step, on_host, &mut cx) };
    working.set(copied + scratch.bytes());
    done.map_err(|source| ExecError::Step { node: node(), source })?;
    for view in &step.outputs {
        let range = view_range(view);
        let to = address(view.buffer).wrapping_add(range.start);
        let from = on_host(view.buffer).wrapping_add(range.start);
        // SAFETY: as above. Bytes between the view's elements are written back unchanged.
        unsafe { device.copy_raw_async(to, from, range.len(), CopyKind::Default, stream)? };
    }
    Ok(device.stream_synchronize(stream)?)
}

#[cfg(test)]
mod tests {
    use graph::DType;

    use super::*;

    #[test]
    fn ranges_hold_all_elements_of_a_view() {
        let view = |shape: &[usize], strides: &[isize], offset| View {
            buffer: BufferId(0),
            dtype: DType::F32,
            shape: shape.into(),
            strides: strides.iter().copied().collect(),
            offset,
        };
        assert_eq!(view_range(&view(&[2, 3], &[3, 1], 0)), 0..24);
        assert_eq!(view_range(&view(&[2, 3], &[10, -1], 5)), 12..64);
        assert_eq!(view_range(&view(&[4], &[0], 7)), 28..32);
        assert_eq!(view_range(&view(&[0, 3], &[3, 1], 7)), 0..0);
    }
}
