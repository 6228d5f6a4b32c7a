//! Tests the allocator with a fake GPU that checks the rules, and a model that counts.

use std::collections::BTreeSet;
use std::thread;

use proptest::prelude::*;

use super::fake_gpu::{FakeGpu, STREAMS};
use super::*;

const PLENTY: usize = usize::MAX;
const MIB: usize = 1 << 20;

type TestBlock = AllocatedBlock<FakeGpu, FakeGpu>;

fn assert_no_breach(gpu: &FakeGpu) {
    assert_eq!(gpu.state().breaches, Vec::<String>::new());
}

fn addresses(block: &TestBlock) -> std::ops::Range<usize> {
    block.address()..block.address() + block.bytes()
}

#[test]
fn a_freed_block_is_reused_at_once_on_its_own_stream() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    let block = allocator.alloc(1000, Some(1)).unwrap();
    let address = block.address();
    gpu.state().issue(addresses(&block), 1);
    allocator.free(block);
    let again = allocator.alloc(900, Some(1)).unwrap();
    assert_eq!(again.address(), address);
    assert_eq!(allocator.statistics().num_reuses, 1);
    assert_eq!(gpu.state().waits, 0);
}

#[test]
fn a_freed_block_goes_to_another_stream_only_when_its_work_is_done() {
    for other in [Some(2), None] {
        let gpu = FakeGpu::new(PLENTY);
        let allocator = gpu.allocator(None);
        let block = allocator.alloc(1000, Some(1)).unwrap();
        let address = block.address();
        gpu.state().issue(addresses(&block), 1);
        drop(block);
        let fresh = allocator.alloc(1000, other).unwrap();
        assert_ne!(fresh.address(), address);
        gpu.state().advance(1, 1);
        assert_eq!(allocator.alloc(1000, other).unwrap().address(), address);
        assert_eq!(gpu.state().waits, 0);
    }
}

#[test]
fn a_block_without_stream_waits_for_all_streams() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    let block = allocator.alloc(1000, None).unwrap();
    let address = block.address();
    gpu.state().issue(addresses(&block), 0);
    gpu.state().issue(addresses(&block), 2);
    drop(block);
    let requests = [None, Some(0), Some(1), Some(2)];
    let mut fresh: Vec<_> = requests.iter().map(|stream| allocator.alloc(1000, *stream).unwrap()).collect();
    gpu.state().advance(0, 1);
    fresh.push(allocator.alloc(1000, Some(2)).unwrap());
    assert!(fresh.iter().all(|block| block.address() != address));
    gpu.state().advance(2, 1);
    assert_eq!(allocator.alloc(1000, Some(1)).unwrap().address(), address);
}

#[test]
fn zero_bytes_give_distinct_valid_blocks() {
    let allocator = FakeGpu::new(PLENTY).allocator(None);
    let blocks: Vec<_> = (0..3).map(|_| allocator.alloc(0, None).unwrap()).collect();
    assert!(blocks.iter().all(|block| block.address() != 0 && block.bytes() > 0));
    assert_eq!(blocks.iter().map(AllocatedBlock::address).collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn a_cached_block_that_would_waste_more_than_a_quarter_is_left_alone() {
    let allocator = FakeGpu::new(PLENTY).allocator(None);
    drop(allocator.alloc(100 * MIB, Some(0)).unwrap());
    let small = allocator.alloc(79 * MIB, Some(0)).unwrap();
    assert_eq!(small.bytes(), 80 * MIB);
    let snug = allocator.alloc(80 * MIB, Some(0)).unwrap();
    assert_eq!(snug.bytes(), 100 * MIB);
}

#[test]
fn a_steady_loop_reaches_the_source_only_in_its_first_round() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    let sizes = [4096, 100_000, 3 * MIB, 0, 4096, 70 * MIB];
    for round in 0..100 {
        let blocks: Vec<_> = sizes.iter().map(|bytes| allocator.alloc(*bytes, Some(0)).unwrap()).collect();
        for block in blocks {
            gpu.state().issue(addresses(&block), 0);
            allocator.free(block);
        }
        assert_eq!(allocator.statistics().num_source_allocs, sizes.len() as u64, "round {round}");
    }
    assert_eq!(allocator.statistics().num_reuses, 99 * sizes.len() as u64);
    assert_eq!(gpu.state().live_fences, sizes.len(), "fences of earlier rounds are gone");
    assert_eq!(gpu.state().waits, 0);
    assert_no_breach(&gpu);
}

#[test]
fn a_steady_loop_without_streams_reuses_what_the_device_has_finished() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    for _ in 0..100 {
        let block = allocator.alloc(5000, None).unwrap();
        gpu.state().issue(addresses(&block), 1);
        drop(block);
        // The device is two pieces of work behind the host.
        let behind = allocator.statistics().num_allocs.saturating_sub(2);
        if behind > 0 {
            gpu.state().advance(1, 1);
        }
    }
    assert!(allocator.statistics().num_source_allocs <= 3, "{:?}", allocator.statistics());
    assert_no_breach(&gpu);
}

