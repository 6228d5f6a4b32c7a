//! Launches that begin before the previous one has ended, if the driver supports that.
//!
//! All our kernels wait for the end of the previous launch themselves (`KERNEL` of `hip/prelude.h`). This takes less
//! time than a launch that begins after the end: the blocks are already resident and have read their first constants.
use graph::Plan;
use graph::plan::BufferPlace;
use kernels::{Arch, Pointer};

use super::task::Task;

/// The first CUDA driver version whose graphs keep such launches as they were recorded.
const SINCE: i32 = 12_030;

/// Marks the launches of a plan that may begin early: those directly after another launch of ours. Library kernels,
/// copies and host steps are waited for as usual.
pub(super) fn mark(tasks: &mut [Task], plan: &Plan, arch: &Arch, driver: &hip::Driver) {
    if !arch.waits_for_earlier() || driver.driver_version().is_none_or(|version| version < SINCE) {
        return;
    }
    let mut is_behind_ours = false;
    for (task, step) in tasks.iter_mut().zip(&plan.steps) {
        match task {
            Task::Nothing => {}
            Task::Kernels { launches, .. } => {
                for ready in launches {
                    let is_constant =
                        |input: usize| matches!(plan.place(&step.inputs[input]), BufferPlace::Constant(_));
                    ready.is_early = is_behind_ours && reads_constants(ready.launch.args.ahead(), is_constant);
                    is_behind_ours = true;
                }
            }
            Task::Dnn(_) | Task::Blas { .. } | Task::Host { .. } => is_behind_ours = false,
        }
    }
}

/// Whether only constants are read before the wait. Scratch memory, for example, is written by the previous launch.
fn reads_constants(ahead: &[Pointer], is_constant: impl Fn(usize) -> bool) -> bool {
    ahead.iter().all(|&pointer| matches!(pointer, Pointer::Input(input, _) if is_constant(input)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_constants_are_read_early() {
        let (constant, made) = (Pointer::Input(1, 16), Pointer::Input(0, 0));
        let is_constant = |input| input == 1;
        assert!(reads_constants(&[], is_constant));
        assert!(reads_constants(&[constant, constant], is_constant));
        assert!(!reads_constants(&[constant, made], is_constant));
        for other in [Pointer::Output(1, 0), Pointer::Scratch(1), Pointer::Fault, Pointer::Counters(1)] {
            assert!(!reads_constants(&[constant, other], is_constant), "{other:?}");
        }
    }
}
