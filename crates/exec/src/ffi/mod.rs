//! The crate's only unsafe code.
//!
//! A plan runs on addresses, and only its caller knows that there is memory behind them. So `run`
//! ([`Prepared`](crate::Prepared)) is unsafe. It turns the caller's guarantee into a value, [`RunMemory`]. Every function
//! here that uses the addresses of a run takes that value, so the rest of the crate is safe code: it can pass the
//! guarantee on, but it cannot make one up.
//!
//! | | |
//! |---|---|
//! | [`run`] | the guarantee: what a caller promises, and for how long |
//! | [`host`] | steps on the host, and the memory that they need |
//! | [`device`] | copies, fills, launches and library calls on a stream |
//! | [`host_copy`] | a step of a GPU plan on the host: its operands are copied there |
//! | [`pinned`] | host memory that copies or kernels use while the host does too |
//! | [`capture`] | recordings of a stream that the caller keeps alive |
pub mod capture;
pub mod device;
pub mod host;
pub mod host_copy;
pub mod pinned;
pub mod run;

#[cfg(test)]
pub mod tests;

pub use run::{GuaranteedRun, RunMemory};
