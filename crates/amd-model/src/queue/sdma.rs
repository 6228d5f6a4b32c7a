//! SDMA commands: what a copy queue holds. Their layouts are those of SDMA 4 and later.

use crate::memory::{AccessError, Memory};
use crate::signal;

/// The most words of a command that are read at once; only a nop is longer.
pub const MOST_WORDS: usize = 8;

/// A command that this machine does not execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("SDMA command {operation} of kind {kind} (header {header:#010x}) is not emulated")]
pub struct UnknownCommand {
    operation: u8,
    kind: u8,
    header: u32,
}

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Nothing, or only a flush of caches, which are not emulated.
    Nop,
    /// Copies bytes.
    Copy {
        /// The destination.
        to: u64,
        /// The source.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// Writes four bytes after all earlier commands.
    Fence {
        /// Where to.
        address: u64,
        /// The value.
        value: u32,
    },
    /// Raises an event.
    Trap {
        /// Its number.
        event: u32,
    },
    /// Waits for four bytes of memory.
    Poll {
        /// Where they are.
        address: u64,
        /// What to compare them with.
        value: u32,
        /// The bits to compare.
        mask: u32,
        /// How to compare.
        comparison: Comparison,
    },
    /// Adds to eight bytes.
    Add {
        /// Where they are.
        address: u64,
        /// What to add.
        value: u64,
    },
    /// Writes an element many times.
    Fill {
        /// Where to.
        address: u64,
        /// The element, in the low bytes.
        value: u32,
        /// Bytes of an element: 1, 2 or 4.
        element_bytes: u8,
        /// How many elements.
        elements: u64,
    },
    /// Writes the time.
    Timestamp {
        /// Where to.
        address: u64,
    },
}

/// How a poll compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Always,
    Less,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    Greater,
}

impl Comparison {
    const fn numbered(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Always),
            1 => Some(Self::Less),
            2 => Some(Self::AtMost),
            3 => Some(Self::Equal),
            4 => Some(Self::NotEqual),
            5 => Some(Self::AtLeast),
            6 => Some(Self::Greater),
            _ => None,
        }
    }

    /// Whether `value` satisfies it.
    pub const fn holds(self, value: u32, compared_with: u32) -> bool {
        match self {
            Self::Always => true,
            Self::Less => value < compared_with,
            Self::AtMost => value <= compared_with,
            Self::Equal => value == compared_with,
            Self::NotEqual => value != compared_with,
            Self::AtLeast => value >= compared_with,
            Self::Greater => value > compared_with,
        }
    }
}

/// Counts are stored in 30 bits, less one.
const COUNT: u32 = (1 << 30) - 1;

/// The atomic operation "add, 64 bits, without a return value".
const ADD_64: u32 = 47;

impl Command {
    /// Reads a command from its first words, with its length in words.
    ///
    /// # Errors
    /// When it is not emulated.
    pub fn parse(words: &[u32; MOST_WORDS]) -> Result<(Self, u32), UnknownCommand> {
        let header = words[0];
        let [operation, kind, ..] = header.to_le_bytes();
        let unknown = UnknownCommand { operation, kind, header };
        let address = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        Ok(match (operation, kind) {
            (0, _) => (Self::Nop, 1 + (header >> 16 & 0x3fff)),
            (1, 0) => (Self::Copy { to: address(5), from: address(3), bytes: u64::from(words[1] & COUNT) + 1 }, 7),
            (5, _) => (Self::Fence { address: address(1), value: words[3] }, 4),
            (6, _) => (Self::Trap { event: words[1] & 0x0fff_ffff }, 2),
            // Without the memory bit, the command polls a register to flush the host's path to memory. That is not
            // emulated.
            (8, _) if header >> 31 == 0 => (Self::Nop, 6),
            (8, 0) => {
                let comparison = Comparison::numbered(header >> 28 & 7).ok_or(unknown)?;
                (Self::Poll { address: address(1) & !3, value: words[3], mask: words[4], comparison }, 6)
            }
            (10, _) if header >> 25 == ADD_64 => (Self::Add { address: address(1), value: address(3) }, 8),
            (11, _) => {
                let shift = header >> 30;
                let element_bytes = if shift < 3 { 1 << shift } else { return Err(unknown) };
                let elements = (u64::from(words[4] & COUNT) >> shift) + 1;
                (Self::Fill { address: address(1), value: words[3], element_bytes, elements }, 5)
            }
            (13, _) => (Self::Timestamp { address: address(1) }, 3),
            // A request to the caches.
            (17, _) => (Self::Nop, 5),
            _ => return Err(unknown),
        })
    }

