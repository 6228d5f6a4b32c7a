//! The arguments of a plan's launches.
use std::ffi::c_void;

use graph::Step;
use kernels::{Launch, Pointer};

use super::frame::{Bases, Buffers, Origin};

/// The argument structures of all launches of a plan, one after the other, with the addresses that are the same in all
/// runs.
#[derive(Default)]
pub(super) struct Template {
    /// Each structure starts at a word, because it may need 16-byte alignment.
    words: Vec<u128>,
    patches: Vec<Patch>,
}

/// An address that changes from run to run.
struct Patch {
    /// Bytes from the start of the arguments.
    at: usize,
    base: usize,
    offset: isize,
}

impl Template {
    /// Adds the arguments of a launch and returns the word they start at.
    pub fn add(&mut self, launch: &Launch, step: &Step, fault: usize, buffers: &Buffers<'_>) -> usize {
        let start = self.words.len();
        let mut bytes = launch.args.bytes();
        for &(offset, pointer) in launch.args.pointers() {
            let origin = match pointer {
                Pointer::Input(number, bytes) => buffers.origin(step.inputs[number].buffer, bytes),
                Pointer::Output(number, bytes) => buffers.origin(step.outputs[number].buffer, bytes),
                Pointer::Scratch(bytes) => {
                    Origin::Base(buffers.block(), (buffers.layout.scratch_at + bytes).cast_signed())
                }
                Pointer::Fault => {
                    let word = fault * size_of::<u32>();
                    Origin::Base(buffers.faults(), word.cast_signed())
                }
                // Steps run one after the other, so all can share one set of counters.
                Pointer::Counters(_) => Origin::Base(buffers.block(), buffers.layout.counters_at.cast_signed()),
            };
            match origin {
                Origin::Base(base, bytes) => {
                    self.patches.push(Patch { at: start * size_of::<u128>() + offset, base, offset: bytes });
                }
                Origin::Fixed(address) => {
                    bytes[offset..offset + 8].copy_from_slice(&(address as u64).to_ne_bytes());
                }
            }
        }
        self.words.extend(bytes.chunks(16).map(|part| {
            let mut word = [0; 16];
            word[..part.len()].copy_from_slice(part);
            u128::from_ne_bytes(word)
        }));
        start
    }
}

/// The arguments of one run, reused by the next one.
pub(super) struct Arguments {
    words: Vec<u128>,
    /// The addresses that are currently written into the words.
    set: Bases,
    /// The addresses for the run.
    pub bases: Bases,
    /// For each input, then each output: the offset of its copy in the block, if it is copied.
    pub moved: Vec<Option<usize>>,
}

impl Arguments {
    pub fn new(template: &Template, bases: usize) -> Self {
        // 1 is never a valid address, so the first run writes all of them.
        let set = Bases(vec![1; bases]);
        Self { words: template.words.clone(), bases: set.clone(), moved: Vec::with_capacity(bases), set }
    }

    /// Writes the run's addresses into the arguments, if they changed.
    pub fn set(&mut self, template: &Template) {
        let bases = &self.bases;
        if self.set == *bases {
            return;
        }
        for patch in &template.patches {
            let address = bases.0[patch.base];
            if address != self.set.0[patch.base] {
                let value = address.wrapping_add_signed(patch.offset) as u64;
                let word = &mut self.words[patch.at / 16];
                let mut bytes = word.to_ne_bytes();
                bytes[patch.at % 16..patch.at % 16 + 8].copy_from_slice(&value.to_ne_bytes());
                *word = u128::from_ne_bytes(bytes);
            }
        }
        self.set.0.copy_from_slice(&bases.0);
    }

    /// The structure that starts at a word.
    pub fn at(&mut self, word: usize) -> *mut c_void {
        (&raw mut self.words[word]).cast()
    }
}
