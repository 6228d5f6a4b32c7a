//! A chip: runs grids of workgroups on the threads of the CPU.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::decode::Context;
use crate::descriptor::Descriptor;
use crate::llvm::Disassembler;
use crate::observer::{NoObserver, Observer};
use crate::program::Program;
use crate::wave::Wave;
use crate::workgroup::{Setup, Workgroup};
use crate::{Fault, Memory, Target};

/// One launch of a kernel: the fields of an AQL dispatch packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dispatch {
    /// Address of the kernel's descriptor.
    pub kernel_object: u64,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Workitems in each dimension. Groups at the upper end may be partial.
    pub grid: [u32; 3],
    /// Workitems of a workgroup in each dimension.
    pub group: [u32; 3],
    /// Bytes of scratch memory of each workitem, if more than the descriptor says.
    pub private_size: u32,
    /// Bytes of LDS of a workgroup, if more than the descriptor says.
    pub group_size: u32,
    /// Address of the packet itself, for kernels that read it; 0 if there is none.
    pub dispatch_packet: u64,
    /// Address of the queue, for kernels that read it; 0 if there is none.
    pub queue: u64,
}

/// What a dispatch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Instructions of all waves.
    pub instructions: u64,
    /// Waves.
    pub waves: u64,
    /// Workgroups.
    pub workgroups: u64,
}

/// An emulated chip. It caches decoded programs, so keep it.
pub struct Chip {
    target: Target,
    threads: usize,
    /// For waves of 32 and 64 lanes, made when first needed.
    disassemblers: [Mutex<Option<Arc<Disassembler>>>; 2],
    programs: Mutex<HashMap<(u64, u32), Arc<Program>>>,
    /// Waves of earlier dispatches: making one takes longer than a short kernel.
    waves: Mutex<Vec<Wave>>,
}

