//! Builds the hipDNN plans of many steps in parallel.
//!
//! A library takes tens of milliseconds to choose and prepare an engine for a convolution, and a network has dozens of
//! different ones. A handle may be used by one thread at a time, so every thread has its own. A plan is executed with
//! the handle it was built with.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use graph::Step;
use hipdnn::Handle;

use crate::policy;

use super::{Dnn, DnnError, Form, Offering, PlanKey, operations, signature};

/// The maximum number of threads that build plans. Each needs a handle, and each handle holds device memory.
const MAX_THREADS: usize = 8;

impl Offering {
    /// Builds the plans of steps that will be offered, so that [`offer`](Self::offer) finds them. Matrix products are
    /// left out: a device may have something better for them.
    pub fn make_ready(&self, steps: &[Step]) {
        let Ok(dnn) = &self.library else { return };
        let mut open: Vec<(Step, &Step)> = Vec::new();
        for step in steps.iter().filter(|step| {
            operations::is_known(&step.prim) && policy::asks_dnn_first(&step.prim) && self.offers.check(step).is_ok()
        }) {
            let key = signature(step);
            if open.iter().all(|(known, _)| *known != key)
                && dnn.known(&PlanKey { step: key.clone(), form: Form::Named, rank: None }).is_none()
            {
                open.push((key, step));
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(open.len());
        if threads < 2 {
            return;
        }
        let (start, next) = (Instant::now(), AtomicUsize::new(0));
        let work = |number: usize| {
            // A thread without a handle leaves its work to the others.
            let Ok(handle) = dnn.handle(number) else { return };
            while let Some((_, step)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = dnn.build(step, Form::Named, None, &handle);
            }
        };
        std::thread::scope(|scope| {
            for number in 1..threads {
                scope.spawn(move || work(number));
            }
            work(0);
        });
        let (count, took) = (open.len(), start.elapsed());
        tracing::debug!(target: "amdgpu_ep::compile", "hipDNN evaluated {count} graphs on {threads} threads in {took:.1?}");
    }
}

impl Dnn {
    /// The handle with this number. Creates it, and all before it, if they do not exist yet.
    pub(super) fn handle(&self, number: usize) -> Result<Arc<Mutex<Handle>>, DnnError> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(handle) = handles.get(number) {
                return Ok(handle.clone());
            }
            let _scope = self.device.enter()?;
            handles.push(Arc::new(Mutex::new(Handle::new(self.backend.clone())?)));
        }
    }
}
