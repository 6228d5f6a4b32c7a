//! Launches that begin before the one before them has ended, where the driver has such launches.
//!
//! All of our kernels wait for that end by themselves (`KERNEL` of `hip/prelude.h`), which takes less time than a launch that
//! begins behind it: blocks are there already, and have read the first constants.
use graph::{Plan, plan::Place};
use kernels::Pointer;

use super::task::Task;

/// The first release of the twin whose graphs keep such launches as they were recorded.
const SINCE: i32 = 12_030;
/// The first target of it with the instruction that waits: below it `EARLIER_DONE` of `hip/prelude.h` is nothing.
const FIRST_TARGET: u32 = 90;

/// Marks the launches of a plan that may begin early: those right behind another one of ours. Libraries' kernels, copies and the
/// host are waited for as usual.
pub(super) fn mark(tasks: &mut [Task], plan: &Plan, target: &str, driver: &hip::Driver) {
    if !waits(target) || driver.driver_version().is_none_or(|version| version < SINCE) {
        return;
    }
    let mut is_behind_ours = false;
    for (task, step) in tasks.iter_mut().zip(&plan.steps) {
        match task {
            Task::Nothing => {}
            Task::Kernels { launches, .. } => {
                for ready in launches {
                    let is_constant = |input: usize| matches!(plan.place(&step.inputs[input]), Place::Constant(_));
                    ready.is_early = is_behind_ours && reads_constants(ready.launch.args.ahead(), is_constant);
                    is_behind_ours = true;
                }
            }
            Task::Dnn(_) | Task::Blas { .. } | Task::Host { .. } => is_behind_ours = false,
        }
    }
}

/// Whether kernels for a target wait for the launch before them by themselves.
fn waits(target: &str) -> bool {
    target
        .strip_prefix("sm_")
        .and_then(|number| number.parse::<u32>().ok())
        .is_some_and(|number| number >= FIRST_TARGET)
}

/// Whether what is read before the wait is nothing but constants: scratch memory, for one, is made by the launch before.
fn reads_constants(ahead: &[Pointer], is_constant: impl Fn(usize) -> bool) -> bool {
    ahead.iter().all(|&pointer| matches!(pointer, Pointer::Input(input, _) if is_constant(input)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_wait_where_there_is_an_instruction_for_it() {
        for (target, wanted) in [("sm_90", true), ("sm_120", true), ("sm_80", false), ("gfx942", false), ("sm_", false)]
        {
            assert_eq!(waits(target), wanted, "{target}");
        }
    }

    #[test]
    fn only_constants_are_read_ahead() {
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
