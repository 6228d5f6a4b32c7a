//! The output of steps: printed at once, or in one piece at the end if several steps run in parallel.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static HERE: RefCell<Output> = const { RefCell::new(Output(None)) };
}

/// Where a thread's output goes: to the terminal, or into a buffer.
#[derive(Clone)]
pub struct Output(Option<Arc<Mutex<Vec<u8>>>>);

impl Output {
    /// This thread's output. A new thread has its own: give it a clone.
    pub fn here() -> Self {
        HERE.with_borrow(Clone::clone)
    }

    /// Writes bytes to the buffer, or to `terminal` if there is none.
    ///
    /// # Errors
    /// When writing to the terminal fails.
    pub fn write(&self, bytes: &[u8], terminal: &mut impl Write) -> io::Result<()> {
        if let Some(buffer) = &self.0 {
            buffer.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            return Ok(());
        }
        terminal.write_all(bytes)?;
        terminal.flush()
    }

    /// Prints a line, or several, in one piece.
    pub fn say(&self, line: impl Display) {
        // If stdout is closed, there is nowhere to report it.
        let _ = self.write(format!("{line}\n").as_bytes(), &mut io::stdout().lock());
    }
}

/// Prints a line to this thread's output.
pub fn say(line: impl Display) {
    Output::here().say(line);
}

/// Runs `work` with its output buffered; returns its result and the output.
pub fn captured<R>(work: impl FnOnce() -> R) -> (R, String) {
    let text = Arc::default();
    let before = HERE.replace(Output(Some(Arc::clone(&text))));
    let result = work();
    HERE.set(before);
    let bytes = std::mem::take(&mut *text.lock().unwrap_or_else(PoisonError::into_inner));
    (result, String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_output_is_in_one_piece_and_not_on_the_terminal() {
        let (inner, outer) = captured(|| {
            say("one");
            let ((), inner) = captured(|| say("two"));
            say(3);
            inner
        });
        assert_eq!((inner.as_str(), outer.as_str()), ("two\n", "one\n3\n"));
        let mut terminal = Vec::new();
        Output::here().write(b"four", &mut terminal).unwrap();
        assert_eq!(terminal, b"four");
    }
}
