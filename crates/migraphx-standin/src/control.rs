//! Settings, the call counter, and failures on demand.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handles;

/// MIGraphX's status for anything that throws.
pub const FAILED: c_int = 4;
/// MIGraphX's status for invalid arguments.
pub const BAD_PARAM: c_int = 1;

/// The result of a call: an error becomes a status other than 0, with a reason on stderr.
pub type Outcome = Result<(), String>;

#[derive(Default)]
struct State {
    fail: String,
    datatypes: String,
    scratch: usize,
    compile_ms: u64,
    log: String,
    /// Calls since a setting last changed.
    calls: usize,
    /// Calls of the function named by `fail`, since a setting last changed.
    named: usize,
    /// The last call that was made to fail.
    failed: CString,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

const SETTINGS: [&str; 5] = ["fail", "datatypes", "scratch", "compile_ms", "log"];

fn state<R>(body: impl FnOnce(&mut State) -> R) -> R {
    let mut guard: MutexGuard<'_, Option<State>> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    body(guard.get_or_insert_with(|| {
        let mut state = State::default();
        for name in SETTINGS {
            let variable = format!("MIGRAPHX_STANDIN_{}", name.to_uppercase());
            if let Ok(value) = std::env::var(variable) {
                state.set(name, &value);
            }
        }
        state
    }))
}

impl State {
    fn set(&mut self, name: &str, value: &str) -> bool {
        match name {
            "fail" => self.fail = value.to_owned(),
            "datatypes" => self.datatypes = value.to_owned(),
            "scratch" => self.scratch = value.parse().unwrap_or(0),
            "compile_ms" => self.compile_ms = value.parse().unwrap_or(0),
            "log" => self.log = value.to_owned(),
            _ => return false,
        }
        (self.calls, self.named) = (0, 0);
        true
    }

    /// Counts a call, and says whether it must fail.
    fn fails(&mut self, call: &str) -> bool {
        self.calls += 1;
        if let Ok(nth) = self.fail.parse::<usize>() {
            return self.calls == nth;
        }
        let (name, nth) = self.fail.split_once(':').unwrap_or((&self.fail, ""));
        if name != call {
            return false;
        }
        self.named += 1;
        nth.is_empty() || nth.parse() == Ok(self.named)
    }
}

/// Runs the body of an exported function: counts it, makes it fail on demand, and catches panics.
pub fn call(name: &str, body: impl FnOnce() -> Outcome) -> c_int {
    let name = name.trim_start_matches("migraphx_");
    let fails = state(|state| {
        let fails = state.fails(name);
        if fails {
            state.failed = CString::new(name).unwrap_or_default();
        }
        fails
    });
    // A handle is freed even if its destructor reports a failure.
    if fails && !name.ends_with("_destroy") {
        eprintln!("migraphx_{name}: Error: injected failure");
        return FAILED;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) if fails => FAILED,
        Ok(Ok(())) => 0,
        Ok(Err(reason)) => {
            eprintln!("migraphx_{name}: Error: {reason}");
            if reason.starts_with("bad parameter") { BAD_PARAM } else { FAILED }
        }
        Err(_) => FAILED,
    }
}

/// How element types are numbered.
pub fn datatypes() -> String {
    state(|state| state.datatypes.clone())
}

/// Bytes of scratch memory that programs on `gpu` need.
pub fn scratch() -> usize {
    state(|state| state.scratch)
}

/// How long compiling takes.
pub fn compile_time() -> std::time::Duration {
    std::time::Duration::from_millis(state(|state| state.compile_ms))
}

/// Writes a line to the log, if there is one.
pub fn log(line: &str) {
    let file = state(|state| state.log.clone());
    if file.is_empty() {
        return;
    }
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(&file);
    // One write, so that lines from several processes do not interleave.
    if let Err(error) = opened.and_then(|mut log| log.write_all(format!("{line}\n").as_bytes())) {
        eprintln!("{file}: {error}");
    }
}

/// Changes a setting; returns 0 if it exists.
///
/// # Safety
/// Both are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn migraphx_standin_set(setting: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the caller passes two C strings.
    let (setting, value) = unsafe { (CStr::from_ptr(setting), CStr::from_ptr(value)) };
    let known = state(|state| state.set(&setting.to_string_lossy(), &value.to_string_lossy()));
    if known { 0 } else { BAD_PARAM }
}

/// The number of calls since a setting last changed.
#[unsafe(no_mangle)]
pub extern "C" fn migraphx_standin_calls() -> usize {
    state(|state| state.calls)
}

/// The last call that was made to fail, without `migraphx_`; valid until the next failure.
#[unsafe(no_mangle)]
pub extern "C" fn migraphx_standin_failed() -> *const c_char {
    state(|state| state.failed.as_ptr())
}

/// How many handles are alive.
#[unsafe(no_mangle)]
pub extern "C" fn migraphx_standin_live() -> usize {
    handles::live()
}

/// How often something was freed that was not a handle, or a handle of another type.
#[unsafe(no_mangle)]
pub extern "C" fn migraphx_standin_misuses() -> usize {
    handles::misuses()
}
