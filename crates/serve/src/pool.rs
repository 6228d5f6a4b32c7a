//! Keeps models in memory: some always, others while they are needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::failure::Failure;

/// How often a request looks whether something can be unloaded for it.
const PAUSE: Duration = Duration::from_millis(50);

/// Something that takes memory. The pool holds one clone.
pub trait Resident: Clone + Send + Sync + 'static {
    /// Whether there is another clone.
    fn is_in_use(&self) -> bool;

    /// Whether it has failed, so that it must be loaded again.
    fn has_stopped(&self) -> bool;

    /// The memory that it takes, in bytes; `None` if the estimate from before the load is the best that is known.
    fn bytes(&self) -> Option<u64>;
}

/// Limits on what is loaded at the same time; `None` means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolLimits {
    /// Places on demand.
    pub places: Option<usize>,
    /// Bytes of all places.
    pub bytes: Option<u64>,
}

/// A fixed number of places. Those on demand are filled by requests, and emptied when no request uses them.
pub struct Pool<T> {
    limits: PoolLimits,
    idle: Duration,
    places: Mutex<Vec<Place<T>>>,
}

struct Place<T> {
    is_on_demand: bool,
    /// An estimate until the content was loaded once.
    bytes: u64,
    state: State<T>,
}

/// The result of a load; `None` while it is in progress.
type End<T> = Option<Result<T, Failure>>;

enum State<T> {
    Empty,
    Loading(watch::Receiver<End<T>>),
    Loaded { content: T, used: Instant },
}

/// What a request finds.
enum Found<T> {
    Loaded(T),
    Loading(watch::Receiver<End<T>>),
    /// The content can be loaded after these contents, which made room, are dropped.
    Room(watch::Sender<End<T>>, Vec<T>),
    /// Everything that would have to make room is in use.
    Full,
}