    /// Runs everything but polls and traps, which are the queue's business.
    ///
    /// # Errors
    /// When it accesses memory that does not exist.
    pub fn run(self, memory: &dyn Memory) -> Result<(), AccessError> {
        match self {
            Self::Nop | Self::Trap { .. } | Self::Poll { .. } => Ok(()),
            Self::Copy { to, from, bytes } => memory.copy(to, from, bytes),
            Self::Fence { address, value } => memory.store_u32(address, value),
            Self::Add { address, value } => memory.add_u64(address, value),
            Self::Fill { address, value, element_bytes, elements } => {
                memory.fill(address, &value.to_le_bytes()[..usize::from(element_bytes)], elements)
            }
            Self::Timestamp { address } => memory.store_u64(address, signal::ticks()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::fake::{Fake, START};

    fn parse(words: &[u32]) -> Result<(Command, u32), UnknownCommand> {
        let mut padded = [0; MOST_WORDS];
        padded[..words.len()].copy_from_slice(words);
        Command::parse(&padded)
    }

    #[test]
    fn copies_have_64_bit_addresses_and_a_count_less_one() {
        let words = [1, 0x3fff_ffff, 0, 0x10, 0x1, 0x20, 0x2];
        let wanted = Command::Copy { to: 0x2_0000_0020, from: 0x1_0000_0010, bytes: 1 << 30 };
        assert_eq!(parse(&words), Ok((wanted, 7)));
    }

    #[test]
    fn fills_count_bytes_up_to_the_last_element() {
        // The runtime writes (elements - 1) * 4 for elements of four bytes.
        let words = [11 | 2 << 30, 0x1000, 0, 0xdead_beef, 4 * (3 - 1)];
        let (command, length) = parse(&words).unwrap();
        assert_eq!(length, 5);
        let memory = Fake::new();
        command.run(&memory).unwrap();
        let mut got = [0; 16];
        memory.read(START, &mut got).unwrap();
        assert_eq!(got[..12], [0xef, 0xbe, 0xad, 0xde].repeat(3));
        assert_eq!(got[12..], [0; 4]);
        assert!(parse(&[11 | 3 << 30]).is_err(), "elements of eight bytes do not exist");
    }

    #[test]
    fn copies_fences_additions_and_stamps_change_memory() {
        let memory = Fake::new();
        memory.store_u64(START, 10).unwrap();
        let at = START as u32;
        for words in [
            vec![10 | ADD_64 << 25, at, 0, u32::MAX, u32::MAX],
            vec![1, 7, 0, at, 0, at + 64, 0],
            vec![5, at + 128, 0, 55],
            vec![13, at + 136, 0],
        ] {
            parse(&words).unwrap().0.run(&memory).unwrap();
        }
        assert_eq!((memory.load_u64(START), memory.load_u64(START + 64)), (Ok(9), Ok(9)));
        assert_eq!(memory.load_u32(START + 128), Ok(55));
        assert!(memory.load_u64(START + 136).unwrap() > 0);
    }

    #[test]
    fn polls_traps_and_nops_are_left_to_the_queue() {
        let poll = parse(&[8 | 3 << 28 | 1 << 31, 0x1003, 0, 7, 0xff]).unwrap();
        let wanted = Command::Poll { address: 0x1000, value: 7, mask: 0xff, comparison: Comparison::Equal };
        assert_eq!(poll, (wanted, 6));
        assert_eq!(parse(&[8]), Ok((Command::Nop, 6)), "of a register");
        assert_eq!(parse(&[6, 0xf000_0012]), Ok((Command::Trap { event: 0x12 }, 2)));
        assert_eq!(parse(&[5 << 16]), Ok((Command::Nop, 6)));
        assert_eq!(parse(&[17]), Ok((Command::Nop, 5)));
    }

    #[test]
    fn unknown_commands_are_named() {
        for header in [1 | 4 << 8, 2, 10, 99] {
            let error = parse(&[header]).unwrap_err();
            assert_eq!(error.header, header);
        }
        let text = parse(&[1 | 4 << 8]).unwrap_err().to_string();
        assert_eq!(text, "SDMA command 1 of kind 4 (header 0x00000401) is not emulated");
    }

    proptest! {
        #[test]
        fn hostile_commands_never_leave_memory(
            operation in 0u32..20,
            high in any::<u32>(),
            rest in proptest::array::uniform7(any::<u32>()),
        ) {
            let mut words = [0; MOST_WORDS];
            words[0] = operation | high << 16;
            words[1..].copy_from_slice(&rest);
            if let Ok((command, length)) = Command::parse(&words) {
                prop_assert!(length >= 1);
                // The command either runs inside the fake memory, or reports the access.
                let _ = command.run(&Fake::new());
            }
        }
    }
}
