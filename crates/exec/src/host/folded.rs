//! Results of work on constants, shared by the plans of a partition.
use std::sync::{Mutex, PoisonError};

use graph::{Graph, Plan, Tensor};

use super::run::run_prologue;

/// Results computed from constants, kept for as long as a plan uses them. Weights that are transposed, widened or
/// dequantised are the same for all shapes; without this, every plan would hold its own copy.
#[derive(Default)]
pub(crate) struct Folded {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    prologue: Plan,
    results: Vec<Tensor>,
}

impl Folded {
    /// The results of a plan without inputs, cached after the first evaluation.
    pub fn evaluate(&self, graph: &Graph, prologue: &Plan) -> Option<Vec<Tensor>> {
        let known = |entries: &Vec<Entry>| {
            entries.iter().find(|entry| is_same(&entry.prologue, prologue)).map(|entry| entry.results.clone())
        };
        if let Some(results) = known(&self.entries.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(results);
        }
        let results = run_prologue(graph, prologue)?;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have computed the same in the meantime; one copy is enough.
        if let Some(results) = known(&entries) {
            return Some(results);
        }
        entries.push(Entry { prologue: prologue.clone(), results: results.clone() });
        Some(results)
    }

    /// Replaces constants and results for which `other` returns a tensor. Results that a plan still shares are not
    /// replaced, because sharing is how [`forget_unused`](Self::forget_unused) knows that they are used.
    pub fn replace(&self, other: impl Fn(&Tensor) -> Option<Tensor>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for Entry { prologue, results } in entries.iter_mut() {
            let results = results.iter_mut().filter(|result| !result.is_shared());
            for tensor in prologue.constants.iter_mut().chain(results) {
                if let Some(other) = other(tensor) {
                    *tensor = other;
                }
            }
        }
    }

    /// Drops results that no plan uses any more.
    pub fn forget_unused(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.results.iter().any(Tensor::is_shared));
    }
}

fn is_same(one: &Plan, other: &Plan) -> bool {
    (&one.steps, &one.places, &one.outputs) == (&other.steps, &other.places, &other.outputs)
        && one.constants.len() == other.constants.len()
        && one.constants.iter().zip(&other.constants).all(|(a, b)| a.is_same(b) || is_equal(a, b))
}

/// True if both hold the same values. Never copies anything back from a device: tensors there are compared by id.
fn is_equal(a: &Tensor, b: &Tensor) -> bool {
    a.is_here() && b.is_here() && a == b
}
