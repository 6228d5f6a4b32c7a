//! Runs a step on the host: copies its operands there and its results back.
use std::ops::Range;

use graph::plan::BufferPlace;
use graph::prim::BufferId;
use graph::{Plan, Step, View};
use hip::RawStream;
use host_ops::{Context, Parallel, Scratch};

use crate::ExecError;
use crate::ffi::RunMemory;
use crate::ffi::host_copy::{HostCopy, run_on_copies};
use crate::memory::{Purpose, Share};

/// The byte range of its buffer that a view covers, from the first element to the last.
pub(crate) fn view_range(view: &View) -> Range<usize> {
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

/// Runs a step on the host, after waiting for the stream's earlier work. `address` gives the memory of the run, which
/// holds the views' parts of their buffers.
pub(super) fn run(
    memory: RunMemory<'_>,
    step: &Step,
    node: impl FnOnce() -> String,
    plan: &Plan,
    address: impl Fn(BufferId) -> *mut u8,
    (device, stream): (&hip::Device, RawStream<'_>),
    parallel: &dyn Parallel,
) -> Result<(), ExecError> {
    let mut parts: Vec<(BufferId, Range<usize>)> = Vec::new();
    // Buffers at the same address are the same buffer: a cache may be updated in place.
    let same = |a: BufferId, b: BufferId| a == b || address(a) == address(b);
    for view in step.inputs.iter().chain(&step.outputs) {
        if matches!(plan.place(view), BufferPlace::Constant(_)) {
            continue;
        }
        let range = view_range(view);
        match parts.iter_mut().find(|(buffer, _)| same(*buffer, view.buffer)) {
            Some((_, part)) => *part = part.start.min(range.start)..part.end.max(range.end),
            None => parts.push((view.buffer, range)),
        }
    }
    let copy_of = |wanted: BufferId| parts.iter().position(|(buffer, _)| same(*buffer, wanted));
    let mut copies: Vec<HostCopy> = parts.iter().map(|(_, range)| HostCopy::new(range.clone())).collect();
    let mut pairs = copies.iter_mut().zip(&parts);
    let fetched = pairs.try_for_each(|(copy, (buffer, _))| copy.fetch(memory, address(*buffer), device, stream));
    // Wait also after an error: the copies must outlive the work that was queued.
    let waited = device.stream_synchronize(stream);
    fetched.and(waited)?;
    let copied = copies.iter().map(HostCopy::bytes).sum();
    let (mut working, mut scratch) = (Share::new(Purpose::Working, copied), Scratch::default());
    let mut cx = Context { parallel, scratch: &mut scratch };
    let done = run_on_copies(step, plan, &mut copies, copy_of, &mut cx);
    working.set(copied + scratch.bytes());
    done.map_err(|source| ExecError::Step { node: node(), source })?;
    let written = step.outputs.iter().try_for_each(|view| match copy_of(view.buffer) {
        Some(copy) => copies[copy].write_back(memory, view_range(view), address(view.buffer), device, stream),
        None => Ok(()),
    });
    let waited = device.stream_synchronize(stream);
    Ok(written.and(waited)?)
}

#[cfg(test)]
mod tests {
    use graph::DType;

    use super::*;

    #[test]
    fn ranges_cover_all_elements_of_a_view() {
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