impl<T: Resident> Pool<T> {
    /// A pool with a place for each pair: whether it is filled on demand, and the bytes that its content will take.
    pub fn new(places: impl Iterator<Item = (bool, u64)>, limits: PoolLimits, idle: Duration) -> Pool<T> {
        let place = |(is_on_demand, bytes)| Place { is_on_demand, bytes, state: State::Empty };
        Pool { limits, idle, places: Mutex::new(places.map(place).collect()) }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place<T>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a place.
    pub fn put(&self, index: usize, content: T) {
        self.places()[index].fill(content);
    }

    /// The content of a place, if it is loaded.
    pub fn loaded(&self, index: usize) -> Option<T> {
        match &self.places()[index].state {
            State::Loaded { content, .. } => Some(content.clone()),
            _ => None,
        }
    }

    pub fn is_loading(&self, index: usize) -> bool {
        matches!(self.places()[index].state, State::Loading(_))
    }

    /// The bytes that the content of a place takes, or will take.
    pub fn bytes(&self, index: usize) -> u64 {
        self.places()[index].bytes
    }

    /// The bytes of everything that is loaded or being loaded.
    pub fn bytes_in_use(&self) -> u64 {
        self.places().iter().filter(|place| !place.is_empty()).map(|place| place.bytes).sum()
    }

    /// The content of a place that is loaded on demand. The first request loads it, and others wait for that. If too
    /// much is loaded, the least recently used content is unloaded. If that is in use, the request waits.
    ///
    /// # Errors
    /// When the load fails. The next request tries again.
    pub async fn get(
        self: &Arc<Self>,
        index: usize,
        load: impl Fn() -> Result<T, Failure> + Clone + Send + 'static,
    ) -> Result<T, Failure> {
        loop {
            let mut end = match self.find(index, Instant::now()) {
                Found::Loaded(content) => return Ok(content),
                Found::Full => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Found::Loading(end) => end,
                Found::Room(sender, unloaded) => {
                    let end = sender.subscribe();
                    // A separate task, so that the load goes on if this request is given up.
                    tokio::spawn(Arc::clone(self).fill(index, sender, unloaded, load.clone()));
                    end
                }
            };
            // The load ends when its sender is gone, which holds the content too.
            while end.changed().await.is_ok() {}
            let end = end.borrow().clone();
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn fill(
        self: Arc<Self>,
        index: usize,
        sender: watch::Sender<End<T>>,
        unloaded: Vec<T>,
        load: impl Fn() -> Result<T, Failure> + Send + 'static,
    ) {
        let work = move || {
            drop(unloaded);
            load()
        };
        let end = match tokio::task::spawn_blocking(work).await {
            Ok(end) => end,
            Err(error) => Err(Failure::internal("loading a model", &error)),
        };
        {
            let place = &mut self.places()[index];
            match &end {
                Ok(content) => place.fill(content.clone()),
                Err(_) => place.state = State::Empty,
            }
        }
        // Those who wait hold the content until they use it. If no request waits, it stays in its place.
        let _ = sender.send(Some(end));
    }

    fn find(&self, index: usize, now: Instant) -> Found<T> {
        let mut places = self.places();
        match &mut places[index].state {
            State::Loaded { content, .. } if content.has_stopped() => {}
            State::Loaded { content, used } => {
                *used = now;
                return Found::Loaded(content.clone());
            }
            State::Loading(end) => return Found::Loading(end.clone()),
            State::Empty => {}
        }
        let Some(unloaded) = self.superfluous(index, &places) else { return Found::Full };
        let unloaded = unloaded.into_iter().filter_map(|other| places[other].take()).collect();
        let sender = watch::Sender::new(None);
        places[index].state = State::Loading(sender.subscribe());
        Found::Room(sender, unloaded)
    }

    /// What must be unloaded so that a place can be filled: as little as possible, the least recently used first.
    /// `None` if that is not enough, because the rest is in use.
    fn superfluous(&self, index: usize, places: &[Place<T>]) -> Option<Vec<usize>> {
        // The place itself does not count: it is empty, or its content is replaced.
        let others = (0..places.len()).filter(|&other| other != index && !places[other].is_empty());
        let (mut filled, mut bytes, mut unused) = (0, places[index].bytes, Vec::new());
        for other in others {
            let place = &places[other];
            filled += usize::from(place.is_on_demand);
            bytes = bytes.saturating_add(place.bytes);
            match &place.state {
                State::Loaded { content, used } if place.is_on_demand && !content.is_in_use() => {
                    unused.push((*used, other));
                }
                _ => {}
            }
        }
        unused.sort();
        let mut unused = unused.into_iter();
        let mut superfluous = Vec::new();
        let PoolLimits { places: most, bytes: budget } = self.limits;
        while most.is_some_and(|most| filled >= most) || budget.is_some_and(|budget| bytes > budget) {
            let (_, least) = unused.next()?;
            filled -= 1;
            bytes = bytes.saturating_sub(places[least].bytes);
            superfluous.push(least);
        }
        Some(superfluous)
    }

    /// Takes out contents that were loaded on demand and have not been used for a while.
    pub fn idle(&self, now: Instant) -> Vec<T> {
        let mut unloaded = Vec::new();
        for place in self.places().iter_mut().filter(|place| place.is_on_demand) {
            let State::Loaded { content, used } = &mut place.state else { continue };
            if content.is_in_use() {
                *used = now;
            } else if now.saturating_duration_since(*used) >= self.idle {
                unloaded.extend(place.take());
            }
        }
        unloaded
    }
}

impl<T: Resident> Place<T> {
    fn is_empty(&self) -> bool {
        matches!(self.state, State::Empty)
    }

    fn fill(&mut self, content: T) {
        self.bytes = content.bytes().unwrap_or(self.bytes);
        self.state = State::Loaded { content, used: Instant::now() };
    }

    /// Empties the place.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Loaded { content, .. } => Some(content),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    impl Resident for Arc<usize> {
        fn is_in_use(&self) -> bool {
            Arc::strong_count(self) > 1
        }

        fn has_stopped(&self) -> bool {
            **self == 99
        }

        fn bytes(&self) -> Option<u64> {
            // A number above a thousand is its own size.
            (**self > 1000).then_some(**self as u64)
        }
    }

    fn pool(on_demand: &[bool], most: usize) -> Arc<Pool<Arc<usize>>> {
        let limits = PoolLimits { places: Some(most), bytes: None };
        Arc::new(Pool::new(on_demand.iter().map(|&is_on_demand| (is_on_demand, 0)), limits, IDLE))
    }

    /// A pool with a budget of bytes.
    fn budgeted(places: &[(bool, u64)], budget: u64) -> Arc<Pool<Arc<usize>>> {
        let limits = PoolLimits { places: None, bytes: Some(budget) };
        Arc::new(Pool::new(places.iter().copied(), limits, IDLE))
    }

    fn on_runtime<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(future)
    }

    fn number(index: usize) -> impl Fn() -> Result<Arc<usize>, Failure> + Clone + Send + 'static {
        move || Ok(Arc::new(index))
    }

    fn loaded(pool: &Pool<Arc<usize>>) -> Vec<usize> {
        let count = pool.places().len();
        (0..count).filter(|&index| pool.loaded(index).is_some()).collect()
    }

