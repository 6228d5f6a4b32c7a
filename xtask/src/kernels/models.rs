//! The kernels that well-known models need, for sets: those of `tests/python/test_kernel_sets.py`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::pytest;
use crate::test::Context;

/// The targets whose sources sets contain, with the compute units of their common chips: kernels are chosen by both.
pub const CHIPS: [(&str, u32); 13] = [
    ("gfx900", 64),
    ("gfx906", 60),
    ("gfx90a", 104),
    ("gfx942", 304),
    ("gfx950", 256),
    ("gfx1010", 40),
    ("gfx1030", 80),
    ("gfx1100", 96),
    ("gfx1100", 60),
    ("gfx1100", 32),
    ("gfx1151", 40),
    ("gfx1201", 64),
    ("gfx1201", 32),
];

/// Writes the sources of the models' kernels on these chips into a folder for each target below `texts`, which is emptied
/// first.
///
/// # Errors
/// When a session fails.
pub fn record(context: &Context<'_>, chips: &[(&str, u32)], texts: &Path) -> Result<()> {
    if texts.exists() {
        fs::remove_dir_all(texts).with_context(|| format!("cannot remove {}", texts.display()))?;
    }
    chips.iter().try_for_each(|(target, units)| pytest::recorded(context, target, *units, &texts.join(target)))
}
