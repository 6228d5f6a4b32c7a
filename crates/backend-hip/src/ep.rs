//! The execution provider of one session.
use std::{collections::BTreeMap, fmt::Write as _};

use ort_ep::{Claims, Compiled, Ep, FusedPartition, Result, view::Graph};

use crate::{
    claim::{self, Placement},
    explain::Explain,
    import::import,
    partition::HostPartition,
};

/// One session on the host device.
pub(crate) struct HipEp {
    /// Where placements are recorded, when somebody asked why.
    pub explain: Option<Explain>,
}

impl Ep for HipEp {
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let placement = claim::place(graph)?;
        report(&placement)?;
        if let Some(explain) = &self.explain {
            explain.record(graph.name()?, &placement)?;
        }
        claim::claim(&placement, claims)
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        partitions.iter().map(|partition| Ok(Compiled::new(HostPartition::new(import(partition)?)))).collect()
    }
}

/// One line per graph: how much runs here, and why the rest does not.
fn report(placement: &Placement<'_>) -> Result<()> {
    let taken: usize = placement.partitions.iter().map(Vec::len).sum();
    let total = taken + placement.declined.len();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (node, reason) in &placement.declined {
        *reasons.entry(format!("{}: {reason}", node.op_type()?)).or_default() += 1;
        tracing::debug!(target: "amdgpu_ep::partition", node = node.name()?, op = node.op_type()?, %reason, "declined");
    }
    let mut rest = String::new();
    for (reason, count) in &reasons {
        // Writing to a String can't fail.
        let _ = write!(rest, "; {count}× {reason}");
    }
    let partitions = placement.partitions.len();
    tracing::info!(target: "amdgpu_ep::partition", "{taken} of {total} nodes in {partitions} partitions on the host device{rest}");
    Ok(())
}
