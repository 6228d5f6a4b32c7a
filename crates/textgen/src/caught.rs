//! Turns panics of libraries that parse untrusted files into errors, without printing them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside `caught`.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, and returns `None` if it panics. The panic hook stays silent for such a panic, and reports all others.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                previous(panic);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    // No broken state stays in use: callers drop the values involved, or the library keeps no state between calls.
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_gives_none_and_the_thread_continues() {
        assert_eq!(caught(|| 1), Some(1));
        assert_eq!(caught(|| -> u8 { panic!("caught") }), None);
        assert!(!IS_CAUGHT.get());
        assert_eq!(caught(|| caught(|| -> u8 { panic!("caught") })), Some(None));
    }
}