impl Chip {
    /// A chip of this kind.
    ///
    /// # Errors
    /// No usable LLVM library, see [`Fault::NoDisassembler`].
    pub fn new(target: Target) -> Result<Chip, Fault> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let chip = Chip {
            target,
            threads,
            disassemblers: [Mutex::new(None), Mutex::new(None)],
            programs: Mutex::new(HashMap::new()),
            waves: Mutex::new(Vec::new()),
        };
        chip.disassembler(if target.has_wave32() { 32 } else { 64 })?;
        Ok(chip)
    }

    /// Limits the number of threads that run workgroups.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Chip {
        self.threads = threads.max(1);
        self
    }

    /// The kind of chip.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Runs a grid to its end.
    ///
    /// # Errors
    /// The first fault of any wave. Memory then holds what the waves wrote until they stopped.
    pub fn run(&self, dispatch: &Dispatch, memory: &Memory) -> Result<Stats, Fault> {
        self.run_observed(dispatch, memory, &mut NoObserver)
    }

    /// Runs a grid to its end and shows every step to an observer.
    ///
    /// # Errors
    /// As for [`Chip::run`], or what the observer returned.
    pub fn run_observed<O: Observer>(
        &self,
        dispatch: &Dispatch,
        memory: &Memory,
        observer: &mut O,
    ) -> Result<Stats, Fault> {
        let descriptor = Descriptor::read(memory, dispatch.kernel_object)?;
        let counts = self.check(dispatch, &descriptor)?;
        let wave_size = if self.target.has_wave32() { descriptor.wave_size() } else { 64 };
        let program = self.program(memory, descriptor.entry, wave_size)?;
        let setup = Setup { chip: self, dispatch, descriptor: &descriptor, memory, wave_size, program };
        let total = counts.iter().map(|count| u64::from(*count)).product::<u64>();
        let workers = self.threads.min(usize::try_from(total).unwrap_or(usize::MAX)).max(1);
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = |observer: &mut O| {
            let mut group = Workgroup::new(&setup);
            let mut stats = Stats::default();
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    break;
                }
                let [x, y, _] = counts.map(u64::from);
                let id = [index % x, index / x % y, index / x / y].map(|at| at as u32);
                if let Err(fault) = group.run(&setup, id, observer, &mut stats) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(fault);
                }
            }
            self.waves().extend(group.into_waves());
            Ok(stats)
        };
        if workers == 1 {
            return work(observer);
        }
        let mut forks: Vec<O> = (0..workers).map(|_| observer.fork()).collect();
        let results: Vec<Result<Stats, Fault>> = std::thread::scope(|scope| {
            let work = &work;
            let (first, others) = forks.split_first_mut().unzip();
            let others = others.into_iter().flatten();
            let threads: Vec<_> = others.map(|fork| scope.spawn(move || work(fork))).collect();
            // This thread works too.
            let first = first.map(|fork| catch_unwind(AssertUnwindSafe(|| work(fork))));
            let results = first.into_iter().chain(threads.into_iter().map(|thread| thread.join()));
            let lost = || Fault::BadDispatch { kernel: dispatch.kernel_object, reason: "a thread panicked".to_owned() };
            results.map(|result| result.unwrap_or_else(|_| Err(lost()))).collect()
        });
        forks.into_iter().for_each(|fork| observer.join(fork));
        results.into_iter().try_fold(Stats::default(), |sum, stats| {
            let stats = stats?;
            Ok(Stats {
                instructions: sum.instructions + stats.instructions,
                waves: sum.waves + stats.waves,
                workgroups: sum.workgroups + stats.workgroups,
            })
        })
    }

    /// The decoded code at an entry point, from the cache if memory has not changed since.
    ///
    /// # Errors
    /// What is there cannot be disassembled.
    pub fn program(&self, memory: &Memory, entry: u64, wave_size: u32) -> Result<Arc<Program>, Fault> {
        let key = (entry, wave_size);
        let cached = self.programs.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(program) = cached.filter(|program| program.is_current(memory)) {
            return Ok(program);
        }
        let context = Context { target: self.target, wave_size };
        let program = Arc::new(Program::load(memory, &*self.disassembler(wave_size)?, context, entry)?);
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).insert(key, program.clone());
        Ok(program)
    }

    /// A wave whose vector registers hold anything, as at the start of a kernel on hardware.
    pub(crate) fn wave(&self, lanes: u32) -> Wave {
        let mut waves = self.waves();
        let known = waves.iter().rposition(|wave| wave.lanes() == lanes).map(|at| waves.swap_remove(at));
        known.unwrap_or_else(|| Wave::new(self.target, lanes))
    }

    fn waves(&self) -> MutexGuard<'_, Vec<Wave>> {
        self.waves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disassembler(&self, wave_size: u32) -> Result<Arc<Disassembler>, Fault> {
        let slot = &self.disassemblers[usize::from(wave_size == 64)];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*slot {
            return Ok(known.clone());
        }
        let made = Arc::new(Disassembler::new(self.target, wave_size)?);
        *slot = Some(made.clone());
        Ok(made)
    }

    /// The number of workgroups in each dimension.
    fn check(&self, dispatch: &Dispatch, descriptor: &Descriptor) -> Result<[u32; 3], Fault> {
        let bad = |reason: String| Err(Fault::BadDispatch { kernel: dispatch.kernel_object, reason });
        let items = dispatch.group.iter().map(|size| u64::from(*size)).product::<u64>();
        if items == 0 || items > 1024 || dispatch.grid.contains(&0) {
            return bad(format!("grid {:?} with groups of {:?} is not possible", dispatch.grid, dispatch.group));
        }
        let lds = dispatch.group_size.max(descriptor.lds_bytes);
        if lds > 160 * 1024 {
            return bad(format!("{lds} bytes of LDS are more than a workgroup has"));
        }
        if descriptor.float_mode() & 0xf != 0 {
            return bad("only rounding to nearest even is modelled".to_owned());
        }
        let [x, y, z] = [0, 1, 2].map(|at| dispatch.grid[at].div_ceil(dispatch.group[at]));
        Ok([x, y, z])
    }
}
