//! HSA signals (`amd_signal_t`): the value that packets wait for and count down.

use std::sync::OnceLock;
use std::time::Instant;

use crate::memory::{AccessError, Memory};

const VALUE: u64 = 8;
const EVENT_MAILBOX: u64 = 16;
const EVENT_ID: u64 = 24;
const START_TICKS: u64 = 32;
const END_TICKS: u64 = 40;

/// A signal by its GPU address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal(u64);

/// What a packet waits for, numbered as `hsa_signal_condition_t`. Values are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The value is this one.
    Equal,
    /// The value is another one.
    NotEqual,
    /// The value is less.
    Less,
    /// The value is greater or equal.
    AtLeast,
}

impl Condition {
    /// The condition with this number.
    pub const fn numbered(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Equal),
            1 => Some(Self::NotEqual),
            2 => Some(Self::Less),
            3 => Some(Self::AtLeast),
            _ => None,
        }
    }

    /// Whether `value` satisfies it.
    pub const fn holds(self, value: i64, compared_with: i64) -> bool {
        match self {
            Self::Equal => value == compared_with,
            Self::NotEqual => value != compared_with,
            Self::Less => value < compared_with,
            Self::AtLeast => value >= compared_with,
        }
    }
}

impl Signal {
    /// The signal at an address; 0 is no signal.
    pub const fn at(address: u64) -> Option<Self> {
        if address == 0 { None } else { Some(Self(address)) }
    }

    /// Its current value.
    ///
    /// # Errors
    /// When the signal does not exist.
    pub fn value(self, memory: &dyn Memory) -> Result<i64, AccessError> {
        Ok(memory.load_u64(self.0.wrapping_add(VALUE))?.cast_signed())
    }

    /// Counts it down after a packet that began at `start_ticks`. Returns the event to raise, if the runtime asked for
    /// one.
    ///
    /// # Errors
    /// When the signal does not exist.
    pub fn complete(self, start_ticks: u64, memory: &dyn Memory) -> Result<Option<u32>, AccessError> {
        memory.store_u64(self.0.wrapping_add(START_TICKS), start_ticks)?;
        memory.store_u64(self.0.wrapping_add(END_TICKS), ticks())?;
        // Read the event first: a thread that waits for the value may destroy the signal as soon as it changes.
        let event = self.event(memory)?;
        memory.add_u64(self.0.wrapping_add(VALUE), u64::MAX)?;
        Ok(event)
    }

    fn event(self, memory: &dyn Memory) -> Result<Option<u32>, AccessError> {
        let mailbox = memory.load_u64(self.0.wrapping_add(EVENT_MAILBOX))?;
        let id = memory.load_u32(self.0.wrapping_add(EVENT_ID))?;
        Ok((mailbox != 0 && id != 0).then_some(id))
    }
}

/// The GPU's clock: 100 MHz since the first call.
pub fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanoseconds = START.get_or_init(Instant::now).elapsed().as_nanos() / 10;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::{Fake, START};

    #[test]
    fn completion_stamps_counts_down_and_names_the_event() {
        let memory = Fake::new();
        let signal = Signal::at(START).unwrap();
        memory.store_u64(START + 8, 3).unwrap();
        assert_eq!(signal.complete(5, &memory), Ok(None), "no mailbox");
        memory.store_u64(START + 16, 0x100).unwrap();
        memory.store_u32(START + 24, 77).unwrap();
        assert_eq!(signal.complete(6, &memory), Ok(Some(77)));
        assert_eq!(signal.value(&memory), Ok(1));
        assert_eq!(memory.load_u64(START + 32), Ok(6));
        assert!(memory.load_u64(START + 40).unwrap() > 0);
    }

    #[test]
    fn values_are_signed_and_go_below_zero() {
        let memory = Fake::new();
        let signal = Signal::at(START).unwrap();
        signal.complete(1, &memory).unwrap();
        assert_eq!(signal.value(&memory), Ok(-1));
    }

    #[test]
    fn a_signal_outside_of_memory_is_an_error() {
        assert_eq!(Signal::at(0), None);
        for address in [8, u64::MAX - 7, u64::MAX] {
            assert!(Signal::at(address).unwrap().complete(1, &Fake::new()).is_err(), "{address:#x}");
        }
    }

    #[test]
    fn conditions_compare_signed_values() {
        let holds = |number, value| Condition::numbered(number).unwrap().holds(value, 0);
        assert_eq!([-1, 0, 1].map(|value| holds(0, value)), [false, true, false]);
        assert_eq!([-1, 0, 1].map(|value| holds(1, value)), [true, false, true]);
        assert_eq!([-1, 0, 1].map(|value| holds(2, value)), [true, false, false]);
        assert_eq!([-1, 0, 1].map(|value| holds(3, value)), [false, true, true]);
        assert_eq!(Condition::numbered(4), None);
    }
}
