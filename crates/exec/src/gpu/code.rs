//! Compiles and loads kernels on a device.
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use kernels::{Arch, Compiler, Counts, Kernel};

use super::progress::{Activity, OnProgress};

/// A kernel on the device, or why it is not available.
pub(super) type Outcome = Result<Arc<hip::Function>, Arc<str>>;

/// The kernels of a device. Each is compiled and loaded once.
pub(super) struct Code {
    known: Mutex<HashMap<Kernel, Arc<OnceLock<Outcome>>>>,
    compiler: Arc<dyn Compiler>,
    pub arch: Arch,
    device: hip::Device,
}

impl Code {
    pub fn new(device: hip::Device, arch: Arch, compiler: Arc<dyn Compiler>) -> Self {
        Self { known: Mutex::default(), compiler, arch, device }
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns all these kernels, in order. Those that are not loaded yet are compiled in parallel.
    pub fn functions(&self, wanted: &[&Kernel], progress: Option<&OnProgress>) -> Vec<Outcome> {
        let slots: Vec<(&Kernel, Arc<OnceLock<Outcome>>)> = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut slot = |kernel: &Kernel| match known.get(kernel) {
                Some(slot) => slot.clone(),
                None => known.entry(kernel.clone()).or_default().clone(),
            };
            wanted.iter().map(|&kernel| (kernel, slot(kernel))).collect()
        };
        // Steps often share kernels.
        let mut seen = HashSet::new();
        let mut is_open = |slot: &Arc<OnceLock<Outcome>>| slot.get().is_none() && seen.insert(Arc::as_ptr(slot));
        let open: Vec<_> = slots.iter().filter(|(_, slot)| is_open(slot)).collect();
        if !open.is_empty() {
            self.compile(&open, progress);
        }
        slots.iter().map(|(kernel, slot)| slot.get_or_init(|| self.build(kernel)).clone()).collect()
    }

    /// Where the code came from so far, if the compiler counts that.
    pub fn counts(&self) -> Option<Counts> {
        self.compiler.counts()
    }

    fn compile(&self, open: &[&(&Kernel, Arc<OnceLock<Outcome>>)], progress: Option<&OnProgress>) {
        let (start, next, before) = (Instant::now(), AtomicUsize::new(0), self.counts());
        let done = AtomicUsize::new(0);
        let work = || {
            while let Some((kernel, slot)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                slot.get_or_init(|| self.build(kernel));
                if let Some(progress) = progress {
                    progress(Activity::Kernels, done.fetch_add(1, Ordering::Relaxed) + 1, open.len());
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(open.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let (count, took) = (open.len(), start.elapsed());
        let from = before.zip(self.counts()).map_or_else(String::new, |(before, now)| {
            let (shipped, kept) = (now.shipped - before.shipped, now.kept - before.kept);
            format!(": {shipped} shipped, {kept} cached, {} compiled", now.compiled - before.compiled)
        });
        let target = &self.arch.target;
        tracing::info!(target: "amdgpu_ep::compile", "prepared {count} kernels for {target} in {took:.1?}{from}");
    }

    fn build(&self, kernel: &Kernel) -> Outcome {
        let image = self.compiler.compile(kernel, &self.arch).map_err(|error| error.to_string())?;
        let load = |image: &[u8]| self.device.module(image).and_then(|module| module.function(kernel.name));
        let function = match load(&image) {
            Err(error) => match self.compiler.replace_refused(kernel, &self.arch) {
                Some(replaced) => {
                    let name = kernel.name;
                    tracing::debug!(target: "amdgpu_ep::compile", "the driver refused the shipped kernel {name}: {error}");
                    load(&replaced.map_err(|error| error.to_string())?)
                }
                None => Err(error),
            },
            loaded => loaded,
        };
        Ok(Arc::new(function.map_err(|error| error.to_string())?))
    }
}

#[cfg(test)]
mod tests {
    use kernels::NoCompiler;

    use super::*;

    #[test]
    fn a_kernel_shared_by_launches_counts_once() {
        let device = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
        let none = NoCompiler { reason: "there is none".into() };
        let code = Code::new(device, Arch::new("gfx1100", 1), Arc::new(none));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let progress: OnProgress = {
            let reports = reports.clone();
            Arc::new(move |work, done, of| reports.lock().unwrap().push((work, done, of)))
        };
        let (kernel, other) = (Kernel::new("one", "text"), Kernel::new("other", "text"));
        let made = code.functions(&[&kernel, &kernel, &other, &kernel], Some(&progress));
        assert!(made.len() == 4 && made.iter().all(Result::is_err));
        let mut reports = reports.lock().unwrap().clone();
        reports.sort_by_key(|&(_, done, _)| done);
        assert_eq!(reports, [(Activity::Kernels, 1, 2), (Activity::Kernels, 2, 2)]);
    }
}
