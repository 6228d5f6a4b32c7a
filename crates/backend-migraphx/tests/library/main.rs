//! One set of named rows, run on every MIGraphX that there is here. A row's name begins with the library it ran on.
//!
//! | variable | effect |
//! |---|---|
//! | `AMDGPU_EP_TEST_MIGRAPHX` | the real `libmigraphx_c.so.3`, which must load; `cargo xtask migraphx` sets it |

// Clippy knows no tests in a program with a harness of its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Trial};
use migraphx_backend::mgx::Library;

mod models;
mod rows;

const REAL: &str = "AMDGPU_EP_TEST_MIGRAPHX";

/// One behaviour, checked on one library.
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

fn main() {
    let mut trials = Vec::new();
    match std::env::var_os(REAL).map(PathBuf::from) {
        Some(file) => rows_of("MIGraphX", &file, &mut trials),
        None => {
            eprintln!("skipped MIGraphX: {REAL} names no library; cargo xtask migraphx fetches one");
            trials.push(Trial::test("MIGraphX::opens", || Ok(())).with_ignored_flag(true));
        }
    }
    let mut arguments = Arguments::from_args();
    // One row watches the memory of the process.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit();
}