#[test]
fn under_memory_pressure_a_busy_block_that_fits_is_waited_for() {
    let gpu = FakeGpu::new(4 * MIB);
    let allocator = gpu.allocator(None);
    gpu.probe(&allocator);
    let block = allocator.alloc(4 * MIB, Some(0)).unwrap();
    gpu.state().issue(addresses(&block), 0);
    drop(block);
    let block = allocator.alloc(4 * MIB, Some(1)).unwrap();
    assert_eq!(gpu.state().waits, 1);
    assert_eq!(allocator.statistics().num_reuses, 1);
    assert_eq!(block.stream(), Some(1));
    assert_no_breach(&gpu);
}

#[test]
fn under_memory_pressure_everything_cached_is_given_back() {
    let gpu = FakeGpu::new(4 * MIB);
    let allocator = gpu.allocator(None);
    gpu.probe(&allocator);
    for _ in 0..4 {
        let block = allocator.alloc(MIB, None).unwrap();
        gpu.state().issue(addresses(&block), 2);
    }
    let _large = allocator.alloc(4 * MIB, Some(1)).unwrap();
    assert_eq!(allocator.statistics().cached, 0);
    assert_eq!(gpu.state().live_bytes(), 4 * MIB);
    assert_no_breach(&gpu);
}

#[test]
fn out_of_memory_is_reported_with_the_numbers() {
    let gpu = FakeGpu::new(4 * MIB);
    let allocator = gpu.allocator(None);
    let _held = allocator.alloc(2 * MIB, None).unwrap();
    drop(allocator.alloc(MIB, None).unwrap());
    let error = allocator.alloc(3 * MIB, None).unwrap_err();
    let AllocError::OutOfMemory { asked, in_use, cached, ref source } = error else { panic!("{error}") };
    assert_eq!((asked, in_use, cached), (3 * MIB, 2 * MIB, MIB));
    assert_eq!(source.to_string(), "the fake GPU cannot allocate 3145728 bytes");
    assert!(error.to_string().starts_with(
        "out of memory: 3145728 bytes requested, 2097152 bytes in use, 1048576 cached bytes freed before the last try\n  \
         help: "
    ));
    assert_eq!(allocator.statistics().num_allocs, 2);
    assert_eq!(gpu.state().refusals, 2);
    assert!(allocator.alloc(2 * MIB, None).is_ok());
}

#[test]
fn a_request_beyond_the_address_space_is_refused_without_asking_the_source() {
    let gpu = FakeGpu::new(PLENTY);
    assert!(matches!(gpu.allocator(None).alloc(usize::MAX, None), Err(AllocError::TooLarge { asked: usize::MAX })));
    assert_eq!(gpu.state().refusals, 0);
}

#[test]
fn shrink_waits_and_gives_back_all_idle_blocks() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    gpu.probe(&allocator);
    let held = allocator.alloc(MIB, Some(0)).unwrap();
    let freed = allocator.alloc(2 * MIB, Some(0)).unwrap();
    gpu.state().issue(addresses(&freed), 0);
    drop(freed);
    assert_eq!(allocator.shrink(), 2 * MIB);
    assert_eq!(allocator.shrink(), 0);
    let statistics = allocator.statistics();
    assert_eq!((statistics.cached, statistics.in_use, statistics.num_shrinks), (0, held.bytes(), 2));
    assert_eq!(gpu.state().live_bytes(), held.bytes());
    assert_no_breach(&gpu);
}

