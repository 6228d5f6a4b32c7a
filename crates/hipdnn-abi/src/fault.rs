//! How calls fail: a status, and words that the thread keeps.

use std::cell::RefCell;

use hipdnn::sys::Status;

/// Why a call fails.
#[derive(Debug)]
pub struct Fault {
    /// What the caller gets.
    pub status: Status,
    /// What `hipdnnGetLastErrorString` gives.
    pub text: String,
}

impl Fault {
    /// A failure with words.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// A parameter that can't be.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(Status::BAD_PARAM, text)
    }

    /// A null pointer where something must be.
    pub fn null(what: &str) -> Self {
        Self::new(Status::BAD_PARAM_NULL_POINTER, format!("{what} is null"))
    }

    /// Something this backend does not do.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::new(Status::NOT_SUPPORTED, text)
    }
}

/// What a call gives inside.
pub type Outcome<T = ()> = Result<T, Fault>;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of a failure for this thread.
pub fn remember(text: String) {
    // A thread that is ending has nobody left to read it.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// The words of this thread's last failure; `clear` forgets them.
pub fn last(clear: bool) -> String {
    LAST.try_with(|last| if clear { last.take() } else { last.borrow().clone() }).unwrap_or_default()
}
