//! How calls fail: a status, and a message that the thread keeps.

use std::cell::RefCell;

use hipdnn::sys::Status;

/// Why a call fails.
#[derive(Debug)]
pub struct Fault {
    /// The status that the caller gets.
    pub status: Status,
    /// The message that `hipdnnGetLastErrorString` returns.
    pub text: String,
}

impl Fault {
    /// A failure with a message.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// An invalid parameter.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(Status::BAD_PARAM, text)
    }

    /// A null pointer where a value is required.
    pub fn null(what: &str) -> Self {
        Self::new(Status::BAD_PARAM_NULL_POINTER, format!("{what} is null"))
    }

    /// Something this backend does not support.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::new(Status::NOT_SUPPORTED, text)
    }
}

/// The result of an internal call.
pub type Outcome<T = ()> = Result<T, Fault>;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a failure's message for this thread.
pub fn remember(text: String) {
    // An exiting thread has no reader for it.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// The message of this thread's last failure; `clear` removes it.
pub fn last(clear: bool) -> String {
    LAST.try_with(|last| if clear { last.take() } else { last.borrow().clone() }).unwrap_or_default()
}
