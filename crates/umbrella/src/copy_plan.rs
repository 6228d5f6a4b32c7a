//! How one copy is done: a pure function of the locations of its two ends.

/// The location of one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLocation {
    /// Ordinary host memory.
    Host,
    /// Host memory pinned for devices.
    Pinned,
    /// Memory of the device with this ordinal.
    Device(usize),
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// The driver of this device, in this direction.
    Driver(usize, hip::CopyKind),
    /// The driver, from one device to another.
    Peer {
        /// The source's device.
        from: usize,
        /// The destination's device.
        to: usize,
    },
    /// The host, once the devices are idle.
    Host,
}

/// How one copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    pub mover: Mover,
    /// True if the copy may complete after the call returns, in stream order: only then does its stream matter.
    /// Ordinary host memory may be gone by then, and a copy between devices belongs to no single stream.
    pub in_stream_order: bool,
}

impl CopyPlan {
    pub fn new(src: MemoryLocation, dst: MemoryLocation) -> Self {
        use hip::CopyKind::{DeviceToDevice, DeviceToHost, HostToDevice};
        let (mover, in_stream_order) = match (src, dst) {
            (MemoryLocation::Host, MemoryLocation::Device(to)) => (Mover::Driver(to, HostToDevice), false),
            (MemoryLocation::Pinned, MemoryLocation::Device(to)) => (Mover::Driver(to, HostToDevice), true),
            (MemoryLocation::Device(from), MemoryLocation::Host) => (Mover::Driver(from, DeviceToHost), false),
            (MemoryLocation::Device(from), MemoryLocation::Pinned) => (Mover::Driver(from, DeviceToHost), true),
            (MemoryLocation::Device(from), MemoryLocation::Device(to)) if from == to => {
                (Mover::Driver(to, DeviceToDevice), true)
            }
            (MemoryLocation::Device(from), MemoryLocation::Device(to)) => (Mover::Peer { from, to }, false),
            (MemoryLocation::Host | MemoryLocation::Pinned, MemoryLocation::Host | MemoryLocation::Pinned) => {
                (Mover::Host, false)
            }
        };
        Self { mover, in_stream_order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCATIONS: [MemoryLocation; 4] =
        [MemoryLocation::Host, MemoryLocation::Pinned, MemoryLocation::Device(0), MemoryLocation::Device(1)];

    #[test]
    fn ordinary_memory_never_outlives_the_call() {
        for location in LOCATIONS {
            assert!(!CopyPlan::new(MemoryLocation::Host, location).in_stream_order);
            assert!(!CopyPlan::new(location, MemoryLocation::Host).in_stream_order);
        }
    }

    #[test]
    fn a_driver_copies_only_for_its_own_device() {
        for src in LOCATIONS {
            for dst in LOCATIONS {
                let ends = [src, dst];
                match CopyPlan::new(src, dst).mover {
                    Mover::Driver(device, _) => assert!(ends.contains(&MemoryLocation::Device(device))),
                    Mover::Peer { from, to } => {
                        assert_eq!(ends, [MemoryLocation::Device(from), MemoryLocation::Device(to)])
                    }
                    Mover::Host => assert!(!ends.iter().any(|end| matches!(end, MemoryLocation::Device(_)))),
                }
            }
        }
    }
}
