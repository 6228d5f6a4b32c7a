//! Turns steps into launches.
use graph::prim::ProductKind;
use graph::{Declined, Prim, Step};

use crate::{
    Arch, Launches, append, append_attention, arg_reduce, attention, cached_attention, causal_conv, cumulative,
    experts, gather, gemm, linear_attention, lrn, map, norm, paged, pool, quant, recurrent, reduce, resize, retain,
    rotary, scatter, softmax, top_k,
};

/// The launches of a step on a GPU.
///
/// # Errors
/// No kernel supports the primitive, its types or its extents. The step has to run elsewhere.
pub fn work(step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    match &step.prim {
        Prim::Append(prim) => append::work(prim, step, arch),
        Prim::AppendAttention(prim) => append_attention::work(prim, step, arch),
        Prim::ArgReduce(prim) => arg_reduce::work(prim, step, arch),
        Prim::Attention(prim) => attention::work(prim, step, arch),
        Prim::CachedAttention(prim) => cached_attention::work(prim, step, arch),
        Prim::CausalConv(prim) => causal_conv::work(prim, step),
        Prim::Cumulative(prim) => cumulative::work(prim, step),
        Prim::ExpertProduct(prim) => experts::work(prim, step, arch),
        Prim::Gather => gather::slices(step),
        Prim::GatherElements(axis) => gather::elements(axis, step),
        Prim::GatherNd(batch) => gather::tuples(batch, step),
        Prim::LinearAttention(prim) => linear_attention::work(prim, step),
        Prim::Lrn(prim) => lrn::work(prim, step),
        Prim::Map(prim) => map::work(prim, step, arch),
        Prim::Norm(prim) => norm::work(prim, step, arch),
        Prim::PagedPlaces(prim) => paged::places(prim, step),
        Prim::PagedAppend => paged::append(step, arch),
        Prim::PagedAttention(prim) => cached_attention::paged(prim, step, arch),
        Prim::Pool(prim) => pool::work(prim, step, arch),
        Prim::Product(product) => match &product.kind {
            ProductKind::QuantMatMul(prim) => quant::work(prim, product, step, arch),
            _ => gemm::work(step, arch),
        },
        Prim::Recurrent(prim) => recurrent::work(prim, step),
        Prim::Reduce(prim) => reduce::work(prim, step, arch),
        Prim::Resize(prim) => resize::work(prim, step),
        Prim::Retain => retain::work(step, arch),
        Prim::Rotary(prim) => rotary::work(prim, step),
        Prim::ScatterElements(prim) => scatter::elements(prim, step, arch),
        Prim::ScatterNd(prim) => scatter::tuples(prim, step, arch),
        Prim::Softmax(prim) => softmax::work(prim, step, arch),
        Prim::TopK(prim) => top_k::work(prim, step),
        other => Err(Declined::new(format!("no kernel for {}", other.name()))),
    }
}

/// Alternative launches for a step on a GPU: the default first, then those chosen for devices with a quarter and with
/// four times the compute units, if they differ. Only measuring shows which one is best.
///
/// # Errors
/// Same as for [`work`].
pub fn variants(step: &Step, arch: &Arch) -> Result<Vec<Launches>, Declined> {
    let mut variants = vec![work(step, arch)?];
    for compute_units in [arch.compute_units / 4, arch.compute_units.saturating_mul(4)] {
        let arch = Arch { compute_units: compute_units.max(1), ..arch.clone() };
        if let Ok(work) = work(step, &arch)
            && !variants.contains(&work)
        {
            variants.push(work);
        }
    }
    Ok(variants)
}
