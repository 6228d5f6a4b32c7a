//! The inner loops: a few rows times one or two panels.
use super::activations::Left;
use super::panel::{COLUMNS, Panel};

/// The arguments of a kernel call.
pub(super) struct Job {
    pub panels: [Panel; 2],
    pub left: Left,
    /// The first row of results.
    pub out: *mut f32,
    /// The stride between rows of results.
    pub out_row: usize,
}

/// # Safety
/// Everything in the job is valid for the kernel's rows and panels, and the processor supports the kernel.
pub(super) type Kernel = unsafe fn(&Job);

/// The kernels for one instruction set.
pub(super) struct Kernels {
    /// True if they read bytes instead of floats.
    pub rounds: bool,
    /// The maximum number of rows.
    pub rows: usize,
    /// Indexed by bits, panels minus one, and rows minus one.
    tables: [[&'static [Kernel]; 2]; 3],
}

impl Kernels {
    pub(super) const fn new(rounds: bool, rows: usize, tables: [[&'static [Kernel]; 2]; 3]) -> Self {
        Self { rounds, rows, tables }
    }

    /// The kernel for weights of 2, 4 or 8 bits and this number of panels and rows.
    pub fn get(&self, bits: usize, panels: usize, rows: usize) -> Kernel {
        self.tables[bits.ilog2() as usize - 1][panels - 1][rows - 1]
    }
}

/// Tables of a kernel that is generic over bits, rows and panels.
macro_rules! tables {
    ($name:ident: $($rows:literal)*) => {
        [
            [&[$($name::<2, $rows, 1>),*], &[$($name::<2, $rows, 2>),*]],
            [&[$($name::<4, $rows, 1>),*], &[$($name::<4, $rows, 2>),*]],
            [&[$($name::<8, $rows, 1>),*], &[$($name::<8, $rows, 2>),*]],
        ]
    };
}
pub(super) use tables;

/// All sets of kernels that this processor can run, the best first; those that round only if that is allowed.
pub(super) fn choices(rounds: bool) -> impl Iterator<Item = &'static Kernels> {
    #[cfg(target_arch = "x86_64")]
    let wide = super::x86::choices();
    #[cfg(not(target_arch = "x86_64"))]
    let wide = std::iter::empty();
    wide.chain([&PORTABLE]).filter(move |kernels| rounds || !kernels.rounds)
}

/// The best kernels for this processor.
pub(super) fn best(rounds: bool) -> &'static Kernels {
    choices(rounds).next().unwrap_or(&PORTABLE)
}

static PORTABLE: Kernels = Kernels::new(false, 4, tables!(plain: 1 2 3 4));

/// # Safety
/// Same as for [`Kernel`].
unsafe fn plain<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    // SAFETY: guaranteed by the caller.
    unsafe { floats::<BITS, ROWS, PANELS>(job) }
}

/// Weights as floats times unrounded activations, vectorised by the compiler.
///
/// # Safety
/// Same as for [`Kernel`].
#[inline(always)]
pub(super) unsafe fn floats<const BITS: u32, const ROWS: usize, const PANELS: usize>(job: &Job) {
    let Left { blocks, block, floats, sums, middle, .. } = job.left;
    let (per_word, mask) = (32 / BITS as usize, u32::MAX >> (32 - BITS));
    let words = block / per_word;
    for (at, panel) in job.panels.iter().take(PANELS).enumerate() {
        let mut totals = [[0f32; COLUMNS]; ROWS];
        for b in 0..blocks {
            let mut dots = [[0f32; COLUMNS]; ROWS];
            for w in 0..words {
                // SAFETY: the caller vouches for the panel.
                let mut word: [u32; COLUMNS] =
                    unsafe { panel.weights.cast::<[u32; COLUMNS]>().add(b * words + w).read_unaligned() };
                for k in 0..per_word {
                    let values = word.map(|word| (word & mask) as i32 as f32);
                    word = word.map(|word| word.unbounded_shr(BITS));
                    for (r, dots) in dots.iter_mut().enumerate() {
                        // SAFETY: the caller vouches for the rows.
                        let factor = unsafe { *floats.add((r * blocks + b) * block + w * per_word + k) };
                        for (dot, &value) in dots.iter_mut().zip(&values) {
                            *dot = crate::microkernel::Compute::mul_add(factor, value, *dot);
                        }
                    }
                }
            }
            // SAFETY: as above.
            let scales = unsafe { panel.scales.cast::<[f32; COLUMNS]>().add(b).read_unaligned() };
            let zeros = if panel.zeros.is_null() {
                scales.map(|scale| scale * middle)
            } else {
                // SAFETY: as above.
                unsafe { panel.zeros.cast::<[f32; COLUMNS]>().add(b).read_unaligned() }
            };
            for (r, (totals, dots)) in totals.iter_mut().zip(&dots).enumerate() {
                // SAFETY: as above.
                let sum = unsafe { *sums.add(r * blocks + b) };
                for (((total, dot), scale), zero) in totals.iter_mut().zip(dots).zip(&scales).zip(&zeros) {
                    *total += dot * scale - sum * zero;
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            // SAFETY: the caller vouches for the output.
            unsafe { job.out.add(r * job.out_row + at * COLUMNS).cast::<[f32; COLUMNS]>().write_unaligned(*totals) };
        }
    }
}
