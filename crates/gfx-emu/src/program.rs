//! The decoded code that can be reached from one entry point.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use crate::decode::{self, Context};
use crate::effects::Effects;
use crate::inst::{Control, Inst, Step, When};
use crate::llvm::Disassembler;
use crate::{Fault, Memory};

/// The longest instruction.
const LONGEST: usize = 20;

/// What messages say about an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its address.
    pub address: u64,
    /// The disassembler's text.
    pub text: String,
    /// Why it is not supported, if it is not.
    pub reason: Option<String>,
}

/// Decoded instructions, in the order of their addresses.
pub struct Program {
    insts: Vec<Inst>,
    lines: Vec<Line>,
    /// Address of the first byte after each instruction.
    nexts: Vec<u64>,
    by_address: HashMap<u64, u32>,
    /// Contiguous ranges of code as they were when they were decoded.
    code: Vec<(u64, Vec<u8>)>,
    entry: u32,
    /// Made when an observer first asks.
    effects: OnceLock<Vec<Effects>>,
}

impl Program {
    /// Decodes everything that direct branches reach.
    ///
    /// # Errors
    /// Bytes that are not mapped or not an instruction. Instructions that are not supported are no error here.
    pub fn load(memory: &Memory, disassembler: &Disassembler, context: Context, entry: u64) -> Result<Program, Fault> {
        let mut found: BTreeMap<u64, (Inst, Line, Vec<u8>)> = BTreeMap::new();
        let mut starts = vec![entry];
        while let Some(mut address) = starts.pop() {
            while !found.contains_key(&address) {
                let code = readable(memory, address);
                let decoded = disassembler.instruction(&code, address);
                let Some((text, bytes)) = decoded.filter(|(_, bytes)| *bytes <= code.len()) else {
                    return Err(Fault::NotCode { address, bytes: code });
                };
                let (inst, reason) = match decode::decode(&text, context) {
                    Ok(inst) => (inst, None),
                    Err(reason) => (Inst::new(Step::Unsupported), Some(reason)),
                };
                let next = address + bytes as u64;
                let branch = next.wrapping_add_signed(i64::from(inst.imm as i32) * 4);
                let falls_through = match inst.step {
                    Step::Control(Control::Branch(when, _)) => {
                        starts.push(branch);
                        when != When::Always
                    }
                    Step::Control(Control::Call(_)) => {
                        starts.push(branch);
                        true
                    }
                    Step::Control(Control::End | Control::SetPc) => false,
                    // Padding after a trap is often not code.
                    Step::Control(Control::Trap(_)) | Step::Unsupported => false,
                    _ => true,
                };
                found.insert(address, (inst, Line { address, text, reason }, code[..bytes].to_vec()));
                if !falls_through {
                    break;
                }
                address = next;
            }
        }
        Ok(Program::new(found, entry))
    }

    fn new(found: BTreeMap<u64, (Inst, Line, Vec<u8>)>, entry: u64) -> Program {
        let by_address: HashMap<u64, u32> = found.keys().copied().zip(0..).collect();
        let mut program = Program {
            insts: Vec::new(),
            lines: Vec::new(),
            nexts: Vec::new(),
            by_address,
            code: Vec::new(),
            entry: 0,
            effects: OnceLock::new(),
        };
        for (address, (mut inst, line, bytes)) in found {
            let next = address + bytes.len() as u64;
            let branch = next.wrapping_add_signed(i64::from(inst.imm as i32) * 4);
            let index = program.by_address.get(&branch).copied().unwrap_or(0);
            if let Step::Control(Control::Branch(_, target) | Control::Call(target)) = &mut inst.step {
                *target = index;
            }
            match program.code.last_mut() {
                Some((first, code)) if *first + code.len() as u64 == address => code.extend(bytes),
                _ => program.code.push((address, bytes)),
            }
            program.insts.push(inst);
            program.lines.push(line);
            program.nexts.push(next);
        }
        program.entry = program.by_address.get(&entry).copied().unwrap_or(0);
        program
    }

    /// Whether memory still holds the code that was decoded.
    pub(crate) fn is_current(&self, memory: &Memory) -> bool {
        self.code.iter().all(|(first, code)| memory.read(*first, code.len()).as_ref() == Some(code))
    }

    /// The index of the first instruction.
    pub fn entry(&self) -> usize {
        self.entry as usize
    }

    /// The index of the instruction at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.by_address.get(&address).map(|index| *index as usize)
    }

    /// All instructions.
    #[inline(always)]
    pub fn insts(&self) -> &[Inst] {
        &self.insts
    }

    /// Text and address of an instruction.
    pub fn line(&self, index: usize) -> &Line {
        &self.lines[index.min(self.lines.len() - 1)]
    }

    /// Text and address of each instruction.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// What an instruction does to registers and counters, for observers.
    pub fn effects(&self, index: usize) -> &Effects {
        let all = self.effects.get_or_init(|| {
            self.insts.iter().zip(&self.lines).map(|(inst, line)| Effects::of(inst, &line.text)).collect()
        });
        &all[index.min(all.len() - 1)]
    }

    /// The address after an instruction.
    pub(crate) fn next(&self, index: usize) -> u64 {
        self.nexts[index]
    }
}

/// The bytes at an address, up to the longest instruction.
fn readable(memory: &Memory, address: u64) -> Vec<u8> {
    (1..=LONGEST / 4).rev().find_map(|words| memory.read(address, words * 4)).unwrap_or_default()
}
