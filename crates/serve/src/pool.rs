//! What is in memory: some things always, others when they are needed.

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
}

/// A fixed number of places. Those on demand are filled by requests, and emptied when no request uses them.
pub struct Pool<T> {
    on_demand: Vec<bool>,
    /// Places on demand that may be filled at once.
    most: usize,
    idle: Duration,
    places: Mutex<Vec<Place<T>>>,
}

/// The end of a load, once there is one.
type End<T> = Option<Result<T, Failure>>;

enum Place<T> {
    Empty,
    Loading(watch::Receiver<End<T>>),
    Loaded { content: T, used: Instant },
}

/// What a request finds.
enum Found<T> {
    Loaded(T),
    Loading(watch::Receiver<End<T>>),
    /// It can be loaded after this, which made room, is dropped.
    Room(watch::Sender<End<T>>, Option<T>),
    /// Everything that is loaded on demand is in use.
    Full,
}

impl<T: Resident> Pool<T> {
    pub fn new(on_demand: impl Iterator<Item = bool>, most: Option<usize>, idle: Duration) -> Pool<T> {
        let on_demand: Vec<bool> = on_demand.collect();
        let places = on_demand.iter().map(|_| Place::Empty).collect();
        Pool { most: most.unwrap_or(on_demand.len()), on_demand, idle, places: Mutex::new(places) }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place<T>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a place.
    pub fn put(&self, index: usize, content: T) {
        self.places()[index] = Place::Loaded { content, used: Instant::now() };
    }

    /// What is loaded in a place.
    pub fn loaded(&self, index: usize) -> Option<T> {
        match &self.places()[index] {
            Place::Loaded { content, .. } => Some(content.clone()),
            _ => None,
        }
    }

    pub fn is_loading(&self, index: usize) -> bool {
        matches!(self.places()[index], Place::Loading(_))
    }

    /// What is in a place on demand. The first request loads it, and others wait for that. If too much is loaded, the
    /// request waits until something else is not in use, and the one that was used least recently is unloaded.
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
                    // A task of its own: the load goes on if this request is given up.
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
        unloaded: Option<T>,
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
        let place = match &end {
            Ok(content) => Place::Loaded { content: content.clone(), used: Instant::now() },
            Err(_) => Place::Empty,
        };
        self.places()[index] = place;
        // Those who wait hold the content until they use it. If no request waits, it stays in its place.
        let _ = sender.send(Some(end));
    }

    fn find(&self, index: usize, now: Instant) -> Found<T> {
        let mut places = self.places();
        match &mut places[index] {
            Place::Loaded { content, .. } if content.has_stopped() => {}
            Place::Loaded { content, used } => {
                *used = now;
                return Found::Loaded(content.clone());
            }
            Place::Loading(end) => return Found::Loading(end.clone()),
            Place::Empty => {}
        }
        // The place itself does not count: it is empty, or its content is replaced.
        let others = (0..places.len()).filter(|&other| other != index && self.on_demand[other]);
        let filled: Vec<usize> = others.filter(|&other| !matches!(places[other], Place::Empty)).collect();
        let mut unloaded = None;
        if filled.len() >= self.most {
            let least = filled.into_iter().filter_map(|other| match &places[other] {
                Place::Loaded { content, used } if !content.is_in_use() => Some((*used, other)),
                _ => None,
            });
            let Some((_, least)) = least.min() else { return Found::Full };
            unloaded = content(&mut places[least]);
        }
        let sender = watch::Sender::new(None);
        places[index] = Place::Loading(sender.subscribe());
        Found::Room(sender, unloaded)
    }

    /// Takes out what is on demand and was not used for a while.
    pub fn idle(&self, now: Instant) -> Vec<T> {
        let mut unloaded = Vec::new();
        for (place, _) in self.places().iter_mut().zip(&self.on_demand).filter(|(_, on_demand)| **on_demand) {
            let Place::Loaded { content: resident, used } = place else { continue };
            if resident.is_in_use() {
                *used = now;
            } else if now.saturating_duration_since(*used) >= self.idle {
                unloaded.extend(content(place));
            }
        }
        unloaded
    }
}

/// Empties a place.
fn content<T>(place: &mut Place<T>) -> Option<T> {
    match std::mem::replace(place, Place::Empty) {
        Place::Loaded { content, .. } => Some(content),
        _ => None,
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
    }

    fn pool(on_demand: &[bool], most: usize) -> Arc<Pool<Arc<usize>>> {
        Arc::new(Pool::new(on_demand.iter().copied(), Some(most), IDLE))
    }

    fn on_runtime<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(future)
    }

    fn number(index: usize) -> impl Fn() -> Result<Arc<usize>, Failure> + Clone + Send + 'static {
        move || Ok(Arc::new(index))
    }

    fn loaded(pool: &Pool<Arc<usize>>) -> Vec<usize> {
        (0..pool.on_demand.len()).filter(|&index| pool.loaded(index).is_some()).collect()
    }

    /// Waits until nobody holds the content of a place: a load holds it for a moment after its last request got it.
    async fn released(pool: &Pool<Arc<usize>>, index: usize) {
        let is_held = || matches!(&pool.places()[index], Place::Loaded { content, .. } if content.is_in_use());
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
