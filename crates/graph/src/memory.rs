//! Where the bytes of constants lie.
use std::sync::atomic::{AtomicUsize, Ordering};

/// A large page. Weights on such pages are streamed nearly twice as fast: the processor reads ahead across small ones badly.
const HUGE_PAGE: usize = 2 << 20;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the tensors of this library hold in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// At this moment.
    pub now: usize,
    /// The most there were at once.
    pub peak: usize,
}

/// What all tensors hold together; clones share their bytes and count once.
pub fn held() -> Held {
    Held { now: NOW.load(Ordering::Relaxed), peak: PEAK.load(Ordering::Relaxed) }
}

/// Bytes that do not change, aligned for every element type.
pub(crate) struct Memory {
    place: Place,
    bytes: usize,
}

enum Place {
    /// In words of 16 bytes, for their alignment.
    Words(Box<[u128]>),
    /// From `start` on, which begins a large page.
    Pages { map: memmap2::Mmap, start: usize },
}

impl Memory {
    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let place = Place::pages(bytes).unwrap_or_else(|| {
            let mut words = vec![0u128; bytes.len().div_ceil(16)];
            bytemuck::cast_slice_mut::<u128, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
            Place::Words(words.into())
        });
        let now = NOW.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        PEAK.fetch_max(now, Ordering::Relaxed);
        Self { place, bytes: bytes.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Words(words) => &bytemuck::cast_slice(words)[..self.bytes],
            Place::Pages { map, start } => &map[*start..][..self.bytes],
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        NOW.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Place {
    /// A copy on large pages; `None` if it would not fill one, or if the system has none to give.
    fn pages(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HUGE_PAGE {
            return None;
        }
        // What is mapped beyond the bytes is never touched, so that no memory stands behind it.
        let mut map = memmap2::MmapMut::map_anon(bytes.len().checked_add(HUGE_PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        // Refused where the kernel was built without them; the memory is then as good as any.
        let _ = map.advise_range(memmap2::Advice::HugePage, start, bytes.len());
        map.get_mut(start..start + bytes.len())?.copy_from_slice(bytes);
        Some(Self::Pages { map: map.make_read_only().ok()?, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_size_read_back_aligned() {
        for len in [0, 1, 15, 16, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 3] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let memory = Memory::copy_of(&bytes);
            assert_eq!(memory.bytes(), bytes);
            // The system may refuse to map any.
            let wanted = if matches!(memory.place, Place::Pages { .. }) { HUGE_PAGE } else { 16 };
            assert!(len == 0 || memory.bytes().as_ptr().addr().is_multiple_of(wanted), "{len}");
        }
    }
}
