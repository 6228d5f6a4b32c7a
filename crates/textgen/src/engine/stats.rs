//! What the engine is doing, for metrics.

/// A consistent snapshot. Counters start at 0 when the engine starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Every slot of the cache.
    pub slots: Vec<SlotState>,
    /// Requests that have not started.
    pub waiting: usize,
    /// Accepted requests.
    pub submitted: u64,
    /// Requests that ended with all of their text, or at their deadline.
    pub finished: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were not accepted.
    pub rejected: u64,
    /// Tokens of prompts, of requests that started.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were in the cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub new_tokens: u64,
    /// Decoding steps.
    pub steps: u64,
    /// Sequences in all decoding steps together; divided by `steps`, the mean batch.
    pub step_rows: u64,
    /// Tokens that were chosen on the device, so that their scores were not copied to the host.
    pub chosen_on_device: u64,
    /// Drafted tokens that ran.
    pub drafted_tokens: u64,
    /// Drafted tokens that were the right ones.
    pub accepted_tokens: u64,
    /// How often a sequence lost its blocks to an older one, and had to run again.
    pub preempted: u64,
    /// Size of the cache.
    pub cache_bytes: u64,
}

/// A slot: the place of one sequence in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// The request that it runs.
    pub request: Option<u64>,
    /// What it does.
    pub phase: Phase,
    /// Tokens whose keys and values it holds.
    pub tokens: usize,
    /// Tokens that its sequence has generated.
    pub generated: usize,
}

/// What a slot does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing. Its tokens can be reused by a request with the same beginning.
    #[default]
    Idle,
    /// It runs a prompt.
    Prompt,
    /// It generates.
    Decoding,
}
