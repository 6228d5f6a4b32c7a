//! The signals that stop the server.

use std::io;

/// Ctrl-C; on Unix also SIGTERM, on Windows also Ctrl-Break and the closing of the console.
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    terminate: tokio::signal::windows::CtrlBreak,
    #[cfg(windows)]
    close: tokio::signal::windows::CtrlClose,
}

#[cfg(unix)]
impl Signals {
    /// From now on these signals do not end the process.
    pub fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
impl Signals {
    /// From now on Ctrl-C and Ctrl-Break do not end the process. After the console is closed, Windows ends it within
    /// seconds. A signal that arrives while no task waits is kept for the next wait.
    pub fn new() -> io::Result<Signals> {
        use tokio::signal::windows;

        Ok(Signals { interrupt: windows::ctrl_c()?, terminate: windows::ctrl_break()?, close: windows::ctrl_close()? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.close.recv() => {}
        }
    }
}
