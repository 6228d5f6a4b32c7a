//! Child processes, which may crash or hang without affecting this one.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The output of a child, and how it ended.
pub struct Captured {
    /// `None` if it was killed after the timeout.
    pub status: Option<ExitStatus>,
    /// The end of its stdout.
    pub stdout: String,
    /// The end of its stderr.
    pub stderr: String,
}

/// The outcome of a question to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It answered.
    Answered,
    /// A signal, or an exception of Windows, ended it before it could answer.
    Crashed,
    /// It did not answer in time.
    TimedOut,
    /// It could not be started, or ended without an answer.
    Failed,
}

/// The answer of a child, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// The outcome.
    pub outcome: Outcome,
    /// A description of the failure.
    pub detail: Option<String>,
    /// The answer.
    pub value: Option<T>,
}

/// Libraries may print anything to stdout, so the answer is the line with this prefix.
const MARK: &str = "amdgpu-ep-answer: ";
/// How much of each stream is kept: enough for any answer, but bounded, because a library may print without end.
const KEPT_BYTES: usize = 4 << 20;
const POLL: Duration = Duration::from_millis(5);
/// How long to wait for the pipes of a child that has exited; a process that it left behind may keep them open.
const PIPES: Duration = Duration::from_secs(1);

/// The line in which the child prints its answer.
///
/// # Errors
/// When `value` cannot be serialised as JSON.
pub fn answer_line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(format!("\n{MARK}{}\n", serde_json::to_string(value)?))
}

/// Runs `program` with `arguments` and reads the answer it prints.
pub fn ask<T: DeserializeOwned>(program: &Path, arguments: &[&std::ffi::OsStr], timeout: Duration) -> Answer<T> {
    match capture(Command::new(program).args(arguments), timeout) {
        Ok(captured) => judge(&captured, timeout),
        Err(error) => {
            let detail = format!("{} could not be started: {error}", program.display());
            Answer { outcome: Outcome::Failed, detail: Some(detail), value: None }
        }
    }
}

fn judge<T: DeserializeOwned>(captured: &Captured, timeout: Duration) -> Answer<T> {
    let line = captured.stdout.lines().rev().find_map(|line| line.strip_prefix(MARK));
    let value = line.and_then(|line| serde_json::from_str(line).ok());
    let ended = match captured.status {
        None => Some((Outcome::TimedOut, format!("no answer after {} s", timeout.as_secs()))),
        Some(status) => match crash(status) {
            Some(crash) => Some((Outcome::Crashed, format!("ended by {crash}"))),
            None if status.success() => None,
            None => Some((Outcome::Failed, status.to_string())),
        },
    };
    match (value, ended) {
        (Some(value), None) => Answer { outcome: Outcome::Answered, detail: None, value: Some(value) },
        // The libraries' own clean-up failed. That is worth a note, but the answer is valid.
        (Some(value), Some((_, how))) => Answer {
            outcome: Outcome::Answered,
            detail: Some(format!("{how} after it had answered")),
            value: Some(value),
        },
        (None, ended) => {
            let (outcome, how) = ended.unwrap_or((Outcome::Failed, "ended without an answer".to_owned()));
            let last_words = captured.stderr.lines().rev().find(|line| !line.trim().is_empty());
            let detail = match last_words {
                Some(words) => format!("{how}; last line on stderr: {}", words.trim()),
                None => how,
            };
            Answer { outcome, detail: Some(detail), value: None }
        }
    }
}

/// Runs a command until it exits, or kills it after `timeout`.
///
/// # Errors
/// When it cannot be started.
pub fn capture(command: &mut Command, timeout: Duration) -> io::Result<Captured> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().map(Tail::follow);
    let stderr = child.stderr.take().map(Tail::follow);
    let status = wait(&mut child, timeout)?;
    let text = |tail: Option<Tail>| tail.map(Tail::text).unwrap_or_default();
    Ok(Captured { status, stdout: text(stdout), stderr: text(stderr) })
}

fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// The end of a stream. A thread reads it, so that the child never blocks on a full pipe.
struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Closes when the stream ends.
    ended: Receiver<()>,
}

impl Tail {
    fn follow(mut stream: impl Read + Send + 'static) -> Tail {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (open, ended) = mpsc::channel();
        let kept = Arc::clone(&bytes);
        thread::spawn(move || {
            let _open = open;
            let mut chunk = [0; 8192];
            while let Ok(count @ 1..) = stream.read(&mut chunk) {
                let Ok(mut kept) = kept.lock() else { return };
                kept.extend_from_slice(&chunk[..count]);
                if kept.len() > 2 * KEPT_BYTES {
                    let surplus = kept.len() - KEPT_BYTES;
                    kept.drain(..surplus);
                }
            }
        });
        Tail { bytes, ended }
    }

