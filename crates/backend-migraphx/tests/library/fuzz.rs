//! Damaged models and saved programs. They are tried in a child process, because MIGraphX may crash on one. After a
//! crash, a new child continues with the next input.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use migraphx_backend::mgx::{CompileOptions, Library, ParseOptions, Role};

use crate::models;
use crate::rows::{compiled, reference};

/// Set in the child process: the first number to try, then the library.
pub const CHILD: &str = "AMDGPU_EP_TEST_FUZZ";

const TRIES: usize = 400;

/// Every damaged input must give an error, or a program whose shapes can be read.
pub fn damaged_inputs_are_errors_or_programs(library: &Library) {
    let mut next = 0;
    let mut ended = Vec::new();
    while next < TRIES {
        let mut command = this_program();
        command.env(CHILD, format!("{next} {}", library.file().display()));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last: usize = output_text.lines().last().and_then(|line| line.parse().ok()).unwrap();
        // A panic in our code gives an exit status; only a crash in MIGraphX ends the process with a signal.
        assert!(output.status.code().is_none_or(|code| code == 0), "number {last}: {}", output.status);
        if !output.status.success() {
            ended.push(last);
        }
        next = last + 1;
    }
    println!("{TRIES} damaged inputs; {} of them crashed the process: {ended:?}", ended.len());
    assert!(ended.len() < TRIES / 20, "the library crashes too often: {ended:?}");
}

/// The command that started this process, including a custom loader, without the arguments for the test harness.
fn this_program() -> Command {
    let line = fs::read("/proc/self/cmdline").unwrap();
    let words: Vec<String> =
        line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let program = std::env::args().next().unwrap();
    let end = words.iter().position(|word| *word == program).unwrap();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..=end]);
    command
}

/// The body of the child process.
pub fn child(task: &str) {
    let (first, file) = task.split_once(' ').unwrap();
    let library = Library::open(Some(file.as_ref())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("program.mxr");
    compiled(&library, &models::weighted_sum()).save(&saved).unwrap();
    let sources = [models::weighted_sum(), models::projection(), models::fan(3), fs::read(&saved).unwrap()];
    for number in first.parse().unwrap()..TRIES {
        println!("{number}");
        std::io::stdout().flush().unwrap();
        let mut random = Random(number as u64 + 1);
        let bytes = random.damage(&sources[number % sources.len()]);
        let program = match number % sources.len() {
            3 => library.load_bytes(&bytes),
            _ => library.parse(&bytes, &ParseOptions::default()),
        };
        let Ok(mut program) = program else { continue };
        if number % sources.len() != 3 && program.compile(&reference(&library), &CompileOptions::default()).is_err() {
            continue;
        }
        let roles = program.parameters().map(|found| found.iter().all(|parameter| parameter.role == Role::Input));
        assert!(roles.unwrap_or(true), "the ref target has inputs only");
        let _ = program.outputs();
    }
}

/// Deterministic pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    /// Changes, truncates or repeats some bytes, or makes all of them random.
    fn damage(&mut self, source: &[u8]) -> Vec<u8> {
        let mut bytes = source.to_vec();
        // The first numbers of neighbouring seeds are similar.
        for _ in 0..8 {
            self.below(2);
        }
        match self.below(4) {
            0 => bytes.truncate(self.below(source.len())),
            1 => {
                let (from, to) = (self.below(source.len()), self.below(source.len()));
                bytes.extend_from_slice(&source[from.min(to)..from.max(to)]);
            }
            2 => bytes.iter_mut().for_each(|byte| *byte = self.below(256) as u8),
            _ => {
                for _ in 0..=self.below(4) {
                    let at = self.below(bytes.len());
                    bytes[at] = self.below(256) as u8;
                }
            }
        }
        bytes
    }
}
