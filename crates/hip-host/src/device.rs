//! Devices: a share of the RAM, a set of streams, a memory pool.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::{Arc, Mutex};

use crate::config::Config;
use crate::errors::Status;
use crate::handles::{self, lock};
use crate::memory::Budget;
use crate::stream::{Role, Stream, StreamSet};

pub(crate) struct Device {
    pub(crate) index: usize,
    pub(crate) budget: Arc<Budget>,
    pub(crate) streams: Arc<StreamSet>,
    pub(crate) legacy: Arc<Stream>,
    pub(crate) pool: Pool,
    peers: Mutex<HashSet<usize>>,
}

/// The memory pool of a device. It caches no memory, so it consists of counters only.
pub(crate) struct Pool {
    pub(crate) handle: usize,
    /// Counts the memory of `hipMallocAsync`; the device's budget limits it.
    pub(crate) usage: Arc<Budget>,
    pub(crate) release_threshold: AtomicU64,
    /// Reuse by events, opportunistic, by internal dependencies: attributes 1, 2 and 3.
    pub(crate) reuse: [AtomicI32; 3],
}

impl Device {
    pub(crate) fn new(config: &Config, index: usize) -> Self {
        let streams = Arc::default();
        Device {
            index,
            budget: Budget::new(config.memory),
            legacy: Stream::create(config, index, Role::Legacy, 0, &streams),
            streams,
            pool: Pool {
                handle: handles::fresh(),
                usage: Budget::new(u64::MAX),
                release_threshold: AtomicU64::new(0),
                reuse: [const { AtomicI32::new(1) }; 3],
            },
            peers: Mutex::default(),
        }
    }

    /// Records that this device may access the memory of `peer`. Copies work either way; the record detects callers
    /// that enable access twice.
    pub(crate) fn enable_peer(&self, peer: usize) -> Result<(), Status> {
        if peer == self.index {
            return Err(Status::InvalidDevice);
        }
        if lock(&self.peers).insert(peer) { Ok(()) } else { Err(Status::PeerAccessAlreadyEnabled) }
    }

    pub(crate) fn disable_peer(&self, peer: usize) -> Result<(), Status> {
        if lock(&self.peers).remove(&peer) { Ok(()) } else { Err(Status::PeerAccessNotEnabled) }
    }
}
