//! Assigns rows to threads: `hip/team.h`.
use graph::Declined;

use crate::Arch;

/// Threads of every block.
pub(crate) const THREADS: u32 = 256;
/// Maximum number of blocks along x; kernels loop over the rest. HIP requires grid times block to be below 2³².
pub(crate) const MAX_BLOCKS: u32 = (1 << 22) - 1;

/// How rows are spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    /// Threads per row.
    pub lanes: u32,
    /// Packs that each thread holds, or 0 if rows are too long for that.
    pub held: u32,
    /// The number of persistent blocks, which load the next rows while they work on the current ones, for teams with
    /// barriers. It does not pay off for half precision: on an H200 it was slower.
    pub resident: Option<u32>,
}

impl Team {
    /// The team for `rows` rows of `packs` packs of `pack` elements.
    ///
    /// The more elements a thread holds, the less the team's work for every row matters. Teams of 32 threads need no
    /// barrier. So use few threads with many elements each. Elements that are not packed cost more registers.
    pub fn new(rows: u32, packs: u32, pack: u32, element_bytes: usize, arch: &Arch) -> Self {
        let most = if element_bytes > 4 || pack == 1 { 8 } else { 8 * pack.min(4) };
        let held = [8, 16, 32].into_iter().filter(|&elems| elems <= most).map(|elems| elems / pack);
        let most = most / pack;
        let mut lanes = packs.div_ceil(most).next_power_of_two().min(THREADS);
        // Few rows: more threads with fewer elements each. Teams of more than 32 threads wait at barriers, which only
        // pays off on a device with little to do.
        let enough = |lanes: u32| if lanes < 32 { busy(arch) } else { busy(arch) / 4 };
        while lanes < THREADS && lanes < packs && u64::from(rows) * u64::from(lanes) < enough(lanes) {
            lanes *= 2;
        }
        let mut held = held.into_iter().find(|held| packs <= held * lanes).unwrap_or(0);
        let resident = arch.compute_units * 4;
        let stays = held > 0 && element_bytes == 4 && lanes > 32 && rows.div_ceil(THREADS / lanes) >= 4 * resident;
        if stays && lanes < THREADS {
            // Holding a row and the next one takes as many registers as one row of short elements.
            (lanes, held) = (lanes * 2, held.div_ceil(2));
        }
        Self { lanes, held, resident: stays.then_some(resident) }
    }

    /// For rows whose elements are interleaved: threads of one lane are adjacent.
    pub fn turned(rows: u32, elems: u32, arch: &Arch) -> Self {
        let mut lanes = 1;
        while lanes < 32 && lanes < elems && u64::from(rows) * u64::from(lanes) < busy(arch) {
            lanes *= 2;
        }
        Self { lanes, held: 0, resident: None }
    }

    /// Blocks along x for this many rows.
    pub fn blocks(self, rows: u32) -> u32 {
        rows.div_ceil(THREADS / self.lanes).min(self.resident.unwrap_or(MAX_BLOCKS))
    }
}

/// Blocks along x and y if every thread computes one element.
pub(crate) fn grid(elems: u32) -> [u32; 3] {
    let blocks = elems.div_ceil(THREADS);
    let rows = blocks.div_ceil(MAX_BLOCKS).max(1);
    [blocks.div_ceil(rows), rows, 1]
}

/// The number of threads that keep a device busy.
pub(crate) fn busy(arch: &Arch) -> u64 {
    u64::from(arch.compute_units) * 1024
}

/// Declines types other than floats.
pub(crate) fn floats_only(what: &str, dtype: graph::DType) -> Result<(), Declined> {
    if dtype.is_float() { Ok(()) } else { Err(Declined::new(format!("{what} of {dtype}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_that_fill_a_quarter_of_a_device_need_no_barrier() {
        let arch = Arch::new("gfx942", 132);
        let lanes = |rows| Team::new(rows, 96, 8, 2, &arch).lanes;
        assert_eq!([1 << 20, 4096, 1056].map(lanes), [32; 3]);
        assert_eq!([1055, 128, 1].map(lanes), [64, 128, 128]);
    }
}
