//! Results of work on constants, shared by the plans of a program.
use std::sync::{Mutex, PoisonError};

use graph::{Graph, Plan, Tensor};

use super::run::run_prologue;

/// What was computed from constants, for as long as a plan uses it. Weights that are turned, widened or dequantised are the
/// same for all shapes: without this every plan would hold its own.
#[derive(Default)]
pub(crate) struct Folded {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    prologue: Plan,
    results: Vec<Tensor>,
}

impl Folded {
    /// The results of a plan without inputs, computed now or before.
    pub fn evaluate(&self, graph: &Graph, prologue: &Plan) -> Option<Vec<Tensor>> {
        let known = |entries: &Vec<Entry>| {
            entries.iter().find(|entry| is_same(&entry.prologue, prologue)).map(|entry| entry.results.clone())
        };
        if let Some(results) = known(&self.entries.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(results);
        }
        let results = run_prologue(graph, prologue)?;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have computed the same meanwhile; one copy is enough.
        if let Some(results) = known(&entries) {
            return Some(results);
        }
        entries.push(Entry { prologue: prologue.clone(), results: results.clone() });
        Some(results)
    }

    /// Puts other tensors in place of constants and results, where `other` has some; not of results that a plan has as they
    /// are, by which it would not be known any more that they are used.
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

    /// Forgets what no plan uses any more.
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

/// True if both hold the same. Nothing is fetched from a device for this: what is there has its number.
fn is_equal(a: &Tensor, b: &Tensor) -> bool {
    a.is_here() && b.is_here() && a == b
}
