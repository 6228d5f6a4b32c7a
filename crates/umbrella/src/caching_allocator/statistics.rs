//! Counters of an allocator.

/// Counters of an allocator. Bytes are those of whole blocks, which may be up to a quarter larger than requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in use.
    pub in_use: usize,
    /// The peak of `in_use`.
    pub max_in_use: usize,
    /// Cached bytes, ready for reuse.
    pub cached: usize,
    /// Bytes currently allocated from the source: in use and cached.
    pub total_from_source: usize,
    /// Requests served.
    pub num_allocs: u64,
    /// Requests served by a cached block.
    pub num_reuses: u64,
    /// Requests served by the source.
    pub num_source_allocs: u64,
    /// Calls of `shrink`.
    pub num_shrinks: u64,
    /// The largest request served, in requested bytes.
    pub max_alloc_size: usize,
    /// The limit on cached bytes, if there is one.
    pub limit: Option<usize>,
}

impl Statistics {
    pub(super) fn record_fresh(&mut self, requested: usize, bytes: usize) {
        self.num_source_allocs += 1;
        self.total_from_source += bytes;
        self.record_alloc(requested, bytes);
    }

    pub(super) fn record_reuse(&mut self, requested: usize, bytes: usize) {
        self.num_reuses += 1;
        self.cached -= bytes;
        self.record_alloc(requested, bytes);
    }

    pub(super) fn record_free(&mut self, bytes: usize) {
        self.in_use -= bytes;
        self.cached += bytes;
    }

    pub(super) fn record_given_back(&mut self, bytes: usize) {
        self.cached -= bytes;
        self.total_from_source -= bytes;
    }

    fn record_alloc(&mut self, requested: usize, bytes: usize) {
        self.num_allocs += 1;
        self.in_use += bytes;
        self.max_in_use = self.max_in_use.max(self.in_use);
        self.max_alloc_size = self.max_alloc_size.max(requested);
    }
}