#[test]
fn the_limit_evicts_the_oldest_finished_blocks_and_never_waits() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(Some(2 * MIB));
    gpu.probe(&allocator);
    let blocks: Vec<_> = (0..4).map(|_| allocator.alloc(MIB, Some(0)).unwrap()).collect();
    let starts: Vec<_> = blocks.iter().map(AllocatedBlock::address).collect();
    for block in blocks {
        gpu.state().issue(addresses(&block), 0);
        drop(block);
    }
    assert_eq!(allocator.statistics().cached, 4 * MIB, "work is open on all of them");
    gpu.state().advance(0, 3);
    drop(allocator.alloc(1, Some(1)).unwrap());
    // The first three are done and the oldest go first; 256 bytes more than the limit cost a third block.
    assert_eq!(allocator.statistics().cached, MIB + 256);
    assert_eq!(allocator.alloc(MIB, Some(0)).unwrap().address(), starts[3]);
    assert_eq!(gpu.state().waits, 0);
    assert_no_breach(&gpu);
}

#[test]
fn blocks_outlive_the_allocator_and_then_all_memory_is_freed() {
    let gpu = FakeGpu::new(PLENTY);
    let allocator = gpu.allocator(None);
    let block = allocator.alloc(MIB, Some(0)).unwrap();
    drop(allocator.alloc(MIB, Some(1)).unwrap());
    drop(allocator);
    assert_eq!(gpu.state().live_bytes(), 2 * MIB);
    gpu.state().issue(addresses(&block), 0);
    drop(block);
    assert_eq!(gpu.state().live_bytes(), 0);
    assert_no_breach(&gpu);
}

#[test]
fn threads_share_an_allocator_without_sharing_blocks() {
    const ROUNDS: usize = 2000;
    // Less than the threads need at once, so that they run into each other's memory pressure.
    let gpu = FakeGpu::new(16 * MIB);
    let allocator = gpu.allocator(Some(8 * MIB));
    let served: usize = thread::scope(|scope| {
        let run = |home: StreamId| {
            let (gpu, allocator) = (&gpu, &allocator);
            move || {
                let mut served = 0;
                let mut held: Vec<TestBlock> = Vec::new();
                for round in 0..ROUNDS {
                    let stream = (round % 5 != 0).then_some(home);
                    let Ok(block) = allocator.alloc((round * 7919 + 13) % (2 * MIB), stream) else {
                        held.clear();
                        continue;
                    };
                    served += 1;
                    {
                        let mut state = gpu.state();
                        state.check_free_of_work(&addresses(&block), stream, "handed out");
                        state.issue(addresses(&block), stream.unwrap_or(round % STREAMS));
                        state.advance(round % STREAMS, 1);
                    }
                    held.push(block);
                    if held.len() > 3 {
                        allocator.free(held.swap_remove(round % 3));
                    }
                    if round % 500 == 0 {
                        allocator.shrink();
                    }
                }
                served
            }
        };
        let threads: Vec<_> = (0..STREAMS).map(|home| scope.spawn(run(home))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let statistics = allocator.statistics();
    assert!(served > STREAMS * ROUNDS / 2, "{served} served");
    assert_eq!(statistics.num_allocs, served as u64);
    assert_eq!(statistics.num_allocs, statistics.num_reuses + statistics.num_source_allocs);
    assert_eq!((statistics.in_use, statistics.cached), (0, gpu.state().live_bytes()));
    drop(allocator);
    assert_eq!(gpu.state().live_bytes(), 0);
    assert_no_breach(&gpu);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: usize, stream: Option<StreamId> },
    Work { block: prop::sample::Index, stream: StreamId },
    Free { block: prop::sample::Index },
    Advance { stream: StreamId, count: u64 },
    Shrink,
}

fn any_step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(0), 1..2000_usize, 1..MIB, prop::sample::select(vec![4096, 65_536, MIB])];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (bytes, prop::option::of(0..STREAMS)).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream }),
        8 => (index(), 0..STREAMS).prop_map(|(block, stream)| Step::Work { block, stream }),
        7 => index().prop_map(|block| Step::Free { block }),
        4 => (0..STREAMS, 1..6_u64).prop_map(|(stream, count)| Step::Advance { stream, count }),
        1 => Just(Step::Shrink),
    ]
}