    /// Waits until nothing holds the content of a place: a load holds it for a moment after its last request got it.
    async fn released(pool: &Pool<Arc<usize>>, index: usize) {
        let is_held = || matches!(&pool.places()[index].state, State::Loaded { content, .. } if content.is_in_use());
        while is_held() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn requests_for_one_place_share_its_load() {
        let (pool, loads) = (pool(&[true], 1), Arc::new(AtomicUsize::new(0)));
        on_runtime(async {
            let load = {
                let loads = Arc::clone(&loads);
                move || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok(Arc::new(7))
                }
            };
            let requests: Vec<_> = (0..20)
                .map(|_| {
                    let (pool, load) = (Arc::clone(&pool), load.clone());
                    tokio::spawn(async move { pool.get(0, load).await.map(|content| *content) })
                })
                .collect();
            for request in requests {
                assert_eq!(request.await.unwrap().unwrap(), 7);
            }
        });
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_least_recently_used_is_unloaded_but_never_one_in_use() {
        let pool = pool(&[true, true, true, false], 2);
        pool.put(3, Arc::new(3));
        on_runtime(async {
            let first = pool.get(0, number(0)).await.unwrap();
            pool.get(1, number(1)).await.unwrap();
            pool.get(2, number(2)).await.unwrap();
            assert_eq!(loaded(&pool), [0, 2, 3], "1 is older than 2, and 0 is in use");
            let second = pool.get(2, number(2)).await.unwrap();
            assert!(matches!(pool.find(1, Instant::now()), Found::Full));
            drop(first);
            pool.get(1, number(1)).await.unwrap();
            assert_eq!(loaded(&pool), [1, 2, 3]);
            drop(second);
        });
    }

    #[test]
    fn as_much_is_unloaded_as_the_budget_requires() {
        let pool = budgeted(&[(true, 30), (true, 30), (true, 30), (true, 60), (false, 10)], 100);
        pool.put(4, Arc::new(4));
        on_runtime(async {
            for index in 0..3 {
                pool.get(index, number(index)).await.unwrap();
                released(&pool, index).await;
            }
            assert_eq!((loaded(&pool), pool.bytes_in_use()), (vec![0, 1, 2, 4], 100));
            pool.get(0, number(0)).await.unwrap();
            pool.get(3, number(3)).await.unwrap();
            assert_eq!((loaded(&pool), pool.bytes_in_use()), (vec![0, 3, 4], 100), "0 was used after 1 and 2");
        });
    }

    #[test]
    fn nothing_is_unloaded_if_that_does_not_make_enough_room() {
        let pool = budgeted(&[(true, 40), (true, 40), (true, 80)], 100);
        on_runtime(async {
            let used = pool.get(0, number(0)).await.unwrap();
            pool.get(1, number(1)).await.unwrap();
            released(&pool, 1).await;
            assert!(matches!(pool.find(2, Instant::now()), Found::Full));
            assert_eq!(loaded(&pool), [0, 1], "without 1 there would still be no room for 2");
            drop(used);
            pool.get(2, number(2)).await.unwrap();
            assert_eq!(loaded(&pool), [2]);
        });
    }

    #[test]
    fn the_measured_size_replaces_the_estimate() {
        let pool = budgeted(&[(true, 9000), (true, 4000)], 10_000);
        on_runtime(async {
            pool.get(0, number(5000)).await.unwrap();
            released(&pool, 0).await;
            assert_eq!(pool.bytes(0), 5000);
            pool.get(1, number(1)).await.unwrap();
            released(&pool, 1).await;
            assert_eq!((loaded(&pool), pool.bytes_in_use()), (vec![0, 1], 9000));
            pool.idle(Instant::now() + IDLE);
            assert_eq!((pool.bytes(0), pool.bytes_in_use()), (5000, 0), "the size is known for the next load");
        });
    }

    #[test]
    fn a_request_waits_until_something_can_be_unloaded() {
        let pool = pool(&[true, true], 1);
        on_runtime(async {
            let first = pool.get(0, number(0)).await.unwrap();
            let waiting = {
                let pool = Arc::clone(&pool);
                tokio::spawn(async move { pool.get(1, number(1)).await.map(|content| *content) })
            };
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(first);
            assert_eq!(waiting.await.unwrap().unwrap(), 1);
        });
    }

    #[test]
    fn unused_content_is_unloaded_after_a_while() {
        let pool = pool(&[true, true, false], 2);
        pool.put(2, Arc::new(2));
        on_runtime(async {
            let used = pool.get(0, number(0)).await.unwrap();
            pool.get(1, number(1)).await.unwrap();
            released(&pool, 1).await;
            let later = Instant::now() + IDLE;
            assert_eq!(pool.idle(Instant::now()).len(), 0);
            assert_eq!(pool.idle(later), [Arc::new(1)]);
            assert_eq!(loaded(&pool), [0, 2], "0 is in use, and 2 is not on demand");
            drop(used);
            released(&pool, 0).await;
            assert_eq!(pool.idle(later).len(), 0, "the time begins when it is not in use any more");
            assert_eq!(pool.idle(later + IDLE), [Arc::new(0)]);
        });
    }

    #[test]
    fn a_failed_load_is_reported_and_tried_again() {
        let pool = pool(&[true], 1);
        let broken = || -> Result<Arc<usize>, Failure> { Err(Failure::invalid("it is broken")) };
        let buggy = || -> Result<Arc<usize>, Failure> { panic!("a bug") };
        on_runtime(async {
            assert_eq!(pool.get(0, broken).await.unwrap_err().message(), "it is broken");
            assert_eq!(pool.get(0, buggy).await.unwrap_err().status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(*pool.get(0, number(5)).await.unwrap(), 5);
        });
    }

    #[test]
    fn what_has_stopped_is_loaded_again() {
        let pool = pool(&[true], 1);
        on_runtime(async {
            assert_eq!(*pool.get(0, number(99)).await.unwrap(), 99);
            assert_eq!(*pool.get(0, number(1)).await.unwrap(), 1);
        });
    }
}
