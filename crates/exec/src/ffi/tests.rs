//! Unsafe operations of the crate's tests.
use hip::Stream;

use super::run::RunMemory;
use crate::dnn::DnnStep;

/// Runs a step of hipDNN that reads its first buffer, writes its second and needs no workspace, and waits for it. The
/// slices are as large as the step's views.
pub fn run_dnn_step(step: &DnnStep, from: &mut [f32], to: &mut [f32], stream: &Stream) {
    let addresses = [from.as_mut_ptr().cast::<u8>(), to.as_mut_ptr().cast()];
    assert_eq!(step.workspace_bytes(), 0);
    // SAFETY: the slices hold the views of both buffers and are borrowed until the stream is synchronised.
    let memory = unsafe { RunMemory::new(&[], &[]) };
    step.execute(memory, |buffer| addresses[buffer.0 as usize], std::ptr::null_mut(), stream.raw()).unwrap();
    stream.synchronize().unwrap();
}
