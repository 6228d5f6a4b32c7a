//! From steps to launches.
use graph::{Declined, Prim, Step};

use crate::{Arch, Work, arg_reduce, map, norm, pool, reduce, softmax};

/// What a step is on a GPU.
///
/// # Errors
/// There is no kernel for it: the primitive, its types or its extents. The step has to run elsewhere.
pub fn work(step: &Step, arch: &Arch) -> Result<Work, Declined> {
    match &step.prim {
        Prim::ArgReduce(prim) => arg_reduce::work(prim, step, arch),
        Prim::Map(prim) => map::work(prim, step),
        Prim::Norm(prim) => norm::work(prim, step, arch),
        Prim::Pool(prim) => pool::work(prim, step),
        Prim::Reduce(prim) => reduce::work(prim, step, arch),
        Prim::Softmax(prim) => softmax::work(prim, step, arch),
        other => Err(Declined::new(format!("no kernel for {}", other.name()))),
    }
}
