//! AQL packets, 64 bytes each: what a compute queue holds.

use crate::signal::{Condition, Signal};

/// The size of a packet.
pub const BYTES: u64 = 64;

/// The header of a slot that holds no packet.
pub const INVALID: u32 = 1;

/// A packet that no GPU of this kind executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Not a type of packet.
    #[error("AQL packet of unknown type {0}")]
    Type(u8),
    /// A vendor packet of an unknown format.
    #[error("vendor-specific AQL packet of unknown format {0}")]
    Format(u8),
    /// A condition that does not exist.
    #[error("AQL packet that waits for unknown condition {0}")]
    Condition(u32),
    /// A grid without threads, or a workgroup that no GPU has room for.
    #[error("dispatch of {grid:?} threads in workgroups of {group:?}: the sizes are not valid")]
    Sizes {
        /// Threads in each dimension.
        grid: [u32; 3],
        /// Threads of a workgroup in each dimension.
        group: [u16; 3],
    },
}

/// A packet with its completion signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// What to do.
    pub work: Work,
    /// The signal to decrement afterwards.
    pub completion: Option<Signal>,
}

/// What a packet asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Run a kernel.
    Dispatch(Dispatch),
    /// Wait until all of these signals are 0.
    BarrierAnd([Option<Signal>; 5]),
    /// Wait until one of these signals is 0.
    BarrierOr([Option<Signal>; 5]),
    /// Wait until a signal has a value.
    BarrierValue {
        /// The signal.
        signal: Option<Signal>,
        /// The value to compare with.
        value: i64,
        /// The bits to compare.
        mask: i64,
        /// How to compare.
        condition: Condition,
    },
    /// Commands for the command processor. The runtime sends them only to invalidate caches, which are not emulated.
    Commands,
}

/// A kernel to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Threads in each dimension.
    pub grid: [u32; 3],
    /// Threads of a workgroup in each dimension.
    pub group: [u16; 3],
    /// Scratch bytes of each thread.
    pub private_bytes: u32,
    /// LDS bytes of each workgroup.
    pub group_bytes: u32,
    /// The address of the kernel's descriptor.
    pub kernel_object: u64,
    /// The address of its arguments.
    pub kernarg: u64,
}

/// The largest workgroup of every AMD GPU.
const MOST_THREADS: u32 = 1024;

impl Packet {
    /// Reads a packet; `None` if the slot holds none yet.
    ///
    /// # Errors
    /// When it is not a packet that a GPU executes.
    pub fn parse(bytes: &[u8; 64]) -> Result<Option<Self>, PacketError> {
        let work = match bytes[0] {
            0 => Self::vendor(bytes)?,
            1 => return Ok(None),
            2 => Work::Dispatch(Dispatch::parse(bytes)?),
            3 => Work::BarrierAnd(dependencies(bytes)),
            5 => Work::BarrierOr(dependencies(bytes)),
            // Type 4, the agent dispatch, is for CPUs.
            unknown => return Err(PacketError::Type(unknown)),
        };
        Ok(Some(Self { work, completion: Signal::at(u64_at(bytes, 56)) }))
    }

    fn vendor(bytes: &[u8; 64]) -> Result<Work, PacketError> {
        match bytes[2] {
            1 => Ok(Work::Commands),
            2 => {
                let condition = u32_at(bytes, 32);
                Ok(Work::BarrierValue {
                    signal: Signal::at(u64_at(bytes, 8)),
                    value: u64_at(bytes, 16).cast_signed(),
                    mask: u64_at(bytes, 24).cast_signed(),
                    condition: Condition::numbered(condition).ok_or(PacketError::Condition(condition))?,
                })
            }
            unknown => Err(PacketError::Format(unknown)),
        }
    }
}

impl Dispatch {
    fn parse(bytes: &[u8; 64]) -> Result<Self, PacketError> {
        let group = [4, 6, 8].map(|at| u16_at(bytes, at));
        let grid = [12, 16, 20].map(|at| u32_at(bytes, at));
        let threads: u64 = group.iter().map(|&size| u64::from(size)).product();
        if threads == 0 || threads > u64::from(MOST_THREADS) || grid.contains(&0) {
            return Err(PacketError::Sizes { grid, group });
        }
        Ok(Self {
            grid,
            group,
            private_bytes: u32_at(bytes, 24),
            group_bytes: u32_at(bytes, 28),
            kernel_object: u64_at(bytes, 32),
            kernarg: u64_at(bytes, 40),
        })
    }
}

fn dependencies(bytes: &[u8; 64]) -> [Option<Signal>; 5] {
    [8, 16, 24, 32, 40].map(|at| Signal::at(u64_at(bytes, at)))
}

