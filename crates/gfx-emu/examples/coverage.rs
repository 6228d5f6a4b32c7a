//! Counts what the emulator can decode of assembly files: `coverage FILE...`, each the output of `clang -S`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use gfx_emu::Target;
use gfx_emu::decode::{Context, decode, knows};

fn main() -> ExitCode {
    let (mut seen, mut refused): (BTreeSet<String>, BTreeMap<String, usize>) = Default::default();
    let (mut lines, mut decoded) = (0, 0);
    for file in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let Some(context) = context(&text) else {
            eprintln!("{file}: no .amdgcn_target that the emulator models");
            return ExitCode::FAILURE;
        };
        for line in text.lines().filter_map(instruction) {
            line.split("::").for_each(|part| _ = seen.insert(part.split_whitespace().next().unwrap_or("").to_owned()));
            // The targets of branches and the addresses of symbols are not known before the file is linked.
            if line.contains('@') || line.contains(".L") {
                continue;
            }
            lines += 1;
            match decode(line, context) {
                Ok(_) => decoded += 1,
                Err(reason) => *refused.entry(format!("{line}: {reason}")).or_default() += 1,
            }
        }
    }
    refused.iter().take(40).for_each(|(line, count)| println!("refused {count} times: {line}"));
    seen.iter().filter(|name| !knows(name)).for_each(|name| println!("unknown: {name}"));
    let known = seen.iter().filter(|name| knows(name)).count();
    println!("{known} of {} mnemonics are known; {decoded} of {lines} instructions are decoded", seen.len());
    ExitCode::SUCCESS
}

/// The target and wave size that the file names.
fn context(text: &str) -> Option<Context> {
    let name = text.lines().find_map(|line| line.trim().strip_prefix(".amdgcn_target"))?;
    let target: Target = name.rsplit("--").next()?.trim_matches('"').parse().ok()?;
    let wave_size = if text.contains(".amdhsa_wavefront_size32 1") { 32 } else { 64 };
    Some(Context { target, wave_size })
}

/// An instruction without its comment. Labels are not indented, and directives start with a dot.
fn instruction(line: &str) -> Option<&str> {
    let line = line.strip_prefix('\t')?.split(';').next()?.trim();
    line.starts_with(|first: char| first.is_ascii_lowercase()).then_some(line)
}
