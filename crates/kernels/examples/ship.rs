//! Puts compiled kernels into a set that is shipped with the library: `ship LIST SET`.
//!
//! Each line of `LIST` has a kernel, its source file, its target and its code file, separated by tabs.
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [list, set] = &arguments[..] else {
        eprintln!("usage: ship LIST SET");
        return ExitCode::from(2);
    };
    match ship(Path::new(list), Path::new(set)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{list}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ship(list: &Path, set: &Path) -> io::Result<()> {
    for line in fs::read_to_string(list)?.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [kernel, text, target, code] = fields[..] else {
            return Err(io::Error::other(format!("expected four fields in {line:?}")));
        };
        kernels::ship(set, kernel, &fs::read_to_string(text)?, target, &fs::read(code)?)?;
    }
    Ok(())
}
