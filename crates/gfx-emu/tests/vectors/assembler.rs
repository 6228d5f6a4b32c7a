//! Assembles the text of instructions for a target and disassembles the result again.

use gfx_emu::Disassembler;

use super::common::Compiler;

/// A target and the lanes of a wave.
#[derive(Clone, Copy)]
pub struct Setting {
    pub target: &'static str,
    /// What clang 19 assembles for: it does not know gfx950, whose older instructions have the encoding of gfx942.
    pub assembled_as: &'static str,
    pub lanes: u32,
}

const fn of(target: &'static str, lanes: u32) -> Setting {
    Setting { target, assembled_as: target, lanes }
}

/// One target of each generation, with each wave size that it has.
pub const SETTINGS: [Setting; 10] = [
    of("gfx90a", 64),
    of("gfx942", 64),
    Setting { target: "gfx950", assembled_as: "gfx942", lanes: 64 },
    of("gfx1030", 32),
    of("gfx1030", 64),
    of("gfx1100", 32),
    of("gfx1100", 64),
    of("gfx1151", 32),
    of("gfx1201", 32),
    of("gfx1201", 64),
];

impl Setting {
    /// The text with the names of lane masks for this wave size: `VCC`, `EXEC`, `MASK` (s[10:11]) and `IN` (s[12:13]).
    pub fn written(&self, text: &str) -> String {
        let names: [(&str, &str); 4] = if self.lanes == 64 {
            [("VCC", "vcc"), ("EXEC", "exec"), ("MASK", "s[10:11]"), ("IN", "s[12:13]")]
        } else {
            [("VCC", "vcc_lo"), ("EXEC", "exec_lo"), ("MASK", "s10"), ("IN", "s12")]
        };
        text.split_inclusive(|c: char| !c.is_ascii_alphanumeric())
            .map(|word| {
                let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
                let (bare, rest) = word.split_at(end);
                let known = names.iter().find(|(name, _)| *name == bare);
                format!("{}{rest}", known.map_or(bare, |(_, name)| name))
            })
            .collect()
    }

    /// What the disassembler makes of each line, or `None` if the assembler does not know it on this target. A text of
    /// several lines is known if all of them are.
    pub fn assembled(&self, compiler: &Compiler, texts: &[String]) -> Option<Vec<Option<Vec<String>>>> {
        let disassembler = Disassembler::new(self.target.parse().unwrap(), self.lanes).ok()?;
        let (code, known) = self.code(compiler, texts, false);
        let mut at = 0;
        let mut next = |line: &str| {
            let found = disassembler.instruction(&code[at..], 0);
            let (text, bytes) = found.unwrap_or_else(|| panic!("{}: {line} cannot be disassembled", self.target));
            at += bytes;
            text
        };
        Some(
            texts.iter().zip(known).map(|(text, known)| known.then(|| text.lines().map(&mut next).collect())).collect(),
        )
    }

    /// Programs at multiples of `PROGRAM` bytes, and which of them the assembler knows.
    pub fn programs(&self, compiler: &Compiler, texts: &[String]) -> (Vec<u8>, Vec<bool>) {
        self.code(compiler, texts, true)
    }

    fn code(&self, compiler: &Compiler, texts: &[String], aligned: bool) -> (Vec<u8>, Vec<bool>) {
        let start = if aligned { format!(".p2align {}, 0", PROGRAM.trailing_zeros()) } else { String::new() };
        let mut known = vec![true; texts.len()];
        loop {
            let (mut all, mut of_line) = (String::new(), Vec::new());
            for (at, text) in texts.iter().enumerate() {
                let text = match (known[at], aligned) {
                    (true, _) => self.written(text),
                    (false, true) => "s_nop 0".to_owned(),
                    (false, false) => String::new(),
                };
                for line in [start.as_str()].into_iter().chain(text.lines()) {
                    all.push_str(line);
                    all.push('\n');
                    of_line.push(at);
                }
            }
            let options: &[&str] = match (self.assembled_as.starts_with("gfx1"), self.lanes) {
                (true, 64) => &["-mwavefrontsize64"],
                _ => &[],
            };
            match compiler.try_assemble(&all, self.assembled_as, options) {
                Ok(code) => return (code, known),
                Err(message) => {
                    let wrong = error_lines(&message);
                    assert!(!wrong.is_empty(), "{message}");
                    wrong.into_iter().for_each(|line| known[of_line[line - 1]] = false);
                }
            }
        }
    }
}

/// Bytes of a program's place.
pub const PROGRAM: usize = 512;

/// The lines that an assembler's messages name.
fn error_lines(message: &str) -> Vec<usize> {
    let line = |text: &str| text.split_once("k.s:")?.1.split(':').next()?.parse().ok();
    message.lines().filter(|text| text.contains("error:")).filter_map(line).collect()
}
