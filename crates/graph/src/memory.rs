//! Where the bytes of constants lie.
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// A large page. Weights on such pages are streamed nearly twice as fast: the processor reads ahead across small ones badly.
const HUGE_PAGE: usize = 2 << 20;

/// All bytes begin at a multiple of this.
const ALIGNMENT: usize = 16;

static OWN: Counter = Counter::new();
static LENT: Counter = Counter::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Bytes of the tensors of this library in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// At this moment.
    pub now: usize,
    /// The most there were at once.
    pub peak: usize,
}

/// What all tensors hold in the host's memory together; clones share their bytes and count once.
pub fn held() -> Held {
    OWN.held()
}

/// What all tensors read where somebody else keeps it, as in mapped files.
pub fn lent() -> Held {
    LENT.held()
}

/// Bytes that somebody else keeps: always the same ones.
pub type Lender = Box<dyn AsRef<[u8]> + Send + Sync>;

struct Counter {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Counter {
    const fn new() -> Self {
        Self { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    fn held(&self) -> Held {
        Held { now: self.now.load(Ordering::Relaxed), peak: self.peak.load(Ordering::Relaxed) }
    }

    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }
}

/// Memory elsewhere that has the bytes of a constant.
pub trait Store: Send + Sync {
    /// Copies all of them. A store that can't leaves zeros and remembers it: whoever made it asks before anything that may
    /// have come of them is used.
    fn fetch(&self, bytes: &mut [u8]);
}

/// Bytes that do not change, aligned for every element type.
pub(crate) struct Memory {
    id: u64,
    len: usize,
    state: State,
}

enum State {
    Here(Block),
    /// In a store, and here once somebody has read them.
    Away {
        store: Box<dyn Store>,
        fetched: OnceLock<Block>,
    },
}

impl Memory {
    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::new(Block::filled(bytes.len(), |copy| copy.copy_from_slice(bytes)))
    }

    /// Bytes that somebody else keeps; `None` if they are not aligned.
    pub fn lent(lender: Lender) -> Option<Self> {
        let bytes = (*lender).as_ref();
        let len = bytes.len();
        bytes.as_ptr().addr().is_multiple_of(ALIGNMENT).then(|| Self::new(Block::new(Place::Lent(lender), len)))
    }

    fn new(block: Block) -> Self {
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), len: block.len, state: State::Here(block) }
    }

    /// The same bytes, in memory of their own, if somebody else keeps them.
    pub fn own(&self) -> Option<Self> {
        let State::Here(block) = &self.state else { return None };
        let Place::Lent(lender) = &block.place else { return None };
        let copy = Block::filled(self.len, |copy| copy.copy_from_slice((**lender).as_ref()));
        Some(Self { id: self.id, len: self.len, state: State::Here(copy) })
    }

    /// The same bytes, which a store has.
    pub fn away(&self, store: Box<dyn Store>) -> Self {
        Self { id: self.id, len: self.len, state: State::Away { store, fetched: OnceLock::new() } }
    }

    /// What all memory of the same bytes has in common.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the bytes can be read without being fetched.
    pub fn is_here(&self) -> bool {
        match &self.state {
            State::Here(_) => true,
            State::Away { fetched, .. } => fetched.get().is_some(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.state {
            State::Here(block) => block.bytes(),
            State::Away { store, fetched } => {
                fetched.get_or_init(|| Block::filled(self.len, |bytes| store.fetch(bytes))).bytes()
            }
        }
    }
}

/// A piece of the host's memory, which is counted.
struct Block {
    place: Place,
    len: usize,
}

enum Place {
    /// In words, for their alignment.
    Words(Box<[u128]>),
    /// From `start` on, which begins a large page.
    Pages {
        map: memmap2::Mmap,
        start: usize,
    },
    Lent(Lender),
}

impl Block {
    fn new(place: Place, len: usize) -> Self {
        place.counter().add(len);
        Self { place, len }
    }

    /// Memory that was zero before it was filled.
    fn filled(len: usize, fill: impl Fn(&mut [u8])) -> Self {
        let place = Place::pages(len, &fill).unwrap_or_else(|| {
            let mut words = vec![0u128; len.div_ceil(ALIGNMENT)];
            fill(&mut bytemuck::cast_slice_mut::<u128, u8>(&mut words)[..len]);
            Place::Words(words.into())
        });
        Self::new(place, len)
    }

    fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Words(words) => &bytemuck::cast_slice(words)[..self.len],
            Place::Pages { map, start } => &map[*start..][..self.len],
            Place::Lent(lender) => (**lender).as_ref(),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.place.counter().now.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Place {
    fn counter(&self) -> &'static Counter {
        if matches!(self, Self::Lent(_)) { &LENT } else { &OWN }
    }

    /// Large pages; `None` if one would not be filled, or if the system has none to give.
    fn pages(len: usize, fill: impl Fn(&mut [u8])) -> Option<Self> {
        if len < HUGE_PAGE {
            return None;
        }
        // Pages beyond the bytes are never touched, so they take no memory.
        let mut map = memmap2::MmapMut::map_anon(len.checked_add(HUGE_PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        // Refused where the kernel was built without them; the memory is then as good as any.
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
        fill(map.get_mut(start..start + len)?);
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
            let State::Here(block) = &memory.state else { unreachable!() };
            let wanted = if matches!(block.place, Place::Pages { .. }) { HUGE_PAGE } else { ALIGNMENT };
            assert!(len == 0 || memory.bytes().as_ptr().addr().is_multiple_of(wanted), "{len}");
        }
    }

    struct Counting(AtomicUsize);

    impl Store for std::sync::Arc<Counting> {
        fn fetch(&self, bytes: &mut [u8]) {
            self.0.fetch_add(1, Ordering::Relaxed);
            bytes.fill(7);
        }
    }

    #[test]
    fn bytes_that_are_away_are_fetched_once_and_only_if_somebody_reads_them() {
        for len in [5, HUGE_PAGE] {
            let store = std::sync::Arc::new(Counting(AtomicUsize::new(0)));
            let here = Memory::copy_of(&vec![7; len]);
            let away = here.away(Box::new(store.clone()));
            assert_eq!((away.id(), away.len(), away.is_here()), (here.id(), len, false));
            assert_eq!(store.0.load(Ordering::Relaxed), 0);
            assert_eq!((away.bytes(), away.bytes()), (here.bytes(), here.bytes()));
            assert_eq!((store.0.load(Ordering::Relaxed), away.is_here()), (1, true));
        }
    }

    #[test]
    fn lent_bytes_are_read_where_they_lie_until_a_copy_is_wanted() {
        let words: &'static [u128] = &[7, 8, 9];
        let bytes: &'static [u8] = bytemuck::cast_slice(words);
        let lent = Memory::lent(Box::new(bytes)).unwrap();
        assert_eq!(lent.bytes().as_ptr(), bytes.as_ptr());
        let own = lent.own().unwrap();
        assert_eq!((own.id(), own.bytes()), (lent.id(), bytes));
        assert_ne!(own.bytes().as_ptr(), bytes.as_ptr());
        assert!(own.own().is_none(), "it has its own already");
        assert!(Memory::lent(Box::new(&bytes[1..])).is_none(), "not aligned");
    }
}
