//! Kernels on the emulator, which reads and writes the memory that ROCr shares with the machine.

use std::ffi::c_void;
use std::sync::OnceLock;

use gfx_emu::counters::Record;
use gfx_emu::sanitize::{Sanitizer, Symbols};
use gfx_emu::{Chip, Fault, Memory, Stats};

use super::code_objects;
use crate::device::Executor;
use crate::queue::aql::Dispatch;
use crate::trace::trace;
use crate::{counting, sanitizer};

/// Runs a device's kernels.
pub struct Kernels {
    target: &'static str,
    /// Made for the first kernel: it loads LLVM, which not every program needs.
    chip: OnceLock<Result<Chip, Fault>>,
    memory: Memory,
}

impl Kernels {
    /// # Safety
    /// `aperture` is the start of `bytes` bytes of reserved addresses. As long as the value lives, what ROCr allocates in
    /// them is mapped there, and no Rust reference covers it.
    pub unsafe fn new(target: &'static str, aperture: *mut c_void, bytes: u64) -> Self {
        // SAFETY: the caller vouches for the aperture; kernels get other addresses only from the runtime, which hands
        // over its own memory.
        let memory = unsafe { Memory::process(aperture.cast(), bytes) };
        Self { target, chip: OnceLock::new(), memory }
    }
}

impl Executor for Kernels {
    fn run(&self, dispatch: &Dispatch, packet: u64, queue: u64) -> Result<(), Fault> {
        let chip = self.chip.get_or_init(|| Chip::new(self.target.parse()?));
        let launch = gfx_emu::Dispatch {
            kernel_object: dispatch.kernel_object,
            kernarg: dispatch.kernarg,
            grid: dispatch.grid,
            group: dispatch.group.map(u32::from),
            private_size: dispatch.private_bytes,
            group_size: dispatch.group_bytes,
            dispatch_packet: packet,
            queue,
        };
        let chip = chip.as_ref().map_err(Clone::clone)?;
        let stats = match sanitizer::active() {
            Some(sanitizer) => self.run_sanitized(chip, &launch, sanitizer)?,
            None if counting::is_on() => self.run_counted(chip, &launch)?,
            None => chip.run(&launch, &self.memory)?,
        };
        trace(format_args!("{stats:?}"));
        Ok(())
    }
}

impl Kernels {
    /// Looks up the names of kernels that are not known yet.
    fn learn(&self, symbols: &Symbols, kernel: u64) {
        if symbols.kernel(kernel).is_some() {
            return;
        }
        code_objects::each(|base, code| symbols.add(base, code));
        // The program may have freed the file, but what was loaded of it has the names.
        if let Some(loaded) = super::ALLOCATIONS.containing(kernel) {
            let bytes = usize::try_from(loaded.end - loaded.start).unwrap_or(0);
            symbols.add_image(loaded.start, &self.memory.read(loaded.start, bytes).unwrap_or_default());
        }
    }

    fn run_counted(&self, chip: &Chip, launch: &gfx_emu::Dispatch) -> Result<Stats, Fault> {
        static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
        let symbols = SYMBOLS.get_or_init(Symbols::default);
        self.learn(symbols, launch.kernel_object);
        let name = symbols.kernel(launch.kernel_object).unwrap_or_else(|| "unknown".to_owned());
        let (record, stats) = Record::run(name, chip, launch, &self.memory)?;
        counting::add(&record);
        Ok(stats)
    }

    fn run_sanitized(&self, chip: &Chip, launch: &gfx_emu::Dispatch, sanitizer: &Sanitizer) -> Result<Stats, Fault> {
        self.learn(sanitizer.symbols(), launch.kernel_object);
        let result = sanitizer.run(chip, launch, &self.memory);
        sanitizer::print(sanitizer);
        result
    }
}
