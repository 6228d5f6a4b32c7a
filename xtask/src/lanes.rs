//! Two lanes of work: one that runs in order, and one whose work may run at any time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::output;

/// Runs all of `ordered` on this thread, in order, while a second thread runs `free`. This thread helps with `free`
/// when it has finished. The second thread's output is printed in one piece, between two pieces of this thread's work.
///
/// Results are in order of completion.
pub fn run<W: Sync, R: Send>(ordered: &[W], free: &[W], work: impl Fn(&W) -> R + Sync) -> Vec<R> {
    let (next, done, texts) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(String::new()));
    let next_free = || free.get(next.fetch_add(1, Ordering::Relaxed));
    let end = |result| done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    let print_texts = || {
        let text = std::mem::take(&mut *texts.lock().unwrap_or_else(PoisonError::into_inner));
        if !text.is_empty() {
            output::say(text.trim_end());
        }
    };
    thread::scope(|scope| {
        if !ordered.is_empty() {
            scope.spawn(|| {
                while let Some(piece) = next_free() {
                    let (result, text) = output::captured(|| work(piece));
                    texts.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                    end(result);
                }
            });
        }
        for piece in ordered {
            end(work(piece));
            print_texts();
        }
        while let Some(piece) = next_free() {
            end(work(piece));
            print_texts();
        }
    });
    print_texts();
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn one_lane_keeps_its_order_and_the_other_runs_beside_it() {
        // Neither lane passes the barrier alone.
        let both = Barrier::new(2);
        let (done, text) = output::captured(|| {
            run(&["one", "two", "three"], &["free", "last"], |&name| {
                if matches!(name, "one" | "free") {
                    both.wait();
                }
                output::say(format_args!("{name} begins"));
                output::say(format_args!("{name} ends"));
                name
            })
        });
        assert_eq!(done.len(), 5);
        let ordered: Vec<_> = done.iter().filter(|name| !matches!(**name, "free" | "last")).collect();
        assert_eq!(ordered, [&"one", &"two", &"three"]);
        for name in done {
            assert!(text.contains(&format!("{name} begins\n{name} ends\n")), "{text}");
        }
    }

    #[test]
    fn all_work_of_a_single_kind_is_done() {
        assert_eq!(run(&[1, 2], &[], |piece| 2 * piece), [2, 4]);
        assert_eq!(run(&[], &[1, 2], |piece| 2 * piece), [2, 4]);
    }
}
