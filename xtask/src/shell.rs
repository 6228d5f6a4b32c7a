//! Runs other programs; every error contains the command line.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::output::Output;
use crate::stage;

/// The seed of proptest's cases, so that two runs of one commit use the same ones.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261115");

/// The cargo that started us, so that a toolchain override stays in effect. Property tests use the same cases every
/// time; set `PROPTEST_RNG_SEED` for other cases and `PROPTEST_CASES` for more.
pub fn cargo(root: &Path) -> Command {
    cargo_at(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// As [`cargo`], of another toolchain.
pub fn cargo_at(program: impl AsRef<OsStr>, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root);
    if std::env::var_os(SEED.0).is_none() {
        command.env(SEED.0, SEED.1);
    }
    // It writes to a pipe even if the output ends up on a terminal.
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// A program with a user's environment: `cargo run` adds its build folders to the loader's path, where a test could
/// find a library that was never staged.
pub fn user_program(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        let build = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
        let kept = without_build_folders(std::env::split_paths(&path).collect(), build.as_deref());
        match std::env::join_paths(kept) {
            Ok(kept) if !kept.is_empty() => command.env("LD_LIBRARY_PATH", kept),
            _ => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
    command
}

fn without_build_folders(mut folders: Vec<PathBuf>, build: Option<&Path>) -> Vec<PathBuf> {
    folders.retain(|folder| {
        let of_toolchain =
            folder.components().any(|part| part.as_os_str() == "toolchains" || part.as_os_str() == "rustlib");
        !of_toolchain && !build.is_some_and(|build| folder.starts_with(build))
    });
    folders
}

/// Whether `program arguments...` can be started and succeeds.
pub fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs `command` and passes on its output; a non-zero exit is an error with the last lines of the output.
pub fn run(command: &mut Command) -> Result<()> {
    run_to_last_line(command).map(drop)
}

/// As [`run`]; returns the last non-empty line of its stdout.
pub fn run_to_last_line(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let to = Output::here();
    let (said, errors, status) = read(command, |from| pass_on(from, &to, &mut io::stdout()))?;
    if !status.success() {
        let tail: String = said.iter().chain(&errors).map(|text| format!("\n    {text}")).collect();
        bail!("`{line}` failed ({status}){tail}");
    }
    Ok(said.back().cloned().unwrap_or_default())
}

/// Runs `command` to its end, lets `reader` read its stdout, and passes on its stderr, whose last lines are returned.
fn read<T>(command: &mut Command, reader: impl FnOnce(ChildStdout) -> io::Result<T>) -> Result<(T, Tail, ExitStatus)> {
    let line = line_of(command);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start `{line}`"))?;
    let (stdout, stderr) =
        child.stdout.take().zip(child.stderr.take()).context("a child process has no output streams")?;
    let to = Output::here();
    let (said, errors) = thread::scope(|scope| {
        let errors = scope.spawn(|| pass_on(stderr, &to, &mut io::stderr()));
        (reader(stdout), errors.join().unwrap_or_else(|_| Ok(Tail::new())))
    });
    let unread = || format!("cannot forward the output of `{line}`");
    let status = child.wait().with_context(|| format!("cannot wait for `{line}`"))?;
    Ok((said.with_context(unread)?, errors.with_context(unread)?, status))
}

/// The number of lines of each stream to repeat in an error, long after they were printed.
const TAIL_LINES: usize = 25;

/// The last non-empty lines of a stream.
type Tail = VecDeque<String>;

/// Copies a stream as it arrives, even partial lines: the dots of a test run show its progress.
fn pass_on(from: impl Read, to: &Output, terminal: &mut impl Write) -> io::Result<Tail> {
    let (mut from, mut line, mut tail) = (BufReader::new(from), Vec::new(), Tail::new());
    loop {
        let bytes = from.fill_buf()?;
        let count = bytes.len();
        to.write(bytes, terminal)?;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                push_line(&mut tail, &mut line);
            }
        }
        if count == 0 {
            push_line(&mut tail, &mut line);
            return Ok(tail);
        }
        from.consume(count);
    }
}

/// Moves a line to the end of the tail, unless it is empty.
fn push_line(tail: &mut Tail, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line).trim_end().to_owned();
    line.clear();
    if !text.is_empty() {
        tail.push_back(text);
        tail.drain(..tail.len().saturating_sub(TAIL_LINES));
    }
}

/// Runs `command` and returns its stdout; a non-zero exit is an error with both streams.
pub fn capture(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({})\n{}{}", output.status, indented(&stdout), indented(&stderr));
    }
    Ok(stdout)
}

/// Runs `command`, passes on its stderr and returns its stdout.
pub fn capture_stdout(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let (said, _, status) = read(command, io::read_to_string)?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(said)
}

/// The manifests of the workspace in `root`, as `cargo metadata` prints them.
pub fn metadata(root: &Path) -> Result<serde_json::Value> {
    let printed = capture(cargo(root).args(["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&printed).context("`cargo metadata` did not print JSON")
}

/// The executable of `package`'s target `name`, from cargo's JSON messages.
pub fn executable(messages: &str, package: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == name)
        .filter(|message| stage::is_package(message, package))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The command as a user would type it: the program without its folder.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or(program.as_os_str())).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_command_and_shows_its_output() {
        let error = capture(Command::new("sh").args(["-c", "echo told; echo warned >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`sh -c echo told;"), "{text}");
        assert!(text.contains("    told\n") && text.contains("    warned\n"), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }

    #[test]
    fn property_tests_that_cargo_runs_draw_the_same_cases_every_time() {
        let command = cargo(Path::new("."));
        let given = command.get_envs().find(|(name, _)| *name == SEED.0).and_then(|(_, value)| value);
        // If the variable is already set, it is inherited.
        assert_eq!(given.is_some(), std::env::var_os(SEED.0).is_none());
    }

    #[test]
    fn build_folders_leave_the_loader_path_and_others_stay() {
        let folders = ["/t/debug/deps", "/t/debug", "/opt/rocm/lib", "/home/u/.rustup/toolchains/stable/lib"];
        let kept = without_build_folders(folders.map(PathBuf::from).to_vec(), Some(Path::new("/t/debug")));
        assert_eq!(kept, [PathBuf::from("/opt/rocm/lib")]);
    }

    #[test]
    fn the_last_line_is_the_last_that_is_not_empty() {
        let last = run_to_last_line(Command::new("sh").args(["-c", "echo one; echo two; echo"])).unwrap();
        assert_eq!(last, "two");
    }

    #[test]
    fn failure_ends_with_the_last_lines_of_both_streams() {
        let script = "for n in $(seq 100); do echo line $n; done; echo warned >&2; echo 3 of 4; exit 1";
        let text = run(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(text.starts_with("`sh -c for") && text.contains("exit status: 1"), "{text}");
        assert!(["    line 100\n", "    warned", "    3 of 4"].iter().all(|wanted| text.contains(wanted)), "{text}");
        assert_eq!(text.lines().count(), 1 + TAIL_LINES + 1, "{text}");
    }

    #[test]
    fn both_streams_are_kept_with_the_rest() {
        let script = || run(Command::new("sh").args(["-c", "echo told; sleep 0.1; echo warned >&2"]));
        let (ran, text) = crate::output::captured(script);
        assert!(ran.is_ok());
        assert_eq!(text, "told\nwarned\n");
    }

    #[test]
    fn missing_program_is_an_error_that_names_it() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot start `no-such-program-here`"), "{error}");
    }
}