/// The statistics that the allocator should report, counted from outside.
#[derive(Default)]
struct Model {
    live: Vec<TestBlock>,
    max_in_use: usize,
    max_alloc_size: usize,
    num_allocs: u64,
    num_shrinks: u64,
}

impl Model {
    fn in_use(&self) -> usize {
        self.live.iter().map(AllocatedBlock::bytes).sum()
    }

    fn alloc(
        &mut self,
        gpu: &FakeGpu,
        allocator: &CachingAllocator<FakeGpu, FakeGpu>,
        capacity: usize,
        bytes: usize,
        stream: Option<StreamId>,
    ) {
        let waits = gpu.state().waits;
        let refusals = gpu.state().refusals;
        let size = size_class::round(bytes).unwrap();
        match allocator.alloc(bytes, stream) {
            Ok(block) => {
                assert!(block.bytes() >= bytes && block.bytes() <= size_class::largest_fit(bytes, size));
                gpu.state().check_free_of_work(&addresses(&block), stream, "handed out");
                for other in &self.live {
                    let (a, b) = (addresses(&block), addresses(other));
                    assert!(a.end <= b.start || b.end <= a.start, "{block:?} overlaps {other:?}");
                }
                self.live.push(block);
                self.num_allocs += 1;
                self.max_in_use = self.max_in_use.max(self.in_use());
                self.max_alloc_size = self.max_alloc_size.max(bytes);
            }
            Err(AllocError::OutOfMemory { asked, in_use, .. }) => {
                assert_eq!((asked, in_use), (bytes, self.in_use()));
                assert!(in_use + size > capacity, "{in_use} bytes in use leave room for {size} of {capacity}");
            }
            Err(error) => panic!("{error}"),
        }
        let state = gpu.state();
        assert!(state.waits == waits || state.refusals > refusals, "waited although the source had memory");
    }

    fn check(&self, gpu: &FakeGpu, allocator: &CachingAllocator<FakeGpu, FakeGpu>, limit: Option<usize>) {
        let live_bytes = gpu.state().live_bytes();
        let statistics = allocator.statistics();
        let expected = Statistics {
            in_use: self.in_use(),
            max_in_use: self.max_in_use,
            cached: live_bytes - self.in_use(),
            total_from_source: live_bytes,
            num_allocs: self.num_allocs,
            num_reuses: self.num_allocs - statistics.num_source_allocs,
            num_source_allocs: statistics.num_source_allocs,
            num_shrinks: self.num_shrinks,
            max_alloc_size: self.max_alloc_size,
            limit,
        };
        assert_eq!(statistics, expected);
        assert_no_breach(gpu);
    }
}

proptest! {
    #[test]
    fn no_block_is_handed_out_while_foreign_work_is_open_on_it_and_every_byte_is_counted(
        steps in prop::collection::vec(any_step(), 1..200),
        capacity in prop_oneof![Just(64 << 30), 0..4 * MIB],
        limit in prop::option::of(0..2 * MIB),
    ) {
        let gpu = FakeGpu::new(capacity);
        let allocator = gpu.allocator(limit);
        gpu.probe(&allocator);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Alloc { bytes, stream } => model.alloc(&gpu, &allocator, capacity, bytes, stream),
                Step::Work { block, stream } => {
                    if let Some(block) = (!model.live.is_empty()).then(|| block.get(&model.live)) {
                        // ONNX Runtime uses a block on the stream it was requested for; a block without a stream,
                        // anywhere.
                        gpu.state().issue(addresses(block), block.stream().unwrap_or(stream));
                    }
                }
                Step::Free { block } => {
                    if !model.live.is_empty() {
                        let index = block.index(model.live.len());
                        allocator.free(model.live.swap_remove(index));
                    }
                }
                Step::Advance { stream, count } => gpu.state().advance(stream, count),
                Step::Shrink => {
                    allocator.shrink();
                    model.num_shrinks += 1;
                    prop_assert_eq!(allocator.statistics().cached, 0);
                }
            }
            model.check(&gpu, &allocator, limit);
        }
        drop(allocator);
        drop(model);
        prop_assert_eq!(gpu.state().live_bytes(), 0);
        prop_assert_eq!(gpu.state().live_fences, 0);
        assert_no_breach(&gpu);
    }
}
