//! One set of named rows, run on the stand-in and, if available, on the real MIGraphX. Each row's name starts with the
//! library it ran on.
//!
//! | variable | effect |
//! |---|---|
//! | `AMDGPU_EP_TEST_MIGRAPHX` | the real `libmigraphx_c.so.3`, which must load; `cargo xtask migraphx` sets it |

// Clippy does not recognise tests in a program with a custom harness.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Trial};
use migraphx_backend::mgx::Library;

use crate::standin::StandIn;

mod faults;
mod fuzz;
mod models;
mod rows;
mod standin;

const REAL: &str = "AMDGPU_EP_TEST_MIGRAPHX";

/// A behaviour, checked on one library.
struct Row {
    name: &'static str,
    check: fn(&Library),
}

fn rows_of(name: &str, file: &Path, trials: &mut Vec<Trial>) {
    let library = match Library::open(Some(file)) {
        Ok(library) => library,
        Err(error) => {
            trials.push(Trial::test(format!("{name}::opens"), move || Err(error.into())));
            return;
        }
    };
    let version = library.version().map_or_else(String::new, |version| format!(" {version}"));
    for row in rows::ROWS {
        let library = library.clone();
        trials.push(Trial::test(format!("{name}{version}::{}", row.name), move || {
            (row.check)(&library);
            Ok(())
        }));
    }
}

/// Adds the rows of a real library, and those that only the stand-in can run.
fn rows_of_the_stand_in(trials: &mut Vec<Trial>) {
    for row in rows::ROWS {
        trials.push(Trial::test(format!("stand-in::{}", row.name), move || {
            let standin = StandIn::new();
            (row.check)(&standin.open());
            standin.assert_clean();
            Ok(())
        }));
    }
    for (name, check) in faults::ROWS {
        trials.push(Trial::test(format!("stand-in::{name}"), move || {
            check(&StandIn::new());
            Ok(())
        }));
    }
}

fn main() {
    // SAFETY: no other thread is running yet, so nothing reads the environment concurrently. By default, an idle stream
    // runs work immediately, on the thread that queues it.
    unsafe { std::env::set_var("AMDGPU_EP_HOST_STREAMS", "threads") };
    if let Ok(task) = std::env::var(fuzz::CHILD) {
        return fuzz::child(&task);
    }
    let mut trials = Vec::new();
    rows_of_the_stand_in(&mut trials);
    match std::env::var_os(REAL).map(PathBuf::from) {
        Some(file) => rows_of("MIGraphX", &file, &mut trials),
        None => {
            eprintln!("skipped MIGraphX: {REAL} does not name a library; cargo xtask migraphx downloads one");
            trials.push(Trial::test("MIGraphX::opens", || Ok(())).with_ignored_flag(true));
        }
    }
    let mut arguments = Arguments::from_args();
    // One row measures the memory of the process.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit();
}
