//! Models that answer one request after the other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::Mutex;

use crate::Settings;
use crate::chat::blocking;
use crate::failure::Failure;

/// When a client may try again.
const RETRY: Duration = Duration::from_secs(1);

/// A model, and the requests that wait for it.
pub struct Queued<T> {
    model: Arc<Mutex<T>>,
    waiting: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Queued<T> {
    pub fn new(model: T) -> Queued<T> {
        Queued { model: Arc::new(Mutex::new(model)), waiting: Arc::default() }
    }

    /// Runs `work` when the model is free.
    ///
    /// # Errors
    /// When too many requests wait, or the time of a request is over. Work that has begun is finished nevertheless,
    /// unless it asks its turn.
    pub async fn run<R: Send + 'static>(
        &self,
        settings: &Settings,
        work: impl FnOnce(&mut T, &Turn) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, Failure> {
        let place = Arc::new(Place::take(&self.waiting, settings.queue)?);
        let time = settings.request_time();
        let turn = Turn { deadline: Instant::now() + time, place: Arc::downgrade(&place) };
        let model = Arc::clone(&self.model);
        let answer = async {
            let mut model = model.lock_owned().await;
            blocking(move || {
                turn.check()?;
                work(&mut model, &turn)
            })
            .await
        };
        tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(too_late()))
    }

    /// Whether a request runs or waits, also one whose client has gone away.
    pub fn is_running(&self) -> bool {
        Arc::strong_count(&self.model) > 1
    }

    /// Waits until nothing runs.
    pub async fn idle(&self) {
        drop(self.model.lock().await);
    }
}

/// The right of a request to run.
pub struct Turn {
    deadline: Instant,
    /// The place is given up with the request, so it is gone when the client is.
    place: Weak<Place>,
}

impl Turn {
    /// Fails when the client has gone away, or the time of the request is over.
    pub fn check(&self) -> Result<(), Failure> {
        match () {
            () if self.place.strong_count() == 0 => Err(Failure::invalid("the client has gone away")),
            () if Instant::now() >= self.deadline => Err(too_late()),
            () => Ok(()),
        }
    }
}

/// A place among the waiting requests and the one that runs.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(waiting: &Arc<AtomicUsize>, queue: usize) -> Result<Place, Failure> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(waiting));
        if before > queue {
            let message = format!("{before} requests are already waiting; try again later");
            let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message);
            return Err(failure.retry_after(RETRY));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn too_late() -> Failure {
    let message = "the request took longer than request_seconds; send less at once, or try again later";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "timed_out", message).retry_after(RETRY)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn on_runtime<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn requests_beyond_the_queue_are_refused() {
        let settings = Settings { queue: 0, ..Settings::default() };
        let queued = Arc::new(Queued::new(1));
        on_runtime(async {
            let (release, released) = mpsc::channel::<()>();
            let (running, settings_copy) = (Arc::clone(&queued), settings.clone());
            let first = tokio::spawn(async move {
                running.run(&settings_copy, move |_, _| Ok(released.recv().is_ok())).await.map_err(|_| ())
            });
            while queued.waiting.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let refused = queued.run(&settings, |model, _| Ok(*model)).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            release.send(()).unwrap();
            assert_eq!(first.await.unwrap(), Ok(true));
            assert_eq!(queued.run(&settings, |model, _| Ok(*model)).await.unwrap(), 1);
        });
    }

    #[test]
    fn work_notices_that_its_client_has_gone_away() {
        let queued = Arc::new(Queued::new(()));
        let (started, has_started) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        on_runtime(async {
            let running = Arc::clone(&queued);
            let request = tokio::spawn(async move {
                let work = move |_: &mut (), turn: &Turn| {
                    started.send(turn.check().is_ok()).unwrap();
                    while turn.check().is_ok() {
                        std::thread::yield_now();
                    }
                    report.send(()).unwrap();
                    Ok(())
                };
                running.run(&Settings::default(), work).await.map_err(|_| ())
            });
            while has_started.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            request.abort();
            queued.idle().await;
            assert_eq!(reported.try_recv(), Ok(()));
        });
    }

    #[test]
    fn the_time_of_a_request_includes_waiting() {
        let settings = Settings { request_seconds: 0, ..Settings::default() };
        let late = on_runtime(async { Queued::new(()).run(&settings, |_, _| Ok(())).await }).unwrap_err();
        assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