fn u16_at(bytes: &[u8; 64], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; 64], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8; 64], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(fields: &[(usize, &[u8])]) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (at, field) in fields {
            bytes[*at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    #[test]
    fn a_dispatch_has_sizes_kernel_and_arguments() {
        let bytes = packet(&[
            // Header 0x1502: the type, the barrier bit and the fences; setup 3: three dimensions.
            (0, &[0x02, 0x15, 3, 0]),
            (4, &[64, 0, 4, 0, 1, 0]),
            (12, &1000u32.to_le_bytes()),
            (16, &8u32.to_le_bytes()),
            (20, &1u32.to_le_bytes()),
            (24, &16u32.to_le_bytes()),
            (28, &512u32.to_le_bytes()),
            (32, &0x1234_5678_9abcu64.to_le_bytes()),
            (40, &0x2000u64.to_le_bytes()),
            (56, &0x3000u64.to_le_bytes()),
        ]);
        let dispatch = Dispatch {
            grid: [1000, 8, 1],
            group: [64, 4, 1],
            private_bytes: 16,
            group_bytes: 512,
            kernel_object: 0x1234_5678_9abc,
            kernarg: 0x2000,
        };
        let wanted = Packet { work: Work::Dispatch(dispatch), completion: Signal::at(0x3000) };
        assert_eq!(Packet::parse(&bytes), Ok(Some(wanted)));
    }

    #[test]
    fn sizes_that_no_gpu_runs_are_refused() {
        let sized = |grid: u32, group: [u16; 3]| {
            let [x, y, z] = group.map(u16::to_le_bytes);
            let grid = grid.to_le_bytes();
            Packet::parse(&packet(&[(0, &[2]), (4, &x), (6, &y), (8, &z), (12, &grid), (16, &grid), (20, &grid)]))
        };
        assert!(sized(1, [1024, 1, 1]).is_ok());
        for (grid, group) in [(0, [1, 1, 1]), (1, [0, 1, 1]), (1, [1024, 2, 1]), (1, [u16::MAX; 3])] {
            assert_eq!(sized(grid, group), Err(PacketError::Sizes { grid: [grid; 3], group }));
        }
    }

    #[test]
    fn barriers_name_their_signals() {
        for (kind, wanted) in [(3, true), (5, false)] {
            let bytes = packet(&[(0, &[kind]), (8, &[16]), (40, &[32]), (56, &[48])]);
            let Packet { work, completion } = Packet::parse(&bytes).unwrap().unwrap();
            let signals = [Signal::at(16), None, None, None, Signal::at(32)];
            assert_eq!(work, if wanted { Work::BarrierAnd(signals) } else { Work::BarrierOr(signals) });
            assert_eq!(completion, Signal::at(48));
        }
    }

    #[test]
    fn vendor_packets_wait_for_values_or_carry_commands() {
        let bytes = packet(&[(2, &[2]), (8, &[8]), (16, &[0xff; 8]), (24, &[0xf]), (32, &[3])]);
        let wanted = Work::BarrierValue { signal: Signal::at(8), value: -1, mask: 15, condition: Condition::AtLeast };
        assert_eq!(Packet::parse(&bytes), Ok(Some(Packet { work: wanted, completion: None })));
        assert_eq!(Packet::parse(&packet(&[(2, &[1])])).unwrap().unwrap().work, Work::Commands);
    }

    #[test]
    fn unknown_packets_are_named() {
        assert_eq!(Packet::parse(&packet(&[(0, &[1])])), Ok(None));
        assert_eq!(Packet::parse(&packet(&[(0, &[4])])), Err(PacketError::Type(4)));
        assert_eq!(Packet::parse(&packet(&[(2, &[9])])), Err(PacketError::Format(9)));
        assert_eq!(Packet::parse(&packet(&[(2, &[2]), (32, &[9])])), Err(PacketError::Condition(9)));
    }

    proptest! {
        #[test]
        fn hostile_packets_are_parsed_or_refused(head in 0u8..8, rest in proptest::array::uniform32(any::<u8>())) {
            let mut bytes = [0; 64];
            bytes[1..33].copy_from_slice(&rest);
            bytes[33..].copy_from_slice(&rest[..31]);
            bytes[0] = head;
            if let Ok(Some(Packet { work: Work::Dispatch(dispatch), .. })) = Packet::parse(&bytes) {
                let threads: u64 = dispatch.group.iter().map(|&size| u64::from(size)).product();
                prop_assert!((1..=1024).contains(&threads) && !dispatch.grid.contains(&0));
            }
        }
    }
}
