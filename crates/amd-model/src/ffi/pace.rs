//! Lets ROCr's event threads rest.
//!
//! ROCr has two threads that wait for asynchronous events. Without interrupts they look at their signals again and again
//! without a pause, and take two processors from the emulated kernels as long as the program runs. If this library is
//! preloaded, such a thread gets a timer: it runs for a moment, then the handler of the timer's signal sleeps.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use libc::{pthread_attr_t, pthread_t, siginfo_t, timer_t, timespec};

use super::code_objects::ROCR;

/// How long a thread rests at a time: events may be late by this.
static REST: timespec = timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// How long it runs between two rests.
const RUN: timespec = timespec { tv_sec: 0, tv_nsec: 50_000 };
/// The least processor time between two rests, in nanoseconds: on a busy machine, a timer can end before the thread ran.
const LEAST_RUN: i64 = 20_000;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// What a thread would have started with.
struct Job {
    start: Start,
    argument: *mut c_void,
}

/// The timer of a thread. Once it is armed, only its signal's handler uses this, on that thread.
struct Pace {
    timer: timer_t,
    /// The thread's processor time at its last rest.
    rested: i64,
    /// ROCr's code. The thread rests only here, and not in functions of the program that ROCr calls.
    code: Range<u64>,
}

/// Takes the place of the C library's function in all libraries of a program, if this one is preloaded.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(create) = real() else { return libc::EAGAIN };
    if !is_of_rocr(start) {
        // SAFETY: the caller's own arguments.
        return unsafe { create(thread, attributes, start, argument) };
    }
    let job = Box::into_raw(Box::new(Job { start, argument }));
    // SAFETY: as above, but for a function that takes a job.
    let status = unsafe { create(thread, attributes, run, job.cast()) };
    if status != 0 {
        // SAFETY: no thread has taken the job.
        drop(unsafe { Box::from_raw(job) });
    }
    status
}

/// The C library's function.
fn real() -> Option<Create> {
    static REAL: OnceLock<Option<Create>> = OnceLock::new();
    *REAL.get_or_init(|| {
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        // SAFETY: the C library's function of this name has this type.
        (!found.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Create>(found) })
    })
}

fn is_of_rocr(start: Start) -> bool {
    dylib::file_at(start as usize).is_some_and(|file| file.to_string_lossy().contains(ROCR[1]))
}

extern "C" fn run(job: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` made the job for this thread.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    if let Some(code) = mapping(job.start as usize as u64) {
        pace(code);
    }
    (job.start)(job.argument)
}

/// The range of addresses that is mapped together with this one.
fn mapping(address: u64) -> Option<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        range.contains(&address).then_some(range)
    })
}

/// Starts a timer for this thread. Without one it runs as it would have.
fn pace(code: Range<u64>) {
    let pace = Box::into_raw(Box::new(Pace { timer: ptr::null_mut(), rested: 0, code }));
    // SAFETY: zeros are valid values of these structs, all pointers live during the calls, and the handler has the type
    // that SA_SIGINFO asks for. The pace is never freed, since the signal may come at any time.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = rest as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        let mut event: libc::sigevent = mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGRTMAX();
        event.sigev_notify_thread_id = libc::gettid();
        event.sigev_value = libc::sigval { sival_ptr: pace.cast() };
        if libc::sigaction(libc::SIGRTMAX(), &raw const action, ptr::null_mut()) == 0
            && libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut (*pace).timer) == 0
        {
            // By value: the handler may write to the pace before this call returns.
            arm((*pace).timer, RUN);
        }
    }
}

/// Calls the handler after this time.
fn arm(timer: timer_t, after: timespec) {
    let once = libc::itimerspec { it_interval: timespec { tv_sec: 0, tv_nsec: 0 }, it_value: after };
    // SAFETY: the timer exists, and the time lives during the call.
    unsafe { libc::timer_settime(timer, 0, &raw const once, ptr::null_mut()) };
}

/// The handler: calls only functions that handlers may call, and keeps `errno`.
extern "C" fn rest(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes descriptions of the signal, whose value is this thread's pace, and of what it interrupted.
    // No two handlers of a thread run at once: the signal is blocked during its handler.
    unsafe {
        let errno = *libc::__errno_location();
        let pace = (*info).si_value().sival_ptr.cast::<Pace>();
        // Another program may send the same signal.
        if (*info).si_code == libc::SI_TIMER && !pace.is_null() {
            let at = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
            let polls = (*pace).code.contains(&at.cast_unsigned());
            let mut used = timespec { tv_sec: 0, tv_nsec: 0 };
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used);
            let used = used.tv_sec * 1_000_000_000 + used.tv_nsec;
            if polls && used - (*pace).rested >= LEAST_RUN {
                libc::nanosleep(&raw const REST, ptr::null_mut());
                (*pace).rested = used;
            }
            arm((*pace).timer, if polls { RUN } else { REST });
        }
        *libc::__errno_location() = errno;
    }
}
