//! Listens, and stops after the running requests.

use std::net::TcpListener as Listener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::access_log::problem;
use crate::app::{self, App};
use crate::keys::Keys;
use crate::models::Loader;
use crate::signals::Signals;
use crate::slow_reader::WriteTimeout;
use crate::{Error, Settings, tls};

/// A client that takes longer to send its headers, or to agree on TLS, is disconnected.
const HEADERS: Duration = Duration::from_secs(30);

/// The time that clients get to read the last bytes after the models have stopped.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// How often the server looks for models that are not used.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Wait after a failed accept, such as when the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads that tokenize and render prompts.
const BLOCKING_THREADS: usize = 16;

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All requests ended.
    Drained,
    /// Requests took longer than `drain_seconds`, or a model was still being loaded. Threads of the models may be
    /// running.
    Unfinished,
    /// A second signal ended the server at once. Threads of the models may be running.
    AtOnce,
}

/// A server that is bound to its address.
pub struct Server {
    listener: Listener,
    tls: Option<TlsAcceptor>,
    app: App,
}

impl Server {
    /// Binds to the address of the settings.
    ///
    /// # Errors
    /// When the settings are wrong, or the address cannot be used.
    pub fn bind(mut settings: Settings) -> Result<Server, Error> {
        settings.check()?;
        let keys = Keys::read(settings.api_keys.as_deref())?;
        let tls = tls::acceptor(&settings)?;
        let address = settings.address();
        let listener = Listener::bind(address).map_err(|source| Error::Listen { address, source })?;
        Ok(Server { listener, tls, app: App::new(settings, keys) })
    }

    /// The URL, with the port that the system chose.
    ///
    /// # Errors
    /// When the system does not tell it.
    pub fn url(&self) -> Result<String, Error> {
        let doing = "reading the server's address";
        let address = self.listener.local_addr().map_err(|source| Error::System { doing, source })?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    }

    /// Whether clients outside of this machine can connect without a key.
    pub fn is_open(&self) -> bool {
        !self.app.settings().host.is_loopback() && self.app.keys().is_empty()
    }

    /// Serves until Ctrl-C or SIGTERM, then drains. The models are loaded meanwhile; `ready` is called when they can be
    /// used, and `stopping` at the signal.
    ///
    /// # Errors
    /// When a model cannot be loaded, or the system refuses sockets or threads.
    pub fn run(
        self,
        loader: Loader,
        ready: impl FnOnce() + Send + 'static,
        stopping: impl FnOnce(),
    ) -> Result<Stopped, Error> {
        let failed = |doing| move |source| Error::System { doing, source };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(failed("starting the server's threads"))?;
        let result = runtime.block_on(async {
            self.listener.set_nonblocking(true).map_err(failed("preparing the socket"))?;
            let listener = TcpListener::from_std(self.listener).map_err(failed("preparing the socket"))?;
            let mut signals = Signals::new().map_err(failed("waiting for signals"))?;
            let connections = GracefulShutdown::new();
            let is_loaded =
                match serve((listener, self.tls), &self.app, loader, ready, &mut signals, &connections).await {
                    Ok(is_loaded) => is_loaded,
                    Err(error) => {
                        // Models that were loaded before may be running.
                        drain(&self.app, connections, Duration::ZERO).await;
                        return Err(error);
                    }
                };
            stopping();
            let time = Duration::from_secs(self.app.settings().drain_seconds);
            tokio::select! {
                has_drained = drain(&self.app, connections, time) => {
                    Ok(if has_drained && is_loaded { Stopped::Drained } else { Stopped::Unfinished })
                }
                () = signals.next() => Ok(Stopped::AtOnce),
            }
        });
        // A thread that tokenizes cannot be interrupted.
        runtime.shutdown_background();
        result
    }
}

/// Serves until a signal, and returns whether the models were loaded by then.
async fn serve(
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    app: &App,
    loader: Loader,
    ready: impl FnOnce() + Send + 'static,
    signals: &mut Signals,
    connections: &GracefulShutdown,
) -> Result<bool, Error> {
    let router = app::router(app.clone())?;
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(app.settings().max_connections));
    let models = Arc::clone(app.models());
    let mut load = tokio::task::spawn_blocking(move || models.start(loader).inspect(|()| ready()));
    tokio::spawn(unload_idle(app.clone()));
    let mut is_loaded = false;
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = signals.next() => return Ok(is_loaded),
            loaded = &mut load, if !is_loaded => {
                loaded.map_err(|source| Error::LoadingThread { source: source.into() })??;
                is_loaded = true;
                continue;
            }
            accepted = accept => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                problem("accepting a connection", &error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Tokens are sent one by one; waiting for more of them would delay the text.
        let _ = stream.set_nodelay(true);
        let stream = WriteTimeout::new(stream, app.settings().write_time());
        let (tls, service, watcher) = (tls.clone(), service.clone(), connections.watcher());
        tokio::spawn(async move {
            match tls {
                None => answer(stream, service, watcher).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEADERS, tls.accept(stream)).await {
                        answer(stream, service, watcher).await;
                    }
                }
            }
            drop(place);
        });
    }
}

/// Answers the requests of a connection.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: TowerToHyperService<Router>,
    watcher: Watcher,
) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A broken connection needs no report.
    let _ = watcher.watch(connection).await;
}

/// Unloads models that were loaded on demand and are not used.
async fn unload_idle(app: App) {
    loop {
        tokio::time::sleep(IDLE_CHECK).await;
        let idle = app.models().idle();
        if !idle.is_empty() {
            // Ends the thread of an engine, and frees memory of devices.
            let _ = tokio::task::spawn_blocking(move || drop(idle)).await;
        }
    }
}

/// Lets running requests end for this time, then cancels them. Returns whether nothing runs any more.
async fn drain(app: &App, connections: GracefulShutdown, time: Duration) -> bool {
    app.stop();
    let until = Instant::now() + time;
    let engines: Vec<_> = app.models().ready().iter().map(|model| model.engine.clone()).collect();
    let engines = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            for engine in &engines {
                scope.spawn(|| engine.shutdown(until));
            }
        });
    });
    let all = async {
        let (engines, ()) = tokio::join!(engines, connections.shutdown());
        // A client may have gone away while its request runs.
        for served in app.models().states().into_iter().filter_map(|model| model.served) {
            served.idle().await;
        }
        engines.is_ok() && !app.models().is_loading()
    };
    tokio::time::timeout(time + LAST_BYTES, all).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError, mpsc};

    use super::*;
    use crate::ModelSettings;

    /// A signal reaches all servers of a process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn server() -> Server {
        let models = vec![ModelSettings::parse("a=nowhere")];
        Server::bind(Settings { port: 0, models, ..Settings::default() }).unwrap()
    }

    #[test]
    fn a_model_that_cannot_be_loaded_ends_the_server() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let error = server().run(Box::new(|_| Err("it is broken".into())), || {}, || {}).unwrap_err();
        assert_eq!(error.to_string(), "the model a could not be loaded: it is broken");
    }

    #[test]
    fn a_loader_that_panics_ends_the_server() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let error = server().run(Box::new(|_| panic!("a bug")), || {}, || {}).unwrap_err();
        assert!(matches!(error, Error::LoadingThread { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_during_loading_leaves_the_loading_unfinished() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let loader = move |_: &std::path::Path| {
            let process = std::process::id().to_string();
            assert!(std::process::Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
            let _ = released.lock().unwrap().recv();
            Err("the test is over".into())
        };
        assert_eq!(server().run(Box::new(loader), || {}, || {}).unwrap(), Stopped::Unfinished);
        drop(release);
    }
}
