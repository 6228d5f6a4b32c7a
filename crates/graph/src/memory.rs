//! Where the bytes of constants are stored.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A large page. Weights on large pages stream nearly twice as fast: the processor prefetches poorly across small ones.
const HUGE_PAGE: usize = 2 << 20;

/// All bytes are aligned to this.
const ALIGNMENT: usize = 16;

static OWN: Counter = Counter::new();
static LENT: Counter = Counter::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// How many bytes this library's tensors take in one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Right now.
    pub now: usize,
    /// The highest so far.
    pub peak: usize,
}

/// How much host memory all tensors hold together; clones share their bytes and count once.
pub fn held() -> Held {
    OWN.held()
}

/// How much memory all tensors borrow from other owners, such as mapped files.
pub fn lent() -> Held {
    LENT.held()
}

/// The owner of borrowed bytes. It must always return the same ones.
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

/// Other memory that holds the bytes of a constant.
pub trait Store: Send + Sync {
    /// Copies all of them into `bytes`. A store that cannot do so leaves zeros and records the failure. Its creator
    /// checks for that before it uses any result computed from the bytes.
    fn fetch(&self, bytes: &mut [u8]);
}

/// Immutable bytes, aligned for every element type.
pub(crate) struct Memory {
    id: u64,
    len: usize,
    state: State,
}

enum State {
    Here(Block),
    /// In a store, and cached here after the first read.
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

    /// Borrowed bytes; `None` if they are not aligned.
    pub fn lent(lender: Lender) -> Option<Self> {
        let bytes = (*lender).as_ref();
        let len = bytes.len();
        bytes.as_ptr().addr().is_multiple_of(ALIGNMENT).then(|| Self::new(Block::new(Backing::Lent(lender), len)))
    }

    fn new(block: Block) -> Self {
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), len: block.len, state: State::Here(block) }
    }

    /// A copy of the bytes with the same id, if they are borrowed.
    pub fn own(&self) -> Option<Self> {
        let State::Here(block) = &self.state else { return None };
        let Backing::Lent(lender) = &block.place else { return None };
        let copy = Block::filled(self.len, |copy| copy.copy_from_slice((**lender).as_ref()));
        Some(Self { id: self.id, len: self.len, state: State::Here(copy) })
    }

    /// The same bytes, kept in a store.
    pub fn away(&self, store: Box<dyn Store>) -> Self {
        Self { id: self.id, len: self.len, state: State::Away { store, fetched: OnceLock::new() } }
    }

    /// The id that all memory with the same bytes shares.
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

/// A piece of host memory, included in the counts.
struct Block {
    place: Backing,
    len: usize,
}

enum Backing {
    /// Words, for the alignment.
    Words(Box<[u128]>),
    /// The bytes from `start` on, which is the start of a large page.
    Pages {
        map: memmap2::Mmap,
        start: usize,
    },
    Lent(Lender),
}

impl Block {
    fn new(place: Backing, len: usize) -> Self {
        place.counter().add(len);
        Self { place, len }
    }

    /// Zeroed memory, then filled.
    fn filled(len: usize, fill: impl Fn(&mut [u8])) -> Self {
        let place = Backing::pages(len, &fill).unwrap_or_else(|| {
            let mut words = vec![0u128; len.div_ceil(ALIGNMENT)];
            fill(&mut bytemuck::cast_slice_mut::<u128, u8>(&mut words)[..len]);
            Backing::Words(words.into())
        });
        Self::new(place, len)
    }

    fn bytes(&self) -> &[u8] {
        match &self.place {
            Backing::Words(words) => &bytemuck::cast_slice(words)[..self.len],
            Backing::Pages { map, start } => &map[*start..][..self.len],
            Backing::Lent(lender) => (**lender).as_ref(),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.place.counter().now.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Backing {
    fn counter(&self) -> &'static Counter {
        if matches!(self, Self::Lent(_)) { &LENT } else { &OWN }
    }

    /// Large pages; `None` if the bytes do not fill one, or if the system has none to give.
    fn pages(len: usize, fill: impl Fn(&mut [u8])) -> Option<Self> {
        if len < HUGE_PAGE {
            return None;
        }
        // The mapping beyond the bytes is never touched, so it takes no physical memory.
        let mut map = memmap2::MmapMut::map_anon(len.checked_add(HUGE_PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        // Refused if the kernel was built without large pages; the memory is usable all the same.
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
            // The system may refuse the mapping.
            let State::Here(block) = &memory.state else { unreachable!() };
            let wanted = if matches!(block.place, Backing::Pages { .. }) { HUGE_PAGE } else { ALIGNMENT };
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
    fn stored_bytes_are_fetched_once_on_first_read() {
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
    fn borrowed_bytes_are_read_in_place_until_a_copy_is_requested() {
        let words: &'static [u128] = &[7, 8, 9];
        let bytes: &'static [u8] = bytemuck::cast_slice(words);
        let lent = Memory::lent(Box::new(bytes)).unwrap();
        assert_eq!(lent.bytes().as_ptr(), bytes.as_ptr());
        let own = lent.own().unwrap();
        assert_eq!((own.id(), own.bytes()), (lent.id(), bytes));
        assert_ne!(own.bytes().as_ptr(), bytes.as_ptr());
        assert!(own.own().is_none(), "it owns its bytes already");
        assert!(Memory::lent(Box::new(&bytes[1..])).is_none(), "not aligned");
    }
}