    fn text(self) -> String {
        // After a timeout, the data that has arrived so far has to be enough.
        let _ = self.ended.recv_timeout(PIPES);
        self.bytes.lock().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

/// What ended a process that did not end itself.
#[cfg(unix)]
fn crash(status: ExitStatus) -> Option<String> {
    std::os::unix::process::ExitStatusExt::signal(&status).map(signal_name)
}

#[cfg(unix)]
fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    format!("{name} (signal {signal})")
}

/// What ended a process that did not end itself: Windows then reports the exception as its exit code.
#[cfg(windows)]
fn crash(status: ExitStatus) -> Option<String> {
    /// What C++ exceptions of Microsoft's compiler end with.
    const CPP_EXCEPTION: u32 = 0xe06d_7363;

    let code = status.code()?.cast_unsigned();
    let name = match code {
        0xc000_0005 => "an access violation",
        0xc000_001d => "an illegal instruction",
        0xc000_0094 => "a division by zero",
        0xc000_00fd => "a stack overflow",
        0xc000_0374 => "a damaged heap",
        0xc000_0409 => "a failed check or abort",
        // The highest four bits of the system's error codes; small negative numbers are a program's own.
        _ if code >> 28 == 0xc || code == CPP_EXCEPTION => "an exception",
        _ => return None,
    };
    Some(format!("{name} ({code:#010x})"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, timeout: Duration) -> Answer<Vec<u32>> {
        ask(Path::new("/bin/sh"), &["-c", script].map(OsStr::new), timeout)
    }

    #[test]
    fn last_answer_is_found_among_the_noise() {
        let answer = shell("echo 'amdgpu-ep-answer: [0]'; echo 'amdgpu-ep-answer: [1,2]'; echo more", LONG);
        assert_eq!(answer, Answer { outcome: Outcome::Answered, detail: None, value: Some(vec![1, 2]) });
    }

    #[test]
    fn answer_line_reads_back() {
        let line = answer_line(&vec![3_u32, 4]).unwrap();
        let answer = ask::<Vec<u32>>(Path::new("/bin/echo"), &["text before it", &line].map(OsStr::new), LONG);
        assert_eq!(answer.value, Some(vec![3, 4]));
    }

    #[test]
    fn crash_is_reported_with_the_signal_and_the_last_line() {
        let answer = shell("echo 'cannot go on' >&2; kill -ABRT $$", LONG);
        assert_eq!(answer.outcome, Outcome::Crashed);
        assert_eq!(answer.detail.unwrap(), "ended by SIGABRT (signal 6); last line on stderr: cannot go on");
    }

    #[test]
    fn crash_after_the_answer_keeps_the_answer() {
        let answer = shell("echo 'amdgpu-ep-answer: [7]'; kill -SEGV $$", LONG);
        assert_eq!((answer.outcome, answer.value), (Outcome::Answered, Some(vec![7])));
        assert_eq!(answer.detail.unwrap(), "ended by SIGSEGV (signal 11) after it had answered");
    }

    #[test]
    fn a_silent_process_is_killed_after_the_timeout() {
        let answer = shell("exec sleep 600", Duration::from_millis(100));
        assert_eq!((answer.outcome, answer.value), (Outcome::TimedOut, None));
    }

    #[test]
    fn orphaned_child_process_does_not_block() {
        let answer = shell("sleep 10 & echo 'amdgpu-ep-answer: [5]'", LONG);
        assert_eq!(answer.value, Some(vec![5]));
    }

    #[test]
    fn status_without_an_answer_is_a_failure() {
        assert_eq!(shell("exit 3", LONG).detail.unwrap(), "exit status: 3");
        assert_eq!(shell("true", LONG).detail.unwrap(), "ended without an answer");
        assert_eq!(shell("echo 'amdgpu-ep-answer: {'", LONG).outcome, Outcome::Failed);
        let missing = ask::<()>(Path::new("/nowhere/at/all"), &[], LONG);
        assert_eq!(missing.outcome, Outcome::Failed);
        assert!(missing.detail.unwrap().starts_with("/nowhere/at/all could not be started: "));
    }

    #[test]
    fn endless_output_is_cut_at_the_front() {
        let script = "yes | head -c 20000000; echo 'amdgpu-ep-answer: [9]'";
        let captured = capture(Command::new("/bin/sh").args(["-c", script]), LONG).unwrap();
        assert!(captured.stdout.len() <= 2 * KEPT_BYTES + 8192, "{}", captured.stdout.len());
        assert_eq!(judge::<Vec<u32>>(&captured, LONG).value, Some(vec![9]));
    }
}

#[cfg(test)]
#[cfg(windows)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, timeout: Duration) -> Answer<Vec<u32>> {
        ask(Path::new("cmd.exe"), &["/d", "/c", script].map(OsStr::new), timeout)
    }

    #[test]
    fn last_answer_is_found_among_the_noise() {
        let answer = shell("echo amdgpu-ep-answer: [0]& echo amdgpu-ep-answer: [1,2]& echo more", LONG);
        assert_eq!(answer, Answer { outcome: Outcome::Answered, detail: None, value: Some(vec![1, 2]) });
    }

    #[test]
    fn a_crash_is_reported_with_the_exception() {
        // The exit code that Windows gives to a process with an access violation, 0xc0000005.
        let answer = shell("exit -1073741819", LONG);
        assert_eq!(answer.outcome, Outcome::Crashed);
        assert_eq!(answer.detail.unwrap(), "ended by an access violation (0xc0000005)");
    }

    #[test]
    fn status_without_an_answer_is_a_failure() {
        assert_eq!(shell("exit 3", LONG).detail.unwrap(), "exit code: 3");
        let missing = ask::<()>(Path::new(r"C:\nowhere\at-all.exe"), &[], LONG);
        assert_eq!(missing.outcome, Outcome::Failed);
        assert!(missing.detail.unwrap().starts_with(r"C:\nowhere\at-all.exe could not be started: "));
    }
}
